// The dialogue with a forwarder: tells it where to listen and which names there are, and gives names below a suffix an address when
// they are asked for.
//
// The forwarder runs inside the sandbox, so whatever it says is a claim. It can name listeners and names of the table, and nothing
// else; the proxy judges each connection by the plan.

import { TextDecoder } from 'node:util';
import type { EgressPlan } from '../../contract/egress.ts';
import { isRepository } from '../plan.ts';

/** Where the proxy listens inside for CONNECT and plain HTTP. */
const PROXY_PORT = 3128;

/** Where it listens inside for SOCKS5. */
const SOCKS_PORT = 1080;

/** Where Git’s client inside asks for repositories over SSH, if a rule allows one: an address that nothing else has. */
const GIT_LISTENER = '127.7.0.1:9418';

/** The listener inside that a connection came in at. */
export type Listener =
  | 'proxy'
  | 'socks'
  | 'git'
  | {
      /** The loopback address inside. */
      readonly address: string;
      readonly port: number;
      /** The name that has this address. */
      readonly host: string;
    };

/** What could not be bound inside; null if everything was. */
export type BindFault = {
  /** Such as `127.0.0.1:53`; absent if the forwarder ended or did not answer. */
  readonly listener?: string;
  /** In the words of the system. */
  readonly reason: string;
} | null;

// Of the forwarder’s tables.
const MAX_LISTENERS = 512;
const MAX_NAMES = 1024;
const MAX_SUFFIXES = 64;
// Each has an address; a program that invents names must not use up the listeners.
const MAX_ASKED = 256;
const MAX_LINE = 512;
const OWN = '127.0.0.1';
const ASKED = /^ask ([1-9]\d{0,9}) ([a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63}){1,126})$/;
const FAILED = /^failed (127(?:\.\d{1,3}){3}:\d{1,5}) ([\x20-\x7e]{1,200})$/;

/** One forwarder, by its control connection. */
export class Control {
  readonly #send: (line: string) => void;
  readonly #decoder = new TextDecoder('latin1');
  readonly #asked = new Map<string, string>();
  #plan: EgressPlan;
  #listeners = new Map<string, Listener>();
  #rest = '';
  #waiting: ((fault: BindFault) => void)[] = [];

  constructor(plan: EgressPlan, send: (line: string) => void) {
    this.#plan = plan;
    this.#send = send;
    this.#listeners = this.#table();
  }

  /** The listener that a line of the sandbox names; null if it names none. */
  listener(name: string): Listener | null {
    return this.#listeners.get(name) ?? null;
  }

  /** Sends the table of a plan. Resolves when the forwarder has bound it, or cannot. */
  update(plan: EgressPlan): Promise<BindFault> {
    this.#plan = plan;
    this.#listeners = this.#table();
    const lines = ['forget', 'dns'];
    for (const name of this.#listeners.keys()) lines.push(`listen ${name.replace(':', ' ')}`);
    for (const { host, address } of plan.names) lines.push(`name ${host} ${address}`);
    for (const [host, address] of this.#asked)
      if (this.#portsBelow(host).length > 0) lines.push(`name ${host} ${address}`);
    for (const suffix of suffixesOf(plan)) lines.push(`suffix ${suffix}`);
    this.#send([...lines, 'end', ''].join('\n'));
    return new Promise(resolve => void this.#waiting.push(resolve));
  }

  /** What came over the control connection. False if it is not what a forwarder says. */
  receive(chunk: Uint8Array): boolean {
    const lines = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split('\n');
    this.#rest = lines.pop() ?? '';
    return this.#rest.length <= MAX_LINE && lines.every(line => this.#line(line));
  }

  /** Nothing more comes. */
  end(): void {
    this.#settle({ reason: 'the forwarder ended' });
  }

  #line(line: string): boolean {
    if (line === 'hello') return true;
    if (line === 'ready') return this.#settle(null);
    const failed = FAILED.exec(line);
    if (failed) return this.#settle({ listener: failed[1] ?? '', reason: failed[2] ?? '' });
    const asked = ASKED.exec(line);
    return asked !== null && this.#ask(asked[1] ?? '', asked[2] ?? '');
  }

  #settle(fault: BindFault): true {
    for (const resolve of this.#waiting.splice(0)) resolve(fault);
    return true;
  }

  #ask(number: string, host: string): true {
    const ports = this.#portsBelow(host);
    const address = ports.length > 0 ? this.#addressOf(host) : null;
    const lines: string[] = [];
    if (address !== null) {
      for (const port of ports) {
        if (this.#listeners.size >= MAX_LISTENERS) break;
        this.#listeners.set(`${address}:${port}`, { address, port, host });
        lines.push(`listen ${address} ${port}`);
      }
      lines.push(`name ${host} ${address}`);
    }
    this.#send([...lines, `answer ${number} ${address ?? 'none'}`, ''].join('\n'));
    return true;
  }

  // A range of its own: a later plan may have more exact names.
  #addressOf(host: string): string | null {
    const known = this.#asked.get(host);
    if (known !== undefined) return known;
    const number = this.#asked.size + 1;
    if (number > MAX_ASKED) return null;
    const address = `127.9.${Math.floor(number / 256)}.${number % 256}`;
    this.#asked.set(host, address);
    return address;
  }

  #portsBelow(host: string): number[] {
    const found = this.#plan.rules.filter(
      rule => rule.verdict === 'allow' && host.endsWith(suffixOf(rule.host) ?? '\0'),
    );
    return [...new Set(found.map(({ port }) => port))];
  }

  #table(): Map<string, Listener> {
    const table = new Map<string, Listener>([
      [`${OWN}:${PROXY_PORT}`, 'proxy'],
      [`${OWN}:${SOCKS_PORT}`, 'socks'],
    ]);
    if (this.#plan.rules.some(isRepository)) table.set(GIT_LISTENER, 'git');
    for (const { at, host } of this.#plan.baseUrls ?? []) table.set(`${OWN}:${at}`, { address: OWN, port: at, host });
    const named = [...this.#plan.names, ...[...this.#asked].map(([host, address]) => this.#below(host, address))];
    for (const { host, address, ports } of named)
      for (const port of ports)
        if (table.size < MAX_LISTENERS) table.set(`${address}:${port}`, { address, port, host });
    return table;
  }

  #below(host: string, address: string): EgressPlan['names'][number] {
    return { host, address, ports: this.#portsBelow(host) };
  }
}

/** What of a plan does not fit into a forwarder, in words; null if all of it does. */
export function excessOf({ names, rules, baseUrls }: Pick<EgressPlan, 'names' | 'rules' | 'baseUrls'>): string | null {
  const listeners = names.reduce((sum, { ports }) => sum + ports.length, baseUrls?.length ?? 0);
  if (names.length > MAX_NAMES - MAX_ASKED) return `${names.length} names; at most ${MAX_NAMES - MAX_ASKED}`;
  const most = MAX_LISTENERS - (rules.some(isRepository) ? 3 : 2);
  if (listeners > most) return `${listeners} names with their ports; at most ${most}`;
  const suffixes = suffixesOf({ rules }).length;
  return suffixes > MAX_SUFFIXES ? `${suffixes} wildcard names; at most ${MAX_SUFFIXES}` : null;
}

function suffixesOf({ rules }: Pick<EgressPlan, 'rules'>): string[] {
  const found = rules.flatMap(({ verdict, host }) => (verdict === 'allow' ? (suffixOf(host) ?? []) : []));
  return [...new Set(found)];
}

// `.example.com` of `*.example.com`.
function suffixOf(host: string): string | null {
  return host.startsWith('*.') ? host.slice(1) : null;
}
