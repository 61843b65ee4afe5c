// A directory below one that another sandbox can write is never mounted; an image without a shell is held to the same rule.

import { existsSync, mkdirSync } from 'node:fs';
import type { RunningCommand } from '@acode/sandbox';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost, engines, images, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

describe.skipIf(withoutEngines).each(engines)('on $name', engine => {
  let outer: TestHost;
  beforeAll(async () => {
    outer = await TestHost.open(engine);
    mkdirSync(outer.file('inner'));
  });
  afterAll(() => outer[Symbol.asyncDispose]());

  for (const [kind, image, command] of [
    ['an image with a shell', images.busybox, ['touch', 'ran']],
    ['an image without one', images.noshell, ['/true']],
  ] as const) {
    it(`a workspace below another sandbox’s writable one is refused, for ${kind}`, async () => {
      await using busy = await outer.acode.spawn(['cat']);
      await using inner = await TestHost.open(engine, { workspace: outer.file('inner') });
      mkdirSync(outer.file('inner'), { recursive: true });
      await expect(inner.acode.run(command, { policy: { image } })).rejects.toMatchObject({
        code: 'ACODE-SBX-010',
        context: { violation: 'NestedWritableMount' },
      });
      expect(existsSync(outer.file('inner/ran'))).toBe(false);
      await busy.closeStdin();
      await busy.result;
      await busy[Symbol.asyncDispose]();
      expect(await inner.acode.run(command, { policy: { image } })).toMatchObject({ exitCode: 0 });
    });
  }

  // From its second command on a host is told by the engine who comes, and does not ask it every time.
  it('the same holds for a host that has run commands before the other sandbox came', async () => {
    await using inner = await TestHost.open(engine, { workspace: outer.file('inner') });
    mkdirSync(outer.file('inner'), { recursive: true });
    for (let count = 0; count < 3; count += 1) expect(await inner.acode.run(['true'])).toMatchObject({ exitCode: 0 });
    {
      await using _ = await outer.acode.spawn(['cat']);
      await expect(inner.acode.run(['touch', 'ran'])).rejects.toMatchObject({
        code: 'ACODE-SBX-010',
        context: { violation: 'NestedWritableMount' },
      });
      expect(existsSync(outer.file('inner/ran'))).toBe(false);
    }
    expect(await inner.acode.run(['touch', 'ran'])).toMatchObject({ exitCode: 0 });
    expect(existsSync(outer.file('inner/ran'))).toBe(true);
  });

  it('one that could not be removed still counts, also for the host that made it', async () => {
    await using proxy = await EngineProxy.start(engine.socket);
    await using host = await TestHost.open(engine, {
      engine: { socket: proxy.socket },
      config: { sandbox: { images: { default: images.busybox }, cleanup: { timeout_seconds: 1 } } },
    });
    mkdirSync(host.file('part'));
    const mounting = { policy: { mounts: [{ source: 'part', target: '/part' }] } };
    for (let count = 0; count < 2; count += 1) expect(await host.acode.run(['true'])).toMatchObject({ exitCode: 0 });
    const busy = await host.acode.spawn(['sleep', '60']);
    proxy.onRequest(method => (method === 'DELETE' ? { status: 500, message: 'not now', when: 'before' } : undefined));
    await busy[Symbol.asyncDispose]();
    await expect(host.acode.run(['touch', 'ran'], mounting)).rejects.toMatchObject({
      context: { violation: 'NestedWritableMount' },
    });
    expect(existsSync(host.file('ran'))).toBe(false);
    proxy.onRequest(undefined);
    await expect
      .poll(() => host.acode.run(['touch', 'ran'], mounting))
      .toMatchObject({
        exitCode: 0,
      });
  });

  it('the same workspace may be used by two sandboxes at once', async () => {
    await using busy = await outer.acode.spawn(['cat']);
    expect(await outer.acode.run(['true'])).toMatchObject({ exitCode: 0 });
    await busy.closeStdin();
  });

  describe('an image without a shell', () => {
    const policy = { image: images.noshell };
    it('runs its command directly, with input, output, limits and exit status', async () => {
      expect(await outer.acode.run(['/echo', 'hi'], { policy })).toMatchObject({ exitCode: 0, stdout: 'hi\n' });
      expect(await outer.acode.run(['/cat'], { policy, stdin: 'in' })).toMatchObject({ exitCode: 0, stdout: 'in' });
      expect(await outer.acode.run(['/false'], { policy })).toMatchObject({ exitCode: 1 });
      expect(await outer.acode.run(['/sleep', '60'], { policy: { ...policy, timeoutMs: 800 } })).toMatchObject({
        exitCode: null,
        timedOut: true,
      });
      expect((await outer.acode.run(['/id'], { policy })).stdout).toContain(`uid=${process.getuid?.()}`);
    });

    it.each([
      ['goes on', ['/sleep', '20']],
      ['has ended by then', ['/true']],
    ])(
      'is ended where somebody came while it was started who could exchange its mounts, when it %s',
      async (_, command) => {
        await using proxy = await EngineProxy.start(engine.socket);
        const options = { engine: { socket: proxy.socket }, workspace: outer.file('inner') };
        mkdirSync(outer.file('inner'), { recursive: true });
        await using inner = await TestHost.open(engine, options);
        // The control, and what is known of the image from here on: that it has no shell.
        expect(await inner.acode.run(['/true'], { policy })).toMatchObject({ exitCode: 0 });
        const violations: string[] = [];
        using _told = inner.acode.events.on('SecurityViolation', ({ violation }) => violations.push(violation));
        const coming: RunningCommand[] = [];
        proxy.onRequest(async (method, path) => {
          if (method === 'POST' && path.endsWith('/start')) {
            proxy.onRequest(undefined);
            coming.push(await outer.acode.spawn(['cat']));
          }
          return undefined;
        });
        try {
          await expect(inner.acode.run(command, { policy })).rejects.toMatchObject({
            code: 'ACODE-SBX-025',
            context: { reason: expect.stringContaining('another sandbox can write') as string },
            hint: expect.stringContaining('had begun') as string,
          });
          expect(violations).toEqual(['NestedWritableMount']);
        } finally {
          for (const other of coming) await other[Symbol.asyncDispose]();
        }
      },
    );

    it('takes no line for a shell, and no environment that the engine would tell everybody', async () => {
      await expect(outer.acode.run('echo hi', { policy })).rejects.toMatchObject({ code: 'ACODE-SBX-015' });
      await expect(outer.acode.run(['/env'], { policy, env: { TOKEN: 'hunter2' } })).rejects.toMatchObject({
        code: 'ACODE-SBX-016',
      });
    });
  });
});
