// A trial: attacks that share sandboxes, and the rule by which each of them is judged.

import type { Bench } from './bench.ts';
import type { Probe } from './report.ts';

/** An attack by its row in the corpus. */
export interface Attack {
  readonly id: string;
  readonly title: string;
}

/** What came of one attack, before it is judged. */
export interface Outcome {
  /** Whether the sandbox stopped it. */
  readonly stopped: boolean;
  readonly observed: string;
  /** Whether the control behaved; without that, nothing was shown. */
  readonly controlled: boolean;
  readonly control: string;
}

/** An attack that cannot be tried here, and why. */
export interface Untried {
  readonly untried: string;
}

/** Attacks that are made together. */
export interface Trial {
  readonly about: string;
  readonly attacks: readonly Attack[];
  /** Whether it needs a sandbox that runs a shell. */
  readonly needsShell: boolean;
  /** One outcome for each attack, by its id. */
  run(bench: Bench): Promise<Readonly<Record<string, Outcome | Untried>>>;
}

/** Judges an attack. */
export function judge({ id, title }: Attack, outcome: Outcome | Untried | undefined): Probe {
  if (!outcome) return { id, title, verdict: 'fail', observed: 'nothing was observed', control: 'none was made' };
  if ('untried' in outcome)
    return { id, title, verdict: 'not-applicable', observed: outcome.untried, control: 'not made' };
  const { stopped, observed, controlled, control } = outcome;
  return {
    id,
    title,
    verdict: stopped && controlled ? 'pass' : 'fail',
    observed,
    // An unproven pass is no pass.
    control: controlled ? control : `did not behave, so nothing is proven: ${control}`,
  };
}
