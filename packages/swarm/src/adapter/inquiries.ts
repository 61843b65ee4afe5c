// Inquiries: what the orchestrator asks of a fork besides the task itself. Each answers with one JSON object.

import * as z from 'zod';
import { git, Repository, tryGit } from './git.ts';
import { Journal } from './journal.ts';
import { run } from './process.ts';

const show = (bytes: Uint8Array): void => void process.stderr.write(bytes);

const setupSchema = z.object({ setup: z.array(z.string()) });
const MAX_REFS = 20_000;
const MAX_ENTRIES = 400;

/** Checks what tasks need, and does the setup, once for all tasks. */
export async function prepare(input: unknown): Promise<object> {
  const { setup } = setupSchema.parse(input);
  const version = await tryGit(['--version']);
  if (version.status !== 0) return { error: 'no-git' };
  const head = await tryGit(['rev-parse', '-q', '--verify', 'HEAD^{commit}']);
  if (head.status !== 0)
    return { error: (await tryGit(['rev-parse', '--git-dir'])).status === 0 ? 'no-commit' : 'no-repository' };
  await Repository.open();
  const changed = await tryGit(['status', '--porcelain', '-uno', '--ignore-submodules']);
  for (const command of setup) {
    const { status, output } = await run(['sh', '-c', command], { show });
    if (status !== 0) return { error: 'setup', command, status, output: output.slice(-1000) };
  }
  return {
    base: head.stdout.trim(),
    branch: (await tryGit(['symbolic-ref', '-q', '--short', 'HEAD'])).stdout.trim() || null,
    changed: changed.stdout.split('\n').filter(line => line !== '').length,
    node: process.version,
    git: version.stdout.trim(),
    ...(await readRefs()),
  };
}

/** The branches that a repository has. */
export async function readRefs(): Promise<{ refs: Record<string, string> }> {
  const list = await git('for-each-ref', `--count=${MAX_REFS}`, '--format=%(objectname) %(refname)', 'refs/heads');
  const refs: Record<string, string> = {};
  for (const line of list.split('\n').filter(text => text !== ''))
    refs[line.slice(41 + 'refs/heads/'.length)] = line.slice(0, 40);
  return { refs };
}

/** Journal and result file of a task whose orchestrator did not hear its end. */
export async function report(): Promise<object> {
  const repository = await Repository.open();
  const journal = new Journal(repository.own);
  return { journal: journal.read().slice(-MAX_ENTRIES), result: journal.result() };
}

/** What a task changed, for a person to read. */
export async function review(input: unknown): Promise<object> {
  const { base, maxBytes } = z
    .looseObject({ base: z.string().regex(/^[0-9a-f]{40}$/), maxBytes: z.int().max(4 * 1024 ** 2) })
    .parse(input);
  const plain = ['--no-color', '--no-ext-diff', '--no-textconv', '--ignore-submodules'];
  const patch = (await tryGit(['diff', ...plain, base, 'HEAD', '--'])).stdout;
  return {
    commits: (await git('log', '--reverse', '--format=%h %s', `${base}..HEAD`)).split('\n').filter(line => line !== ''),
    stat: (await tryGit(['diff', ...plain, '--stat=100', base, 'HEAD', '--'])).stdout,
    patch: patch.slice(0, maxBytes),
    cut: patch.length > maxBytes,
    uncommitted: (await git('status', '--porcelain'))
      .split('\n')
      .filter(line => line !== '')
      .slice(0, MAX_ENTRIES),
  };
}
