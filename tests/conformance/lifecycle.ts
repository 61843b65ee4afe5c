// Sandboxes come and go: visible while they run, gone afterwards, whatever ended them.

import { existsSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AcodeError } from '@acode/sandbox';
import { openHost } from './host.ts';
import type { ConformanceHost } from './host.ts';
import { itWhere } from './targets.ts';
import type { Target } from './targets.ts';

export function lifecycleBehaviours(target: Target): void {
  const { level } = target;
  describe('a sandbox', () => {
    let host: ConformanceHost;
    beforeAll(async () => {
      host = await openHost(target);
    });
    afterAll(() => host[Symbol.asyncDispose]());

    it('is seen from outside while it runs, and nothing of it afterwards', async () => {
      const command = await host.acode.spawn(['cat']);
      expect(await host.remains()).not.toEqual([]);
      await command.closeStdin();
      expect(await command.result).toMatchObject({ exitCode: 0, level });
      await command[Symbol.asyncDispose]();
      await expect.poll(() => host.remains()).toEqual([]);
    });

    itWhere(target, 'engine')('is listed with its name and labels while it runs, and is gone afterwards', async () => {
      const command = await host.acode.spawn(['cat'], { taskId: 'Build_42' });
      const mine = (await host.acode.list()).find(
        ({ sessionId, taskId }) => sessionId === host.session && taskId === 'Build_42',
      );
      expect(mine).toMatchObject({ state: 'running', level });
      expect(mine?.name).toMatch(/^acode-[a-z0-9]{8}-build-42-001$/);
      expect(mine?.labels).toMatchObject({
        'acode.managed': 'true',
        'acode.uid': String(process.getuid?.()),
        'acode.profile': 'exec',
        'acode.level': level,
      });
      expect(
        Object.keys(mine?.labels ?? {})
          .filter(name => name.startsWith('acode.'))
          .sort(),
      ).toEqual(
        [
          'created',
          'expires',
          'given-name',
          'host',
          'keep',
          'level',
          'managed',
          'name',
          'nonce',
          'owner',
          'profile',
          'sandbox',
          'session',
          'spec',
          'task',
          'uid',
        ].map(name => `acode.${name}`),
      );
      await command.closeStdin();
      const result = await command.result;
      expect(result.sandboxId).toBe(mine?.sandboxId);
      await command[Symbol.asyncDispose]();
      expect(await host.remains()).toEqual([]);
    });

    it('is removed after success, failure, a signal and a crash of everything in it', async () => {
      for (const script of ['exit 0', 'exit 1', 'kill -9 $$', 'kill -9 $PPID'])
        await host.acode.run(['sh', '-c', script]);
      await expect.poll(() => host.remains()).toEqual([]);
    });

    it('ends with everything that the command left, in a session of its own too', async () => {
      const result = await host.acode.run('setsid sleep 300 >/dev/null 2>&1 & sleep 0.3; echo done');
      expect(result).toMatchObject({ exitCode: 0, stdout: 'done\n' });
      await expect.poll(() => host.remains()).toEqual([]);
    });

    it('passes signals to the command', async () => {
      await using command = await host.acode.spawn([
        'sh',
        '-c',
        'trap "echo got; exit 5" USR1; echo ready; while :; do sleep 0.05; done',
      ]);
      for await (const chunk of command.stdout) {
        if (Buffer.from(chunk).includes('ready')) await command.kill('SIGUSR1');
        else break;
      }
      expect(await command.result).toMatchObject({ exitCode: 5, stdout: 'ready\ngot\n' });
    });

    it('takes input while the command runs', async () => {
      await using command = await host.acode.spawn(['sh', '-c', 'read a; echo "got $a"; read b; echo "got $b"']);
      await command.write('one\n');
      await command.write('two\n');
      expect(await command.result).toMatchObject({ stdout: 'got one\ngot two\n' });
    });

    it('is cancelled before it starts, and nothing is made', async () => {
      await expect.poll(() => host.remains()).toEqual([]);
      const error: AcodeError = (await host.acode
        .run(['touch', 'ran'], { signal: AbortSignal.abort() })
        .catch((caught: AcodeError) => caught)) as AcodeError;
      expect(error.code).toBe('ACODE-SBX-014');
      expect(existsSync(host.file('ran'))).toBe(false);
      expect(await host.remains()).toEqual([]);
    });

    it('is cancelled at any moment, and nothing is left', async () => {
      for (const ms of [1, 5, 10, 20, 40, 60, 80, 100, 130, 160, 200, 250, 300, 400]) {
        await expect(host.acode.run(['sleep', '60'], { signal: AbortSignal.timeout(ms) })).rejects.toMatchObject({
          code: 'ACODE-SBX-014',
        });
      }
      await expect.poll(() => host.remains()).toEqual([]);
    });

    it('that is cancelled while it runs gives back what it had printed', async () => {
      const controller = new AbortController();
      const onStdout = () => controller.abort();
      const error: unknown = await host.acode
        .run(['sh', '-c', 'echo half; sleep 600'], { signal: controller.signal, onStdout })
        .catch((caught: unknown) => caught);
      expect(error).toMatchObject({ code: 'ACODE-SBX-014', context: { result: { exitCode: null, stdout: 'half\n' } } });
    });

    it('is explained without being made', async () => {
      await expect.poll(() => host.remains()).toEqual([]);
      const explanation = await host.acode.explain(['echo', 'hi'], {
        policy: { limits: { memoryBytes: 64 * 1024 ** 2 } },
      });
      expect(explanation.policy.limits.memoryBytes).toMatchObject({ value: 64 * 1024 ** 2, layer: 'request' });
      expect(explanation.policy.limits.pids).toMatchObject({ value: 256, layer: 'built-in' });
      expect(await host.remains()).toEqual([]);
    });

    itWhere(target, 'engine')('is explained with the request that the engine would get', async () => {
      const { engineRequest } = await host.acode.explain(['echo', 'hi'], {
        policy: { limits: { memoryBytes: 64 * 1024 ** 2 } },
      });
      expect(engineRequest).toMatchObject({ HostConfig: { Memory: 64 * 1024 ** 2, CapDrop: ['ALL'] } });
    });

    itWhere(target, 'images')('needs an image that is there', async () => {
      const policy = { image: 'acode-test/none:1', pull: 'never' } as const;
      await expect(host.acode.run(['true'], { policy })).rejects.toMatchObject({
        code: 'ACODE-SBX-009',
        context: { image: 'acode-test/none:1' },
        cause: { code: 'ACODE-CTN-011' },
      });
    });

    it('tells that it was provided and that it was torn down, under one correlation id', async () => {
      const seen: { type: string; correlationId: string }[] = [];
      const types = ['SandboxProvisioned', 'SandboxTeardown'] as const;
      const subscriptions = types.map(type => host.acode.events.on(type, event => seen.push(event)));
      const command = await host.acode.spawn(['true']);
      const { correlationId } = await command.result;
      await command[Symbol.asyncDispose]();
      subscriptions.forEach(subscription => subscription[Symbol.dispose]());
      expect(seen.filter(event => event.correlationId === correlationId).map(({ type }) => type)).toEqual([...types]);
    });

    itWhere(target, 'engine')('tells about its life in events, in order, under one correlation id', async () => {
      const seen: { type: string; correlationId: string }[] = [];
      const types = [
        'ContainerCreated',
        'ContainerStarted',
        'SandboxProvisioned',
        'ContainerExited',
        'ContainerRemoved',
        'SandboxTeardown',
      ] as const;
      const subscriptions = types.map(type => host.acode.events.on(type, event => seen.push(event)));
      const command = await host.acode.spawn(['true']);
      const { correlationId } = await command.result;
      await command[Symbol.asyncDispose]();
      subscriptions.forEach(subscription => subscription[Symbol.dispose]());
      expect(seen.filter(event => event.correlationId === correlationId).map(({ type }) => type)).toEqual([...types]);
    });
  });
}
