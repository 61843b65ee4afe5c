// Dialling: the name is resolved once, every address is checked, and exactly a checked address is connected to.

import { lookup } from 'node:dns/promises';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { EgressRefusal, EgressRule, UpstreamProxy } from '../../contract/egress.ts';
import { codeOf } from '../../contract/system-error.ts';
import { HOST_SERVICE } from '../host-name.ts';
import { readPrefix } from './streams.ts';

/** A connection or a request that is refused, and why. */
export class Refused extends Error {
  readonly reason: EgressRefusal;
  /** The rule that refused it, if one did. */
  readonly rule: string | null;

  constructor(reason: EgressRefusal, rule: string | null = null, detail = '') {
    super(detail === '' ? reason : `${reason}: ${detail}`);
    this.name = 'Refused';
    this.reason = reason;
    this.rule = rule;
  }
}

/** Addresses of a name. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** What dialling needs besides a name. */
export interface DialOptions {
  readonly resolve: Resolve;
  /** Addresses of this host itself; read each time if absent. */
  readonly own?: () => Promise<readonly string[]>;
  /** Throws `Refused` if an address may not be dialled. */
  readonly check: (rule: EgressRule, address: string, own: readonly string[]) => void;
  /** The time for all of it, in milliseconds. */
  readonly connectMs: number;
  /** Ends it sooner: the client is gone. */
  readonly signal: AbortSignal;
  /** The proxy of a company, which is asked for a tunnel. */
  readonly upstream?: UpstreamProxy | undefined;
}

const THIS_HOST = ['127.0.0.1'];
const MAX_ADDRESSES = 16;

/** Addresses by the resolver of this host. */
export async function resolveHere(host: string): Promise<readonly string[]> {
  const found = await lookup(host, { all: true, verbatim: true });
  return found.map(({ address }) => address);
}

// Programs open many connections to one host within a moment. Every one of them is checked against what is remembered.
const REMEMBERED_MS = 1000;
const MAX_REMEMBERED = 64;

/** Asks once a second about the same thing. What failed is asked again. */
export function remembering<Value>(
  read: (about: string) => Promise<Value>,
  now: () => number = () => performance.now(),
): (about: string) => Promise<Value> {
  const known = new Map<string, { readonly at: number; readonly value: Promise<Value> }>();
  return about => {
    const found = known.get(about);
    if (found && now() - found.at < REMEMBERED_MS) return found.value;
    const value = read(about);
    if (known.size >= MAX_REMEMBERED) known.clear();
    known.set(about, { at: now(), value });
    value.catch(() => known.delete(about));
    return value;
  };
}

/** Connects to a host that a rule allows; throws `Refused`. */
export async function dial(rule: EgressRule, host: string, port: number, options: DialOptions): Promise<Socket> {
  const { upstream, connectMs } = options;
  // Cleared when it is no longer needed: a signal with a time of its own would stay for all of it, for each connection.
  const ending = new AbortController();
  const leave = (): void => ending.abort(ABORTED);
  const timer = setTimeout(leave, connectMs);
  options.signal.addEventListener('abort', leave, { once: true });
  if (options.signal.aborted) leave();
  const within = { ...options, signal: ending.signal };
  try {
    // What the user’s file calls private is not a matter of the company’s proxy, and neither is this host.
    if (upstream && rule.private !== true && rule.host !== HOST_SERVICE)
      return await tunnelled(rule, { host, port, upstream }, within);
    return await connectToOne(await checkedAddresses(rule, host, within), port, rule, ending.signal);
  } finally {
    clearTimeout(timer);
    options.signal.removeEventListener('abort', leave);
  }
}

/** Reason of a signal: made once, for an error of its own for each connection costs more than the rest of its end. */
export const ABORTED = new Error('aborted');

async function connectToOne(
  addresses: readonly string[],
  port: number,
  rule: EgressRule,
  signal: AbortSignal,
): Promise<Socket> {
  let failure: unknown = null;
  for (const address of addresses) {
    try {
      return await connectTo(address, port, signal);
    } catch (error) {
      failure = error;
      if (signal.aborted) break;
    }
  }
  throw new Refused('unreachable', rule.id, signal.aborted ? 'ETIMEDOUT' : codeOf(failure));
}

const MAX_ANSWER = 16 * 1024;
// Where only the company’s proxy knows names, this host’s resolver may not answer at all.
const RESOLVE_MS = 1500;

// The company’s proxy resolves the name. What this host knows about it is checked nevertheless.
async function tunnelled(
  rule: EgressRule,
  { host, port, upstream }: { readonly host: string; readonly port: number; readonly upstream: UpstreamProxy },
  options: DialOptions,
): Promise<Socket> {
  const { resolve, signal } = options;
  const known = await orAborted(resolve(host), AbortSignal.any([signal, AbortSignal.timeout(RESOLVE_MS)])).catch(
    () => [],
  );
  const own = await (options.own ?? ownAddresses)();
  for (const address of known) options.check(rule, address, own);
  const proxies = await resolved(upstream.host, { ...options, resolve: resolveHere });
  const socket = await connectToOne(proxies.slice(0, MAX_ADDRESSES), upstream.port, rule, signal);
  const leave = (): void => void socket.destroy();
  signal.addEventListener('abort', leave, { once: true });
  try {
    socket.write(`CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`);
    const answer = await readPrefix(socket, MAX_ANSWER, statusOf);
    if (answer?.value.status !== OK) {
      socket.destroy();
      throw new Refused('unreachable', rule.id, `the upstream proxy answered ${answer?.value.status ?? 'nothing'}`);
    }
    const rest = answer.bytes.subarray(answer.value.length);
    if (rest.length > 0) socket.unshift(rest);
    return socket;
  } finally {
    signal.removeEventListener('abort', leave);
  }
}

const OK = 200;

function statusOf(bytes: Buffer): { readonly status: number; readonly length: number } | null {
  const end = bytes.indexOf('\r\n\r\n');
  if (end === -1) return null;
  const [, status = '0'] = /^HTTP\/1\.[01] (\d{3})(?: |\r)/.exec(bytes.toString('latin1', 0, end + 2)) ?? [];
  return { status: Number(status), length: end + 4 };
}

/** The addresses of a host, each checked. One that may not be dialled refuses the name: an answer with both is a mistake or an attack. */
export async function checkedAddresses(
  rule: EgressRule,
  host: string,
  options: DialOptions,
): Promise<readonly string[]> {
  const resolving = rule.host === HOST_SERVICE ? THIS_HOST : resolved(host, options);
  // Read while the resolver works: both take about as long.
  const [found, own] = await Promise.all([resolving, (options.own ?? ownAddresses)()]);
  if (found.length === 0) throw new Refused('unresolved', rule.id);
  for (const address of found) options.check(rule, address, own);
  return found.slice(0, MAX_ADDRESSES);
}

async function resolved(host: string, { resolve, signal }: DialOptions): Promise<readonly string[]> {
  try {
    return await orAborted(resolve(host), signal);
  } catch (error) {
    throw new Refused('unresolved', null, codeOf(error));
  }
}

// The system’s resolver cannot be stopped; it is no longer waited for.
function orAborted<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    const leave = (): void => reject(ABORTED);
    if (signal.aborted) leave();
    signal.addEventListener('abort', leave, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
  });
}

/** Addresses of this host itself. A promise, so that a failure is one of the connection. */
export async function ownAddresses(): Promise<readonly string[]> {
  return Object.values(networkInterfaces()).flatMap(found => (found ?? []).map(({ address }) => address));
}

function connectTo(address: string, port: number, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({
      host: address,
      port,
      allowHalfOpen: true,
      noDelay: true,
      autoSelectFamily: false,
      // An address needs no lookup. Whatever asks for one nevertheless gets no second answer.
      lookup: (_host, _options, callback) => callback(new Error('not an address'), '', 0),
    });
    const leave = (): void => void socket.destroy(ABORTED);
    const settle = (): void => signal.removeEventListener('abort', leave);
    signal.addEventListener('abort', leave, { once: true });
    socket.once('connect', () => {
      settle();
      socket.off('error', reject).on('error', () => {});
      resolve(socket);
    });
    socket.once('error', reject);
    socket.once('close', settle);
    if (signal.aborted) leave();
  });
}
