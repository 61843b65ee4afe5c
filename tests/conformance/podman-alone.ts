// What is different on Podman: the same protections reached another way, and what is refused because they cannot be shown.

import { spawn } from 'node:child_process';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Engine } from '../../packages/sandbox/src/isolation/docker/engine/index.ts';
import { TestHost, images, withEngine } from '../support/engines.ts';
import { describeWhere } from './targets.ts';
import type { Target } from './targets.ts';

const PATIENCE_MS = 60_000;
const MIB = 1024 ** 2;

// A container as Podman makes it by itself, but for what this host cannot give.
async function withBareContainer(
  target: Target['engine'],
  argv: readonly string[],
  use: (engine: Engine, id: string, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const limit = (Name: string, most: number) => ({ Name, Soft: most, Hard: most });
  const HostConfig = { NetworkMode: 'none', Ulimits: [limit('nproc', 4096), limit('nofile', 1024)] };
  const body = { Image: images.busybox, Entrypoint: argv, OpenStdin: true, StdinOnce: true, HostConfig };
  await withEngine(target, async engine => {
    const signal = AbortSignal.timeout(2 * PATIENCE_MS);
    const { id } = await engine.containers.create(body, { signal });
    try {
      await use(engine, id, signal);
    } finally {
      await engine.containers.remove(id, { force: true, volumes: true, signal: AbortSignal.timeout(PATIENCE_MS) });
    }
  });
}

export function podmanBehaviours(target: Target): void {
  const { engine } = target;
  describeWhere(target, 'Podman')('a sandbox on Podman', () => {
    let host: TestHost;
    beforeAll(async () => {
      host = await TestHost.open(engine);
    });
    afterAll(() => host[Symbol.asyncDispose]());

    it('has acode’s own system call filter, handed over as a file, and not Podman’s', async () => {
      const script = (mode: string) => `echo x > /tmp/x; chmod ${mode} /tmp/x && echo changed`;
      expect((await host.acode.run(script('755'))).stdout).toBe('changed\n');
      expect(await host.acode.run(script('4755'))).toMatchObject({ stdout: '', exitCode: 1 });
      await withBareContainer(engine, ['sh', '-c', script('4755')], async ({ containers }, id, signal) => {
        const exit = await containers.expectExit(id, 'next-exit', { signal, deadlineMs: PATIENCE_MS });
        await containers.start(id, { signal });
        expect((await exit.exit).statusCode).toBe(0);
      });
      const { engineRequest } = await host.acode.explain(['true']);
      expect(JSON.stringify(engineRequest)).toMatch(/"seccomp=\/[^"]*seccomp-[0-9a-f]{32}\.json"/);
    });

    it('has a limit on what Podman mounts by itself', async () => {
      const policy = { limits: { tmpBytes: 2 * MIB } };
      const fill =
        'head -c 1000000 /dev/zero > /var/tmp/a && echo ok; head -c 9000000 /dev/zero > /var/tmp/b || wc -c < /var/tmp/b';
      const [below, size] = (await host.acode.run(fill, { policy })).stdout.split('\n');
      expect(below).toBe('ok');
      expect(Number(size)).toBeGreaterThan(900_000);
      expect(Number(size)).toBeLessThan(2 * MIB);
    });

    it('does not see the kernel’s own files, nor can it write them', async () => {
      const { stdout } = await host.acode.run(
        'wc -c < /proc/keys; ls /sys/firmware | wc -l; { echo 1 > /proc/sys/kernel/hostname; } 2>&1 | grep -c "Read-only"; wc -c < /proc/version',
      );
      const [keys, firmware, readOnly, control] = stdout.trim().split('\n').map(Number);
      expect([keys, firmware, readOnly]).toEqual([0, 0, 1]);
      expect(control).toBeGreaterThan(10);
    });

    it('ends when its client is gone: input ends with the connection that brings it', async () => {
      await withBareContainer(engine, ['cat'], async ({ containers }, id, signal) => {
        const stream = await containers.attach(id, { stdin: true, stdout: true, signal });
        await containers.start(id, { signal });
        const running = async () => (await containers.inspect(id, { signal })).State.Running;
        expect(await running()).toBe(true);
        stream.destroy();
        await expect.poll(running, { timeout: PATIENCE_MS }).toBe(false);
      });
    });

    it('is removed when its client is killed, by the reaper, which finds it under its name', async () => {
      const session = `test-killed-${process.pid}`;
      const program = new URL('client.mjs', import.meta.url).pathname;
      const words = [program, engine.socket, session, images.busybox];
      const client = spawn(process.execPath, words, { cwd: host.workspace, stdio: 'inherit' });
      const states = () =>
        withEngine(engine, async ({ containers }) => {
          const labels = [`acode.session=${session}`];
          const all = await containers.list({ labels, all: true, signal: AbortSignal.timeout(PATIENCE_MS) });
          return all.map(({ state }) => state);
        });
      await expect.poll(states, { timeout: 2 * PATIENCE_MS }).toEqual(['running']);
      client.kill('SIGKILL');
      await expect.poll(states, { timeout: PATIENCE_MS }).toEqual([]);
    });

    it('is refused for an image without a shell, in which nothing could be verified', async () => {
      await expect(host.acode.run(['/true'], { policy: { image: images.noshell } })).rejects.toMatchObject({
        code: 'ACODE-SBX-016',
        hint: /Docker/,
      });
      expect(await host.containers()).toEqual([]);
    });

    it('is refused with a network, also where the user allows one', async () => {
      await using other = await TestHost.open(engine, { config: { sandbox: { network: { allow_bridge: true } } } });
      await expect(other.acode.run(['true'], { policy: { network: 'bridge' } })).rejects.toMatchObject({
        code: 'ACODE-SBX-016',
        hint: /Leave the network out/,
      });
      expect((await other.acode.run(['true'])).exitCode).toBe(0);
    });

    it('is refused with a runtime that Podman names but cannot be asked for', async () => {
      await using other = await TestHost.open(engine, { config: { sandbox: { runtime: 'runsc' } } });
      await expect(other.acode.run(['true'])).rejects.toMatchObject({
        code: expect.stringMatching(/ACODE-SBX-01[02]/),
      });
    });

    it('is refused for another user where the kernel does not show that its control groups are its own', async () => {
      await expect(host.acode.run(['id', '-u'], { policy: { user: '4242:4242' } })).rejects.toMatchObject({
        code: 'ACODE-SBX-010',
        context: { violation: 'SpecMismatch', detail: /cgroup namespace.*version 2/ },
      });
      expect((await host.acode.run(['id', '-u'])).exitCode).toBe(0);
    });
  });
}
