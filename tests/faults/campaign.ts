// Every call of every scenario goes wrong once. Which calls there are is seen in a run in which none does.

import type { TestEngine } from '../support/engines.ts';
import { callsIn, nameOf } from './calls.ts';
import type { EngineCall } from './calls.ts';
import { scenarios } from './scenarios.ts';
import type { Scenario } from './scenarios.ts';
import { tryOut } from './trial.ts';
import type { Fault, TrialReport } from './trial.ts';

/** Every way in which a call goes wrong. */
const FAULTS: readonly Fault[] = ['error before', 'error after', 'hang', 'reply lost'];

// The longest deadline of a single call is that of a start, 30 s; nothing waits for two calls that hang one after the other,
// since only one does. Of what is answered at once, an ending that the engine denies is waited for longest, 10 s.
const BOUNDS: Readonly<Record<Fault, number>> = {
  hang: 90_000,
  'error before': 60_000,
  'error after': 60_000,
  'reply lost': 60_000,
};

// Who hangs needs no processor; the others share two.
const HANGING_AT_ONCE = 24;
const OTHERS_AT_ONCE = 6;
// A call that belongs to a certain moment may be missed by a run that took another turn.
const ATTEMPTS = 3;
// Samples of usage: how many a run takes is a matter of its time, and all go wrong as the first one does.
const SAMPLE = /\/stats\?/;

/** One scenario, call by call. */
export interface Outcome {
  readonly calls: number;
  /** What was wrong, each with the call it was wrong with. */
  readonly violations: readonly string[];
}

interface Recorded {
  readonly scenario: Scenario;
  readonly calls: readonly EngineCall[];
  readonly violations: readonly string[];
}

/** All trials on one engine. */
export class Campaign {
  readonly #engine: TestEngine;
  readonly #everything: boolean;
  readonly #hanging = new Lanes(HANGING_AT_ONCE);
  readonly #others = new Lanes(OTHERS_AT_ONCE);
  #turn = 0;
  #outcomes: Promise<ReadonlyMap<Scenario, Promise<Outcome>>> | null = null;

  /**
   * With `everything`, every call goes wrong in every way, also one that an earlier scenario has made in the same way. Without,
   * each goes wrong in one way, and the next call in the next.
   */
  constructor(engine: TestEngine, everything: boolean) {
    this.#engine = engine;
    this.#everything = everything;
  }

  /** What came of one scenario. The first who asks starts them all: those that hang wait beside the others. */
  async outcome(scenario: Scenario): Promise<Outcome> {
    this.#outcomes ??= this.#start();
    const outcome = (await this.#outcomes).get(scenario);
    if (!outcome) throw new Error('no such scenario');
    return outcome;
  }

  async #start(): Promise<ReadonlyMap<Scenario, Promise<Outcome>>> {
    const covered = new Set<string>();
    const recorded: Recorded[] = [];
    // What is asked about an image only once belongs to the scenario about that, and to no other.
    for (const scenario of scenarios.slice(0, 2)) await tryOut(scenario, this.#engine, { boundMs: BOUNDS.hang });
    for (const scenario of scenarios) recorded.push(await this.#record(scenario, covered));
    return new Map(recorded.map(one => [one.scenario, this.#tryAll(one)] as const));
  }

  async #record(scenario: Scenario, covered: Set<string>): Promise<Recorded> {
    const { requests, beginning, violations } = await tryOut(scenario, this.#engine, { boundMs: BOUNDS.hang });
    const calls = callsIn(requests).filter(({ kind, occurrence }) => occurrence === 1 || !SAMPLE.test(kind));
    const chosen = calls.filter((call, index) => this.#everything || index >= beginning || !covered.has(nameOf(call)));
    for (const call of calls) covered.add(nameOf(call));
    return { scenario, calls: chosen, violations };
  }

  async #tryAll({ scenario, calls, violations }: Recorded): Promise<Outcome> {
    const injections = calls.flatMap(call => this.#faults().map(fault => ({ call, fault })));
    const found = await Promise.all(
      injections.map(injection =>
        (injection.fault === 'hang' ? this.#hanging : this.#others).run(() => this.#complaints(scenario, injection)),
      ),
    );
    return { calls: injections.length, violations: [...violations.map(one => `no fault: ${one}`), ...found.flat()] };
  }

  #faults(): readonly Fault[] {
    if (this.#everything) return FAULTS;
    this.#turn += 1;
    return FAULTS.filter((_, at) => at === this.#turn % FAULTS.length);
  }

  async #complaints(scenario: Scenario, injection: { call: EngineCall; fault: Fault }): Promise<string[]> {
    const about = (what: string): string => `${nameOf(injection.call)}, ${injection.fault}: ${what}`;
    let report: TrialReport | undefined;
    for (let attempt = 0; attempt < ATTEMPTS && !report?.hit; attempt += 1) {
      report = await tryOut(scenario, this.#engine, { injection, boundMs: BOUNDS[injection.fault] });
      if (report.violations.length > 0) break;
    }
    if (!report?.hit) return [about('the call was never made')];
    return report.violations.map(about);
  }
}

/** Lets only so much run at once. */
class Lanes {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  async run<Value>(work: () => Promise<Value>): Promise<Value> {
    if (this.#free === 0) await new Promise<void>(resolve => this.#waiting.push(resolve));
    else this.#free -= 1;
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free += 1;
    }
  }
}
