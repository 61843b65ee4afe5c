// Broker of one sandbox, in the thread of the proxy: adds credentials to its requests, and keeps their values out of the answers.

import type { IncomingMessage } from 'node:http';
import type { CredentialForm, PlannedCredential } from '../../contract/credentials.ts';
import { withoutCredentials } from '../credentials/foreign.ts';
import type { RequestParts } from '../credentials/foreign.ts';
import type { CredentialValue } from '../credentials/provider.ts';
import { Redaction } from '../credentials/redaction.ts';
import { Refused } from './dial.ts';
import type { Brokered } from './http.ts';
import { valuesOf } from './request-head.ts';

/** Asks for the value of a credential; `refused` is one that a server did not take. */
export type AskCredential = (name: string, refused?: string) => Promise<CredentialValue>;

// A sandbox can have itself refused as often as it likes: each time, a program might be run.
const MIN_RENEWAL_MS = 10_000;
// Values that were used before the current one may still be repeated by a server.
const MAX_FORMER = 8;
const UNAUTHORIZED = 401;

interface Held {
  readonly value: string;
  readonly until: number;
}

/** The credentials of one sandbox. */
export class Broker {
  readonly #ask: AskCredential;
  readonly #now: () => number;
  readonly #held = new Map<string, Held>();
  readonly #asking = new Map<string, Promise<string>>();
  readonly #renewed = new Map<string, number>();
  readonly #refused = new Map<string, string>();
  readonly #values = new Map<string, readonly string[]>();
  #redaction: Redaction | null = null;

  constructor(ask: AskCredential, now: () => number = () => performance.now()) {
    this.#ask = ask;
    this.#now = now;
  }

  /** Values are read anew: the plan has changed. */
  forget(): void {
    this.#held.clear();
  }

  /** For how long the current value of a credential may be used, in milliseconds; undefined where nobody knows. Throws `Refused`. */
  async validMs(name: string, rule: string): Promise<number | undefined> {
    await this.#value(name, rule);
    const until = this.#held.get(name)?.until ?? Infinity;
    return Number.isFinite(until) ? until - this.#now() : undefined;
  }

  /**
   * The request as it is sent, without placeholders and with the credential if it gets one; and what becomes of the answer. Throws
   * `Refused`.
   */
  async brokered(
    { target, headers }: RequestParts,
    { credential, isLent, rule }: { credential: PlannedCredential; isLent: boolean; rule: string },
  ): Promise<Brokered> {
    const bare = withoutCredentials({ target, headers }, credential);
    const plain = {
      target: bare.target,
      headers: [...withoutHeaders(bare.headers, UNWANTED), 'Accept-Encoding', 'identity'],
    };
    const value = isLent ? await this.#value(credential.name, rule) : null;
    return {
      ...(value === null ? plain : added(plain, credential.as, value)),
      answered: status => this.#answered(credential.name, value, status),
      answerFault,
      shown: answer => this.#shown(answer),
      body: incoming => {
        const body = this.#redacting().stream();
        incoming.once('error', error => body.destroy(error));
        body.on('error', () => undefined).once('close', () => incoming.destroy());
        return incoming.pipe(body);
      },
    };
  }

  // The next request asks for another value.
  #answered(name: string, value: string | null, status: number): void {
    if (value === null || status !== UNAUTHORIZED || this.#held.get(name)?.value !== value) return;
    const last = this.#renewed.get(name);
    if (last !== undefined && this.#now() - last < MIN_RENEWAL_MS) return;
    this.#renewed.set(name, this.#now());
    this.#refused.set(name, value);
    this.#held.delete(name);
  }

  #shown(headers: readonly string[]): string[] {
    const redaction = this.#redacting();
    return withoutHeaders(headers, KEPT_FROM_SANDBOX).map((text, at) => (at % 2 === 1 ? redaction.text(text) : text));
  }

  // Every value that this sandbox’s requests were ever sent with.
  #redacting(): Redaction {
    return (this.#redaction ??= new Redaction([...this.#values.values()].flat()));
  }

  #value(name: string, rule: string): Promise<string> {
    const held = this.#held.get(name);
    if (held && this.#now() < held.until) return Promise.resolve(held.value);
    const asking = this.#asking.get(name) ?? this.#renew(name, rule).finally(() => this.#asking.delete(name));
    this.#asking.set(name, asking);
    return asking;
  }

  async #renew(name: string, rule: string): Promise<string> {
    const former = this.#values.get(name) ?? [];
    const { value, validMs = Infinity } = await this.#ask(name, this.#refused.get(name)).catch(() => {
      throw new Refused('no-credential', rule);
    });
    this.#refused.delete(name);
    this.#held.set(name, { value, until: this.#now() + validMs });
    if (former[0] !== value) {
      this.#values.set(name, [value, ...former.filter(one => one !== value)].slice(0, MAX_FORMER));
      this.#redaction = null;
    }
    return value;
  }
}

// Compressed answers could not be searched; and parts of an answer could be put together to a value that no part holds whole.
const UNWANTED: ReadonlySet<string> = new Set(['accept-encoding', 'range', 'if-range']);
// A cookie would come back as a credential, which is refused.
const KEPT_FROM_SANDBOX: ReadonlySet<string> = new Set(['set-cookie', 'set-cookie2']);

function answerFault({ rawHeaders }: Pick<IncomingMessage, 'rawHeaders'>): string | null {
  const codings = ['content-encoding', 'transfer-encoding']
    .flatMap(name => valuesOf(rawHeaders, name))
    .flatMap(value => value.toLowerCase().split(','))
    .map(value => value.trim());
  return codings.find(coding => !['', 'identity', 'chunked'].includes(coding)) ?? null;
}

function withoutHeaders(headers: readonly string[], names: ReadonlySet<string>): string[] {
  return headers.filter((_, at) => !names.has((headers[at - (at % 2)] ?? '').toLowerCase()));
}

function added({ target, headers }: RequestParts, form: CredentialForm, value: string): RequestParts {
  if (form === 'bearer') return { target, headers: [...headers, 'Authorization', `Bearer ${value}`] };
  if ('header' in form) return { target, headers: [...headers, form.header, value] };
  if ('query' in form)
    return { target: `${target}${target.includes('?') ? '&' : '?'}${encoded(form.query)}=${encoded(value)}`, headers };
  const basic = Buffer.from(`${form.basic}:${value}`, 'utf8').toString('base64');
  return { target, headers: [...headers, 'Authorization', `Basic ${basic}`] };
}

function encoded(text: string): string {
  return encodeURIComponent(text);
}
