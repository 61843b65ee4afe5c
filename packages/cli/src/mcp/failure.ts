// A failure as a model is told it: what happened and what to do next, and never a stack.

import { AcodeError } from '@acode/sandbox';
import type { Denial, RunResult } from '@acode/sandbox';
import * as z from 'zod';
import { reportOn } from '../failure/report.ts';
import { oneLine } from '../terminal/text.ts';
import { omittedSchema, riskTexts, riskySchema, toldRisks } from './risks.ts';

/** Something the sandbox did not let a command do. */
export const denialSchema = z.object({
  rule: z.string(),
  setBy: z.string().describe('Who set the rule.'),
  remedy: z.string().describe('What to do next.'),
  detail: z.string().optional(),
});

/** What a tool answers where it fails. */
export const failureSchema = z.object({
  code: z.string().describe('Where the call failed: which error it is.'),
  message: z.string().describe('Where the call failed: what happened.'),
  hint: z.string().describe('Where the call failed: what to do next.'),
  denials: z.array(denialSchema),
  riskyChanges: riskySchema
    .optional()
    .describe('Where the call failed: what it left that tools of the user might execute.'),
  riskyChangesOmitted: omittedSchema.optional(),
});

/** A failure, ready to be sent. */
export type ToolFailure = z.output<typeof failureSchema>;

// Messages of engines and of the kernel can be as long as whoever made them fail wants.
const MAX_LENGTH = 2000;

/** The failure for whatever was thrown. */
export function failureOf(error: unknown): ToolFailure {
  const { code, message, hint } = reportOn(error);
  const left = error instanceof AcodeError ? error.riskyChanges : [];
  return {
    code,
    message: bounded(message),
    hint: bounded(forModel(hint)),
    denials: toldDenials(denialsOf(error)),
    ...(left.length > 0 ? toldRisks(left) : {}),
  };
}

/** The failure in words. */
export function failureText({
  code,
  message,
  hint,
  denials,
  riskyChanges = [],
  riskyChangesOmitted = 0,
}: ToolFailure): string {
  const left = riskTexts({ riskyChanges, riskyChangesOmitted });
  return [`${message} (${code})`, `Next: ${hint}`, ...denials.map(denialText), ...left].join('\n');
}

/** Denials as a model is told them: with a way on that is one for it. */
export function toldDenials(denials: readonly Denial[]): z.output<typeof denialSchema>[] {
  return denials.map(({ rule, setBy, detail, ...denial }) => ({
    rule: oneLine(rule),
    setBy: oneLine(setBy),
    remedy: oneLine(ownRemedy(setBy) ?? forModel(denial.remedy)),
    ...(detail === undefined ? {} : { detail: bounded(detail) }),
  }));
}

/** A denial in words. The detail may quote what a command printed, and so it stands last. */
export function denialText({ rule, setBy, remedy, detail }: z.output<typeof denialSchema>): string {
  return `Denied: ${rule}; set by ${setBy}. ${remedy}${detail === undefined ? '' : ` [${detail}]`}`;
}

// A network that is denied ends the call; what it says is a denial all the same.
function denialsOf(error: unknown): Denial[] {
  if (!(error instanceof AcodeError)) return [];
  if (error.is('ACODE-SBX-005')) {
    const { rule, setBy, remedy, network } = error.context;
    return [{ rule, setBy, remedy, detail: `the network ${network}` }];
  }
  return [...(partialOf(error)?.denials ?? [])];
}

/** What a command had come to when it was given up, or its sandbox was gone. */
export function partialOf(error: unknown): Pick<RunResult, 'denials' | 'auditSequence'> | undefined {
  if (!(error instanceof AcodeError)) return undefined;
  return error.is('ACODE-SBX-014') || error.is('ACODE-SBX-025') ? error.context.result : undefined;
}

// What the call itself asked for, it can ask for otherwise.
const ARGUMENTS: Readonly<Record<string, string>> = {
  'policy.timeoutMs': 'timeout_seconds',
  timeoutMs: 'timeout_seconds',
  'policy.limits.memoryBytes': 'memory_mb',
  'policy.limits.cpus': 'cpus',
};

function ownRemedy(setBy: string): string | null {
  const field = /^the request, ([a-z.]+)/i.exec(setBy)?.[1] ?? '';
  const argument = ARGUMENTS[field];
  return argument === undefined
    ? null
    : `Use less, or give a larger ${argument}, or leave it out: the limit of the user’s policy counts then.`;
}

// A model has neither the command line nor the library, only the arguments of the tools: these tighten, and choose an image.
function forModel(remedy: string): string {
  const plain = remedy
    .replaceAll(/ \(on the command line [^)]*\)/g, '')
    .replaceAll('with policy.image', 'with the argument image');
  return /\bpolicy\.[a-z]/i.test(plain)
    ? `${plain} No argument of these tools does that: tell the user what you need and why, and go on without it.`
    : plain;
}

// In one line: a line break in it could begin what looks like a line of acode’s own, such as `Next: …`.
function bounded(text: string): string {
  const line = oneLine(text);
  return line.length <= MAX_LENGTH ? line : `${line.slice(0, MAX_LENGTH)}…`;
}
