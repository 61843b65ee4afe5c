// Reporting host: logs the risky changes of every command for the user, whichever tool started it.

import { AcodeError } from '@acode/sandbox';
import type { RiskyChange, RunResult } from '@acode/sandbox';
import { partialOf } from './failure.ts';
import type { InsideCommands, InsideHandle, InsideRequest, InsideSandbox, ToolHost } from './host.ts';

/** Hears the risky changes of one command; `record` is its number in the audit log. */
export type Report = (changes: readonly RiskyChange[], record: number | undefined) => void;

/** Takes what scans found after earlier commands had ended, and was in no answer yet. */
export type TakeLate = () => readonly RiskyChange[];

/**
 * The same host, which reports what its commands and its sandboxes leave in the workspace. The next result also has what is
 * found late: the model that caused it hears of it while it works on the workspace.
 */
export function reportingHost(host: ToolHost, report: Report, late: TakeLate = () => []): ToolHost {
  return {
    run: async (command, request) => withLate(await reported(host.run(command, request), report), late),
    create: async request => reportingSandbox(await host.create(request), report, late),
    explain: (command, request) => host.explain(command, request),
    status: () => host.status(),
    network: { request: wanted => host.network.request(wanted) },
    ...(host.forkNote ? { forkNote: result => host.forkNote?.(result) ?? Promise.resolve(null) } : {}),
  };
}

function reportingSandbox(sandbox: InsideSandbox, report: Report, late: TakeLate): InsideSandbox {
  const end = reportedEnd(sandbox, report);
  // A sandbox that expires, or whose first process ends, is not closed by a call.
  void sandbox.ended.then(end).catch(() => undefined);
  return {
    id: sandbox.id,
    files: sandbox.files,
    commands: reportingCommands(sandbox.commands, report, late),
    ended: sandbox.ended,
    get expiresAt() {
      return sandbox.expiresAt;
    },
    get riskyChanges() {
      return sandbox.riskyChanges;
    },
    kill: end,
  };
}

// A second call waits for the first, so that each sandbox is reported once.
function reportedEnd(sandbox: InsideSandbox, report: Report): () => Promise<void> {
  let ending: Promise<void> | null = null;
  const end = async (): Promise<void> => {
    await sandbox.kill();
    if (sandbox.riskyChanges.length > 0) report(sandbox.riskyChanges, undefined);
  };
  return () => (ending ??= end());
}

function reportingCommands(commands: InsideCommands, report: Report, late: TakeLate): InsideCommands {
  function run(
    command: Parameters<InsideCommands['run']>[0],
    request?: InsideRequest & { background?: false },
  ): Promise<RunResult>;
  function run(
    command: Parameters<InsideCommands['run']>[0],
    request: InsideRequest & { background: true },
  ): Promise<InsideHandle>;
  async function run(
    command: Parameters<InsideCommands['run']>[0],
    request: InsideRequest & { background?: boolean } = {},
  ): Promise<RunResult | InsideHandle> {
    const { background = false, ...rest } = request;
    if (!background) return withLate(await reported(commands.run(command, rest), report), late);
    const handle = await commands.run(command, { ...rest, background: true });
    reported(handle.result, report).catch(() => undefined);
    return handle;
  }
  return { run };
}

async function reported(running: Promise<RunResult>, report: Report): Promise<RunResult> {
  try {
    const result = await running;
    if (result.riskyChanges.length > 0) report(result.riskyChanges, result.auditSequence);
    return result;
  } catch (error) {
    const left = error instanceof AcodeError ? error.riskyChanges : [];
    if (left.length > 0) report(left, partialOf(error)?.auditSequence);
    throw error;
  }
}

function withLate(result: RunResult, late: TakeLate): RunResult {
  return { ...result, riskyChanges: [...late(), ...result.riskyChanges] };
}
