// With ACODE_TEST_WARM the rows of the corpus run on pre-started sandboxes. A row that cannot is named here, with the reason.

import { AsyncLocalStorage } from 'node:async_hooks';
import { expect } from 'vitest';
import type { RunResult } from '@acode/sandbox';
import { warmth } from '../support/engines.ts';

const NO_SANDBOX = 'no sandbox of this host has a part in it';
const OWN_PROCESS = 'the built command or a client of its own runs it, in another process';

/** The rows of which no command runs in a pre-started sandbox. */
const COLD: Readonly<Record<string, string>> = {
  B4: 'the test swaps the workspace between the engine’s calls for one command: its host has no pool',
  C9: OWN_PROCESS,
  C10: NO_SANDBOX,
  C17: 'the command names its task, which is a part of the sandbox’s name from the beginning',
  F3: 'the command names its task, which is a part of the sandbox’s name from the beginning',
  F4: OWN_PROCESS,
  F6: 'refused before there is a sandbox',
  F12: 'the test changes the engine’s call that makes the sandbox of one command: its host has no pool',
  F14: OWN_PROCESS,
  F15: OWN_PROCESS,
  F16: OWN_PROCESS,
  F17: OWN_PROCESS,
  F18: OWN_PROCESS,
};

/** Why single commands of a row had a sandbox made for them, where the others had a pre-started one. */
const PARTLY_COLD: Readonly<Record<string, RegExp>> = {
  D4: /^the network acode-attack-quiet is looked up/,
  D5: /^it publishes ports/,
};

interface Runs {
  warm: number;
  readonly cold: string[];
}

const current = new AsyncLocalStorage<Runs>();

/** Notes the sandbox of a command for the row that runs now. `why` is the pool’s reason where it cannot be a pre-started one. */
export function noteSandbox({ warm }: Pick<RunResult, 'warm'>, why: string | null): void {
  if (!warmth.pool) return;
  const runs = current.getStore();
  const reason = why ?? 'one was pre-started, and the command got another';
  if (warm && runs) runs.warm += 1;
  else if (!warm && runs) runs.cold.push(reason);
  // Outside a row: no list names what is cold, so nothing may be.
  else if (!warm) throw new Error(reason);
}

/** Runs the body of a row. With pre-started sandboxes its commands must have had them, or the row is among those named above. */
export async function onWarmSandboxes<Value>(id: string, body: () => Promise<Value>): Promise<Value> {
  const runs: Runs = { warm: 0, cold: [] };
  const value = await current.run(runs, body);
  if (!warmth.pool) return value;
  expect([id, runs.warm > 0, runs.cold]).toEqual([id, COLD[id] === undefined, runs.cold]);
  if (COLD[id] === undefined)
    expect([id, runs.cold.filter(why => PARTLY_COLD[id]?.test(why) !== true)]).toEqual([id, []]);
  return value;
}
