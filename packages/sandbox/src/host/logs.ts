// The output of runs: what is saved of past ones, and what running ones print.

import { AcodeError } from '../contract/errors.ts';
import type { LogEvent, RunningLog, SavedLog, SavedLogInfo } from '../contract/host.ts';
import type { ComposedHost } from './compose.ts';

/** The saved output of past runs. */
export interface Logs {
  /** The runs whose output is saved, newest first. */
  list(): Promise<SavedLogInfo[]>;
  /** The newest saved run with this container name or sandbox id. */
  find(reference: string): Promise<SavedLog>;
  /**
   * The commands that run now in a sandbox of this user, in any process, with what they have printed so far. `sandboxId` is
   * null if no sandbox has this name or id.
   */
  running(
    reference: string,
    options?: {
      /** Cancels the call. */
      readonly signal?: AbortSignal;
    },
  ): Promise<{
    /** The sandbox’s UUID, or the first half of it if it has no engine. */
    readonly sandboxId: string | null;
    /** What runs in it. */
    readonly commands: RunningLog[];
  }>;
  /**
   * Follows what is printed in a sandbox of this user, in any process: first what there is, then what comes, until the
   * sandbox ends. Of a sandbox that has ended, the saved output.
   *
   * @example
   * for await (const event of acode.logs.follow('web-server')) if (event.kind === 'stdout') process.stdout.write(event.data);
   */
  follow(
    reference: string,
    options?: {
      /** Ends it. */
      readonly signal?: AbortSignal;
    },
  ): AsyncIterable<LogEvent>;
}

/** The logs of a host. */
export function savedLogs(host: ComposedHost): Logs {
  return {
    list: () => host.pastLogs.list(),
    find: async reference => {
      const log = await host.pastLogs.find(reference);
      if (!log) throw new AcodeError('ACODE-CTN-012', { reference, what: 'saved log' });
      return log;
    },
    running: async (reference, { signal } = {}) => {
      const { runningLogs } = await import('../persistent/relay/follow.ts');
      return runningLogs(host, reference, orClosing(host, signal));
    },
    follow: async function* follow(reference, { signal } = {}) {
      const { followLogs } = await import('../persistent/relay/follow.ts');
      yield* followLogs(host, reference, orClosing(host, signal));
    },
  };
}

function orClosing({ closing }: ComposedHost, signal: AbortSignal | undefined): AbortSignal {
  return signal ? AbortSignal.any([signal, closing]) : closing;
}
