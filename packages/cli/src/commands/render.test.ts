// What each command shows a person.

import type { CleanupReport, Explanation, SandboxDetails, SandboxInfo, Status } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { lookOf } from '../terminal/look.ts';
import { Output } from '../terminal/output.ts';
import { Recorder } from '../test-process.ts';
import { renderCleanup } from './cleanup.ts';
import { renderExplanation } from './explain.ts';
import { renderSandbox } from './inspect.ts';
import { renderList } from './list.ts';
import { renderLogs } from './logs.ts';
import { renderStatus } from './status.ts';

const look = lookOf(new Output(new Recorder()), { env: {}, now: () => Date.parse('2026-01-02T03:04:05Z') }, false);

const sandbox: SandboxInfo = {
  sandboxId: '11111111-2222',
  containerId: 'c'.repeat(64),
  name: 'acode-a1b2c3d4-run-001',
  image: `sha256:${'d'.repeat(64)}`,
  state: 'running',
  createdAt: '2026-01-02T03:03:05Z',
  sessionId: 'a1b2c3d4',
  taskId: 'run',
  level: 'docker',
  labels: {},
};

const status: Status = {
  available: true,
  engine: {
    socket: '/run/docker.sock',
    source: 'system',
    version: '28.5.2',
    apiVersion: '1.51',
    operatingSystem: 'Debian',
    cpus: 2,
    memoryBytes: 1024 ** 3,
    runtimes: ['runc', 'runsc'],
    defaultRuntime: 'runc',
    cgroupVersion: '2',
    securityOptions: [],
  },
  sandboxes: { running: 1, total: 2 },
  level: 'docker',
  defaultImage: 'ubuntu:22.04',
  workspace: '/w',
};

describe('status', () => {
  it('begins with the version of an engine that can be used', () => {
    const text = renderStatus(status, look);
    expect(text.split('\n')[0]).toBe('Sandbox Available: Docker version 28.5.2');
    for (const part of [
      '/run/docker.sock (found by system)',
      '1.51',
      '1 GiB',
      'runc (default), runsc',
      '1 running, 2 in total',
    ])
      expect(text).toContain(part);
  });

  it('begins with the reason why not, and ends with the hint', () => {
    const { engine: _, ...without } = status;
    const text = renderStatus(
      { ...without, available: false, unavailableReason: 'no engine.', hint: 'Start it.' },
      look,
    );
    expect(text).toMatch(/^Sandbox Unavailable: no engine\.\n/);
    expect(text).toMatch(/╰▶ hint: Start it\.\n$/);
    expect(text).not.toContain('Engine socket');
  });
});

describe('lists', () => {
  it('of sandboxes have id, name, image, state and age', () => {
    expect(renderList([sandbox], look).split('\n')[1]).toBe(
      'cccccccccccc  acode-a1b2c3d4-run-001  sha256:dddddddddddd  running  1 minute ago',
    );
    expect(renderList([], look)).toBe('There are no sandboxes.\n');
  });

  it('of kept runs show a command on one line, whatever it holds', () => {
    const log = { name: 'n', sandboxId: '12345678-9', command: 'a\nb\u001b[2J', endedAt: '?', exitCode: null };
    expect(renderLogs([log], look).split('\n')[1]).toBe('n     12345678  ?      killed  a⏎b␛[2J');
  });
});

describe('cleanup', () => {
  const report: CleanupReport = { removed: [], failed: [], kept: [], dryRun: false };

  it('says what it removed, what it left and what failed', () => {
    const text = renderCleanup(
      { ...report, removed: [sandbox], kept: [sandbox], failed: [{ sandbox, reason: 'busy' }] },
      look,
    );
    expect(text).toContain(
      'Removed 1 sandbox, 1 could not be removed, 1 left alone (--force removes running ones too).',
    );
    expect(text).toContain('failed: busy');
  });

  it('says what it would remove', () => {
    expect(renderCleanup({ ...report, removed: [sandbox, sandbox], dryRun: true }, look)).toMatch(
      /would be removed\nWould remove 2 sandboxes\.\n$/,
    );
  });

  it('says so when there was nothing', () => {
    expect(renderCleanup(report, look)).toBe('Removed 0 sandboxes.\n');
  });
});

it('inspect shows limits, user and mounts', () => {
  const details: SandboxDetails = {
    ...sandbox,
    imageId: sandbox.image,
    startedAt: sandbox.createdAt,
    user: '1000:1000',
    limits: { memoryBytes: 64 * 1024 ** 2, cpus: 0.5, pids: 16 },
    network: 'none',
    mounts: [{ source: '/w', target: '/workspace', readOnly: true }],
  };
  const text = renderSandbox(details, look);
  for (const part of ['64 MiB', '0.5', 'at most 16', '1000:1000', '/w → /workspace (read-only)'])
    expect(text).toContain(part);
});

describe('explain', () => {
  const builtIn = { layer: 'built-in', where: 'default' } as const;
  const limit = { value: 1024, ...builtIn };
  const explanation: Explanation = {
    command: ['sh', '-c', 'a b'],
    level: 'docker',
    policy: {
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
      image: { value: 'busybox', layer: 'user', where: '/c.yml (sandbox.images.default)' },
      pull: { value: 'missing', ...builtIn },
      limits: {
        memoryBytes: { value: 64 * 1024 ** 2, layer: 'request', where: 'policy.limits.memoryBytes' },
        swapBytes: limit,
        cpus: limit,
        pids: limit,
        openFiles: limit,
        tmpBytes: limit,
        outputBytes: limit,
      },
      timeoutMs: { value: 1500, ...builtIn },
      network: { value: 'none', ...builtIn },
      workspace: { value: 'direct', ...builtIn },
      user: { value: { uid: 5, gid: 6 }, ...builtIn },
      warnings: [],
    },
    spec: {
      identity: { sandboxId: 's', name: 'n', correlationId: 'c', labels: {} },
      level: 'docker',
      image: { reference: 'busybox', id: 'sha256:0', digest: 'sha256:0', environment: [], removed: [] },
      user: { uid: 5, gid: 6 },
      limits: { memoryBytes: 1, swapBytes: 1, cpus: 1, pids: 1, openFiles: 1, tmpBytes: 1, outputBytes: 1 },
      network: 'none',
      runtime: null,
      dns: [],
      ports: [],
      workdir: '/workspace',
      home: '/home',
      mounts: [
        {
          purpose: 'workspace',
          source: '/w',
          target: '/workspace',
          readOnly: false,
          identity: { device: 1, inode: 1 },
        },
      ],
      tmpfs: [{ target: '/tmp', bytes: 1024, mode: '1777' }],
      hash: 'h',
    },
    engineRequest: { HostConfig: {} },
    notes: ['A note.'],
  };

  it('tells each value, who set it and where', () => {
    const text = renderExplanation(explanation, 'a/b', look, false);
    expect(text).toMatch(/memory +64 MiB +this call +--memory\n/);
    expect(text).toMatch(/image +busybox +user +\/c\.yml/);
    expect(text).toMatch(/time +1\.5 s +built-in\n/);
    expect(text).toContain("sh -c 'a b'");
    expect(text).toContain('/w → /workspace (writable)');
    expect(text).toMatch(/Directory +\/workspace\/a\/b\n/);
    expect(text).toContain('- A note.');
    expect(text).not.toContain('HostConfig');
  });

  it('shows the engine request to who wants to know everything', () => {
    expect(renderExplanation(explanation, '.', look, true)).toContain('"HostConfig"');
  });
});
