// Installs a completion script in the user’s own directory for it, and removes it again. Never changes an rc file: where a
// shell needs a line there, the line is printed.

import { randomUUID } from 'node:crypto';
import { access, lstat, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { fileCode, fileReason } from '../failure/file-reasons.ts';
import { UsageError } from '../failure/usage.ts';
import { oneLine } from '../terminal/text.ts';

/** The shells that have a completion script. */
const SHELLS = ['bash', 'zsh', 'fish'] as const;

/** A shell. */
export type Shell = (typeof SHELLS)[number];

type Environment = Readonly<Record<string, string | undefined>>;

/** What was done with the file, and what is left for the user. */
interface Installed {
  readonly shell: Shell;
  readonly file: string;
  readonly outcome: 'installed' | 'updated' | 'unchanged' | 'removed' | 'absent';
  /** What to do next; one sentence each. */
  readonly next: readonly string[];
  /** The line that the user’s own rc file needs, and that file; null if the shell finds the script by itself. */
  readonly line: { readonly file: string; readonly text: string } | null;
}

// Every script has these words in one of its first lines. A file without them is not ours.
const MARK = ' completion for acode';
const MAX_MARK = 200;
const BASH_COMPLETION = [
  '/usr/share/bash-completion/bash_completion',
  '/usr/local/share/bash-completion/bash_completion',
  '/opt/homebrew/etc/profile.d/bash_completion.sh',
  '/usr/local/etc/profile.d/bash_completion.sh',
];

/** The shell that was named, else the one of `$SHELL`. */
export function shellOf(named: Shell | undefined, env: Environment): Shell {
  const found = named ?? SHELLS.find(shell => shell === basename(env['SHELL'] ?? ''));
  if (found) return found;
  throw new UsageError(
    `acode cannot tell which shell you use: $SHELL is ${env['SHELL'] ? oneLine(env['SHELL']) : 'not set'}.`,
    `Name it: ${SHELLS.map(shell => `\`acode completion install ${shell}\``).join(', ')}.`,
  );
}

/** Where each shell’s users have their own completion scripts. */
function completionFile(shell: Shell, env: Environment): string {
  const data = directory(env['XDG_DATA_HOME'], env, '.local/share');
  if (shell === 'bash')
    return join(
      directory(env['BASH_COMPLETION_USER_DIR'], env, '') || join(data, 'bash-completion'),
      'completions/acode',
    );
  if (shell === 'zsh') return join(data, 'zsh/site-functions/_acode');
  return join(directory(env['XDG_CONFIG_HOME'], env, '.config'), 'fish/completions/acode.fish');
}

function directory(named: string | undefined, env: Environment, standard: string): string {
  if (named !== undefined && isAbsolute(named)) return named;
  if (standard === '') return '';
  const home = env['HOME'] ?? '';
  if (isAbsolute(home)) return join(home, standard);
  throw new UsageError(
    'The environment has no HOME, so acode cannot tell where your files are.',
    'Set HOME, and try again.',
  );
}

/** Writes the script; a file of that name that acode did not write is left alone. */
export async function installScript(shell: Shell, script: string, env: Environment): Promise<Installed> {
  const file = completionFile(shell, env);
  const before = await ownScript(file);
  const needed = await lineFor(shell, file, env);
  const next = [
    ...(needed === null ? [] : [`Add the line below to ${needed.file}${needed.before}.`]),
    'Then start a new shell.',
  ];
  const line = needed === null ? null : { file: needed.file, text: needed.text };
  const installed = { shell, file, next: needed === null ? ['Start a new shell to use it.'] : next, line };
  if (before === script) return { ...installed, outcome: 'unchanged' };
  await write(file, script).catch((error: unknown) => {
    throw unwritable(file, error);
  });
  return { ...installed, outcome: before === null ? 'installed' : 'updated' };
}

/** Removes the script, if acode wrote it. */
export async function uninstallScript(shell: Shell, env: Environment): Promise<Installed> {
  const file = completionFile(shell, env);
  const before = await ownScript(file);
  if (before !== null)
    await rm(file).catch((error: unknown) => {
      throw unwritable(file, error);
    });
  const needed = await lineFor(shell, file, env);
  const next = needed === null || before === null ? [] : [`If you added a line about it to ${needed.file}, remove it.`];
  return { shell, file, outcome: before === null ? 'absent' : 'removed', next, line: null };
}

// Renamed into place: a shell that starts meanwhile reads the old script or the new one.
async function write(file: string, script: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  const temporary = `${file}.${randomUUID()}`;
  try {
    await writeFile(temporary, script, { flag: 'wx', mode: 0o644 });
    await rename(temporary, file);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

function unwritable(file: string, error: unknown): unknown {
  const code = fileCode(error);
  if (code === null) return error;
  return new UsageError(
    `${oneLine(file)} cannot be changed: ${fileReason(code)} (${code}).`,
    `Make ${oneLine(dirname(file))} writable, or print the script and put it elsewhere: \`acode completion bash\`.`,
  );
}

// The script that is there; null for none. Anything else in its place is refused.
async function ownScript(file: string): Promise<string | null> {
  const found = await lstat(file).catch(() => null);
  if (found === null) return null;
  const text = found.isFile() ? await readFile(file, 'utf8') : '';
  if (text.slice(0, MAX_MARK).includes(MARK)) return text;
  throw new UsageError(
    `${oneLine(file)} exists and was not written by acode, so it is left alone.`,
    'Move it away, and try again.',
  );
}

interface NeededLine {
  readonly file: string;
  readonly text: string;
  readonly before: string;
}

async function lineFor(shell: Shell, file: string, env: Environment): Promise<NeededLine | null> {
  if (shell === 'fish') return null;
  if (shell === 'zsh') {
    const own = join(env['ZDOTDIR'] ?? env['HOME'] ?? '~', '.zshrc');
    return { file: own, text: `fpath=(${quoted(dirname(file))} $fpath)`, before: ', before `compinit` is called' };
  }
  for (const path of BASH_COMPLETION) if (await exists(path)) return null;
  return { file: join(env['HOME'] ?? '~', '.bashrc'), text: `source ${quoted(file)}`, before: '' };
}

function quoted(path: string): string {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", String.raw`'\''`)}'`;
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

/** What was done, as text. */
export function renderInstalled({ shell, file, outcome, next, line }: Installed): string {
  const path = oneLine(file);
  const what = {
    installed: `Installed the completion for ${shell}: ${path}`,
    updated: `Updated the completion for ${shell}: ${path}`,
    unchanged: `The completion for ${shell} is up to date: ${path}`,
    removed: `Removed the completion for ${shell}: ${path}`,
    absent: `There is no completion for ${shell} to remove: ${path} does not exist`,
  }[outcome];
  const lines = line === null ? [] : ['', `    ${line.text}`];
  return [what, ...next.map(oneLine), ...lines, ''].join('\n');
}
