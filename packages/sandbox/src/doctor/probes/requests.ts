// Groups B and F by asking: requests that must be refused, each beside the honest one that must be accepted.

import { lstat, mkdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { performance } from 'node:perf_hooks';
import type { MountRequest, PolicyInput } from '../../contract/policy.ts';
import { refusalOf } from '../bench.ts';
import type { Bench, RunOptions } from '../bench.ts';
import type { Outcome, Trial } from '../trial.ts';

type Asked = RunOptions & { readonly command?: string | readonly string[] };

/** Asks for things that must be refused with one of `codes`, and for the honest twin. */
async function refused(bench: Bench, codes: readonly string[], bad: readonly Asked[], honest: Asked): Promise<Outcome> {
  const [answers, twin] = await Promise.all([
    Promise.all(bad.map(asked => bench.refusal(asked))),
    bench.refusal(honest),
  ]);
  return {
    stopped: answers.every(code => code !== null && codes.includes(code)),
    observed: [...new Set(answers.map(code => code ?? 'accepted'))].join(', '),
    controlled: twin === null,
    control: twin === null ? 'the honest request is accepted' : `the honest request was refused: ${twin}`,
  };
}

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
      refused(
        bench,
        MOUNT,
        [mounting(workspace, extra(dirname(bench.socket))), mounting(workspace, extra('/run'))],
        honest,
      ),
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
};

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

const IMAGES = ['--privileged', '-v/:/host', 'a b', 'x\ny', '$(id)', '../../etc'];
const SETTINGS = ['ACODE-SBX-013', 'ACODE-SBX-020'];
const REQUEST = ['ACODE-SBX-017'];

/** Policy, environment and repository settings that must not count. */
export const policyRequests: Trial = {
  about: 'policy requests',
  needsShell: false,
  attacks: [
    { id: 'D3b', title: 'bridge, which reaches services of this host' },
    { id: 'F5', title: 'repository loosens the policy' },
    { id: 'F6', title: '__proto__ in a configuration' },
    { id: 'F7', title: 'alias bomb, 10 MB configuration' },
    { id: 'F8', title: 'LD_PRELOAD, NODE_OPTIONS' },
    { id: 'F10', title: 'image reference with dashes, spaces, newlines' },
    { id: 'F11', title: 'shell words in limits and names' },
    { id: 'F13', title: 'look-alike repository' },
    { id: 'F19', title: 'no engine' },
    { id: 'F20', title: 'seccomp={}, misspelt keys' },
  ],
  async run(bench) {
    const plain: Asked = {};
    const env = (variables: Record<string, string>): Asked => ({ request: { env: variables } });
    // What a program without types would send.
    // eslint-disable-next-line typescript/no-unsafe-type-assertion
    const policy = (input: unknown): Asked => ({ policy: input as PolicyInput });
    const [bridge, f5, f6, f8, f10, f11, f13, f20] = await Promise.all([
      bridgeConsent(bench),
      repository(bench, [
        'sandbox:\n  network:\n    mode: bridge\n',
        'sandbox:\n  mounts:\n    allowed_host_roots: [/etc]\n',
        'sandbox:\n  security:\n    allow_untrusted_registries: true\n',
        'allow_root: true\n',
      ]),
      prototype(bench),
      refused(
        bench,
        ['ACODE-SBX-010', ...REQUEST],
        [env({ LD_PRELOAD: '/x' }), env({ NODE_OPTIONS: '-r x' }), env({ BASH_ENV: '/x' }), env({ PATH: '/x' })],
        env({ CI: '1' }),
      ),
      refused(
        bench,
        [...REQUEST, 'ACODE-SBX-010'],
        IMAGES.map(image => policy({ image })),
        plain,
      ),
      refused(
        bench,
        REQUEST,
        [
          policy({ limits: { memoryBytes: '1024; id' } }),
          policy({ user: '0; id' }),
          policy({ limits: { pids: '$(id)' } }),
          env({ 'A;id': 'x' }),
        ],
        env({ A: '$(id)' }),
      ),
      refused(
        bench,
        // Not trusted, or not there and not fetched either.
        ['ACODE-SBX-010', 'ACODE-SBX-009'],
        [policy({ image: 'docker.io.example/library/busybox:1' }), policy({ image: 'librarv/node:20' })],
        plain,
      ),
      refused(
        bench,
        REQUEST,
        [
          policy({ seccomp: '{}' }),
          policy({ Privileged: true }),
          policy({ capAdd: ['ALL'] }),
          policy({ netwrok: 'none' }),
        ],
        plain,
      ),
    ]);
    // By themselves, since their time is taken.
    const f7 = await bombs(bench);
    const f19 = await noEngine(bench);
    return { D3b: bridge, F5: f5, F6: f6, F7: f7, F8: f8, F10: f10, F11: f11, F13: f13, F19: f19, F20: f20 };
  },
};

// An ordinary user cannot filter what a bridge reaches on its gateway: it is open, or it is not allowed.
async function bridgeConsent(bench: Bench): Promise<Outcome> {
  const bridge = bench.explain({ policy: { network: 'bridge' } });
  const [code, twin] = await Promise.all([refusalOf(bridge), bench.refusal({ policy: { network: 'none' } })]);
  // Air-gapped mode takes the network away without refusing the run.
  const open = code === null && (await bridge).spec.network === 'bridge';
  return {
    stopped: !open,
    observed: open
      ? 'your configuration allows it: services of this host on the gateway are within reach of such a run'
      : `not allowed (${code ?? 'air-gapped'})`,
    controlled: twin === null,
    control: 'the same request with network none is accepted',
  };
}

async function repository(bench: Bench, files: readonly string[]): Promise<Outcome> {
  const withFile = async (text: string): Promise<Asked> => ({
    workspace: await bench.workspace({ '.agent/config.yml': text }),
  });
  const bad = await Promise.all(files.map(withFile));
  return refused(bench, SETTINGS, bad, await withFile('sandbox:\n  defaults:\n    memory_mb: 64\n'));
}

async function prototype(bench: Bench): Promise<Outcome> {
  const outcome = await repository(bench, [
    '__proto__:\n  polluted: true\n',
    'sandbox:\n  __proto__:\n    polluted: true\n',
    'constructor:\n  prototype:\n    polluted: true\n',
  ]);
  const polluted = 'polluted' in {};
  return { ...outcome, stopped: outcome.stopped && !polluted };
}

// With two hosts that are opened for it, on a busy machine.
const SLOW_MS = 5000;

async function bombs(bench: Bench): Promise<Outcome> {
  const levels = Array.from({ length: 9 }, (_, index) => {
    const below = index === 0 ? '"x"' : `*l${index - 1}`;
    return `l${index}: &l${index} [${Array.from({ length: 10 }, () => below).join(', ')}]`;
  });
  const began = performance.now();
  const outcome = await repository(bench, [`${levels.join('\n')}\n`, `# ${'x'.repeat(10 * 1024 ** 2)}\n`]);
  const ms = Math.round(performance.now() - began);
  return { ...outcome, stopped: outcome.stopped && ms < SLOW_MS, observed: `${outcome.observed} in ${ms} ms` };
}

async function noEngine(bench: Bench): Promise<Outcome> {
  const directory = await bench.workspace();
  await writeFile(join(directory, 'plain-file'), '');
  const began = performance.now();
  const outcome = await refused(
    bench,
    ['ACODE-SBX-008'],
    [{ socket: join(directory, 'no-socket') }, { socket: join(directory, 'plain-file') }],
    {},
  );
  const ms = Math.round(performance.now() - began);
  return { ...outcome, stopped: outcome.stopped && ms < SLOW_MS, observed: `${outcome.observed} in ${ms} ms` };
}
