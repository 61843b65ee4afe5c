// Values of sandbox options: each option’s text, parsed or refused with what is expected.

import { CACHE_TOOLS, RISKS, parseBytes } from '@acode/sandbox';
import type { CacheTool, MountRequest, PolicyInput, PortRequest, Risk } from '@acode/sandbox';
import { InvalidArgumentError } from '@commander-js/extra-typings';

const MAX_PART = 255;

/** The addresses so far and one more: IPv4 or IPv6. */
export function address(text: string, before: readonly string[] = []): string[] {
  if (!isIpv4(text) && !isIpv6(text))
    throw new InvalidArgumentError('Expected the IP address of a name server, such as 1.1.1.1; names cannot be used.');
  return [...before, text];
}

function isIpv4(text: string): boolean {
  return /^\d{1,3}(?:\.\d{1,3}){3}$/.test(text) && text.split('.').every(part => Number(part) <= MAX_PART);
}

// `node:net` would tell too; the command has no other use for something that can open connections.
function isIpv6(text: string): boolean {
  return /^[0-9A-Fa-f:.]+$/.test(text) && text.includes(':') && URL.canParse(`http://[${text}]/`);
}

/** The tools that a list with commas names. */
export function caches(text: string): readonly CacheTool[] {
  return text.split(',').map(word => {
    const tool = CACHE_TOOLS.find(name => name === word.trim());
    if (tool === undefined)
      throw new InvalidArgumentError(`Expected some of ${CACHE_TOOLS.join(', ')}, with commas between.`);
    return tool;
  });
}

/** The number of CPUs, such as `1` or `0.5`. */
export function cpus(text: string): number {
  const value = /^\d+(?:\.\d+)?$|^\.\d+$/.test(text) ? Number(text) : NaN;
  if (!(value > 0)) throw new InvalidArgumentError('Expected a number of CPUs above zero, such as 1 or 0.5.');
  return value;
}

/** The texts so far and one more. */
export function texts(text: string, before: readonly string[] = []): string[] {
  return [...before, text];
}

const EXPECTED_MOUNT =
  'Expected source:target or source:target:rw, the target an absolute path inside the sandbox, such as ./data:/data. Without :rw it is read-only.';

/** The mounts so far and one more, written `source:target[:rw]`. A `:` in the source is taken as part of it. */
export function mount(text: string, before: readonly MountRequest[] = []): MountRequest[] {
  const [, paths = text, mode] = /^(.*):(rw|ro)$/s.exec(text) ?? [];
  const at = paths.lastIndexOf(':');
  const source = paths.slice(0, Math.max(0, at));
  const target = paths.slice(at + 1);
  if (source === '' || !target.startsWith('/')) throw new InvalidArgumentError(EXPECTED_MOUNT);
  return [...before, { source, target, readOnly: mode !== 'rw' }];
}

/** `none`, `bridge`, `allow=` and a list, or a network by name. The library decides which of them are to be had. */
export function network(text: string): NonNullable<PolicyInput['network']> {
  if (text === 'none' || text === 'bridge') return text;
  const [, list] = /^allow=(.*)$/s.exec(text) ?? [];
  if (list !== undefined) return { allow: allowed(list) };
  if (text === 'allow') throw new InvalidArgumentError(EXPECTED_LIST);
  if (!/^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(text)) throw new InvalidArgumentError(expectedNetwork(text));
  return { name: text };
}

// A list without `allow=` before it, or with another word for it.
function expectedNetwork(text: string): string {
  const [, list = ''] = /^(?:[a-z]+[= ]|al?low\w*:)?(\S+)$/i.exec(text) ?? [];
  const meant = /^[a-z0-9*][a-z0-9.:=/*,-]*$/i.test(list) ? ` Did you mean --network allow=${list}?` : '';
  return `Expected none, allow=<hosts>, bridge or the name of a network.${meant}`;
}

const EXPECTED_LIST =
  'Expected hosts or presets with commas between, such as allow=npm:install,registry.example:8443. `acode egress presets` lists the presets.';

function allowed(list: string): string[] {
  const entries = list.split(',').map(entry => entry.trim());
  if (entries.includes('')) throw new InvalidArgumentError(EXPECTED_LIST);
  return entries;
}

const MAX_PORT = 65_535;

/** The ports so far and one more, written `[hostport:]port[/udp]`. */
export function port(text: string, before: readonly PortRequest[] = []): PortRequest[] {
  const [, outside, inside, protocol] = /^(?:(\d{1,5}):)?(\d{1,5})(?:\/(tcp|udp))?$/.exec(text) ?? [];
  const numbers = [inside, ...(outside === undefined ? [] : [outside])].map(Number);
  if (!numbers.every(number => number >= 1 && number <= MAX_PORT)) throw new InvalidArgumentError(expectedPort(text));
  return [
    ...before,
    {
      container: Number(inside),
      ...(outside === undefined ? {} : { host: Number(outside) }),
      ...(protocol === 'udp' ? { protocol } : {}),
    },
  ];
}

function expectedPort(text: string): string {
  const form = 'Expected a port, or hostport:port, from 1 to 65535, such as 3000, 8080:3000 or 5353/udp.';
  // Three parts are how other tools choose an address; here there is no choice.
  return text.split(':').length > 2 ? `${form} Ports are published on 127.0.0.1 only.` : form;
}

/** One of low, medium, high, critical, in any case. */
export function risk(text: string): Risk {
  const found = RISKS.find(name => name === text.toLowerCase());
  if (!found) throw new InvalidArgumentError(`Expected one of ${RISKS.join(', ')}.`);
  return found;
}

const EXPECTED_SERVICE =
  'Expected name=image, such as db=postgres:16, or none. Its port, user and variables stand in the configuration file, at sandbox.services.';

/** The services so far and one more, written `name=image`; `none` for none at all. */
export function service(text: string, before: Readonly<Record<string, string>> = {}): Record<string, string> {
  const isFirst = Object.keys(before).length === 0;
  if (text === 'none' && isFirst) return {};
  const [, name, image] = /^([a-z0-9-]+)=(\S+)$/.exec(text) ?? [];
  if (name === undefined || image === undefined) throw new InvalidArgumentError(EXPECTED_SERVICE);
  if (Object.hasOwn(before, name)) throw new InvalidArgumentError(`Two services are called ${name}.`);
  return { ...before, [name]: image };
}

/** Bytes of `512` (MB), `512m` or `1.5g`. */
export function size(text: string): number {
  const bytes = parseBytes(text);
  if (bytes === null) throw new InvalidArgumentError('Expected a size: 512 (MiB), 512m or 1.5g.');
  return bytes;
}

/** The same, for what must not be nothing. */
export function someSize(text: string): number {
  const bytes = size(text);
  if (bytes === 0) throw new InvalidArgumentError('Expected a size above zero: 512 (MiB), 512m or 1.5g.');
  return bytes;
}

/** `caller`, or user and group by number. */
export function user(text: string): 'caller' | `${number}:${number}` {
  if (text === 'caller') return text;
  const [, uid, gid] = /^(\d{1,10}):(\d{1,10})$/.exec(text) ?? [];
  if (uid === undefined || gid === undefined)
    throw new InvalidArgumentError('Expected numbers as uid:gid, such as 1000:1000; names differ from image to image.');
  return `${Number(uid)}:${Number(gid)}`;
}
