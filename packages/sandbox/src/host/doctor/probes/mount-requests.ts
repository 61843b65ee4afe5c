// Group B by asking: mounts that must be refused, each beside the honest one that must be accepted.

import { lstat, mkdir, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { MountRequest } from '../../../contract/policy.ts';
import { refusalOf } from '../bench.ts';
import type { Bench } from '../bench.ts';
import type { Outcome, Trial, Untried } from '../trial.ts';
import { refused } from './policy-requests.ts';
import type { Asked } from './policy-requests.ts';

const MOUNT = ['ACODE-SBX-003'];

function mounting(workspace: string, ...mounts: MountRequest[]): Asked {
  return { workspace, policy: { mounts } };
}

const extra = (source: string, target = '/extra'): MountRequest => ({ source, target });

/** Mounts that must never be made. */
export const mountRequests: Trial = {
  about: 'mount requests',
  needsShell: false,
  attacks: [
    { id: 'A20', title: 'mounts below /proc, /sys, /dev' },
    { id: 'B1', title: '/, /tmp/.., /proc/self/root as workspace' },
    { id: 'B2', title: 'sibling with the same prefix' },
    { id: 'B3', title: 'workspace is a symbolic link' },
    { id: 'B5', title: 'protected path is a symbolic link' },
    { id: 'B7', title: 'directory of the engine’s socket' },
    { id: 'B9', title: 'credential stores, the home directory' },
    { id: 'B10', title: 'nested mount under a read-only mount' },
    { id: 'B12', title: 'missing source' },
    { id: 'B13', title: 'two mounts on one target' },
    { id: 'B14', title: 'gitdir: file that points at a secret' },
  ],
  async run(bench) {
    const workspace = await bench.workspace({ 'data/file': 'x', 'other/file': 'x' });
    const honest = mounting(workspace, extra(join(workspace, 'data')));
    const evil = `${workspace}-evil`;
    await mkdir(evil);
    const missing = join(workspace, 'missing');
    const home = process.env['HOME'] ?? '/root';
    const socket = bench.socket ?? '/var/run/docker.sock';
    const [a20, b1, b2, b3, b5, b7, b9, b12, b13, b14] = await Promise.all([
      refused(
        bench,
        MOUNT,
        ['/proc/x', '/sys/x', '/dev/x'].map(target => mounting(workspace, extra(join(workspace, 'data'), target))),
        honest,
      ),
      refused(
        bench,
        MOUNT,
        ['/', '/tmp/..', '/proc/self/root'].map(path => ({ workspace: path })),
        { workspace },
      ),
      refused(bench, MOUNT, [mounting(workspace, extra(evil))], honest),
      linkedWorkspace(bench, workspace),
      linkedGit(bench),
      refused(bench, MOUNT, [mounting(workspace, extra(dirname(socket))), mounting(workspace, extra('/run'))], honest),
      refused(
        bench,
        MOUNT,
        ['.ssh', '.aws', '.kube', '.docker', '.netrc', '.npmrc', '.'].map(name =>
          mounting(workspace, extra(join(home, name))),
        ),
        honest,
      ),
      refused(bench, MOUNT, [mounting(workspace, extra(missing))], honest),
      refused(
        bench,
        [...MOUNT, 'ACODE-SBX-017'],
        [mounting(workspace, extra(join(workspace, 'data')), extra(join(workspace, 'other')))],
        mounting(workspace, extra(join(workspace, 'data')), extra(join(workspace, 'other'), '/more')),
      ),
      pointedGit(bench),
    ]);
    const made = await lstat(missing).then(
      () => true,
      () => false,
    );
    return {
      A20: a20,
      B1: b1,
      B2: b2,
      B3: b3,
      B5: b5,
      B7: b7,
      B9: b9,
      B10: { untried: 'only root can mount something below a workspace, and acode never is' },
      B12: {
        ...b12,
        stopped: b12.stopped && !made,
        observed: `${b12.observed}; ${made ? '' : 'nothing '}made on the host`,
      },
      B13: b13,
      B14: b14,
    };
  },
  // The same requests are refused; what they are refused for is in reach without them.
  async onHost(bench) {
    const nothing = ['A20', 'B10', 'B12', 'B13', 'B14'].map(id => [id, MOUNTS_NOTHING] as const);
    const walls = await withoutWalls(bench, ['B1', 'B2', 'B3', 'B5', 'B7', 'B9']);
    return { ...Object.fromEntries(nothing), ...walls };
  },
};

const MOUNTS_NOTHING: Untried = { untried: 'this level mounts nothing, and refuses a request for a mount' };

async function linkedWorkspace(bench: Bench, real: string): Promise<Outcome> {
  const top = await bench.workspace();
  await Promise.all([symlink('/etc', join(top, 'etc')), symlink(real, join(top, 'real'))]);
  const outcome = await refused(bench, MOUNT, [{ workspace: join(top, 'etc') }], { workspace: join(top, 'real') });
  if (!outcome.controlled) return outcome;
  const { spec } = await bench.explain({ workspace: join(top, 'real') });
  const resolved = spec.mounts[0]?.source === real;
  return { ...outcome, controlled: resolved, control: 'a link to a project is resolved and accepted' };
}

async function linkedGit(bench: Bench): Promise<Outcome> {
  const bad = await bench.workspace();
  await symlink('/etc', join(bad, '.git'));
  return refused(bench, MOUNT, [{ workspace: bad }], { workspace: await bench.workspace({ '.git/HEAD': 'ref: x\n' }) });
}

// Whether it is refused or only not followed does not matter; that nothing of it gets inside does.
async function pointedGit(bench: Bench): Promise<Outcome> {
  const bad = await bench.workspace({ '.git': 'gitdir: /etc/ssh\n' });
  const good = await bench.workspace({ '.git/HEAD': 'ref: x\n' });
  const sources = async (workspace: string): Promise<string[] | null> => {
    const explained = bench.explain({ workspace });
    const code = await refusalOf(explained);
    return code === null ? (await explained).spec.mounts.map(({ source }) => source) : null;
  };
  const [followed, honest] = await Promise.all([sources(bad), sources(good)]);
  const leaks = (followed ?? []).filter(source => source.startsWith('/etc'));
  return {
    stopped: leaks.length === 0,
    observed: followed === null ? 'refused' : leaks.length === 0 ? 'not followed' : `mounts ${leaks.join(', ')}`,
    controlled: (honest ?? []).includes(join(good, '.git')),
    control: 'a real .git is mounted, read-only',
  };
}

const CANARY = 'acode-doctor-outside-7c20';

/** One look at a file of the attack’s own outside a workspace: whoever can read it needs no mount to read anything else. */
export async function withoutWalls(bench: Bench, ids: readonly string[]): Promise<Record<string, Outcome>> {
  const outside = await bench.workspace({ canary: CANARY });
  const { stdout } = await bench.run(['cat', join(outside, 'canary')]);
  const read = stdout.includes(CANARY);
  const outcome: Outcome = {
    stopped: !read,
    observed: read
      ? 'needs no mount: a file outside the workspace was read'
      : 'a file outside the workspace was not read',
    controlled: read,
    control: 'the file is a canary of the attack’s own',
  };
  return Object.fromEntries(ids.map(id => [id, outcome]));
}
