// What each command shows a person.

import type {
  AttackReport,
  CleanupReport,
  Explanation,
  SandboxDetails,
  SandboxInfo,
  Status,
  UninstallReport,
} from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { lookOf } from '../terminal/look.ts';
import { Output } from '../terminal/output.ts';
import { widthOf } from '../terminal/text.ts';
import { Recorder } from '../test-process.ts';
import { renderCleanup } from './cleanup-view.ts';
import { renderCard, renderDoctor } from './doctor-card.ts';
import { renderExplanation } from './explain-view.ts';
import { renderSandbox } from './inspect.ts';
import { renderList } from './list-view.ts';
import { renderLogs } from './logs-view.ts';
import { renderServeStatus } from './serve-status-view.ts';
import { renderStatus } from './status.ts';
import { renderTrust } from './trust-actions.ts';
import { renderUninstall } from './uninstall.ts';

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
  sandboxes: { running: 1, total: 4, owned: 1, orphaned: 2, expired: 0, kept: 1, foreign: 0 },
  level: 'docker',
  levels: [
    { level: 'gvisor', state: 'available', by: 'runsc' },
    { level: 'docker', state: 'available', by: 'runc' },
    { level: 'bubblewrap', state: 'unavailable', by: 'bwrap', reason: 'bwrap is not installed' },
  ],
  defaultImage: 'ubuntu:22.04',
  cacheVolumes: ['acode-cache-npm-1001'],
  workspace: '/w',
};

describe('status', () => {
  it('begins with the version of an engine that can be used', () => {
    const text = renderStatus(status, look);
    expect(text.split('\n')[0]).toBe('Sandbox available: Docker version 28.5.2');
    for (const part of [
      '/run/docker.sock (found by system)',
      '1.51',
      '1 GiB',
      'runc (default), runsc',
      'available (runc)',
      'unavailable: bwrap is not installed',
      'acode-cache-npm-1001',
      '1 running, 4 in total: 1 owned by a session, 2 orphaned (the next run removes them), 1 persistent',
    ])
      expect(text).toContain(part);
  });

  it('never calls a level a sandbox that is none', () => {
    expect(renderStatus({ ...status, level: 'none' }, look)).toMatch(/^No sandbox: .* level none/);
    expect(renderStatus({ ...status, level: 'ulimit' }, look)).toMatch(/^No sandbox: .* level ulimit/);
    expect(renderStatus({ ...status, level: 'bubblewrap' }, look)).toMatch(/^Sandbox available: bubblewrap\n/);
  });

  it('begins with the reason why not, and ends with the hint', () => {
    const { engine: _, ...without } = status;
    const text = renderStatus(
      { ...without, available: false, unavailableReason: 'no engine.', hint: 'Start it.' },
      look,
    );
    expect(text).toMatch(/^Sandbox unavailable: no engine\.\n/);
    expect(text).toMatch(/╰▶ hint: Start it\.\n$/);
    expect(text).not.toContain('Engine socket');
  });
});

describe('lists', () => {
  it('of sandboxes have id, name, image, state and age', () => {
    expect(renderList([{ ...sandbox, workspace: '/home/me/project' }], look, '/home/me').split('\n')[1]).toBe(
      'cccccccc  acode-a1b2c3d4-run-001  sha256:dddddddddddd  running  ~/project  1 minute ago',
    );
    expect(renderList([], look, '/home/me')).toBe('There are no sandboxes.\n');
  });

  it('of sandboxes show when persistent ones expire', () => {
    const kept = { ...sandbox, expiresAt: '2026-01-02T04:34:03Z' };
    const [title, one, other] = renderList([kept, sandbox], look, '/home/me').split('\n');
    expect(title).toMatch(/CREATED +EXPIRES$/);
    expect(one).toMatch(/1 minute ago +in 1h 30m$/);
    expect(other).toMatch(/1 minute ago$/);
  });

  it.each([40, 80, 200])('of sandboxes fit %i columns, with one word for the state', width => {
    const at = { ...look, terminal: true, width };
    const workspace = '/home/me/some/very/deep/directory/of/a/project';
    const items = [
      { ...sandbox, workspace, image: 'node:20-alpine' },
      { ...sandbox, workspace, waiting: true },
      { ...sandbox, workspace, givenName: 'web-server', expiresAt: '2026-01-02T04:34:03Z' },
      { ...sandbox, state: 'exited' as const },
    ];
    const [title = '', ...lines] = renderList(items, at, '/home/me').trimEnd().split('\n');
    for (const line of [title, ...lines]) expect(widthOf(line)).toBeLessThanOrEqual(width);
    expect(lines.map(line => /running|warm|persistent|exited/.exec(line)?.[0])).toEqual([
      'running',
      'warm',
      'persistent',
      'exited',
    ]);
    expect(lines[2]).toContain('web-server');
    expect(title.includes('WORKSPACE')).toBe(width >= 80);
    expect(title.includes('CREATED')).toBe(width === 200);
  });

  it('of kept runs show a command on one line, whatever it holds', () => {
    const log = { name: 'n', sandboxId: '12345678-9', command: 'a\nb\u001b[2J', endedAt: '?', exitCode: null };
    expect(renderLogs([log], look).split('\n')[1]).toBe('n     12345678  ?      killed  a⏎b␛[2J');
  });
});

describe('cleanup', () => {
  const none = { removed: [], failed: [], kept: [] };
  const report: CleanupReport = { ...none, belongings: none, forks: [], dryRun: false };
  const network = { kind: 'network', id: 'n1', name: 'acode-x-bridge', labels: {} } as const;
  const volume = { kind: 'volume', id: 'v', name: 'acode-cache-npm', labels: {} } as const;

  it('says what it removed, what it left and what failed', () => {
    const text = renderCleanup(
      { ...report, removed: [sandbox], kept: [sandbox], failed: [{ sandbox, reason: 'busy' }] },
      look,
    );
    expect(text).toContain(
      'Removed 1 sandbox, 1 could not be removed, 1 left alone (--force removes running ones too, --all-sessions those of your other sessions).',
    );
    expect(text).toContain('failed: busy');
  });

  it('shows the names that were given', () => {
    const named = { ...sandbox, givenName: 'web-server', image: 'node:20' };
    const text = renderCleanup({ ...report, removed: [named], failed: [{ sandbox: named, reason: 'busy' }] }, look);
    expect(text.match(/^web-server +node:20 /gm)).toHaveLength(2);
    expect(text).not.toContain(sandbox.name);
  });

  it('says what it would remove', () => {
    expect(renderCleanup({ ...report, removed: [sandbox, sandbox], dryRun: true }, look)).toMatch(
      /would be removed\nWould remove 2 sandboxes\.\n$/,
    );
  });

  it('names networks and volumes, and how to remove what is kept', () => {
    const belongings = { removed: [network], failed: [{ belonging: network, reason: 'in use' }], kept: [volume] };
    const text = renderCleanup({ ...report, belongings }, look);
    for (const part of ['acode-x-bridge', 'failed: in use', 'acode-cache-npm']) expect(text).toContain(part);
    expect(text).toMatch(
      /Removed 0 sandboxes and 1 network, 1 could not be removed, 1 volume kept \(--volumes removes them\)\.\n$/,
    );
  });

  it('says so when there was nothing', () => {
    expect(renderCleanup(report, look)).toBe('Removed 0 sandboxes.\n');
  });
});

describe('uninstall', () => {
  const none = { removed: [], failed: [], kept: [] };
  const engine = { ...none, belongings: none, forks: [], dryRun: true };
  const directories = [{ what: 'config', path: '/home/u/.config/acode', files: 1, bytes: 2048 }] as const;
  const images = { ...none, removedBytes: 0, dryRun: true };
  const nothing = { left: [], spared: [], elsewhere: [], copies: [], services: [] };
  const report: UninstallReport = {
    ...{ engine, engineProblem: null, sessions: 0, directories, images, ...nothing },
    purged: false,
  };

  it('lists every trace, and how to be rid of it', () => {
    const text = renderUninstall({ ...report, engine: { ...engine, removed: [sandbox] }, sessions: 2 }, false, look);
    for (const part of [sandbox.name, '/home/u/.config/acode', 'your configuration: 1 file, 2 KiB']) {
      expect(text).toContain(part);
    }
    expect(text).toContain('Nothing was removed. 2 of your sessions still running: add --force.\n');
    expect(text).toContain('`acode uninstall --purge`');
    const named = { ...engine, removed: [{ ...sandbox, givenName: 'web-server' }] };
    expect(renderUninstall({ ...report, engine: named }, false, look)).toMatch(/^sandbox +web-server +running$/m);
  });

  it('says how to go on without an engine, and what the directories hold', () => {
    const state = { what: 'state', path: '/home/u/.local/state/acode', files: 3, bytes: 10 } as const;
    const alone = { ...report, directories: [state], engine: null, images: null, engineProblem: 'no engine answered' };
    const text = renderUninstall(alone, false, look);
    expect(text).toContain('the audit log and its keys: 3 files');
    expect(text).toContain('`acode uninstall --purge --force` removes what is listed');
  });

  it('says what became of it', () => {
    expect(renderUninstall({ ...report, purged: true }, true, look)).toContain('Removed.\n');
    const spared = [
      { what: 'audit', path: '/state/acode/audit' },
      { what: 'config', path: '/config/acode' },
    ] as const;
    const kept = renderUninstall({ ...report, spared, purged: true }, true, look);
    expect(kept).toMatch(
      /Removed\.\nThe audit log was kept: \/state\/acode\/audit\nYour configuration was kept: \/config\/acode\n.*`acode uninstall --purge --with-audit --with-config` removes/,
    );
    const failed = { ...engine, dryRun: false, removed: [sandbox], failed: [{ sandbox, reason: 'busy' }] };
    expect(renderUninstall({ ...report, engine: failed }, true, look)).toMatch(
      / removed\n[^]*failed: busy[^]*Not everything/,
    );
    const alone = { ...report, engine: null, engineProblem: 'no engine\nanswered', purged: true };
    expect(renderUninstall(alone, true, look)).toContain('The engine was not asked: no engine⏎answered\n');
  });

  it('names what acode did not put there, and what another host may still use', () => {
    const left = renderUninstall({ ...report, left: ['/home/u/.config/acode/notes\n.txt'] }, true, look);
    expect(left).toContain('Removed, except for what acode did not put there:\n  /home/u/.config/acode/notes⏎.txt\n');
    const elsewhere = [{ kind: 'container', name: 'acode-1-run-001' }] as const;
    expect(renderUninstall({ ...report, elsewhere }, true, look)).toMatch(/acode-1-run-001[^]*--purge --force/);
  });

  it('names what a worker or an E2B server has, and how to remove it', () => {
    const services = ['/home/u/.local/state/acode-worker'];
    const text = renderUninstall({ ...report, services, purged: true }, true, look);
    expect(text).toMatch(
      /was kept: \/home\/u\/.local\/state\/acode-worker\n.*`rm -rf \/home\/u\/.local\/state\/acode-worker`/,
    );
  });

  it('quotes a path that is to be pasted', () => {
    const spaced = renderUninstall({ ...report, services: ['/home/a b/acode-worker'], purged: true }, true, look);
    expect(spaced).toContain("`rm -rf '/home/a b/acode-worker'`");
  });

  it('names images that acode pulled or built, and copies that builds left', () => {
    const image = { reference: 'acode-sandbox-x:project', id: 'sha256:1', sizeBytes: 2048, lastUsedAt: '' };
    const kept = [{ ...image, reference: 'docker.io/library/y:1', reason: 'a container uses it' }];
    const traces = { ...report, directories: [], copies: ['/var/tmp/acode-project-1'] };
    const text = renderUninstall({ ...traces, images: { ...images, removed: [image], kept } }, false, look);
    for (const part of ['acode-sandbox-x:project', '2 KiB', 'kept: a container uses it', '/var/tmp/acode-project-1'])
      expect(text).toContain(part);
    expect(renderUninstall(traces, false, look)).toContain('Nothing was removed.');
  });

  it('says so when there is nothing', () => {
    expect(renderUninstall({ ...report, directories: [] }, false, look)).toBe('There is no trace of acode here.\n');
  });
});

describe('the report card', () => {
  const probe = { title: 't', control: 'c', observed: 'o', durationMs: 1 };
  const card = (verdicts: readonly string[]): string =>
    renderCard(
      {
        backend: { level: 'docker', engine: 'Docker', version: '28', runtime: 'runc', kernel: '6', boundary: true },
        image: 'busybox',
        grade: 'B',
        probes: verdicts.map((verdict, index) => ({ ...probe, id: `A${index + 1}`, verdict })),
        durationMs: 1000,
      } as unknown as AttackReport,
      look,
    );

  it('ends with the attacks that were not stopped, within its width', () => {
    expect(card(['pass', 'fail', 'not-applicable', 'fail'])).toMatch(/2 failed, 1 not[^\n]*\nFailed: A2, A4\n$/);
    const most = card(Array.from({ length: 40 }, () => 'fail')).split('\n');
    expect(Math.max(...most.map(widthOf))).toBeLessThanOrEqual(80);
    expect(most.at(-2)).toContain('A40');
  });

  it('says which attacks could not be tried, and not that they failed', () => {
    const text = card(['pass', 'not-tried']);
    expect(text).toMatch(/0 failed, 0 not applicable, 1 not tried[^\n]*\nCould not be tried: A2\./);
    expect(text).not.toContain('Failed:');
  });

  it('ends with the sum where all were', () => {
    expect(card(['pass'])).toMatch(/0 failed[^\n]*\n$/);
  });
});

describe('inspect', () => {
  const details: SandboxDetails = {
    ...sandbox,
    imageId: sandbox.image,
    startedAt: sandbox.createdAt,
    user: '1000:1000',
    limits: { memoryBytes: 64 * 1024 ** 2, cpus: 0.5, pids: 16 },
    network: 'none',
    mounts: [{ source: '/w', target: '/workspace', readOnly: true }],
  };

  it('shows limits, user and mounts', () => {
    const text = renderSandbox(details, look);
    for (const part of ['64 MiB', '0.5', 'at most 16', '1000:1000', '/w → /workspace (read-only)'])
      expect(text).toContain(part);
    expect(text).not.toContain('Expires');
  });

  it('shows the name of the image beside its id where it is known, and nothing twice', () => {
    expect(renderSandbox(details, look)).not.toContain('Image id');
    const text = renderSandbox({ ...details, image: 'node:20' }, look);
    expect(text).toMatch(/Image +node:20\n +Image id +sha256:d+\n/);
  });

  it('is titled with the name that was given', () => {
    expect(renderSandbox(details, look)).toMatch(/^acode-a1b2c3d4-run-001\n/);
    const text = renderSandbox({ ...details, givenName: 'web-server' }, look);
    expect(text).toMatch(/^web-server\n[^]*Container name +acode-a1b2c3d4-run-001\n/);
  });

  it('shows when a persistent sandbox expires', () => {
    const text = renderSandbox({ ...details, expiresAt: '2026-01-02T04:34:04.000Z' }, look);
    expect(text).toMatch(/Expires +2026-01-02T04:34:04\.000Z \(in 1 hour 30 minutes\)/);
  });
});

const unchanged = { changed: false, refused: null };

it('trust cuts nothing of what the user agrees to, and drives no terminal with it', () => {
  const value = `"${'x'.repeat(90)}\u001b[2J"`;
  const needsTrust = [{ key: 'sandbox.network.mode', where: '.agent/config.yml:4:5', value }];
  const report = {
    workspace: '/w',
    file: '/w/.agent/config.yml',
    hash: 'sha256:0',
    trusted: false,
    needsTrust,
    ...unchanged,
  };
  const text = renderTrust(report, 'shown', { ...look, width: 40 });
  expect(text).toContain(`sandbox.network.mode: "${'x'.repeat(90)}␛[2J"\n    .agent/config.yml:4:5\n`);
  expect(text).toMatch(/^Not trusted\n[^]*`acode trust`\.\n$/);
});

it('trust says that a file is refused and why, trusted or not', () => {
  const refused = {
    key: 'sandbox.mounts.additional.0',
    where: '.agent/config.yml:4:9',
    rule: 'its source is not inside the repository',
    remedy: 'Take the mount out.',
  };
  for (const trusted of [true, false]) {
    const report = { workspace: '/w', file: '/w/f', hash: 'h', trusted, changed: false, needsTrust: [], refused };
    const text = renderTrust(report, 'shown', look);
    expect(text).toMatch(/refused, trusted or not:\n {2}sandbox\.mounts\.additional\.0: its source is not inside/);
    expect(text).toMatch(/Commands here are refused .* Take the mount out\.\n$/);
  }
});

it('the doctor’s checks stay within the terminal', () => {
  const seen = 'a word after another '.repeat(8).trim();
  const checks = [{ id: 'x', title: 'Socket permissions', status: 'fail', seen, remedy: seen } as const];
  const text = renderDoctor({ checks, ok: false, durationMs: 1 }, { ...look, width: 60 });
  for (const line of text.split('\n')) expect(widthOf(line)).toBeLessThanOrEqual(60);
  expect(text.replaceAll(/\s+/g, ' ')).toContain(`remedy: ${seen}`);
  expect(renderDoctor({ checks, ok: false, durationMs: 1 }, { ...look, width: null })).toContain(`remedy: ${seen}\n`);
});

describe('explain', () => {
  const builtIn = { layer: 'built-in', where: 'default' } as const;
  const limit = { value: 1024, ...builtIn };
  const explanation: Explanation = {
    command: ['sh', '-c', 'a b'],
    level: 'docker',
    masked: [{ path: '.env', kind: 'file', device: 1, inode: 2, rule: 'env', setBy: builtIn }],
    rules: {
      bridge: { value: true, layer: 'team', where: '/etc/acode/config.yml:3:5' },
      networks: { value: [], ...builtIn },
      hosts: { value: ['npm:install'], ...builtIn },
      requireFor: [{ value: ['high', 'critical'], ...builtIn }],
      riskRules: [
        { value: [{ match: '*deploy*', risk: 'high' }], layer: 'machine', where: '/etc/acode/policy.yml:2:3' },
      ],
      ceilings: {
        memoryBytes: limit,
        swapBytes: limit,
        cpus: limit,
        pids: limit,
        openFiles: limit,
        tmpBytes: limit,
        outputBytes: limit,
        timeoutMs: limit,
      },
    },
    policy: {
      mode: { value: 'local-only', ...builtIn },
      risk: { value: 'low', ...builtIn },
      riskReasons: [],
      required: { value: 'docker', ...builtIn },
      fallback: { value: 'refuse', ...builtIn },
      runtime: { value: null, ...builtIn },
      imageTrust: {
        repositories: { value: [], ...builtIn },
        machineRepositories: null,
        anywhere: { value: false, ...builtIn },
        requireDigest: { value: false, ...builtIn },
      },
      imageNaming: {
        untrusted: null,
        listed: { repositories: [], references: [] },
        pullable: null,
        projectImage: null,
      },
      onOutOfMemory: { value: 'report', ...builtIn },
      diskBytes: { value: null, ...builtIn },
      diskHard: { value: false, ...builtIn },
      diskReadRate: { value: null, ...builtIn },
      diskWriteRate: { value: null, ...builtIn },
      networkTimeoutMs: { value: null, ...builtIn },
      networkRate: { value: null, ...builtIn },
      networkBytes: { value: null, ...builtIn },
      networkRequests: { value: null, ...builtIn },
      networkTokens: { value: null, ...builtIn },
      upstreamProxy: { value: null, ...builtIn },
      gitSsh: { value: {}, ...builtIn },
      caFile: { value: null, ...builtIn },
      dns: { value: [], ...builtIn },
      ports: { value: [], ...builtIn },
      mounts: { value: [], ...builtIn },
      hostRoots: { value: [], ...builtIn },
      masks: { add: [], remove: { value: [], layer: 'built-in', where: 'default' } },
      denials: [],
      profile: { value: 'exec', ...builtIn },
      level: { value: 'auto', ...builtIn },
      image: { value: 'busybox', layer: 'user', where: '/c.yml (sandbox.images.default)' },
      imageReason: 'package.json says node',
      caches: { value: { volumes: [], fill: false }, ...builtIn },
      forkCopy: { value: false, ...builtIn },
      deps: { value: false, ...builtIn },
      workspacePath: { value: '/workspace', ...builtIn },
      fork: { value: null, ...builtIn },
      services: { value: [], ...builtIn },
      programs: { value: [], ...builtIn },
      state: { value: null, ...builtIn },
      pull: { value: 'missing', ...builtIn },
      offline: { value: false, ...builtIn },
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
      network: { value: { kind: 'none' }, ...builtIn },
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
      network: { kind: 'none' },
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
      caches: [],
      tmpfs: [{ target: '/tmp', bytes: 1024, mode: '1777' }],
      hash: 'h',
    },
    environment: { npm_config_offline: 'true', GOPROXY: 'off' },
    engineRequest: { HostConfig: {} },
    warm: false,
    warmReason: 'this host keeps none waiting',
    notes: ['A note about memory.'],
  };

  it('tells each value, who set it and where', () => {
    const text = renderExplanation(explanation, 'a/b', look, false);
    expect(text).toMatch(/memory +64 MiB +this call +--memory\n/);
    expect(text).toMatch(/image +busybox +user +\/c\.yml/);
    expect(text).toMatch(/time +1\.5 s +built-in\n/);
    expect(text).toContain("sh -c 'a b'");
    expect(text).toContain('/w → /workspace (workspace, writable)');
    expect(text).toMatch(/Directory +\/workspace\/a\/b\n/);
    expect(text).toMatch(/Masked +\.env \(env; empty inside, read-only\)\n/);
    expect(text).toMatch(/Warm +no: this host keeps none waiting\n/);
    expect(text).toContain('- A note about memory.');
    expect(text).toContain('Environment\n  - npm_config_offline=true GOPROXY=off\n  - There is no network');
    expect(renderExplanation({ ...explanation, environment: {} }, '.', look, false)).not.toContain('Environment');
    const [workspace] = explanation.spec.mounts;
    const mounts = workspace ? [workspace, { ...workspace, purpose: 'ca' as const }] : [];
    const withCa = { ...explanation, environment: { PIP_CERT: '/ca' }, spec: { ...explanation.spec, mounts } };
    expect(renderExplanation(withCa, '.', look, false)).toContain(
      'Environment\n  - PIP_CERT=/ca\n  - Clients find your CA bundle',
    );
    expect(text).not.toContain('HostConfig');
    expect(text).toContain('--verbose');
  });

  it('has a row for every field of the policy', () => {
    const text = renderExplanation(explanation, '.', look, false);
    const rows = text.split('\n').filter(line => / (?:built-in|this call|user|machine|repository)(?: |$)/.test(line));
    const {
      limits,
      imageTrust,
      imageNaming: _____,
      // Shown as the paths that they mask.
      masks: ______,
      // Shown where there is such a limit, which few commands have.
      networkRequests: _______,
      networkTokens: ________,
      warnings: _,
      denials: __,
      riskReasons: ___,
      imageReason: ____,
      ...others
    } = explanation.policy;
    const trust = Object.values(imageTrust).filter(value => value !== null);
    // Networks, hosts, what needs docker, the machine’s risk rules, and the built-in ceilings in two rows; the bridge is the team’s.
    const rules = 6;
    expect(rows).toHaveLength(Object.keys(others).length + Object.keys(limits).length + trust.length + rules);
    expect(text).not.toMatch(/^(?:requests|tokens) /m);
    const limited = {
      networkRequests: { value: 7, layer: 'user' as const, where: '/c.yml' },
      networkTokens: { value: 8, layer: 'user' as const, where: '/c.yml' },
    };
    const some = renderExplanation({ ...explanation, policy: { ...explanation.policy, ...limited } }, '.', look, false);
    expect(some).toMatch(/^requests +7 +user [^]*^tokens +8 +user /m);
    expect(text).toMatch(/^bridge allowed +yes +team +\/etc\/acode\/config\.yml:3:5$/m);
    expect(text).toMatch(/^risk rules +\*deploy\* → high +machine +\/etc\/acode\/policy\.yml:2:3$/m);
  });

  it('shows networks, ports, mounts and trust as text', () => {
    const where = { layer: 'user', where: '/c.yml:3:5 (k)' } as const;
    const policy: Explanation['policy'] = {
      ...explanation.policy,
      runtime: { value: 'runsc', ...where },
      network: { value: { kind: 'named', name: 'build-net' }, ...where },
      networkTimeoutMs: { value: 30_000, ...where },
      networkRate: { value: 2_097_152, ...where },
      diskWriteRate: { value: 1_048_576, ...where },
      upstreamProxy: { value: 'http://proxy.example:3128', ...where },
      gitSsh: { value: { identity: '/home/alice/.ssh/deploy' }, ...where },
      dns: { value: ['1.1.1.1', '::1'], ...where },
      ports: { value: [{ container: 80 }, { container: 53, host: 5353, protocol: 'udp' }], ...where },
      mounts: {
        value: [
          { source: '/a', target: '/b' },
          { source: '/c', target: '/d', readOnly: false },
        ],
        ...where,
      },
      imageTrust: {
        ...explanation.policy.imageTrust,
        machineRepositories: { value: ['r/*'], ...where, layer: 'machine' },
      },
      denials: [
        {
          rule: 'network.air-gapped',
          setBy: { value: 'airgapped', layer: 'machine', where: '/etc/acode/policy.yml:1:1' },
          effect: {
            kind: 'request-ignored',
            asked: { value: 'the network bridge', layer: 'request', where: 'policy.network' },
          },
          count: 1,
          remedies: [{ kind: 'work-offline' }],
        },
      ],
    };
    const text = renderExplanation({ ...explanation, policy }, '.', look, false);
    for (const row of [
      /^runtime +runsc +user +\/c\.yml:3:5 \(k\)$/m,
      /^network +build-net +user/m,
      /^network time +30 s +user/m,
      /^disk writes +1 MiB\/s +user/m,
      /^dns +1\.1\.1\.1, ::1 +user/m,
      /^ports +127\.0\.0\.1:any → 80\/tcp, 127\.0\.0\.1:5353 → 53\/udp +user/m,
      /^mounts +\/a → \/b \(read-only\), \/c → \/d \(writable\) +user/m,
      /^machine images +r\/\* +machine/m,
      /Denied\n {2}- .*air-gapped mode.*\/etc\/acode\/policy\.yml:1:1.*asked for by --network\]/,
    ])
      expect(text).toMatch(row);
  });

  it.each([60, 44])('cuts nothing in a terminal of %i columns, and breaks lines between words', width => {
    const where = '/home/someone/.config/acode/config.yml:12:5 (sandbox.images.default)';
    const policy = { ...explanation.policy, image: { value: `r/${'x'.repeat(15)}`, layer: 'user', where } as const };
    const notes = ['A rather long note about what a reader should know, which is wrapped.'];
    const text = renderExplanation({ ...explanation, policy, notes }, '.', { ...look, width }, false);
    expect(text).not.toContain('…');
    for (const part of ['/home/someone/.config/acode/config.yml:12:5', '(sandbox.images.default)', 'x'.repeat(15)])
      expect(text).toContain(part);
    const [, policyPart = ''] = text.split('\n\n');
    const withoutPath = policyPart.split('\n').filter(line => !line.includes('/home/'));
    for (const line of [...withoutPath, ...(text.split('Notes\n')[1]?.split('\n\n')[0]?.split('\n') ?? [])])
      expect(line.length).toBeLessThanOrEqual(width);
  });

  it('shows the engine request to who wants to know everything, a long filter abbreviated', () => {
    const engineRequest = { HostConfig: { SecurityOpt: [`seccomp={${'"a":1,'.repeat(500)}}`] } };
    const text = renderExplanation({ ...explanation, engineRequest }, '.', look, true);
    expect(text).toMatch(/"seccomp=\{[^]{1,80}… \(3010 characters; whole in --json\)"/);
    expect(text).toContain('"HostConfig"');
    expect(text).not.toContain('is shown with --verbose');
  });

  it('drives no terminal with what a file or a path holds', () => {
    const where = '/c\u001b]0;x\u0007.yml';
    const policy = { ...explanation.policy, image: { value: 'i\u001b[2J', layer: 'user', where } as const };
    for (const width of [null, 60])
      // eslint-disable-next-line no-control-regex
      expect(renderExplanation({ ...explanation, policy }, '.', { ...look, width }, true)).not.toMatch(
        /[\u001b\u0007]/,
      );
  });
});

describe('acode serve status', () => {
  const shown = (count: number): string =>
    renderServeStatus(
      {
        workspace: '/home/me/project',
        state: count > 0 ? 'ready' : 'running',
        reason: '',
        setting: { value: 'auto', setBy: null },
        server: {
          pid: 4242,
          since: '2026-01-02T03:04:05.000Z',
          background: true,
          commands: 0,
          sandboxes: count > 0 ? [{ image: 'node:20-alpine', count, ids: [] }] : [],
          image: null,
        },
      },
      look,
    );

  it('says beside a warm sandbox which commands do not use it', () => {
    expect(shown(1)).toMatch(
      /Warm +1 of node:20-alpine\n +Note +Commands with caches .* do not use it; with --no-caches/,
    );
    expect(shown(0)).toMatch(/Warm +none\n/);
    expect(shown(0)).not.toContain('caches');
  });
});
