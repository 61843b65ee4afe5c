// The lines after a run name the rule, its value, who set it and what to do next, in the words of the command line.

import type { Denial, RunResult } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { closingLines } from './closing-lines.ts';

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

const linesOf = (denial: Denial): string[] => closingLines({ ...result, denials: [denial] }, ['x']);

describe('the lines after a run', () => {
  it('are none where nothing was hit', () => {
    expect(closingLines(result, 'true')).toEqual([]);
  });

  it.each<[string, Denial, string]>([
    [
      'a limit that an option set',
      {
        rule: 'memory limit of 64 MiB',
        setBy: 'the request, policy.limits.memoryBytes',
        remedy:
          'Use less, or ask for more: policy.limits.memoryBytes (on the command line --memory 128). A ceiling of the user or the machine still counts.',
        detail: 'a process was killed for want of memory',
      },
      'ACODE-SBX-004: memory limit of 64 MiB, set by --memory. Use less, or ask for --memory 128. A ceiling of the user or the machine still counts. [a process was killed for want of memory]',
    ],
    [
      'time that a file limits',
      {
        rule: 'time limit of 2 s',
        setBy: 'your configuration, /home/u/config.yml:3:5 (sandbox.defaults.timeout_seconds)',
        remedy: 'Use less, or ask for more: policy.timeoutMs (on the command line --timeout 4).',
      },
      'ACODE-SBX-007: time limit of 2 s, set by your configuration, /home/u/config.yml:3:5 (sandbox.defaults.timeout_seconds). Use less, or ask for --timeout 4.',
    ],
    [
      'a network that seems to have been wanted',
      {
        rule: 'the sandbox has no network',
        setBy: 'the built-in default',
        remedy:
          'Trying again cannot help. Put it into the image; or ask for policy.network: bridge (on the command line --network bridge), which needs consent.',
      },
      'denied: the sandbox has no network, set by the built-in default. Trying again cannot help. Put it into the image; or ask for --network bridge, which needs consent.',
    ],
    [
      'a network that no air-gapped sandbox has',
      {
        rule: 'air-gapped mode: no sandbox has a network',
        setBy: 'the environment, ACODE_MODE',
        remedy: 'Work without.',
        detail: 'the network bridge was asked for by the request, policy.network',
      },
      'denied: air-gapped mode: no sandbox has a network, set by the environment, ACODE_MODE. Work without. [the network bridge was asked for by --network]',
    ],
    [
      'what a program printed, in its own words',
      { rule: 'r', setBy: 's', remedy: 'm', detail: 'suspected use of the network: policy.network' },
      'denied: r, set by s. m [suspected use of the network: policy.network]',
    ],
    [
      'a workspace that is read-only',
      {
        rule: 'the workspace is read-only',
        setBy: 'the request, policy.workspace',
        remedy: 'Write to /tmp; or ask for policy.workspace: direct (on the command line, leave --readonly out).',
      },
      'denied: the workspace is read-only, set by --readonly. Write to /tmp; or leave --readonly out.',
    ],
    [
      'a root that is read-only',
      {
        rule: 'the sandbox’s own file system is read-only',
        setBy: 'the built-in rules',
        remedy: 'Choose an image that has it with policy.image (on the command line --image).',
      },
      'denied: the sandbox’s own file system is read-only, set by the built-in rules. Choose an image that has it with --image.',
    ],
    [
      'a rule in the words of fields alone',
      {
        rule: 'policy.dns is not allowed',
        setBy: 'the machine’s policy, /etc/acode/policy.yml:1:1',
        remedy: 'Leave policy.dns out.',
      },
      'denied: --dns is not allowed, set by the machine’s policy, /etc/acode/policy.yml:1:1. Leave --dns out.',
    ],
  ])('tell about %s', (_, denial, line) => {
    expect(linesOf(denial)).toEqual([line]);
  });

  it.each<[string, Denial, string]>([
    [
      'a limit, that another sandbox can have more',
      {
        rule: 'memory limit of 64 MiB',
        setBy: 'the request, policy.limits.memoryBytes',
        remedy:
          'Use less, or ask for more: policy.limits.memoryBytes (on the command line --memory 128). A ceiling of the user or the machine still counts.',
      },
      'ACODE-SBX-004: memory limit of 64 MiB, set by --memory when the sandbox was created. Use less, or create another sandbox: `acode sandbox create --memory 128`; limits are the sandbox’s own. A ceiling of the user or the machine still counts.',
    ],
    [
      'its own time, that it can ask for more',
      {
        rule: 'time limit of 2 s',
        setBy: 'the request, timeoutMs',
        remedy: 'Use less, or ask for more: policy.timeoutMs (on the command line --timeout 4).',
      },
      'ACODE-SBX-007: time limit of 2 s, set by --timeout. Use less, or ask for --timeout 4.',
    ],
    [
      'the sandbox’s time, that less was given than was asked for',
      {
        rule: 'time limit of 5 s',
        setBy: 'the built-in default',
        remedy: 'Use less, or ask for more: policy.timeoutMs (on the command line --timeout 10).',
      },
      'ACODE-SBX-007: time limit of 5 s, set by the built-in default. --timeout was lowered from 9 s to 5 s, the most that this sandbox allows. Use less, or create another sandbox: `acode sandbox create --timeout 10`; limits are the sandbox’s own.',
    ],
    [
      'a root that is read-only, how to have another image',
      {
        rule: 'the sandbox’s own file system is read-only',
        setBy: 'the built-in rules',
        remedy: 'Write to /tmp: choose one that has it with policy.image (on the command line --image).',
      },
      'denied: the sandbox’s own file system is read-only, set by the built-in rules. Write to /tmp: create a sandbox of one that has it with `acode sandbox create --image`.',
    ],
    [
      'a mount that is read-only, how to have it writable',
      {
        rule: 'the mount /d is read-only',
        setBy: 'the request, policy.mounts',
        remedy:
          'Write to /tmp; or ask for the mount with readOnly: false in policy.mounts (on the command line --mount source:target:rw).',
      },
      'denied: the mount /d is read-only, set by --mount when the sandbox was created. Write to /tmp; or create another sandbox with `acode sandbox create --mount source:target:rw`.',
    ],
    [
      'a workspace that is read-only, the same',
      {
        rule: 'the workspace is read-only',
        setBy: 'the request, policy.workspace',
        remedy: 'Write to /tmp; or ask for policy.workspace: direct (on the command line, leave --readonly out).',
      },
      'denied: the workspace is read-only, set by --readonly when the sandbox was created. Write to /tmp; or create another sandbox without --readonly.',
    ],
  ])('tell in a sandbox that exists of %s', (_, denial, line) => {
    expect(closingLines({ ...result, denials: [denial] }, ['x'], { existing: { timeoutMs: 9000 } })).toEqual([line]);
  });

  it('offer a persistent sandbox no network bridge, and no other image by an option', () => {
    const denial = { rule: 'the sandbox has no network', setBy: 's', remedy: 'or ask for --network bridge' };
    const [line] = closingLines({ ...result, denials: [denial] }, ['x'], { existing: {} });
    expect(line).toContain('neither the network bridge nor caches');
    expect(line).not.toContain('ask for --network');
    expect(closingLines({ ...result, exitCode: 127 }, 'gti', { existing: {} })[0]).toContain(
      '`acode sandbox create --image …`',
    );
  });

  it('tell about each denial, and then about what was left behind', () => {
    const denial = { rule: 'r', setBy: 's', remedy: 'm' };
    const riskyChanges = [{ path: 'p', kind: 'ci-file', reason: 'why' } as const];
    const lines = closingLines({ ...result, denials: [denial, denial], riskyChanges }, 'x');
    expect(lines).toHaveLength(4);
    expect(lines[3]).toContain('ci-file');
  });

  it('tell a shell line that ended with 127 what that means, and say nothing to a program that did', () => {
    expect(closingLines({ ...result, exitCode: 127 }, 'gti')[0]).toContain('busybox may not have it');
    const dependencies = 'the dependencies may not be installed';
    for (const command of ['npm test', ['npm', 'test']])
      expect(closingLines({ ...result, exitCode: 127 }, command, { dependencies })).toEqual([`hint: ${dependencies}`]);
    expect(closingLines({ ...result, exitCode: 127 }, [], { dependencies })).toEqual([]);
    expect(closingLines({ ...result, exitCode: 1 }, 'npm test', { dependencies })).toEqual([]);
    expect(closingLines({ ...result, exitCode: 127 }, ['gti'])).toEqual([]);
  });

  it('say so where an option of acode’s went to the program, and only there', () => {
    const options = ['--image', '--memory'];
    const complained = { ...result, exitCode: 2, stderr: "ls: unrecognized option '--image'\n" };
    expect(closingLines(complained, ['ls', '--image', 'busybox'], { options })).toEqual([
      'hint: --image comes after `--`, so it went to ls. Put options of acode before `--`.',
    ]);
    expect(closingLines(complained, ['ls', '--image=busybox'], { options })).toHaveLength(1);
    expect(closingLines({ ...complained, exitCode: 0 }, ['ls', '--image', 'x'], { options })).toEqual([]);
    expect(closingLines({ ...complained, stderr: 'no' }, ['ls', '--image', 'x'], { options })).toEqual([]);
    expect(closingLines(complained, ['ls', '--other'], { options })).toEqual([]);
    expect(closingLines(complained, 'ls --image x', { options })).toEqual([]);
  });
});
