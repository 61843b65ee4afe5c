// Git inside the sandbox, on the fork: without hooks, questions and the settings of a machine.

import { appendFileSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Region } from '../protocol.ts';
import { run } from './process.ts';
import type { Ended } from './process.ts';

const OPTIONS = [
  '-c',
  'core.hooksPath=/dev/null',
  '-c',
  'core.fsmonitor=false',
  '-c',
  'core.checkStat=minimal',
  '-c',
  'safe.directory=*',
  '-c',
  'gc.auto=0',
  '-c',
  'maintenance.auto=false',
  '-c',
  'commit.gpgSign=false',
];
const ENV = {
  GIT_TERMINAL_PROMPT: '0',
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_OPTIONAL_LOCKS: '0',
  GIT_EDITOR: 'true',
};
const IDENTITY = {
  GIT_AUTHOR_NAME: 'acode swarm',
  GIT_AUTHOR_EMAIL: 'acode@localhost',
  GIT_COMMITTER_NAME: 'acode swarm',
  GIT_COMMITTER_EMAIL: 'acode@localhost',
};
const MAX_LEFT_OUT = 20_000;

/** Git did not do what it was asked for. */
export class GitFailure extends Error {
  override readonly name = 'GitFailure';
}

/** Runs git, whatever its status. */
export function tryGit(argv: readonly string[], input?: string): Promise<Ended> {
  return run(['git', ...OPTIONS, ...argv], { env: { ...ENV, ...IDENTITY }, ...(input === undefined ? {} : { input }) });
}

/** Runs git, and returns what it printed. */
export async function git(...argv: string[]): Promise<string> {
  const { status, stdout, output } = await tryGit(argv);
  if (status !== 0)
    throw new GitFailure(`git ${argv[0] ?? ''} failed (${status}): ${output.trim().split('\n').at(-1) ?? ''}`);
  return stdout.replace(/\n$/, '');
}

/** The repository that a fork has. */
export class Repository {
  /** The git directory of the work tree. */
  readonly directory: string;
  /** Where the adapter keeps what must outlive it. */
  readonly own: string;

  private constructor(directory: string) {
    this.directory = directory;
    this.own = join(directory, 'acode-swarm');
  }

  static async open(): Promise<Repository> {
    const repository = new Repository(await git('rev-parse', '--absolute-git-dir'));
    mkdirSync(repository.own, { recursive: true });
    return repository;
  }

  /** Removes locks of a git that was killed: in this sandbox no other one runs. */
  removeLocks(): void {
    for (const name of ['index.lock', 'HEAD.lock', 'config.lock', 'packed-refs.lock'])
      rmSync(join(this.directory, name), { force: true });
    const below = (path: string): void => {
      for (const entry of readdirSync(path, { withFileTypes: true }))
        if (entry.isDirectory()) below(join(path, entry.name));
        else if (entry.name.endsWith('.lock')) rmSync(join(path, entry.name), { force: true });
    };
    below(join(this.directory, 'refs'));
  }

  /** What is not tracked now is no part of any commit: files of the user, and what the setup made. */
  async leaveOutUntracked(): Promise<void> {
    const list = await git('ls-files', '--others', '--exclude-standard', '--directory', '-z');
    const names = list.split('\0').filter(name => name !== '' && !name.includes('\n'));
    const file = await git('rev-parse', '--git-path', 'info/exclude');
    mkdirSync(join(file, '..'), { recursive: true });
    const had = new Set(readOr(file).split('\n'));
    const lines = names.slice(0, MAX_LEFT_OUT).map(name => `/${name.replaceAll(/[\\*?[\]!# ]/g, String.raw`\$&`)}`);
    appendFileSync(file, ['', ...lines.filter(line => !had.has(line)), ''].join('\n'));
  }

  /** The regions that differ from a commit, in lines of that commit. */
  async changesSince(base: string, most: number): Promise<Region[]> {
    const { status, stdout } = await tryGit([
      'diff',
      '-U0',
      '--no-color',
      '--no-ext-diff',
      '--no-renames',
      '--no-textconv',
      '--ignore-submodules',
      base,
      '--',
    ]);
    if (status !== 0) return [];
    const untracked = await tryGit(['ls-files', '--others', '--exclude-standard', '-z']);
    const added = untracked.stdout
      .split('\0')
      .filter(name => name !== '')
      .map(path => ({ path, from: 0, to: 0 }));
    return [...regionsOf(stdout), ...added].filter(({ path }) => path.length <= 1024).slice(0, most);
  }
}

/** The regions of a patch without context, in lines of its old side. */
export function regionsOf(patch: string): Region[] {
  const found: Region[] = [];
  let path = '';
  let isHead = false;
  for (const line of patch.split('\n')) {
    if (line.startsWith('diff --git ')) [path, isHead] = ['', true];
    const named = isHead ? /^(?:--- a|\+\+\+ b)\/(.*?)\t?$/.exec(line)?.[1] : undefined;
    path = named ?? path;
    const region = path === '' ? null : regionOf(path, line);
    if (region === null) continue;
    isHead = false;
    found.push(region);
  }
  return found;
}

// Lines that were added between two lines belong to both.
function regionOf(path: string, line: string): Region | null {
  const [, start, count = '1'] = /^@@ -(\d+)(?:,(\d+))? \+/.exec(line) ?? [];
  if (start === undefined) return null;
  const from = Number(start);
  if (count === '0') return { path, from, to: from === 0 ? 0 : from + 1 };
  return { path, from, to: from + Number(count) - 1 };
}

function readOr(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
