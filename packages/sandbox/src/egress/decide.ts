// The decision of the proxy: may a sandbox connect to this host, at this address, with this request? Pure; nothing here dials.

import { BlockList, isIP } from 'node:net';
import type { PlannedCredential } from '../contract/credentials.ts';
import type { EgressPlan, EgressRefusal, EgressRequests, EgressRule } from '../contract/egress.ts';
import { carriesForeign } from './credentials/foreign.ts';
import { HOST_SERVICE, hostMatches, parseHost } from './host-name.ts';

/** A refusal: why, and by which rule where one matched. */
export interface EgressRefused {
  readonly allowed: false;
  readonly reason: EgressRefusal;
  readonly rule?: EgressRule;
}

/** What is decided about a host and a port. */
export type HostDecision = { readonly allowed: true; readonly host: string; readonly rule: EgressRule } | EgressRefused;

/** A connection that a sandbox asks for. */
export interface AskedConnection {
  /** The host as the sandbox wrote it. */
  readonly host: string;
  readonly port: number;
  /**
   * How it was asked for. A request for plain HTTP is no TLS connection, and only `git` is for repositories over SSH. A host with a base
   * URL is reached by that alone, and no other host is. `any`: in whichever way is allowed.
   */
  readonly via?: 'connect' | 'http' | 'socks' | 'name' | 'git' | 'base-url' | 'any';
}

/**
 * Decides about a host and a port. Inside a layer the most specific rule counts; a layer that denies wins over every other, so
 * that no request reaches what a file denies. Nothing is allowed without a rule.
 */
export function decideHost({ rules }: Pick<EgressPlan, 'rules'>, asked: AskedConnection): HostDecision {
  const host = parseHost(asked.host);
  if (host === null || !isPort(asked.port)) return { allowed: false, reason: 'bad-host' };
  const ofHost = rules.filter(rule => hostMatches(rule.host, host));
  const winners = winnersOf(ofHost.filter(({ port }) => port === 0 || port === asked.port));
  const denying = winners.find(({ verdict }) => verdict === 'deny');
  if (denying) return { allowed: false, reason: 'denied-by-rule', rule: denying };
  const rule = winners.sort(bySpecificity)[0];
  if (!rule) {
    const reason = ofHost.some(({ verdict }) => verdict === 'allow') ? 'other-port' : 'not-listed';
    return { allowed: false, reason };
  }
  const reason = wayFault(rule, asked.via);
  return reason === null ? { allowed: true, host, rule } : { allowed: false, reason, rule };
}

// Whether a rule is for what is asked for in this way.
function wayFault({ protocol, mode }: EgressRule, via: AskedConnection['via']): EgressRefusal | null {
  if (via === 'any') return null;
  // Nothing else of a server where a repository is allowed: bytes that acode does not read could ask it for anything.
  if (protocol === 'ssh') return via === 'git' ? null : 'git-only';
  if (mode === 'base-url') return via === 'base-url' ? null : 'base-url-only';
  if (via === 'git' || via === 'base-url') return 'not-listed';
  return via === 'http' && protocol === 'tls' ? 'not-tls' : null;
}

function isPort(port: number): boolean {
  return Number.isInteger(port) && port >= 1 && port <= 65_535;
}

// The rule of each layer that counts there.
function winnersOf(rules: readonly EgressRule[]): EgressRule[] {
  const layers = new Set(rules.map(({ setBy }) => setBy.layer));
  return [...layers].flatMap(layer =>
    rules
      .filter(({ setBy }) => setBy.layer === layer)
      .sort(bySpecificity)
      .slice(0, 1),
  );
}

/** The more specific rule first: an exact name, the longer suffix, one port before all; of two equal ones that which denies. */
function bySpecificity(one: EgressRule, other: EgressRule): number {
  return (
    Number(one.host.startsWith('*.')) - Number(other.host.startsWith('*.')) ||
    other.host.length - one.host.length ||
    Number(one.port === 0) - Number(other.port === 0) ||
    Number(other.verdict === 'deny') - Number(one.verdict === 'deny')
  );
}

/** What is decided about an address. */
export type AddressDecision = { readonly allowed: true } | EgressRefused;

/**
 * Decides about an address that a name has, which is then the one to dial. `own` are the addresses of this host. A rule for a
 * service of this host allows its loopback alone; every other rule allows public addresses, and private ones where the user’s
 * own file says so. Metadata services of clouds and forms of IPv6 that hold an IPv4 address are always refused.
 */
export function decideAddress(rule: EgressRule, address: string, own: readonly string[]): AddressDecision {
  const family = FAMILIES[isIP(address)];
  const may = family !== undefined && !address.includes('%') && mayDial(rule, address, family, own);
  return may ? { allowed: true } : { allowed: false, reason: 'private-address', rule };
}

type Family = 'ipv4' | 'ipv6';

function mayDial(rule: EgressRule, address: string, family: Family, own: readonly string[]): boolean {
  if (rule.host === HOST_SERVICE) return LOOPBACK.check(address, family);
  if (NEVER.check(address, family)) return false;
  if (PRIVATE[family].check(address, family) || isOneOf(own, address, family)) return rule.private === true;
  return family === 'ipv4' || GLOBAL_6.check(address, family);
}

function isOneOf(own: readonly string[], address: string, family: Family): boolean {
  const plain = own.map(one => one.replace(/%.*$/, '')).filter(one => isIP(one) !== 0);
  return listOf(plain).check(address, family);
}

const FAMILIES: readonly (Family | undefined)[] = [
  undefined,
  undefined,
  undefined,
  undefined,
  'ipv4',
  undefined,
  'ipv6',
];

function listOf(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) {
    const [address = '', bits] = range.split('/');
    const family = address.includes(':') ? 'ipv6' : 'ipv4';
    if (bits === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(bits), family);
  }
  return list;
}

const LOOPBACK = listOf(['127.0.0.1', '::1']);

// What a name of a private network may have, where the user’s own file names it. Apart, because a list compares an IPv4 address
// inside an IPv6 one with its IPv4 ranges.
const PRIVATE = {
  ipv4: listOf([
    '10.0.0.0/8',
    '172.16.0.0/12',
    '192.168.0.0/16',
    '100.64.0.0/10',
    '127.0.0.0/8',
    // For documentation and measurement: nothing on the internet has them, and test networks do.
    '192.0.2.0/24',
    '198.51.100.0/24',
    '203.0.113.0/24',
    '198.18.0.0/15',
  ]),
  ipv6: listOf(['fc00::/7', '::1', '2001:db8::/32', '3fff::/20']),
};

// What no name may have, whatever a file says.
const NEVER = listOf([
  // This network, link-local with the metadata services of most clouds, multicast, reserved.
  '0.0.0.0/8',
  '169.254.0.0/16',
  '224.0.0.0/4',
  '240.0.0.0/4',
  // Metadata services elsewhere: Alibaba, Oracle, Azure; Amazon and Google on IPv6.
  '100.100.100.200',
  '192.0.0.0/24',
  '168.63.129.16',
  'fd00:ec2::254',
  'fd20:ce::254',
  // Relays of 6to4.
  '192.88.99.0/24',
  // Link-local, site-local, multicast.
  'fe80::/10',
  'fec0::/10',
  'ff00::/8',
  // IPv4 inside IPv6: 6to4, Teredo. Their other end is not what these ranges say.
  '2002::/16',
  '2001::/32',
]);

// The only IPv6 addresses that are given out to servers. The other forms that hold an IPv4 address, mapped and NAT64, are outside.
const GLOBAL_6 = listOf(['2000::/3']);

/** A request that the proxy has read. */
export interface AskedRequest {
  readonly method: string;
  /** The target as it was sent: a path, and perhaps a query. */
  readonly target: string;
  /** The host and the port that the connection was allowed for. */
  readonly host: string;
  readonly port: number;
  /** Names and values of the headers in turn, as `rawHeaders` of Node. */
  readonly headers: readonly string[];
  /** The credential of the rule, whose placeholder the request may hold; absent where there is none. */
  readonly credential?: PlannedCredential | null;
}

/** What is decided about a request. */
export type RequestDecision =
  | {
      readonly allowed: true;
      /** The credential to add to this request. */
      readonly credential?: string;
    }
  | EgressRefused;

/** Decides about one request of a connection that the proxy reads. What could be read in two ways is refused. */
export function decideRequest(rule: EgressRule, asked: AskedRequest): RequestDecision {
  const reason =
    framingFault(asked) ??
    upgradeFault(rule, asked) ??
    methodFault(rule, asked) ??
    pathFault(rule, asked) ??
    credentialFault(rule, asked);
  if (reason !== null) return { allowed: false, reason, rule };
  const { credential } = rule;
  return { allowed: true, ...(credential !== undefined && isBrokered(rule, asked) ? { credential } : {}) };
}

// What several rules of a host allow is one rule: its credential is for the requests of those that have one.
function isBrokered({ requests }: EgressRule, { method, target }: AskedRequest): boolean {
  const path = readPath(target) ?? '';
  const matches = (one: EgressRequests): boolean => one.methods.includes(method) && pathMatches(one.path, path);
  return requests === undefined || requests.some(one => one.anonymous !== true && matches(one));
}

// With a credential of its own, a command would reach another account of the host than the user’s.
function credentialFault({ credential }: EgressRule, asked: AskedRequest): EgressRefusal | null {
  return credential !== undefined && carriesForeign(asked, asked.credential ?? null) ? 'foreign-credential' : null;
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
// What ends a line, and what some servers take for the end of one.
// oxlint-disable-next-line no-control-regex -- control characters are what is looked for
const CONTROL = /[\0-\u0008\u000A-\u001F\u007F]/;

function framingFault({ host, port, headers }: AskedRequest): EgressRefusal | null {
  const all = pairs(headers);
  if (all.some(([name, value]) => !TOKEN.test(name) || CONTROL.test(value))) return 'bad-request';
  const named = (wanted: string): string[] => all.filter(([name]) => name === wanted).map(([, value]) => value.trim());
  const hosts = named('host');
  if (hosts.length !== 1) return hosts.length === 0 ? 'host-differs' : 'bad-request';
  if (!isHostHeader(hosts[0] ?? '', host, port)) return 'host-differs';
  return bodyFault(named('content-length'), named('transfer-encoding'));
}

function bodyFault(lengths: readonly string[], codings: readonly string[]): EgressRefusal | null {
  if (lengths.length + codings.length > 1) return 'bad-request';
  if (lengths.some(length => !/^\d{1,15}$/.test(length))) return 'bad-request';
  return codings.every(coding => coding.toLowerCase() === 'chunked') ? null : 'bad-request';
}

function isHostHeader(value: string, host: string, port: number): boolean {
  const [, name = '', number] = /^([^:]+)(?::(\d{1,5}))?$/.exec(value) ?? [];
  if (parseHost(name) !== host) return false;
  return number === undefined ? port === 443 || port === 80 : Number(number) === port;
}

function pairs(headers: readonly string[]): (readonly [string, string])[] {
  return headers.flatMap((name, index) =>
    index % 2 === 0 ? [[name.toLowerCase(), headers[index + 1] ?? ''] as const] : [],
  );
}

// A connection that becomes another protocol is not read any more.
function upgradeFault(
  { websocket = false, credential }: EgressRule,
  { method, headers }: AskedRequest,
): EgressRefusal | null {
  const all = pairs(headers);
  const asked = all.filter(([name]) => name === 'upgrade').map(([, value]) => value.trim().toLowerCase());
  const announced = all.some(
    ([name, value]) =>
      name === 'http2-settings' ||
      (name === 'connection' &&
        value
          .toLowerCase()
          .split(',')
          .some(word => word.trim() === 'upgrade')),
  );
  if (asked.length === 0 && !announced) return null;
  const isWebSocket = method === 'GET' && asked.length === 1 && asked[0] === 'websocket';
  // Frames could hold a credential, and nobody reads them.
  const isAllowed = websocket && credential === undefined;
  return isAllowed && isWebSocket && !all.some(([name]) => name === 'http2-settings') ? null : 'upgrade';
}

// A tunnel inside the connection, the start of HTTP/2, and what sends a request with its credentials back.
const NEVER_METHODS = new Set(['CONNECT', 'PRI', 'TRACE', 'TRACK']);

function methodFault({ requests }: EgressRule, { method }: AskedRequest): EgressRefusal | null {
  if (!/^[A-Z]+(?:-[A-Z]+)*$/.test(method) || NEVER_METHODS.has(method)) return 'method';
  return requests === undefined || requests.some(({ methods }) => methods.includes(method)) ? null : 'method';
}

function pathFault({ requests }: EgressRule, { method, target }: AskedRequest): EgressRefusal | null {
  const path = readPath(target);
  if (path === null) return 'path';
  const forMethod = requests?.filter(({ methods }) => methods.includes(method)) ?? WHOLE_HOST;
  // Where every path of the host is allowed, a sign that a server might decode into another path changes nothing.
  if (forMethod.some(isWholeHost)) return null;
  if (HIDDEN.test(path)) return 'path';
  return forMethod.some(entry => pathMatches(entry.path, path)) ? null : 'path';
}

const WHOLE_HOST: readonly EgressRequests[] = [{ methods: [], path: '/' }];

function isWholeHost({ path }: EgressRequests): boolean {
  return path === '/';
}

const HIDDEN = /%(?:2f|25|5c)/i;

/** The path of a target, or null where servers could differ about which path it is. */
function readPath(target: string): string | null {
  // Printable ASCII without what ends or begins another part of an address, and `%` only with two digits.
  if (!/^\/(?:[!$&-;=@-Z_a-z~[\]]|%[0-9a-f]{2})*(?:\?[!"$-~]*)?$/i.test(target)) return null;
  const path = target.replace(/\?.*$/, '');
  // `;` begins a parameter of a segment, which some servers cut off before they look at the dots.
  const segments = path.split('/').map(segment => segment.replace(/;.*$/, ''));
  const isStep = segments.some(segment => segment === '.' || segment === '..');
  return isStep || path.includes('//') || /%(?:2e|0[0-9a-f]|1[0-9a-f]|7f)/i.test(path) ? null : path;
}

function pathMatches(pattern: string, path: string): boolean {
  const exact = pattern.endsWith('$');
  const wanted = (exact ? pattern.slice(0, -1) : pattern).split('/');
  const found = path.split('/');
  if (exact ? wanted.length !== found.length : wanted.length > found.length) return false;
  return wanted.every((part, index) => {
    const segment = found[index] ?? '';
    if (part === '*') return segment !== '';
    // The last part of a prefix ends at a border between segments: `/a` is no prefix of `/ab`.
    return part === segment || (!exact && part === '' && index === wanted.length - 1);
  });
}
