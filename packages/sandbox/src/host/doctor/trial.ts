// A trial: attacks that share sandboxes, and the rule by which each of them is judged.

import { AcodeError } from '../../contract/errors.ts';
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

/** An attack that nothing stops, and that was not tried because it would be on this host itself. */
export interface Open {
  readonly open: string;
}

/** What came of the attacks of a trial, by id. */
export type Outcomes = Readonly<Record<string, Outcome | Untried | Open>>;

/** Attacks that are made together. */
export interface Trial {
  readonly about: string;
  readonly attacks: readonly Attack[];
  /** Whether it needs a sandbox that runs a shell. */
  readonly needsShell: boolean;
  /**
   * What it is where commands run on this host itself: the same, where it only looks or stays in directories of its own, or
   * another way of looking. Absent, it is never started there: what could do harm is not tried.
   */
  readonly onHost?: 'same' | ((bench: Bench) => Promise<Outcomes>);
  /** One outcome for each attack, by its id. */
  run(bench: Bench): Promise<Outcomes>;
}

/** What is said of an attack that could harm this host, where nothing stands between it and a command. */
export const NOTHING_STOPS_IT = 'nothing at this level stops it; not tried, since it would be on this host itself';

/** What an engine that is slow, overloaded or gone answers, whatever it was asked for. */
const ENGINE_FAILURES: readonly string[] = ['ACODE-SBX-008', 'ACODE-SBX-018'];

/** A sandbox, or the control of one, could not be had: the attack was not tried, which is neither a pass nor a failure. */
export class NotTried extends Error {}

/** Throws where one of the answers to requests is that of an engine which failed, and not a decision about the request. */
export function assertDecided(answers: readonly (string | null)[]): void {
  const failure = answers.find(code => code !== null && ENGINE_FAILURES.includes(code));
  if (failure !== undefined) throw new NotTried(`the engine did not answer in time (${failure})`);
}

/** Why an attack was not tried; null for a failure of any other kind. */
export function notTriedReason(error: unknown): string | null {
  if (error instanceof NotTried) return error.message;
  const isEngine = error instanceof AcodeError && ENGINE_FAILURES.some(code => code === error.code);
  return isEngine ? error.message : null;
}

/** Judges an attack. */
export function judge({ id, title }: Attack, outcome: Outcomes[string] | undefined): Probe {
  if (!outcome) return { id, title, verdict: 'fail', observed: 'nothing was observed', control: 'none was made' };
  if ('untried' in outcome)
    return { id, title, verdict: 'not-applicable', observed: outcome.untried, control: 'not made' };
  if ('open' in outcome) return { id, title, verdict: 'fail', observed: outcome.open, control: '' };
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
