// Failure for a model: what happened and what to do next, never a stack trace.

import { AcodeError, denialParts, layerText } from '@acode/sandbox';
import type { Denial, DenialStyle, RunResult, Terms } from '@acode/sandbox';
import * as z from 'zod';
import { reportOn } from '../failure/report.ts';
import { oneLine } from '../terminal/text.ts';
import { omittedSchema, riskTexts, riskySchema, toldRisks } from './risks.ts';

/** Something the sandbox did not let a command do. */
export const denialSchema = z.object({
  rule: z.string().describe('The id of the rule, such as limit.memory or network.none.'),
  what: z.string().describe('What happened, and by which rule.'),
  setBy: z.string().describe('Who set the rule.'),
  remedy: z.string().describe('What to do next.'),
  note: z.string().optional().describe('What this is inferred from; it may quote what the command printed.'),
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
  const { code, message, hint } = reportOn(error, TERMS);
  const left = error instanceof AcodeError ? error.riskyChanges : [];
  return {
    code,
    message: bounded(message),
    hint: bounded(forModel(error, hint)),
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

/** Denials as a model is told them: with remedies that a model can act on. */
export function toldDenials(denials: readonly Denial[]): z.output<typeof denialSchema>[] {
  return denials.map(denial => {
    const { what, setBy, remedy, note } = denialParts(denial, STYLE);
    return {
      rule: denial.rule,
      what: oneLine(what),
      setBy: oneLine(setBy),
      remedy: oneLine(remedy),
      ...(note === null ? {} : { note: bounded(note) }),
    };
  });
}

/** A denial in words. The note may quote what a command printed, and so it stands last. */
export function denialText({ what, setBy, remedy, note }: z.output<typeof denialSchema>): string {
  return `Denied: ${what}, set by ${setBy}. ${remedy}${note === undefined ? '' : ` [${note}]`}`;
}

function denialsOf(error: unknown): readonly Denial[] {
  return partialOf(error)?.denials ?? [];
}

/** What a command had come to when it was given up, or its sandbox was gone. */
export function partialOf(error: unknown): Pick<RunResult, 'denials' | 'auditSequence'> | undefined {
  if (!(error instanceof AcodeError)) return undefined;
  return error.is('ACODE-SBX-014') || error.is('ACODE-SBX-025') ? error.context.result : undefined;
}

// What the call itself asked for, it can ask for otherwise: the arguments of the tools, by the field they set.
const ARGUMENTS: Readonly<Record<string, string>> = {
  'policy.timeoutMs': 'timeout_seconds',
  timeoutMs: 'timeout_seconds',
  'policy.limits.memoryBytes': 'memory_mb',
  'policy.limits.cpus': 'cpus',
  'policy.image': 'image',
};

const TERMS: Terms = {
  field: (name, value) => {
    const argument = ARGUMENTS[name];
    if (argument !== undefined) return `the argument ${argument}`;
    return value === undefined ? name : `${name}: ${value}`;
  },
  source: source => {
    const argument = source.layer === 'request' ? ARGUMENTS[source.where] : undefined;
    return argument === undefined ? layerText(source) : `the argument ${argument}`;
  },
};

// A model has neither the command line nor the library, only the arguments of the tools: these tighten, and choose an image.
const STYLE: DenialStyle = {
  terms: TERMS,
  remedy: (remedy, { setBy }) => {
    if (remedy.kind === 'raise-limit')
      return setBy.layer === 'request' && setBy.where in ARGUMENTS
        ? `give a larger ${ARGUMENTS[setBy.where]}, or leave it out: the limit of the user’s policy counts then`
        : 'tell the user what you need and why, since no argument of these tools raises this limit, and go on without it';
    if (remedy.kind === 'change-request')
      return `tell the user what you need and why, since no argument of these tools does it (${TERMS.field(remedy.field, remedy.suggested)}), and go on without it`;
    return null;
  },
};

// A hint about a field of the policy that no argument sets is one for the user.
function forModel(error: unknown, hint: string): string {
  if (!(error instanceof AcodeError)) return hint;
  let isBeyond = false;
  const watching: Terms = {
    ...TERMS,
    field: (name, value) => {
      isBeyond ||= name.startsWith('policy.') && !(name in ARGUMENTS);
      return TERMS.field(name, value);
    },
  };
  const told = error.inTerms(TERMS, watching).hint;
  return isBeyond
    ? `${told} No argument of these tools does that: tell the user what you need and why, and go on without it.`
    : told;
}

// In one line: a line break in it could begin what looks like a line of acode’s own, such as `Next: …`.
function bounded(text: string): string {
  const line = oneLine(text);
  return line.length <= MAX_LENGTH ? line : `${line.slice(0, MAX_LENGTH)}…`;
}
