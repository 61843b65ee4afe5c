// Dialling: the name is resolved once, every address is checked, and exactly a checked address is connected to.

import { lookup } from 'node:dns/promises';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { EgressRefusal, EgressRule } from '../../contract/egress.ts';
import { codeOf } from '../../contract/system-error.ts';

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
  /** Throws `Refused` if an address may not be dialled. */
  readonly check: (rule: EgressRule, address: string, own: readonly string[]) => void;
  /** The time for all of it, in milliseconds. */
  readonly connectMs: number;
  /** Ends it sooner: the client is gone. */
  readonly signal: AbortSignal;
}

const THIS_HOST = ['127.0.0.1'];
const MAX_ADDRESSES = 16;

/** Addresses by the resolver of this host. */
export async function resolveHere(host: string): Promise<readonly string[]> {
  const found = await lookup(host, { all: true, verbatim: true });
  return found.map(({ address }) => address);
}

/** Connects to a host that a rule allows; throws `Refused`. */
export async function dial(rule: EgressRule, host: string, port: number, options: DialOptions): Promise<Socket> {
  const deadline = AbortSignal.timeout(options.connectMs);
  const signal = AbortSignal.any([deadline, options.signal]);
  const addresses = await checkedAddresses(rule, host, { ...options, signal });
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

// One address that may not be dialled refuses the name: an answer that mixes public and private addresses is a mistake or an attack.
async function checkedAddresses(rule: EgressRule, host: string, options: DialOptions): Promise<readonly string[]> {
  const found = rule.host === 'host' ? THIS_HOST : await resolved(host, options);
  if (found.length === 0) throw new Refused('unresolved', rule.id);
  const own = ownAddresses();
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
    const leave = (): void => reject(new Error('aborted'));
    if (signal.aborted) leave();
    signal.addEventListener('abort', leave, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
  });
}

function ownAddresses(): readonly string[] {
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
    const leave = (): void => void socket.destroy(new Error('aborted'));
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
