// The lines after a run name the limit, its value, who set it and how to raise it.

import type { EffectivePolicy, RunResult } from '@acode/sandbox';
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
  correlationId: 'c',
};

const builtIn = { layer: 'built-in', where: 'default' } as const;
const flag = (where: string) => ({ layer: 'request', where: `policy.${where}` }) as const;
const policy: EffectivePolicy = {
  mode: { value: 'local-only', ...builtIn },
  runtime: { value: null, ...builtIn },
  imageTrust: {
    repositories: { value: [], ...builtIn },
    machineRepositories: null,
    anywhere: { value: false, ...builtIn },
    requireDigest: { value: false, ...builtIn },
  },
  networkTimeoutMs: { value: null, ...builtIn },
  dns: { value: [], ...builtIn },
  ports: { value: [], ...builtIn },
  mounts: { value: [], ...builtIn },
  hostRoots: { value: [], ...builtIn },
  denials: [],
  profile: { value: 'exec', ...builtIn },
  level: { value: 'auto', ...builtIn },
  image: { value: 'busybox', ...builtIn },
  pull: { value: 'missing', ...builtIn },
  limits: {
    memoryBytes: { value: 64 * 1024 ** 2, ...flag('limits.memoryBytes') },
    swapBytes: { value: 0, ...builtIn },
    cpus: { value: 1, ...builtIn },
    pids: { value: 8, layer: 'user', where: '/home/u/config.yml (sandbox.defaults.pids_limit)' },
    openFiles: { value: 1024, ...builtIn },
    tmpBytes: { value: 1, ...builtIn },
    outputBytes: { value: 10 * 1024 ** 2, ...builtIn },
  },
  timeoutMs: { value: 2000, ...flag('timeoutMs') },
  network: { value: 'none', ...builtIn },
  workspace: { value: 'direct', ...builtIn },
  user: { value: { uid: 1, gid: 1 }, ...builtIn },
  warnings: [],
};

describe('the lines after a run', () => {
  it('are none where nothing was hit', () => {
    expect(closingLines(result, policy, 'true')).toEqual([]);
  });

  it.each<[string, Partial<RunResult>, string[]]>([
    ['time', { timedOut: true, limitExceeded: 'time', exitCode: null }, ['ACODE-SBX-007', '2 s', '--timeout']],
    [
      'memory, also with exit status 0',
      { oomKilled: true, limitExceeded: 'memory' },
      ['ACODE-SBX-004', 'memory', '64 MiB', 'set by --memory', '--memory 128'],
    ],
    ['processes', { limitExceeded: 'pids' }, ['ACODE-SBX-004', 'limit of 8', 'pids_limit', '--pids 16']],
    [
      'output',
      { dropped: { stdout: 7, stderr: 3 }, limitExceeded: 'output' },
      ['ACODE-SBX-004', '10 MiB', 'the built-in default', '--max-output 20', '7 bytes', '3 bytes'],
    ],
  ])('tell about %s', (_, hit, parts) => {
    const lines = closingLines({ ...result, ...hit }, policy, ['x']);
    expect(lines).toHaveLength(1);
    for (const part of parts) expect(lines[0]).toContain(part);
  });

  it('tell about each limit that was hit', () => {
    const hit = { timedOut: true, oomKilled: true, dropped: { stdout: 1, stderr: 0 } };
    expect(closingLines({ ...result, ...hit }, policy, 'x')).toHaveLength(3);
  });

  it('tell the limit also where its value could not be asked for', () => {
    const hit = { timedOut: true, oomKilled: true };
    expect(closingLines({ ...result, ...hit }, null, 'x').map(line => line.slice(0, 13))).toEqual([
      'ACODE-SBX-007',
      'ACODE-SBX-004',
    ]);
  });

  it('tell a shell line that ended with 127 what that means, and say nothing to a program that did', () => {
    expect(closingLines({ ...result, exitCode: 127 }, null, 'gti')[0]).toContain('busybox may not have it');
    expect(closingLines({ ...result, exitCode: 127 }, null, ['gti'])).toEqual([]);
  });
});
