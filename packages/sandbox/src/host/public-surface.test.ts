// The public surface is enough for a program that builds on acode, and for the tests of such a program.

import { describe, expect, it } from 'vitest';
import type { Acode, Command, RunResult } from '../index.ts';

const RESULT: RunResult = {
  exitCode: 0,
  stdout: '',
  stderr: '',
  dropped: { stdout: 0, stderr: 0 },
  timedOut: false,
  oomKilled: false,
  denials: [],
  sandboxId: '',
  level: 'docker',
  durationMs: 1,
  timings: { queueMs: 0, obtainMs: 0, runMs: 1 },
  warm: false,
  riskyChanges: [],
  changed: { executable: 0, hidden: 0, configuration: 0, source: 0, other: 0 },
  scan: 'complete',
  correlationId: '',
};

/** A program built on acode: all it needs is a place where commands run. */
async function passes(acode: Pick<Acode, 'run'>): Promise<boolean> {
  const { exitCode } = await acode.run(['npm', 'test']);
  return exitCode === 0;
}

describe('the public surface', () => {
  it('lets a program replace the host by a fake in its own tests', async () => {
    const asked: Command[] = [];
    const answering = (exitCode: number | null): Pick<Acode, 'run'> => ({
      run: async command => {
        asked.push(command);
        return { ...RESULT, exitCode };
      },
    });
    expect([await passes(answering(0)), await passes(answering(1)), await passes(answering(null))]).toEqual([
      true,
      false,
      false,
    ]);
    expect(asked).toEqual(Array.from({ length: 3 }, () => ['npm', 'test']));
  });
});
