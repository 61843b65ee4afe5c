// Step 9 of the pipe: what became of a run, for the log, the metrics, those who listen, and whoever reads its output later.

import { chooseChanges } from '../contract/changes.ts';
import type { Command } from '../contract/command.ts';
import type { RiskyChange, RunResult } from '../contract/result.ts';
import type { Denials } from './denials/denials.ts';
import { afterwards } from '../isolation/waiting.ts';
import type { RunningParts } from './planned.ts';
import { METRICS } from '../records/telemetry/operation.ts';
import type { Operation } from '../records/telemetry/operation.ts';
import { redact, redactArguments } from '../contract/redact.ts';

// As many as a reader of the log looks at; all of them are in the result.
const SHOWN_CHANGES = 20;

/** Tells what was denied, the network apart because it is counted apart. */
export function recordDenials({ host, operation }: RunningParts, sandboxId: string, { network, other }: Denials): void {
  for (const denial of [...network, ...other])
    operation.step('warn', `denied: ${denial.rule}`, { sandboxId, ...denial });
  for (const { rule, detail } of network) {
    host.telemetry.increment(METRICS.networkDenied);
    host.bus.emit('NetworkDenied', operation.correlationId, new Date(host.telemetry.clock.now()), {
      sandboxId,
      rule,
      ...(detail === undefined ? {} : { detail }),
    });
  }
}

/** Tells that a command has ended: before its sandbox is removed, which is told too. */
export function recordExit(parts: RunningParts, exitCode: number | null): void {
  const { host, operation, planned, sandbox, stays } = parts;
  if (stays) return;
  host.bus.emit('ContainerExited', operation.correlationId, new Date(host.telemetry.clock.now()), {
    sandboxId: planned.spec.identity.sandboxId,
    containerId: sandbox.id,
    exitCode,
  });
}

/** Tells how a command ended, in one canonical event, and keeps what it printed. */
export function recordResult(parts: RunningParts, result: RunResult): void {
  const { host, operation } = parts;
  const at = new Date(host.telemetry.clock.now());
  host.telemetry.observe(METRICS.execute, result.durationMs);
  if (result.oomKilled) host.telemetry.increment(METRICS.oom);
  const { sandboxId, limitExceeded, exitCode } = result;
  if (limitExceeded) {
    host.telemetry.increment(METRICS.limits, { limit: limitExceeded });
    operation.step('warn', `limit exceeded: ${limitExceeded}`, { sandboxId, limit: limitExceeded });
    host.bus.emit('LimitExceeded', operation.correlationId, at, { sandboxId, limit: limitExceeded });
  }
  recordRisk(parts.operation, result.sandboxId, result.riskyChanges);
  operation.step('info', parts.stays ? 'command ended' : 'container stopped', {
    sandboxId,
    containerId: result.containerId,
    exitCode,
  });
  operation.succeed({
    exitCode,
    timedOut: result.timedOut,
    oomKilled: result.oomKilled,
    limitExceeded,
    runMs: result.durationMs,
    usage: result.usage,
    dropped: result.dropped,
    denials: result.denials.map(({ rule }) => rule),
    riskyChanges: result.riskyChanges.length,
  });
  keepOutput(parts, result, at);
}

/** A command as logs may show it. */
export function printable(command: Command): string | string[] {
  return typeof command === 'string' ? redact(command) : redactArguments(command);
}

/** Says in the log what was left in the workspace. */
export function recordRisk(operation: Operation, sandboxId: string, riskyChanges: readonly RiskyChange[]): void {
  if (riskyChanges.length === 0) return;
  const { shown, incomplete } = chooseChanges(riskyChanges, SHOWN_CHANGES);
  operation.step('warn', 'the run left things in the workspace that programs on this host might execute or follow', {
    sandboxId,
    count: riskyChanges.length,
    riskyChanges: [...shown, ...incomplete],
  });
}

function keepOutput({ host, operation, command, planned }: RunningParts, result: RunResult, at: Date): void {
  if (!host.savedLogs) return;
  const text = printable(command);
  const log = {
    name: planned.spec.identity.name,
    sandboxId: result.sandboxId,
    command: typeof text === 'string' ? text : text.join(' '),
    endedAt: at.toISOString(),
    exitCode: result.exitCode,
    stdout: result.stdout,
    stderr: result.stderr,
    dropped: result.dropped,
  };
  const { savedLogs } = host;
  const saving = afterwards(() => savedLogs.save(log, at.getTime())).catch((error: unknown) =>
    operation.step('warn', 'the output of the run could not be kept', { reason: String(error) }),
  );
  host.keep(saving);
}
