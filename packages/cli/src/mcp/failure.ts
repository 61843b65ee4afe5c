// Failure for a model: what happened and what to do next, never a stack trace.

import { AcodeError, denialParts, layerText, settingCommand } from '@acode/sandbox';
import type { Denial, DenialStyle, RunResult, Terms } from '@acode/sandbox';
import { reportOn } from '../failure/report.ts';
import { oneLine } from '../terminal/text.ts';
import { riskTexts, toldRisks } from './risks.ts';
import type { ToldRisks } from './risks.ts';

/** Something the sandbox did not let a command do. */
export interface ToldDenial {
  /** The id of the rule, such as `limit.memory` or `network.none`. */
  readonly rule: string;
  /** What happened, and by which rule. */
  readonly what: string;
  /** Who set the rule. */
  readonly setBy: string;
  /** What to do next. */
  readonly remedy: string;
  /** What this is inferred from; it may quote what the command printed. */
  readonly note?: string;
}

/** What a tool answers where it fails. */
export interface ToolFailure extends Partial<ToldRisks> {
  readonly code: string;
  /** What happened. */
  readonly message: string;
  /** What to do next. */
  readonly hint: string;
  readonly denials?: readonly ToldDenial[];
}

// Messages of engines and of the kernel can be as long as whoever made them fail wants.
const MAX_LENGTH = 2000;

/** The call that failed. */
export interface FailedCall {
  readonly tool: string;
  /** The ids of the session’s open sandboxes. */
  readonly sandboxes: readonly string[];
}

/** The failure for whatever was thrown. */
export function failureOf(error: unknown, call?: FailedCall): ToolFailure {
  const { code, message, hint } = reportOn(error, TERMS);
  const left = error instanceof AcodeError ? error.riskyChanges : [];
  const denials = toldDenials(denialsOf(error));
  return {
    code,
    message: bounded(message),
    hint: bounded(inTheWay(error, call) ?? forModel(error, hint)),
    ...(denials.length > 0 ? { denials } : {}),
    ...toldRisks(left),
  };
}

/** The failure in words. */
export function failureText({ code, message, hint, denials = [], ...left }: ToolFailure): string {
  return [`${message} (${code})`, `Next: ${hint}`, ...denials.map(denialText), ...riskTexts(left)].join('\n');
}

/** Denials as a model is told them: with remedies that a model can act on. */
export function toldDenials(denials: readonly Denial[]): ToldDenial[] {
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
export function denialText({ what, setBy, remedy, note }: ToldDenial): string {
  return `Denied: ${what} (set by ${setBy}). ${remedy}${note === undefined ? '' : ` [${note}]`}`;
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
  // A person types it: no tool changes the configuration.
  setting: setting => `the user can type \`${settingCommand(setting)}\``,
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
    if (remedy.kind === 'change-request' && remedy.field === 'policy.network')
      return `give the argument network (${remedy.suggested}), which works where the user’s configuration lists these hosts; if it is refused, tell the user what you need and why, and go on without it`;
    if (remedy.kind === 'change-request' && remedy.field === 'policy.fork')
      return 'tell the user that git can commit if this server is started with `acode mcp --fork`';
    if (remedy.kind === 'change-request')
      return `tell the user what you need and why, since no argument of these tools does it (${TERMS.field(remedy.field, remedy.suggested)}), and go on without it`;
    return null;
  },
};

// A model has no `acode sandbox kill`: it can close the sandboxes of its own session, and no others.
function inTheWay(error: unknown, call: FailedCall | undefined): string | null {
  if (call === undefined || !(error instanceof AcodeError)) return null;
  if (error.is('ACODE-FRK-003')) return forkInUse(error.context.sandbox, call);
  if (!error.is('ACODE-SBX-010')) return null;
  const { sandboxes = [] } = error.context;
  if (sandboxes.length === 0) return null;
  const own = sandboxes.filter(id => call.sandboxes.includes(id));
  // Own ones first: others besides may have ended by then.
  if (own.length === 0)
    return `Nothing of the command ran. A sandbox that is not this session’s has to end first. Tell the user: \`acode sandbox list\` shows it; if it is warm, \`acode serve stop\` ends it. Then call ${call.tool} again.`;
  const which = own.length === 1 ? 'this session’s sandbox' : 'these sandboxes of this session';
  return `Nothing of the command ran. Close ${which} with close_sandbox ${own.join(', ')}, then call ${call.tool} again. Files in the workspace stay; background commands in it end.`;
}

function forkInUse(sandbox: string | undefined, { sandboxes }: FailedCall): string | null {
  if (sandbox === undefined || !sandboxes.includes(sandbox)) return null;
  return `Nothing of the command ran. This session’s sandbox ${sandbox} has the fork: use run_in_sandbox, which runs commands in it, or close_sandbox first.`;
}

// Failures whose hints are commands and options of a command line, which only the user has: engine, images, trust, forks, masks, audit.
const FOR_USER =
  /^ACODE-(?:SBX-(?:001|002|005|008|009|011|012|020|022|023)|CTN-(?:004|005|008|009|011)|(?:FRK|MSK|AUD)-\d{3})$/;

// A hint about a field of the policy that no argument sets is one for the user.
function forModel(error: unknown, hint: string): string {
  if (!(error instanceof AcodeError)) return hint;
  if (error.is('ACODE-SBX-015')) return notRunHint(error.context);
  if (FOR_USER.test(String(error.code)) || (error.is('ACODE-SBX-003') && error.context.remedy === undefined))
    return `No argument of these tools changes that. Tell the user, for whom this is: ${hint}`;
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

// The library’s hint is for a person at a command line.
function notRunHint({ command, reason }: { readonly command: string; readonly reason: string }): string {
  if (reason === 'not executable')
    return 'Make the file executable with chmod +x, or put its interpreter first: ["sh", "./script"].';
  if (/\s/.test(command))
    return 'An array is a program and its arguments. Give a shell line as a text, not as an array.';
  return 'Check the spelling, install the dependencies of the project, or choose an image that has the program: the argument image of run_command and open_sandbox. Nothing can be installed with apt or sudo.';
}

// In one line: a line break in it could begin what looks like a line of acode’s own, such as `Next: …`.
function bounded(text: string): string {
  const line = oneLine(text);
  return line.length <= MAX_LENGTH ? line : `${line.slice(0, MAX_LENGTH)}…`;
}
