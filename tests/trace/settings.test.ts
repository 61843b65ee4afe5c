// Settings that no other test turns: each of them changes what happens.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Acode } from '@acode/sandbox';
import type { Clock, ConfigInput } from '@acode/sandbox';
import { TestHost, images, mainEngine, makeWorkspace, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

const DAY_MS = 24 * 3600 * 1000;

// The sample files of the demands, with the keys of today where those have other names. What loosens is left out, and
// the limits are none of the built-in ones, so that they are seen to count.
const SAMPLES = {
  'for containers': `
sandbox:
  enabled: true
  docker: { host: null, api_version: null }
  defaults: { cpu_limit: 1.0, memory_mb: 500, memory_swap_mb: 0, pids_limit: 200, network: false, user: "UID:GID" }
  images:
    dotnet: mcr.microsoft.com/dotnet/sdk:8.0
    node: node:20-alpine
    python: python:3.12-slim
    default: ubuntu:22.04
  mounts: { workspace_path: /workspace, workspace_mode: rw, additional: [] }
  cache_volumes: { enabled: true, nuget: acode-cache-nuget, npm: acode-cache-npm, yarn: acode-cache-yarn }
  containers:
    name_prefix: acode
    labels: { acode.managed: "true" }
    cleanup_orphans: true
    create_timeout_seconds: 30
    pull_timeout_seconds: 300
  security: { capabilities_add: [], capabilities_drop: [ALL], no_new_privileges: true, seccomp_profile: default }
`,
  'for tasks': `
docker:
  enabled: true
  images: { dotnet: mcr.microsoft.com/dotnet/sdk:8.0, node: node:20-alpine, python: python:3.12-slim }
  resources: { memory: 500M, cpus: 1.0, pids_limit: 200 }
  cleanup: { on_task_complete: true, on_agent_exit: true, orphan_on_startup: true, timeout_seconds: 30 }
`,
  'for levels': `
sandbox: { level: auto, require_for: ["HIGH", "CRITICAL"], memory_limit: 500M, cpu_limit: "1", limits: { pids_limit: 200 } }
`,
} as const;

// What in them loosens, as a repository’s file says it.
const LOOSENING = [/, user: "UID:GID"/, /, nuget: .*(?= })/];

const configured = (sandbox: NonNullable<ConfigInput['sandbox']>) => ({
  config: { sandbox: { images: { default: images.busybox }, ...sandbox } },
});

describe.skipIf(withoutEngines)('a setting', () => {
  let directory: string;
  let before: string | undefined;
  beforeEach(() => {
    before = process.env['XDG_STATE_HOME'];
    directory = mkdtempSync('/var/tmp/acode-settings-');
    process.env['XDG_STATE_HOME'] = directory;
  });
  afterEach(() => {
    if (before === undefined) delete process.env['XDG_STATE_HOME'];
    else process.env['XDG_STATE_HOME'] = before;
    rmSync(directory, { recursive: true, force: true });
  });

  it('in the user’s file names the engine and the image', async () => {
    const file = join(directory, 'mine.yml');
    writeFileSync(
      file,
      `sandbox:\n  docker: { host: "unix://${mainEngine.socket}" }\n  images: { default: "${images.debian}" }\n`,
    );
    const workspace = makeWorkspace();
    await using acode = await Acode.open({ configFile: file, workspace });
    expect(await acode.status()).toMatchObject({ engine: { socket: mainEngine.socket }, defaultImage: images.debian });
    expect((await acode.run(['cat', '/etc/os-release'])).stdout).toContain('debian');
    rmSync(workspace, { recursive: true });
  });

  it.each([
    ['disk throughput', 'defaults: { blkio: { weight: 10 } }'],
    ['no sandbox at all', 'enabled: false'],
  ])('that has no effect yet, %s, is refused and never ignored', async (_, text) => {
    const file = join(directory, 'mine.yml');
    writeFileSync(file, `sandbox:\n  ${text}\n`);
    await expect(Acode.open({ configFile: file, workspace: directory })).rejects.toMatchObject({
      code: 'ACODE-SBX-016',
      message: expect.stringContaining('mine.yml:2:'),
    });
  });

  it.each(Object.entries(SAMPLES))(
    'of the sample file %s counts, in the user’s file and in a repository’s',
    async (_, sample) => {
      const own = sample.replace('UID:GID', `${process.getuid?.()}:${process.getgid?.()}`);
      const files = [
        { own, repository: '' },
        { own: 'sandbox: {}\n', repository: LOOSENING.reduce<string>((text, line) => text.replace(line, ''), sample) },
      ];
      for (const { own: text, repository } of files) {
        const file = join(directory, 'mine.yml');
        writeFileSync(file, text);
        const workspace = makeWorkspace();
        mkdirSync(join(workspace, '.agent'));
        if (repository !== '') writeFileSync(join(workspace, '.agent', 'config.yml'), repository);
        await using acode = await Acode.open({ configFile: file, workspace, engine: { socket: mainEngine.socket } });
        const policy = { image: images.busybox };
        const { stdout } = await acode.run('cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null', {
          policy,
        });
        expect(stdout.trim()).toBe('200');
        expect((await acode.explain('true', { policy })).policy.limits.memoryBytes.value).toBe(500 * 1024 ** 2);
        rmSync(workspace, { recursive: true });
      }
    },
  );

  it.each(['readonly_rootfs: false', 'seccomp_profile: unconfined', 'capabilities_add: [NET_BIND_SERVICE]'])(
    'that loosens, %s, is refused although sample files have it',
    async line => {
      const file = join(directory, 'mine.yml');
      writeFileSync(file, `sandbox:\n  security: { ${line} }\n`);
      await expect(Acode.open({ configFile: file, workspace: directory })).rejects.toMatchObject({
        code: 'ACODE-SBX-013',
        message: expect.stringContaining('mine.yml:2:'),
      });
    },
  );

  it('of the grace period decides how long a command that will not end may go on', async () => {
    const overrun = async (seconds: number): Promise<number> => {
      await using host = await TestHost.open(mainEngine, configured({ containers: { stop_timeout_seconds: seconds } }));
      const stubborn = ['sh', '-c', 'trap "" TERM; while :; do sleep 0.05; done'];
      const { durationMs, timedOut } = await host.acode.run(stubborn, { policy: { timeoutMs: 500 } });
      expect(timedOut).toBe(true);
      return durationMs - 500;
    };
    const [none, four] = [await overrun(0), await overrun(4)];
    expect(four).toBeGreaterThan(3900);
    expect(none).toBeLessThan(four);
  });

  it('of the cleanup deadline decides when a removal is given up for now; it is made up for at the end', async () => {
    await using proxy = await EngineProxy.start(mainEngine.socket);
    const counted: string[] = [];
    const metrics = {
      increment: (name: string) => void counted.push(name),
      observe: () => undefined,
      gauge: () => undefined,
    };
    await using host = await TestHost.open(mainEngine, {
      engine: { socket: proxy.socket },
      metrics,
      ...configured({ cleanup: { timeout_seconds: 0.3 }, retry: { attempts: 0 } }),
    });
    const command = await host.acode.spawn(['cat']);
    proxy.onRequest(method => (method === 'DELETE' ? 'hang' : undefined));
    await command.closeStdin();
    await command.result;
    // The engine never answers: without the deadline it would be waited for.
    await command[Symbol.asyncDispose]();
    expect(counted).toContain('acode_cleanup_failures_total');
    expect(await host.containers()).toHaveLength(1);
    proxy.onRequest(undefined);
    await host.acode.close();
    expect(await host.containers()).toEqual([]);
  });

  it('of retention decides when kept output is let go', async () => {
    let today = Date.now();
    const clock: Clock = {
      now: () => today,
      monotonic: () => performance.now(),
      after: (ms, action) => {
        const timer = setTimeout(action, ms);
        return () => clearTimeout(timer);
      },
    };
    const runOnce = async (text: string): Promise<string[]> => {
      // Without its sweep: to a clock that is days ahead, what others run now is past its time.
      const sandbox = { output: { retention_days: 2 }, containers: { cleanup_orphans: false } };
      await using host = await TestHost.open(mainEngine, { clock, ...configured(sandbox) });
      await host.acode.run(['echo', text]);
      await host.acode.close();
      await using again = await TestHost.open(mainEngine);
      return (await again.acode.logs.list()).map(({ command }) => command);
    };
    expect(await runOnce('one')).toEqual(['echo one']);
    today += 1.5 * DAY_MS;
    expect(await runOnce('two')).toEqual(['echo two', 'echo one']);
    today += DAY_MS;
    expect(await runOnce('three')).toEqual(['echo three', 'echo two']);
  });
});
