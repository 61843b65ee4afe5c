// Merge: the commits of tasks, one task after the other, on top of a commit. Conflicts and failed acceptance commands leave a task out.

import * as z from 'zod';
import { git, Repository, tryGit } from './git.ts';
import { run } from './process.ts';

const inputSchema = z.looseObject({
  tip: z.string().regex(/^[0-9a-f]{40}$/),
  branch: z.string(),
  tasks: z.array(
    z.looseObject({
      id: z.string(),
      base: z.string().regex(/^[0-9a-f]{40}$/),
      commit: z.string().regex(/^[0-9a-f]{40}$/),
      acceptance: z.array(z.string()),
      env: z.record(z.string(), z.string()),
    }),
  ),
});

type MergedTask = z.infer<typeof inputSchema>['tasks'][number];

/** Merges what can be merged. The branch of the fork ends with it. */
export async function merge(input: unknown): Promise<object> {
  const { tip, branch, tasks } = inputSchema.parse(input);
  const repository = await Repository.open();
  repository.removeLocks();
  await repository.leaveOutUntracked();
  await git('checkout', '-q', '-f', '-B', branch, tip);
  const outcomes: object[] = [];
  for (const task of tasks) outcomes.push({ id: task.id, ...(await mergeOne(task)) });
  return { tip: await git('rev-parse', 'HEAD'), outcomes };
}

async function mergeOne({ base, commit, acceptance, env }: MergedTask): Promise<object> {
  const before = await git('rev-parse', 'HEAD');
  const back = async (): Promise<void> => {
    await tryGit(['cherry-pick', '--abort']);
    await tryGit(['merge', '--abort']);
    await git('reset', '-q', '--hard', before);
    await git('clean', '-fdq');
  };
  const joined = await join(base, commit);
  if (joined.commits === 0) return { merged: true, commits: 0 };
  if (joined.status !== 0) {
    const { stdout } = await tryGit(['diff', '--name-only', '--diff-filter=U', '-z']);
    const conflict = stdout.split('\0').filter(path => path !== '');
    await back();
    return { merged: false, conflict: conflict.slice(0, 100), reason: joined.output.trim().slice(-1000) };
  }
  for (const command of acceptance) {
    const { status: failed, output: said } = await run(['sh', '-c', command], {
      env,
      show: bytes => void process.stderr.write(bytes),
    });
    if (failed === 0) continue;
    await back();
    return { merged: false, acceptance: command, reason: said.trim().slice(-1000) };
  }
  await git('reset', '-q', '--hard');
  await git('clean', '-fdq');
  return { merged: true, commits: joined.commits };
}

// One that has merged this already is taken as it is; one that has merged something else is merged; all others are rebased.
async function join(base: string, commit: string): Promise<{ commits: number; status: number; output: string }> {
  const range = `${base}..${commit}`;
  if ((await tryGit(['merge-base', '--is-ancestor', 'HEAD', commit])).status === 0) {
    const count = Number(await git('rev-list', '--count', `HEAD..${commit}`));
    await git('reset', '-q', '--hard', commit);
    return { commits: count, status: 0, output: '' };
  }
  if ((await git('rev-list', '--merges', '--count', range)) !== '0')
    return {
      commits: 1,
      ...(await tryGit(['merge', '-q', '--no-ff', '--no-edit', '-m', `Merge ${commit.slice(0, 12)}`, commit])),
    };
  const list = ['--reverse', '--cherry-pick', '--right-only', `HEAD...${commit}`, `^${base}`];
  const onto = (await git('rev-list', ...list)).split('\n').filter(id => id !== '');
  if (onto.length === 0) return { commits: 0, status: 0, output: '' };
  return { commits: onto.length, ...(await tryGit(['cherry-pick', '--allow-empty', ...onto])) };
}
