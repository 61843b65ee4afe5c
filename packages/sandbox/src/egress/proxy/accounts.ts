// Accounts of one sandbox: its connections added up per host and outcome, and how often the same refusal was repeated.

import type { EgressConnection, EgressRefusal } from '../../contract/egress.ts';

/** One row that is still added to. */
export type Account = { -readonly [Key in keyof EgressConnection]: EgressConnection[Key] };

/** How a refusal is given: with a text, or with none after a pause. */
export type Answer = 'explain' | 'explain-last' | 'close';

/** What a refused client asked for. */
export interface Asked {
  /** The host as it was asked for; it need not be a name. */
  readonly host: string;
  readonly port: number;
}

// A sandbox that asks for ever new names fills neither the memory of the proxy nor the audit log.
const MAX_ROWS = 256;
const MAX_SHOWN = 253;
const EXPLAINED = 3;
const OTHERS = '*';

/** The rows of one sandbox. */
export class Accounts {
  readonly #rows = new Map<string, Account>();
  readonly #refusals = new Map<string, number>();

  /** The row for connections that a rule allows; counts one. */
  allowed({ host, port }: Asked, rule: string): Account {
    return this.#row({ host, port, verdict: 'allowed', rule });
  }

  /** Counts a refusal, and says how to give it. The third of the same kind is the last one that is explained. */
  refused({ host, port }: Asked, reason: EgressRefusal, rule: string | null): Answer {
    const asked = { host: shown(host), port };
    const row = this.#row({ ...asked, verdict: 'denied', reason, ...(rule === null ? {} : { rule }) });
    const key = row.host === OTHERS ? OTHERS : `${asked.host}:${port} ${reason}`;
    const count = (this.#refusals.get(key) ?? 0) + 1;
    this.#refusals.set(key, count);
    if (count > EXPLAINED) return 'close';
    return count === EXPLAINED ? 'explain-last' : 'explain';
  }

  /** A copy of all rows. */
  rows(): readonly EgressConnection[] {
    return [...this.#rows.values()].map(row => ({ ...row, ms: Math.round(row.ms) }));
  }

  #row(of: Omit<EgressConnection, 'count' | 'bytesIn' | 'bytesOut' | 'ms'>): Account {
    const key = [of.host, of.port, of.verdict, of.rule ?? '', of.reason ?? ''].join(' ');
    const known = this.#rows.get(key);
    if (known) {
      known.count += 1;
      return known;
    }
    if (this.#rows.size >= MAX_ROWS && of.host !== OTHERS) return this.#row({ ...of, host: OTHERS, port: 0 });
    const row = { ...of, count: 1, bytesIn: 0, bytesOut: 0, ms: 0 };
    this.#rows.set(key, row);
    return row;
  }
}

/** Text of a client, as a log may have it: printable ASCII, and not much of it. */
function shown(text: string): string {
  return text.slice(0, MAX_SHOWN).replaceAll(/[^\x21-\x7e]/g, '?');
}
