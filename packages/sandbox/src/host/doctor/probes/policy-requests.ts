// Group F by asking: policy, environment and repository settings that must be refused, each beside the honest one.

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import type { PolicyFields } from '../../../contract/policy.ts';
import { refusalOf } from '../bench.ts';
import type { Bench, RunOptions } from '../bench.ts';
import { assertDecided } from '../trial.ts';
import type { Outcome, Trial, Untried } from '../trial.ts';

const IMAGES = ['--privileged', '-v/:/host', 'a b', 'x\ny', '$(id)', '../../etc'];
const SETTINGS = ['ACODE-SBX-013', 'ACODE-SBX-020'];
const REQUEST = ['ACODE-SBX-017'];

/** Policy, environment and repository settings that must not count. */
export const policyRequests: Trial = {
  about: 'policy requests',
  needsShell: false,
  onHost: 'same',
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
    const policy = (input: unknown): Asked => ({ policy: input as PolicyFields });
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
      lookAlike(bench),
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

async function lookAlike(bench: Bench): Promise<Outcome | Untried> {
  if (bench.environment.kind !== 'container')
    return { untried: 'this level has no images, and refuses a request for one' };
  // Not trusted, or not there and not fetched either.
  const codes = ['ACODE-SBX-010', 'ACODE-SBX-009'];
  const images = ['docker.io.example/library/busybox:1', 'librarv/node:20'];
  const bad = images.map(image => ({ policy: { image } }));
  return refused(bench, codes, bad, {});
}

const HOST_NETWORK: Outcome = {
  stopped: false,
  observed: 'the network is this host’s own, whatever the policy says',
  controlled: true,
  control: 'D1 reaches a server of this host',
};

// An ordinary user cannot filter what a bridge reaches on its gateway: it is open, or it is not allowed.
async function bridgeConsent(bench: Bench): Promise<Outcome | Untried> {
  if (bench.environment.kind === 'namespaces')
    return { untried: 'this level has no network but none, and refuses any other' };
  if (bench.environment.kind === 'host') return HOST_NETWORK;
  const bridge = bench.explain({ policy: { network: 'bridge' } });
  const [code, twin] = await Promise.all([refusalOf(bridge), bench.refusal({ policy: { network: 'none' } })]);
  assertDecided([code, twin]);
  // Air-gapped mode takes the network away without refusing the run.
  const open = code === null && (await bridge).spec.network.kind === 'bridge';
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

async function noEngine(bench: Bench): Promise<Outcome | Untried> {
  if (bench.environment.kind !== 'container') return { untried: 'this level needs no engine' };
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

/** A request, and the command it is for. */
export type Asked = RunOptions & { readonly command?: string | readonly string[] };

/** Asks for things that must be refused with one of `codes`, and for the honest twin. */
export async function refused(
  bench: Bench,
  codes: readonly string[],
  bad: readonly Asked[],
  honest: Asked,
): Promise<Outcome> {
  const [answers, twin] = await Promise.all([
    Promise.all(bad.map(asked => bench.refusal(asked))),
    bench.refusal(honest),
  ]);
  assertDecided([...answers.filter(code => code === null || !codes.includes(code)), twin]);
  return {
    stopped: answers.every(code => code !== null && codes.includes(code)),
    observed: [...new Set(answers.map(code => code ?? 'accepted'))].join(', '),
    controlled: twin === null,
    control: twin === null ? 'the honest request is accepted' : `the honest request was refused: ${twin}`,
  };
}
