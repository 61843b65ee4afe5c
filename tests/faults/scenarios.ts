// What is done to an engine while one of its calls goes wrong. Each says itself whether what came of it is right.

import { AcodeError } from '@acode/sandbox';
import type { Acode, ConfigInput, RunResult } from '@acode/sandbox';
import { images } from '../support/engines.ts';

/** Where a scenario plays. */
export interface Stage {
  readonly acode: Acode;
  /** The container that a dead session left; empty where there is none. */
  readonly orphan: string;
  /** From here on calls are the scenario’s own, whatever another one has asked too. */
  readonly begins: () => void;
}

/** One thing that is done. */
export interface Scenario {
  readonly name: string;
  readonly sandbox?: NonNullable<ConfigInput['sandbox']>;
  /** Whether nothing is known of any image yet, so that its lists of users are read first. */
  readonly fresh?: true;
  /** Whether a dead session has left a sandbox on the engine. */
  readonly orphan?: true;
  /** Does it. What was wrong with the outcome comes back; null where it was right. An AcodeError is right too under a fault. */
  act(stage: Stage): Promise<string | null>;
}

const expected = (result: RunResult, stdout: string): string | null =>
  result.exitCode === 0 && result.stdout === stdout && !result.timedOut
    ? null
    : `the result is ${JSON.stringify({ exitCode: result.exitCode, stdout: result.stdout, timedOut: result.timedOut })}`;

/** What happens to be right where a run has to end in this code. */
async function endsWith(code: AcodeError['code'], run: Promise<unknown>): Promise<string | null> {
  try {
    return `it was not ended: ${JSON.stringify(await run)}`;
  } catch (error) {
    if (error instanceof AcodeError && error.code === code) return null;
    throw error;
  }
}

const bridge = { network: { allow_bridge: true } };

/** All of them; what an earlier one has asked of the engine in the same way need not be tried again in a later one. */
export const scenarios: readonly Scenario[] = [
  {
    name: 'a plain run',
    act: async ({ acode }) => expected(await acode.run(['echo', 'hi']), 'hi\n'),
  },
  {
    name: 'a run of an image without a shell',
    act: async ({ acode }) => expected(await acode.run(['/true'], { policy: { image: images.noshell } }), ''),
  },
  {
    name: 'the first run of an image',
    fresh: true,
    act: async ({ acode }) => expected(await acode.run(['echo', 'hi']), 'hi\n'),
  },
  {
    name: 'a run on the managed bridge',
    sandbox: bridge,
    act: async ({ acode }) => expected(await acode.run(['echo', 'hi'], { policy: { network: 'bridge' } }), 'hi\n'),
  },
  {
    name: 'a run that is cancelled',
    async act({ acode, begins }) {
      const stop = new AbortController();
      const onStdout = (): void => {
        begins();
        stop.abort();
      };
      return endsWith('ACODE-SBX-014', acode.run('echo up; sleep 60', { signal: stop.signal, onStdout }));
    },
  },
  {
    name: 'a run that is timed out',
    sandbox: { containers: { stop_timeout_seconds: 0.2 } },
    async act({ acode }) {
      const { timedOut, exitCode } = await acode.run('trap "" TERM; while :; do sleep 1; done', {
        policy: { timeoutMs: 600 },
      });
      return timedOut ? null : `it was not timed out, and ended with ${exitCode}`;
    },
  },
  {
    name: 'list',
    async act({ acode, begins }) {
      begins();
      return Array.isArray(await acode.list()) ? null : 'no list';
    },
  },
  {
    name: 'status',
    async act({ acode, begins }) {
      begins();
      const status = await acode.status();
      if (status.available) return status.level === 'docker' ? null : `level ${String(status.level)}`;
      return status.unavailableReason ? null : 'no reason is given';
    },
  },
  {
    name: 'cleanup of an orphan',
    orphan: true,
    async act({ acode, orphan, begins }) {
      begins();
      const report = await acode.cleanup();
      return JSON.stringify(report).includes(orphan) ? null : 'the report says nothing of the orphan';
    },
  },
  {
    name: 'the sweep of an orphan',
    orphan: true,
    async act({ acode, begins }) {
      const command = await acode.spawn(['echo', 'hi']);
      begins();
      return expected(await command.result, 'hi\n');
    },
  },
  {
    name: 'close() under a running command',
    sandbox: bridge,
    async act({ acode, begins }) {
      const command = await acode.spawn(['sleep', '60'], { policy: { network: 'bridge' } });
      begins();
      const [verdict] = await Promise.all([endsWith('ACODE-SBX-014', command.result), acode.close()]);
      return verdict;
    },
  },
];
