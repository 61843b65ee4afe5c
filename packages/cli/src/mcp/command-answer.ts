// Command result for a model: exit status, denials, risky changes, and the output cut to fit.

import type { RunResult } from '@acode/sandbox';
import * as z from 'zod';
import { excerptOf, sharesOf } from './excerpt.ts';
import { denialSchema, denialText, toldDenials } from './failure.ts';
import type { KeptOutputs } from './kept-outputs.ts';
import { omittedSchema, riskTexts, riskySchema, toldRisks } from './risks.ts';
import type { Answer } from './tool.ts';

/** Characters of output that go into a model’s context. */
export const MAX_SHOWN = 30_000;

/** What a tool answers about a command that has ended. */
export const commandSchema = z.object({
  exitCode: z.int().nullable().describe('null where the command was stopped (time limit, memory, cancelled).'),
  stdout: z.string().describe('What it printed; the middle is left out where it was long.'),
  stderr: z.string().describe('The same for standard error.'),
  omitted: z
    .object({ stdout: z.int(), stderr: z.int() })
    .describe('Characters left out of stdout and stderr here; `outputs` has them.'),
  outputs: z.array(z.string()).describe('Resources with the whole of what was left out; read_output reads them too.'),
  dropped: z
    .object({ stdout: z.int(), stderr: z.int() })
    .describe('Bytes beyond the output limit of the policy; they are lost.'),
  timedOut: z.boolean(),
  outOfMemory: z.boolean(),
  denials: z.array(denialSchema).describe('What the sandbox did not let it do, and what to do next.'),
  riskyChanges: riskySchema.describe('Files it left in the workspace that tools of the user might execute.'),
  riskyChangesOmitted: omittedSchema,
  level: z.string().describe('The isolation it ran at.'),
  durationMs: z.number(),
  sandboxId: z.string(),
  notes: z.array(z.string()),
});

/** The answer about a command that has ended. */
export function commandAnswer(
  result: RunResult,
  outputs: KeptOutputs,
  notes: readonly string[],
): Answer<z.input<typeof commandSchema>> {
  const shares = sharesOf(result.stdout.length, result.stderr.length, MAX_SHOWN);
  const [stdout, stderr] = [excerptOf(result.stdout, shares[0]), excerptOf(result.stderr, shares[1])];
  const kept = [
    ...(stdout.omitted > 0 ? [outputs.keep(result.stdout)] : []),
    ...(stderr.omitted > 0 ? [outputs.keep(result.stderr)] : []),
  ];
  const structured = {
    exitCode: result.exitCode,
    stdout: stdout.text,
    stderr: stderr.text,
    omitted: { stdout: stdout.omitted, stderr: stderr.omitted },
    outputs: kept,
    dropped: { ...result.dropped },
    timedOut: result.timedOut,
    outOfMemory: result.oomKilled,
    denials: toldDenials(result.denials),
    ...toldRisks(result.riskyChanges),
    level: result.level,
    durationMs: Math.round(result.durationMs),
    sandboxId: result.sandboxId,
    notes: [...notes],
  };
  return { text: textOf(structured), structured, outputs: kept };
}

// What the command printed stands last: nothing of acode’s follows it that a command could have written itself.
function textOf(answer: z.input<typeof commandSchema>): string {
  return [
    endOf(answer),
    ...answer.denials.map(denialText),
    ...riskTexts(answer),
    ...answer.notes,
    ...(answer.outputs.length === 0 ? [] : [`The whole output: ${answer.outputs.join(', ')} (read_output reads it).`]),
    ...(answer.stdout === '' ? [] : [`stdout:\n${answer.stdout}`]),
    ...(answer.stderr === '' ? [] : [`stderr:\n${answer.stderr}`]),
  ].join('\n');
}

function endOf({ exitCode, timedOut, outOfMemory, durationMs }: z.input<typeof commandSchema>): string {
  const after = `after ${durationMs / 1000} s`;
  if (timedOut)
    return `Stopped by the time limit ${after}. Make it do less, or run it in the background with run_in_sandbox.`;
  if (outOfMemory) return `Ran out of memory ${after}. Make it use less, such as fewer processes at once.`;
  return exitCode === null ? `Stopped ${after}.` : `Exit code ${exitCode} ${after}.`;
}
