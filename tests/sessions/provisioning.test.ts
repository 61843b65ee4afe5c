// How a persistent sandbox comes and goes: what it is called, what is said of it, what it is given, and that nothing is left.

import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AcodeEvent } from '@acode/sandbox';
import { openHost } from '../conformance/host.ts';
import type { ConformanceHost } from '../conformance/host.ts';
import { bind, runWeakened } from '../attacks/weakened.ts';
import { warmth, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { countOf, places } from './places.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

describe.skipIf(withoutEngines).each(places)('a persistent sandbox on $name', place => {
  let host: ConformanceHost;
  beforeAll(async () => {
    host = await openHost(place);
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('has a random UUID, its level, a container and an image, and expires in an hour', async () => {
    const ids = new Set<string>();
    for (let round = 0; round < 3; round += 1) {
      await using sandbox = await host.acode.create();
      expect(sandbox.id).toMatch(UUID);
      expect(sandbox.containerId).toMatch(/^[0-9a-f]{64}$/);
      expect(sandbox).toMatchObject({ level: place.level, kept: false });
      const left = sandbox.expiresAt.getTime() - Date.now();
      expect(left).toBeGreaterThan(3_590_000);
      expect(left).toBeLessThanOrEqual(3_600_000);
      ids.add(sandbox.id);
    }
    expect(ids.size).toBe(3);
  });

  it('is announced when it is there and when it is gone, once each, as strict', async () => {
    const seen: AcodeEvent<'SandboxProvisioned' | 'SandboxTeardown'>[] = [];
    using _ = host.acode.events.on('SandboxProvisioned', event => seen.push(event));
    using __ = host.acode.events.on('SandboxTeardown', event => seen.push(event));
    const sandbox = await host.acode.create();
    await sandbox.commands.run(['true']);
    await Promise.all([sandbox.kill(), sandbox.kill()]);
    const mine = seen.filter(({ sandboxId }) => sandboxId === sandbox.id);
    expect(mine).toMatchObject([
      { type: 'SandboxProvisioned', backend: 'docker', isolationLevel: 'strict', level: place.level },
      { type: 'SandboxTeardown', backend: 'docker' },
    ]);
    expect(new Set(mine.map(({ correlationId }) => correlationId)).size).toBe(1);
  });

  it('is counted among the key figures, and is there in far less than 30 s', async () => {
    await using sandbox = await host.acode.create();
    const { kpi_events, sandbox_provision_latency_ms } = host.acode.kpis();
    expect(kpi_events.filter(({ sandboxId }) => sandboxId === sandbox.id)).toHaveLength(1);
    expect(sandbox_provision_latency_ms ?? Infinity).toBeLessThan(30_000);
  });

  // Where hosts of tests keep sandboxes waiting, they are there besides.
  it.skipIf(warmth.pool !== undefined)('leaves nothing on the engine, also where the body throws', async () => {
    const failing = async (): Promise<void> => {
      await using sandbox = await host.acode.create();
      await sandbox.commands.run(['sh', '-c', 'sleep 600 >/dev/null 2>&1 & echo begun']);
      // The control: while it is there, the engine has it.
      expect(await countOf(host)).toBe(1);
      throw new Error('the task failed');
    };
    await expect(failing()).rejects.toThrow('the task failed');
    expect(await countOf(host)).toBe(0);
  });

  // Where hosts of tests keep sandboxes waiting, they are there besides.
  it.skipIf(warmth.pool !== undefined)('leaves nothing where it was cancelled while it was made', async () => {
    for (const afterMs of [0, 20, 60, 150]) {
      const cancel = new AbortController();
      const timer = setTimeout(() => cancel.abort(), afterMs);
      const creating = host.acode.create({ signal: cancel.signal });
      await creating.then(
        sandbox => sandbox.kill(),
        (error: unknown) => expect(error).toMatchObject({ code: 'ACODE-SBX-014' }),
      );
      clearTimeout(timer);
    }
    await until(async () => (await countOf(host)) === 0);
  });

  it('is listed with its id while it is there, and not afterwards', async () => {
    const sandbox = await host.acode.create({ taskId: 'listed' });
    const found = async () => (await host.acode.list()).filter(({ sandboxId }) => sandboxId === sandbox.id);
    expect(await found()).toMatchObject([{ state: 'running', taskId: 'listed', sessionId: host.session }]);
    await sandbox.kill();
    expect(await found()).toEqual([]);
  });

  it('sees the workspace and nothing else of the host', async () => {
    const canary = `${host.workspace}.canary`;
    mkdirSync(canary);
    writeFileSync(`${canary}/secret`, 'of the host\n');
    writeFileSync(host.file('mine'), 'of the workspace\n');
    const script = `cat /workspace/mine ${canary}/secret ${host.workspace}/mine; find / -xdev -name secret 2>/dev/null`;
    try {
      await using sandbox = await host.acode.create();
      const { stdout } = await sandbox.commands.run(script);
      expect(stdout).toBe('of the workspace\n');
      // The control: where it is given, the same lines find it.
      const control = await runWeakened(place.engine, {
        command: ['sh', '-c', script],
        host: { Mounts: [bind(canary, canary), bind(host.workspace, '/workspace')] },
      });
      expect(control.stdout).toContain('of the host\n');
    } finally {
      rmSync(canary, { recursive: true });
    }
  });

  it('writes the workspace as the caller', async () => {
    await using sandbox = await host.acode.create();
    await sandbox.commands.run('echo made > made; mkdir -p deep/er');
    expect(readFileSync(host.file('made'), 'utf8')).toBe('made\n');
    for (const name of ['made', 'deep/er'])
      expect(statSync(host.file(name))).toMatchObject({ uid: process.getuid?.(), gid: process.getgid?.() });
  });

  it('gives every command its own variables and those of the sandbox, and none of the host’s', async () => {
    process.env['HOST_SECRET'] = 'must not leak';
    try {
      await using sandbox = await host.acode.create({ env: { ONE: '1', BOTH: 'the sandbox’s' } });
      const names = async (env: Record<string, string> = {}) => {
        const { stdout } = await sandbox.commands.run(['env'], { env });
        return stdout.split('\n').flatMap(line => /^([A-Za-z_]+)=(.*)$/.exec(line)?.slice(1, 3).join('=') ?? []);
      };
      const nameOf = (line: string) => line.split('=')[0];
      const first = await names({ TWO: '2', BOTH: 'the command’s' });
      expect(new Set(first.map(nameOf))).toEqual(new Set(['BOTH', 'ONE', 'TWO', ...place.variables]));
      expect(first).toContain('BOTH=the command’s');
      // One command’s variables are not the next one’s.
      const second = await names();
      expect(new Set(second.map(nameOf))).toEqual(new Set(['BOTH', 'ONE', ...place.variables]));
      expect(second).toContain('BOTH=the sandbox’s');
    } finally {
      delete process.env['HOST_SECRET'];
    }
  });

  it('refuses variables that change how programs load code, for the sandbox and for a command', async () => {
    const refused = { code: 'ACODE-SBX-010', context: { violation: 'DangerousEnvironment' } };
    await expect(host.acode.create({ env: { LD_PRELOAD: '/x.so' } })).rejects.toMatchObject(refused);
    await using sandbox = await host.acode.create();
    await expect(sandbox.commands.run(['true'], { env: { NODE_OPTIONS: '-r x' } })).rejects.toMatchObject(refused);
    expect((await sandbox.commands.run(['true'])).exitCode).toBe(0);
  });

  it('tells nobody who asks the engine what variables its commands have', async () => {
    await using sandbox = await host.acode.create({ env: { API_TOKEN: 'hunter2' } });
    await using _ = await sandbox.commands.run(['sleep', '60'], { background: true, env: { OTHER: 'hunter3' } });
    const details = JSON.stringify(await host.acode.inspect(sandbox.containerId));
    expect(details).toContain(sandbox.id);
    expect(details).not.toMatch(/hunter[23]/);
  });

  it('puts no path of the host into what commands make', async () => {
    await using sandbox = await host.acode.create();
    await sandbox.commands.run('pwd > paths; env >> paths; cat /proc/self/cmdline /proc/self/environ >> paths');
    const text = readFileSync(host.file('paths'), 'utf8');
    expect(text).toContain('/workspace');
    expect(text).not.toContain(host.workspace);
    expect(text).not.toContain(process.env['HOME'] ?? 'no home');
  });
});
