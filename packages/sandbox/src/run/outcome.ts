// Step 7 of the pipe: the result, made of how the command ended and what was captured. Pure.

import { usesEngine } from '../contract/levels.ts';
import type { LimitName, PublishedPort, RunResult } from '../contract/result.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import type { Ending } from '../isolation/backend.ts';
import type { Capture } from './output/capture.ts';
import { decodeOutput } from './output/text.ts';
import { NO_CHANGES } from '../workspace/change-counts.ts';
import type { Scan } from '../workspace/risky.ts';

/** What a result is made of. */
export interface OutcomeParts {
  readonly spec: SandboxSpec;
  readonly containerId: string;
  readonly correlationId: string;
  readonly auditSequence: number;
  readonly captures: { readonly stdout: Capture; readonly stderr: Capture };
  readonly timings: RunResult['timings'];
  readonly ports: readonly PublishedPort[];
  /** Whether the sandbox waited before the command was known. */
  readonly warm: boolean;
}

/** The result of a command that ended; `timedOut` where we ended it. */
export function resultOf(parts: OutcomeParts, ending: Ending, timedOut: boolean): RunResult {
  const limitExceeded = exceeded(ending, timedOut, parts.captures);
  return {
    ...partialResult(parts),
    exitCode: timedOut ? null : ending.exitCode,
    timedOut,
    oomKilled: ending.oomKilled,
    ...(limitExceeded ? { limitExceeded } : {}),
    ...(ending.usage ? { usage: ending.usage } : {}),
  };
}

/** What there is of a result when a command was cancelled. */
export function partialResult(parts: OutcomeParts): RunResult {
  const { spec, containerId, correlationId, auditSequence, captures, ports, warm } = parts;
  const timings = {
    queueMs: readable(parts.timings.queueMs),
    obtainMs: readable(parts.timings.obtainMs),
    runMs: readable(parts.timings.runMs),
  };
  const stdout = decodeOutput(captures.stdout.bytes(), captures.stdout.dropped > 0);
  const stderr = decodeOutput(captures.stderr.bytes(), captures.stderr.dropped > 0);
  return {
    exitCode: null,
    stdout: stdout.text,
    stderr: stderr.text,
    ...(stdout.bytes ? { stdoutBytes: stdout.bytes } : {}),
    ...(stderr.bytes ? { stderrBytes: stderr.bytes } : {}),
    dropped: { stdout: captures.stdout.dropped, stderr: captures.stderr.dropped },
    timedOut: false,
    oomKilled: false,
    denials: [],
    sandboxId: spec.identity.sandboxId,
    ...(usesEngine(spec.level) ? { containerId } : {}),
    level: spec.level,
    ...(spec.runtime === null ? {} : { runtime: spec.runtime }),
    ...(usesEngine(spec.level) ? { image: { reference: spec.image.reference, digest: spec.image.digest } } : {}),
    durationMs: timings.runMs,
    timings,
    warm,
    riskyChanges: [],
    changed: NO_CHANGES,
    scan: 'complete',
    ...(ports.length > 0 ? { ports: [...ports] } : {}),
    correlationId,
    auditSequence,
  };
}

/** Puts what the scan of the workspace has found into a result. */
export function addScan(result: RunResult, { riskyChanges, changed, complete }: Scan): void {
  result.riskyChanges = [...riskyChanges];
  result.changed = changed;
  result.scan = complete ? 'complete' : 'incomplete';
}

// As precise as the clock is, and no more: `25.568349000000012` is for nobody.
function readable(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}

// The limit that explains the ending best: what killed comes before what only held back.
function exceeded(
  ending: Ending,
  timedOut: boolean,
  { stdout, stderr }: OutcomeParts['captures'],
): LimitName | undefined {
  if (timedOut) return 'time';
  if (ending.oomKilled) return 'memory';
  if (ending.pidsRefused) return 'pids';
  return stdout.dropped + stderr.dropped > 0 ? 'output' : undefined;
}
