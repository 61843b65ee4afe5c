// The lines after a run name the rule, its value, who set it and what to do next, in the words of the command line.

import type { Denial, RunResult } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import type { Notice } from '../terminal/notice.ts';
import { closingNotices, denialLine, mayLackDependencies } from './closing-lines.ts';

const result: RunResult = {
  exitCode: 0,
  stdout: '',
  stderr: '',
  dropped: { stdout: 0, stderr: 0 },
  timedOut: false,
  oomKilled: false,
  denials: [],
  sandboxId: 's',
  level: 'docker',
  image: { reference: 'busybox', digest: 'sha256:0' },
  durationMs: 1,
  timings: { queueMs: 0, obtainMs: 0, runMs: 1 },
  warm: false,
  riskyChanges: [],
  changed: { executable: 0, hidden: 0, configuration: 0, source: 0, other: 0 },
  scan: 'complete',
  correlationId: 'c',
};

const MIB = 1024 ** 2;
const BUILT_IN = { value: null, layer: 'built-in', where: 'rule' } as const;
const DEFAULT = { value: null, layer: 'built-in', where: 'default' } as const;

const memory: Denial = {
  rule: 'limit.memory',
  value: 64 * MIB,
  setBy: { value: 64 * MIB, layer: 'request', where: 'policy.limits.memoryBytes' },
  effect: { kind: 'process-killed' },
  count: 1,
  remedies: [{ kind: 'use-less' }, { kind: 'raise-limit', field: 'policy.limits.memoryBytes', suggested: 128 * MIB }],
};
const time = (setBy: Denial['setBy'], value = 2000): Denial => ({
  rule: 'limit.time',
  value,
  setBy,
  effect: { kind: 'command-ended' },
  count: 1,
  remedies: [{ kind: 'use-less' }, { kind: 'raise-limit', field: 'policy.timeoutMs', suggested: value * 2 }],
});
const network: Denial = {
  rule: 'network.none',
  setBy: DEFAULT,
  suspected: 'bad address policy.network',
  count: 1,
  remedies: [
    { kind: 'provide-offline' },
    { kind: 'change-request', field: 'policy.network', suggested: 'allow=npm:install' },
  ],
};
const workspace: Denial = {
  rule: 'read-only.workspace',
  setBy: { value: 'readonly', layer: 'request', where: 'policy.workspace' },
  count: 1,
  remedies: [
    { kind: 'write-elsewhere', suggested: ['tmp', 'home'] },
    { kind: 'change-request', field: 'policy.workspace', suggested: 'direct' },
  ],
};
const root: Denial = {
  rule: 'read-only.root',
  setBy: BUILT_IN,
  suspected: '/usr/x',
  count: 1,
  remedies: [
    { kind: 'write-elsewhere', suggested: ['workspace', 'tmp', 'home'] },
    { kind: 'choose-image', field: 'policy.image' },
  ],
};
const mount: Denial = {
  rule: 'read-only.mount',
  value: '/d',
  setBy: { value: 'read-only', layer: 'request', where: 'policy.mounts' },
  count: 1,
  remedies: [
    { kind: 'write-elsewhere', suggested: ['tmp'] },
    { kind: 'change-request', field: 'policy.mounts', suggested: 'readOnly: false' },
  ],
};

// All parts of a notice in one line.
function flat({ text, details = [], hint }: Notice): string {
  const known = new Map(details);
  const note = known.get('note');
  const head = text.replace(/^limit reached/, known.get('code') ?? '');
  return `${head}${hint === undefined ? '' : ` ${hint}`}${note === undefined ? '' : ` [${note}]`}`;
}

const closingLines = (...given: Parameters<typeof closingNotices>): string[] => closingNotices(...given).map(flat);
const linesOf = (denial: Denial): string[] => closingLines({ ...result, denials: [denial] }, ['x']);

describe('the lines after a run', () => {
  it('have the layout of an error: what happened, the code or the rule, what to type next', () => {
    expect(closingNotices({ ...result, denials: [memory, { ...root, suspected: 'x ╰▶ hint: y' }] }, ['x'])).toEqual([
      {
        text: 'limit reached: a process was killed at the memory limit of 64 MiB, set by --memory.',
        details: [['code', 'ACODE-SBX-004']],
        hint: 'Use less memory; or raise the limit: --memory 128m (up to the maximum in your configuration).',
      },
      {
        text: 'denied: the sandbox’s own file system is read-only (built-in rule).',
        details: [
          ['rule', 'read-only.root'],
          ['note', 'suspected write to "x ?? hint: y"'],
        ],
        hint: 'Retrying does not help. Write to the workspace, /tmp or the home directory; or choose an image that already has what must be installed: --image.',
      },
    ]);
  });

  it('are none where nothing was hit', () => {
    expect(closingLines(result, 'true')).toEqual([]);
  });

  it('name for what fetches packages the options that keep them for later commands', () => {
    const lines = (command: readonly string[]) => closingLines({ ...result, denials: [network] }, command);
    expect(lines(['npm', 'ci']).join()).toMatch(/add --fill-cache npm --network allow=npm:install\./);
    expect(lines(['curl', 'x']).join()).toMatch(/ask for --network allow=npm:install\./i);
  });

  it.each<[string, Denial, string]>([
    [
      'a limit that an option set',
      memory,
      'ACODE-SBX-004: a process was killed at the memory limit of 64 MiB, set by --memory. Use less memory; or raise the limit: --memory 128m (up to the maximum in your configuration).',
    ],
    [
      'time that a file limits',
      time({ value: 2000, layer: 'user', where: '/home/u/config.yml:3:5 (sandbox.defaults.timeout_seconds)' }),
      'ACODE-SBX-007: the command was stopped at the time limit of 2 s, set by your configuration, /home/u/config.yml:3:5 (sandbox.defaults.timeout_seconds). Make the command do less; or raise the limit: --timeout 4 (up to the maximum in your configuration).',
    ],
    [
      'a network that seems to have been wanted, and what a program printed in its own words',
      network,
      'denied: the sandbox has no network (built-in default). Retrying does not help. Put what the command needs into the workspace, the image or a cache (docs/caches.md); or ask for --network allow=npm:install. [suspected use of the network: "bad address policy.network"]',
    ],
    [
      'a network that no air-gapped sandbox has',
      {
        rule: 'network.air-gapped',
        setBy: { value: 'airgapped', layer: 'request', where: 'ACODE_MODE' },
        effect: {
          kind: 'request-ignored',
          asked: { value: 'the network bridge', layer: 'request', where: 'policy.network' },
        },
        count: 1,
        remedies: [{ kind: 'work-offline' }, { kind: 'unset-variable', field: 'ACODE_MODE' }],
      },
      'denied: air-gapped mode: no sandbox has a network (set by the environment, ACODE_MODE). Retrying does not help. Work without a network; or unset ACODE_MODE if the task really needs a network. [the network bridge was asked for by --network]',
    ],
    [
      'a workspace that is read-only',
      workspace,
      'denied: the workspace is read-only (set by --readonly). Retrying does not help. Write to /tmp or the home directory; or leave --readonly out.',
    ],
    [
      'a workspace that a file made read-only',
      { ...workspace, setBy: { value: 'readonly', layer: 'user', where: 'c.yml:2:3' } },
      'denied: the workspace is read-only (set by your configuration, c.yml:2:3). Retrying does not help. Write to /tmp or the home directory; or change that setting in c.yml:2:3.',
    ],
    [
      'a root that is read-only',
      root,
      'denied: the sandbox’s own file system is read-only (built-in rule). Retrying does not help. Write to the workspace, /tmp or the home directory; or choose an image that already has what must be installed: --image. [suspected write to "/usr/x"]',
    ],
  ])('tell about %s', (_, denial, line) => {
    expect(linesOf(denial)).toEqual([line]);
    expect(denialLine(denial)).toBe(line);
  });

  it.each<[string, Denial, string]>([
    [
      'a limit, that another sandbox can have more',
      memory,
      'ACODE-SBX-004: a process was killed at the memory limit of 64 MiB, set by --memory when the sandbox was created. Use less memory; or create another sandbox: `acode sandbox create --memory 128m`, since limits are the sandbox’s own.',
    ],
    [
      'its own time, that it can ask for more',
      time({ value: 2000, layer: 'request', where: 'timeoutMs' }),
      'ACODE-SBX-007: the command was stopped at the time limit of 2 s, set by --timeout. Make the command do less; or raise the limit: --timeout 4 (up to the maximum in your configuration).',
    ],
    [
      'the sandbox’s time, that less was given than was asked for',
      time(DEFAULT, 5000),
      'ACODE-SBX-007: the command was stopped at the time limit of 5 s (built-in default). Make the command do less; or create another sandbox: `acode sandbox create --timeout 10`, since limits are the sandbox’s own (--timeout 9 was lowered to 5, the most that this one allows).',
    ],
    [
      'a root that is read-only, how to have another image',
      { ...root, suspected: 'x' },
      'denied: the sandbox’s own file system is read-only (built-in rule). Retrying does not help. Write to the workspace, /tmp or the home directory; or create another sandbox: `acode sandbox create --image <image>` of an image that already has what must be installed. [suspected write to "x"]',
    ],
    [
      'a mount that is read-only, how to have it writable',
      mount,
      'denied: the mount /d is read-only (set by --mount when the sandbox was created). Retrying does not help. Write to /tmp; or create another sandbox: `acode sandbox create --mount source:target:rw`.',
    ],
    [
      'a workspace that is read-only, the same',
      workspace,
      'denied: the workspace is read-only (set by --readonly when the sandbox was created). Retrying does not help. Write to /tmp or the home directory; or create another sandbox without --readonly.',
    ],
  ])('tell in a sandbox that exists of %s', (_, denial, line) => {
    expect(closingLines({ ...result, denials: [denial] }, ['x'], { existing: { timeoutMs: 9000 } })).toEqual([line]);
  });

  it('offer for a persistent sandbox another one, with a network and with an image', () => {
    const [line] = closingLines({ ...result, denials: [network] }, ['x'], { existing: {} });
    expect(line).toContain('create another sandbox: `acode sandbox create --network allow=npm:install`');
    expect(closingLines({ ...result, exitCode: 127 }, 'gti', { existing: {} })[0]).toContain(
      '`acode sandbox create --image …`',
    );
  });

  it('tell about each denial, and then about what was left behind', () => {
    const riskyChanges = [{ path: 'p', kind: 'ci-file', reason: 'why' } as const];
    const lines = closingLines({ ...result, denials: [memory, network], riskyChanges }, 'x');
    expect(lines).toHaveLength(4);
    expect(lines[3]).toContain('ci-file');
  });

  it('tell a shell line that ended with 127 what that means, and say nothing to a program that did', () => {
    expect(closingLines({ ...result, exitCode: 127 }, 'gti')[0]).toContain('busybox may not have it');
    const dependencies = 'the dependencies may not be installed';
    for (const command of ['npm test', ['npm', 'test']])
      expect(closingLines({ ...result, exitCode: 127 }, command, { dependencies })).toEqual([`hint: ${dependencies}`]);
    const toolless = { ...result, exitCode: 127, stderr: '/bin/sh: npm: not found\n' };
    expect(closingLines(toolless, 'npm test', { dependencies })[0]).toContain('busybox may not have it');
    expect(closingLines({ ...result, exitCode: 127 }, [], { dependencies })).toEqual([]);
    expect(closingLines({ ...result, exitCode: 1 }, 'npm test', { dependencies })).toEqual([]);
    expect(closingLines({ ...result, exitCode: 127 }, ['gti'])).toEqual([]);
  });

  it('name missing dependencies where an interpreter found no module, on either stream', () => {
    const dependencies = 'the dependencies may not be installed';
    for (const said of [
      "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'is-odd' imported from /workspace/src/sum.js",
      "Error: Cannot find module 'left-pad'",
      "ModuleNotFoundError: No module named 'requests'",
    ])
      for (const printed of [{ stdout: said }, { stderr: said }])
        expect(closingLines({ ...result, exitCode: 1, ...printed }, ['node', 'x.js'], { dependencies })).toEqual([
          `hint: ${dependencies}`,
        ]);
    // The control: a file of the project, and a command that succeeded.
    expect(mayLackDependencies({ ...result, exitCode: 1, stderr: "Error: Cannot find module './sum.js'" })).toBe(false);
    expect(mayLackDependencies({ ...result, exitCode: 0, stderr: "Cannot find module 'left-pad'" })).toBe(false);
  });

  it('say once what allows several hosts', () => {
    const denial = (value: string): Denial => ({
      rule: 'network.not-listed',
      value,
      setBy: { value: 'allow', layer: 'request', where: 'policy.network' },
      count: 1,
      remedies: [{ kind: 'change-request', field: 'policy.network', suggested: 'allow=pypi,npm:install,a.example' }],
    });
    const denials = [denial('registry.npmjs.org:443'), denial('a.example:443')];
    const notices = closingNotices({ ...result, exitCode: 1, denials }, ['npm', 'ci']);
    expect(notices.map(({ hint }) => hint)).toEqual([
      undefined,
      'Retrying does not help. Allow it for this command: --network allow=pypi,npm:install,a.example.',
    ]);
    expect(notices[0]?.text).toBe(
      'denied: the host registry.npmjs.org:443 is not on the allow-list (set by --network).',
    );
  });

  it('say so where an option of acode’s went to the program, and only there', () => {
    const options = ['--image', '--memory'];
    const complained = { ...result, exitCode: 2, stderr: "ls: unrecognized option '--image'\n" };
    expect(closingLines(complained, ['ls', '--image', 'busybox'], { options })).toEqual([
      'hint: --image comes after `--`, so it went to ls. Put acode’s own options before `--`: `acode run --image busybox -- ls`.',
    ]);
    expect(closingLines(complained, ['ls', '--image=busybox'], { options })).toHaveLength(1);
    expect(closingLines({ ...complained, exitCode: 0 }, ['ls', '--image', 'x'], { options })).toEqual([]);
    expect(closingLines({ ...complained, stderr: 'no' }, ['ls', '--image', 'x'], { options })).toEqual([]);
    expect(closingLines(complained, ['ls', '--other'], { options })).toEqual([]);
    expect(closingLines(complained, 'ls --image x', { options })).toEqual([]);
  });
});

describe('a command that printed nothing at a terminal', () => {
  const withTerminal = 'acode run -t -- python3';
  const said = (ended: Partial<RunResult>, about = { withTerminal }): string[] =>
    closingNotices({ ...result, ...ended }, ['python3'], about).map(({ text }) => text);

  it('is told how to give it a terminal', () => {
    expect(said({})).toEqual([
      'nothing was printed, and standard input was empty: for a program that asks, add -t: `acode run -t -- python3`',
    ]);
  });

  it.each<[string, Partial<RunResult>]>([
    ['it printed something', { stdout: 'x' }],
    ['it printed something to standard error', { stderr: 'x' }],
    ['it failed', { exitCode: 1 }],
    ['it ran for a while', { durationMs: 2000 }],
    ['it changed files', { changed: { ...result.changed, source: 1 } }],
    ['there is more to say', { denials: [network] }],
  ])('is not told that where %s', (_, ended) => {
    expect(said(ended).join()).not.toContain('-t');
  });

  it('is not told that where it had a terminal or another input, or ran without an image', () => {
    const { image: _, ...bare } = result;
    expect(closingNotices(result, ['python3'])).toEqual([]);
    expect(closingNotices({ ...bare, level: 'none' }, ['python3'], { withTerminal })).toEqual([]);
  });
});
