// One body of behaviours, run on every backend and engine: a file for each, so that they run beside each other.

import { appendFileSync } from 'node:fs';
import { afterAll, describe } from 'vitest';
import type { RunnerTask } from 'vitest';
import { mainEngine } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import { commandBehaviours } from './commands.ts';
import { hardeningBehaviours } from './hardening.ts';
import { lifecycleBehaviours } from './lifecycle.ts';
import { limitBehaviours } from './limits.ts';
import { localBehaviours } from './local.ts';
import { outputBehaviours } from './output.ts';
import { ownKernelBehaviours } from './own-kernel.ts';
import { podmanBehaviours } from './podman-alone.ts';
import { targets } from './targets.ts';
import type { Target } from './targets.ts';

/** Holds the targets that are meant to every behaviour. */
export function conformance(means: (target: Target) => boolean): void {
  const meant = targets.filter(means);
  // What is not on this machine is seen as skipped and not missing: the whole proof accepts no skipped test.
  const nowhere = targets.slice(0, 1).map(target => ({ ...target, name: 'no such target here', absent: true }));
  for (const target of meant.length > 0 ? meant : nowhere) {
    const { name, version, absent } = target;
    describe.skipIf(absent)(`${name}${version}`, () => {
      limitBehaviours(target);
      hardeningBehaviours(target);
      if (isFull(target)) {
        commandBehaviours(target);
        outputBehaviours(target);
        lifecycleBehaviours(target);
      }
      ownKernelBehaviours(target);
      podmanBehaviours(target);
      localBehaviours(target);
      // oxlint-disable-next-line no-empty-pattern -- vitest takes the first argument for fixtures, and wants to see which
      afterAll(({}, { tasks }) => tasks.forEach(group => record(name, group)));
    });
  }
}

// Elsewhere than on the main engine and the levels without one, .ci/run tries what the engine, its runtime or its kernel decides. The
// long test suite tries everything on every target.
function isFull({ level, engine }: Target): boolean {
  return everything || (level !== 'gvisor' && ['no engine', mainEngine.name].includes(engine.name));
}

// For scripts/conformance-table.mjs: a line for each behaviour that was tried, by its group. What a group left behind
// fails when it is closed, and then nothing of it has been shown.
function record(target: string, group: RunnerTask): void {
  const file = process.env['ACODE_CONFORMANCE_RESULTS'];
  if (!file || group.type !== 'suite') return;
  const closedBadly = (group.result?.errors ?? []).length > 0;
  for (const { name: title, result } of group.tasks) {
    if (result?.state !== 'pass' && result?.state !== 'fail') continue;
    const verdict = closedBadly ? 'fail' : result.state;
    appendFileSync(file, `${JSON.stringify({ target, group: group.name, title, verdict })}\n`);
  }
}
