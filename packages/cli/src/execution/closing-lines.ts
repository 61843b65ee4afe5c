// Notices after a run: what it hit or was denied, who set that, and what to do next.

import { denialParts, limitError } from '@acode/sandbox';
import type { Command, Denial, DenialStyle, Remedy, RiskyChange, RunResult, Text } from '@acode/sandbox';
import { quoted } from '../arguments/command-arguments.ts';
import { OPTION_TERMS } from '../arguments/option-names.ts';
import { oneLine } from '../terminal/text.ts';
import type { Notice } from '../terminal/notice.ts';
import { inExisting } from './in-existing.ts';
import type { Existing } from './in-existing.ts';
import { riskyLines } from './risky-lines.ts';

const NOT_FOUND = 127;
// Where the tool that installs dependencies is missing, the image is the cause.
const TOOL_MISSING = /\b(?:npm|npx|pnpm|yarn|node|pip3?|python3?): (?:command )?not found/;
// The cache of each tool has its name.
const INSTALLS = /(?:^|[\s;&|/])(npm|pnpm|yarn|pip)3? +(?:ci|install|i|add)\b/;
// How the command line puts denials.
const STYLE: DenialStyle = { terms: OPTION_TERMS, remedy: shortened };

/** What is known of a command that has ended, besides its result. */
export interface About {
  /** The sandbox that was there before, if it ran in one. */
  readonly existing?: Existing | null | undefined;
  /** What is said of dependencies that are not installed. */
  readonly dependencies?: string | null | undefined;
  /** What is said of a path of the workspace that the user may not write. */
  readonly permission?: string | null | undefined;
  /** What is said of names that were not resolved. */
  readonly names?: string | null | undefined;
  /** The options acode itself has, as `--memory`. */
  readonly options?: readonly string[] | undefined;
  /** What the user called, for the line to type: `acode run`. */
  readonly called?: string | undefined;
  /** What gives the same command a terminal; absent where it had one, or its standard input came from elsewhere. */
  readonly withTerminal?: string | undefined;
}

/** What there is to say after a run; nothing for a run that hit nothing. */
export function closingNotices(result: RunResult, command: Command, about: About = {}): Notice[] {
  const { existing = null, dependencies = null, options = [] } = about;
  const style = existing ? inExisting(existing) : styleFor(command);
  const notices = [
    ...onceEach(result.denials.map(denial => denialNotice(denial, style))),
    ...missingLines(result, command, { existing, dependencies }).map(asNotice),
    ...[about.permission ?? [], about.names ?? []].flat().map(hint => asNotice(`hint: ${hint}`)),
    ...optionLines(result, command, options, about.called).map(asNotice),
    ...riskyNotices(result.riskyChanges),
    ...forkNotices(result),
  ];
  return notices.length > 0 ? notices : silentLines(result, about.withTerminal).map(asNotice);
}

const QUICK_MS = 2000;

// A program that asks finds its input at its end, and ends as if all were well. What wrote files has done its work, and a
// terminal needs an image.
function silentLines(
  { exitCode, stdout, stderr, durationMs, changed, image }: RunResult,
  withTerminal?: string,
): string[] {
  if (withTerminal === undefined || image === undefined || exitCode !== 0 || durationMs >= QUICK_MS) return [];
  if (stdout !== '' || stderr !== '' || Object.values(changed).some(count => count > 0)) return [];
  return [
    `nothing was printed, and standard input was empty: for a program that asks, add -t: \`${oneLine(withTerminal)}\``,
  ];
}

// Several hosts that one list lacks have the same hint: it stands below the last of them.
function onceEach(notices: readonly Notice[]): Notice[] {
  return notices.map((notice, index) => {
    if (notice.hint === undefined || notices[index + 1]?.hint !== notice.hint) return notice;
    const { hint: _, ...rest } = notice;
    return rest;
  });
}

/** The same, each in one line, for JSON and for the report on many runs. */
export function closingLines(...about: Parameters<typeof closingNotices>): string[] {
  return closingNotices(...about).map(({ text, hint }) => (hint === undefined ? text : `${text} ${hint}`));
}

/** Risky changes as notices, below a head of the caller’s. */
export function riskyNotices(changes: readonly RiskyChange[], head?: string): Notice[] {
  return riskyLines(changes, undefined, head).map(asNotice);
}

function forkNotices({ fork }: RunResult): Notice[] {
  if (!fork) return [];
  const text = `fork ${fork.id}: the command wrote its fork, and the workspace is unchanged.`;
  return [
    {
      text,
      hint: `Show the changes: \`acode fork diff ${fork.id}\`. Apply them to your files: \`acode fork apply ${fork.id}\`. Undo the last command: \`acode fork undo ${fork.id}\`.`,
    },
  ];
}

function asNotice(text: string): Notice {
  return { text };
}

/** A denial in the layout of an error: what happened, its code or rule, what to type next. */
function denialNotice(denial: Denial, style: DenialStyle = STYLE): Notice {
  const { summary, remedy, note } = denialParts(denial, style);
  const code = limitError({ denials: [denial] })?.code;
  return {
    text: `${code === undefined ? 'denied' : 'limit reached'}: ${summary}.`,
    details: [
      code === undefined ? ['rule', denial.rule] : ['code', code],
      // It may quote what the command printed, which must not look like a line of ours.
      ...(note === null ? [] : [['note', note.replaceAll(/[│├╰▶]/g, '?')] as const]),
    ],
    hint: remedy,
  };
}

/** The same in one line, for JSON and for lists. */
export function denialLine(denial: Denial, style: DenialStyle = STYLE): string {
  const { summary, remedy, note } = denialParts(denial, style);
  // The note may quote what the command printed: it stands last, where it can pass for nothing of ours.
  return `${codeOf(denial)}: ${summary}. ${remedy}${note === null ? '' : ` [${note}]`}`;
}

// What installs packages needs only these options, and later commands nothing.
function styleFor(command: Command): DenialStyle {
  const line = typeof command === 'string' ? command : command.join(' ');
  const cache = INSTALLS.exec(line)?.[1];
  if (cache === undefined) return STYLE;
  return {
    ...STYLE,
    remedy: (remedy, denial) =>
      remedy.kind === 'change-request' && remedy.field === 'policy.network' && denial.rule === 'network.none'
        ? `fill the cache for every later command: add --fill-cache ${cache} --network ${remedy.suggested}`
        : shortened(remedy, denial),
  };
}

/** A remedy in words of the command line, where those of every audience would be too long; null for the usual ones. */
export function shortened(remedy: Remedy, { rule, setBy }: Denial): Text | null {
  if (rule === 'network.not-listed' && remedy.kind === 'change-request')
    return ['allow it for this command: ', { field: remedy.field, value: remedy.suggested }];
  if (remedy.kind === 'change-request' && remedy.field === 'policy.fork')
    return 'to let it commit, add --fork: `acode fork apply --branch <name>` then brings the commits here, and nothing else of .git';
  if (remedy.kind === 'change-on-host') return 'make the change yourself, outside the sandbox';
  if (remedy.kind !== 'change-request' || remedy.field !== 'policy.workspace') return null;
  return setBy.layer === 'request' ? 'leave --readonly out' : `change that setting in ${setBy.where}`;
}

function codeOf(denial: Denial): string {
  return limitError({ denials: [denial] })?.code ?? 'denied';
}

/** Whether what a command printed and how it ended may come from dependencies that are not installed. */
export function mayLackDependencies(result: RunResult): boolean {
  return result.exitCode === NOT_FOUND || lacksModule(result);
}

const MAX_READ = 16 * 1024;
// A module by its name, which no file of the project is: node puts paths in the same place.
const MODULE_MISSING = /Cannot find (?:module|package) ['"](?![./])|ModuleNotFoundError: No module named/;

/** Whether a command failed for want of a package, as its interpreter says it; some test runners print that to standard output. */
export function lacksModule({ exitCode, stdout, stderr }: RunResult): boolean {
  if (exitCode === 0 || exitCode === null) return false;
  return [stderr, stdout].some(printed => MODULE_MISSING.test(printed.slice(-MAX_READ)));
}

/** A program that was not found, and the image that may not have it; null for another end, and where a denial explains it. */
export function notFoundCause({ exitCode, denials, image }: RunResult): { readonly image: string } | null {
  if (exitCode !== NOT_FOUND || denials.some(({ rule }) => rule === 'root.none')) return null;
  return { image: image?.reference ?? 'the image' };
}

function missingLines(
  result: RunResult,
  command: Command,
  { existing, dependencies }: Required<Pick<About, 'existing' | 'dependencies'>>,
): string[] {
  if (lacksModule(result)) return dependencies ? [`hint: ${dependencies}`] : [];
  const cause = notFoundCause(result);
  if (cause === null) return [];
  // Of a shell that ended with the status of its last command, nothing more is known.
  if (dependencies && command.length > 0 && !TOOL_MISSING.test(result.stderr)) return [`hint: ${dependencies}`];
  return typeof command === 'string' ? [missingLine(cause.image, existing != null)] : [];
}

// What stands behind `--` is the command’s: said where the program complains about an option that acode has.
function optionLines(
  { exitCode, stderr }: RunResult,
  command: Command,
  options: readonly string[],
  called = 'acode run',
): string[] {
  if (typeof command === 'string' || exitCode === 0 || exitCode === null) return [];
  const [program = '', ...words] = command;
  const at = words.findIndex(word => options.includes(nameOf(word)) && stderr.includes(nameOf(word)));
  const given = words[at];
  if (given === undefined) return [];
  const next = words[at + 1];
  // What follows it is taken for its value unless it looks like another option.
  const taken = given.includes('=') || next === undefined || next.startsWith('-') ? [given] : [given, next];
  const rest = [program, ...words.slice(0, at), ...words.slice(at + taken.length)];
  const line = oneLine(`${called} ${taken.map(quoted).join(' ')} -- ${rest.map(quoted).join(' ')}`);
  return [
    `hint: ${nameOf(given)} comes after \`--\`, so it went to ${oneLine(program)}. Put acode’s own options before \`--\`: \`${line}\`.`,
  ];
}

function nameOf(word: string): string {
  return word.split('=')[0] ?? '';
}

function missingLine(image: string, exists: boolean): string {
  const another = exists ? '`acode sandbox create --image …` makes a sandbox of another.' : '--image chooses another.';
  return `hint: status 127 means that a command was not found; ${image} may not have it. ${another}`;
}
