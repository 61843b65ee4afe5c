// Command arguments: one quoted line for the shell, or the argv after `--`, which no shell ever sees.

import type { Command } from '@acode/sandbox';
import { UsageError } from '../failure/usage.ts';

/** The command line where a command is expected. */
export interface CommandArguments {
  /** The arguments before any `--`. */
  readonly before: readonly string[];
  /** The arguments after `--`; null where there was none. */
  readonly after: readonly string[] | null;
  /** What the user called, for the hint: `acode sandbox exec`. */
  readonly called: string;
  /** The options acode itself has here, as `--memory`. */
  readonly options: readonly string[];
}

/** The command that was meant; throws where it could be read in two ways. */
export function commandOf({ before, after, called, options }: CommandArguments): Command {
  refuseSandbox(before, after, called);
  if (after !== null) {
    refuseOption(after, called, options);
    return vector(before, after, called);
  }
  const [line, ...rest] = before;
  if (line === undefined || line.trim() === '')
    throw new UsageError('There is no command to run.', forms(called, ['echo', 'hi']));
  if (rest.length === 0) return line;
  if (rest.some(argument => options.includes(argument.split('=')[0] ?? '')))
    throw new UsageError(
      `Options stand before the command, and ${rest[0] ?? ''} stands after it.`,
      `Write \`${called} ${rest.map(quoted).join(' ')} ${quoted(line)}\`; if all of it is the command, \`${called} ${together(before)}\`.`,
    );
  const image = imageForm(called, line, rest);
  const either =
    image === ''
      ? `\`${before.join(' ')}\` is a shell line, or a program and its arguments`
      : `${line} is an image or a program`;
  throw new UsageError(`It is not clear whether ${either}.`, `${image}${forms(called, before)}`);
}

// Options without a value: what follows one of them is the program.
const FLAGS = new Set(['--fork', '--readonly', '--deps', '--no-caches', '--terminal', '-t', '--json', '--verbose']);

// No program is called as an option of acode is: the words before it were forgotten, or `--` came too early.
function refuseOption(after: readonly string[], called: string, options: readonly string[]): void {
  const [first = '', ...rest] = after;
  if (!options.includes(first.split('=', 1)[0] ?? '')) return;
  throw new UsageError(
    `${first} comes after \`--\`, where the name of the program should be.`,
    `Put acode’s own options before \`--\`: \`${called} ${FLAGS.has(first) ? [first, '--', ...rest.map(quoted)].join(' ') : `${first} … -- <program>`}\`.`,
  );
}

// The id or the name of a sandbox, where other tools take one as their first argument.
const SANDBOX = /^(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{1,22}|acode-[0-9a-z]+(?:-[0-9a-z]+)+)$/;

/** Whether a word is an id, or a name that acode gave a sandbox. */
export function isOwnName(word: string): boolean {
  return SANDBOX.test(word);
}

function refuseSandbox(before: readonly string[], after: readonly string[] | null, called: string): void {
  const [first = '', ...rest] = before;
  const argv = [...rest, ...(after ?? [])];
  if (!isOwnName(first) || argv.length === 0) return;
  const exec = called.replace(/^acode run\b/, 'acode sandbox exec');
  throw new UsageError(
    `${first} is the name of a sandbox, but a command is expected there.`,
    `To run a command in that sandbox: \`${exec} ${first} -- ${argv.map(quoted).join(' ')}\`.`,
  );
}

const MIN_LENGTH = 4;
const REFERENCE = /^[A-Za-z0-9][\w.-]*$/;

/** Whether a word may be the id or name of a sandbox, and is not an image. */
export function isReference(word: string): boolean {
  return REFERENCE.test(word) && word.length >= MIN_LENGTH && !IMAGE.test(word);
}

/** The sandbox that is named before `--`; throws where the word cannot be one. */
export function sandboxBefore(word: string, after: readonly string[], called: string): string {
  const argv = after.map(quoted).join(' ');
  if (IMAGE.test(word))
    throw new UsageError(
      `${word} stands before \`--\`, where a persistent sandbox is named, and looks like an image.`,
      `In that image: \`${called} --image ${word} -- ${argv}\`. In a sandbox with this name: \`${called} --in ${word} -- ${argv}\`.`,
    );
  if (isReference(word)) return word;
  throw new UsageError(
    `${quoted(word)} stands before \`--\`, where only options and the id or name of a persistent sandbox do.`,
    `${forms(called, [word, ...after])} \`acode sandbox list\` shows the sandboxes.`,
  );
}

// Names that are images and hardly ever programs, or that have a tag.
const IMAGE =
  /^(?:busybox|alpine|ubuntu|debian|fedora|centos|rockylinux|archlinux|golang)$|^[a-z0-9][a-z0-9._/-]*:[\w][\w.-]*$/;

function imageForm(called: string, first: string, rest: readonly string[]): string {
  if (!IMAGE.test(first)) return '';
  return `To run ${quoted(rest[0] ?? '')} in the image ${first}: \`${called} --image ${first} -- ${rest.map(quoted).join(' ')}\`. `;
}

/** An argument as it can be typed into a shell. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

function vector(before: readonly string[], after: readonly string[], called: string): readonly string[] {
  if (before.length > 0)
    throw new UsageError(
      `${quoted(before[0] ?? '')} stands before \`--\`, where only options do.`,
      forms(called, [...before, ...after]),
    );
  if (after.length === 0 || after[0] === '')
    throw new UsageError('There is no command after `--`.', forms(called, ['echo', 'hi']));
  return after;
}

function together(argv: readonly string[]): string {
  return argv.some(argument => /\s/.test(argument)) ? quoted(argv.join(' ')) : `-- ${argv.map(quoted).join(' ')}`;
}

// In double quotes only where a shell would find nothing to expand.
function forms(called: string, argv: readonly string[]): string {
  const line = argv.join(' ');
  const shown = /^[\w@%+=:,./ -]*$/.test(line) ? `"${line}"` : quoted(line);
  return `For a shell line: \`${called} ${shown}\`. For a program and its arguments: \`${called} -- ${argv.map(quoted).join(' ')}\`.`;
}
