// Budget of one sandbox: how many requests it may send with credentials of acode’s, and how many tokens their answers may count.

import type { EgressLimits, SpentBudget } from '../../contract/egress.ts';
import { Refused } from './dial.ts';

/** Counts what a sandbox uses. The request that comes after the budget is refused, and whoever owns the sandbox hears of it once. */
export class Budget {
  readonly #limits: () => Pick<EgressLimits, 'requests' | 'tokens'>;
  readonly #tell: (spent: SpentBudget) => void;
  #requests = 0;
  #tokens = 0;
  #hasTold = false;

  constructor(limits: () => Pick<EgressLimits, 'requests' | 'tokens'>, tell: (spent: SpentBudget) => void) {
    this.#limits = limits;
    this.#tell = tell;
  }

  /** Counts a request. Throws `Refused` where nothing is left. */
  request(rule: string): void {
    const { requests = Infinity, tokens = Infinity } = this.#limits();
    const spent = this.#requests >= requests ? 'requests' : this.#tokens >= tokens ? 'tokens' : null;
    if (spent === null) {
      this.#requests += 1;
      return;
    }
    if (!this.#hasTold) this.#tell(spent);
    this.#hasTold = true;
    throw new Refused('budget', rule);
  }

  /** Counts tokens of an answer. */
  used(tokens: number): void {
    this.#tokens += tokens;
  }
}
