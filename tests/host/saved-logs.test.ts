// The output of past runs can be read again, by their owner only, and not where the user does not want it kept.

import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';

describe.skipIf(withoutEngines)('kept output', () => {
  let state: string;
  let before: string | undefined;
  beforeEach(() => {
    before = process.env['XDG_STATE_HOME'];
    state = mkdtempSync('/var/tmp/acode-state-');
    process.env['XDG_STATE_HOME'] = state;
  });
  afterEach(() => {
    if (before === undefined) delete process.env['XDG_STATE_HOME'];
    else process.env['XDG_STATE_HOME'] = before;
    rmSync(state, { recursive: true, force: true });
  });

  it('is there after the sandbox is gone, by name and by id, and nobody else can read it', async () => {
    const host = await TestHost.open(mainEngine);
    const { sandboxId } = await host.acode.run(['sh', '-c', 'echo out; echo err >&2; exit 5'], { taskId: 'kept' });
    await host.acode.close();
    const again = await TestHost.open(mainEngine);
    const [info] = await again.acode.logs.list();
    expect(info).toMatchObject({ sandboxId, exitCode: 5, command: 'sh -c echo out; echo err >&2; exit 5' });
    expect(await again.acode.logs.find(info?.name ?? '')).toMatchObject({ stdout: 'out\n', stderr: 'err\n' });
    expect(await again.acode.logs.find(sandboxId.slice(0, 8))).toMatchObject({ sandboxId });
    await expect(again.acode.logs.find('acode-none-x-001')).rejects.toMatchObject({ code: 'ACODE-CTN-012' });
    const directory = join(state, 'acode', 'logs');
    expect(statSync(directory).mode & 0o777).toBe(0o700);
    for (const file of readdirSync(directory)) expect(statSync(join(directory, file)).mode & 0o777).toBe(0o600);
    await again[Symbol.asyncDispose]();
    await host[Symbol.asyncDispose]();
  });

  it('is capped', async () => {
    await using host = await TestHost.open(mainEngine);
    await host.acode.run('head -c 3000000 /dev/zero | tr "\\0" x');
    await host.acode.close();
    await using again = await TestHost.open(mainEngine);
    const [info] = await again.acode.logs.list();
    const log = await again.acode.logs.find(info?.sandboxId ?? '');
    expect([log.stdout.length, log.dropped.stdout]).toEqual([1024 ** 2, 3_000_000 - 1024 ** 2]);
  });

  it('is not kept where the user switched it off', async () => {
    await using host = await TestHost.open(mainEngine, {
      config: { sandbox: { images: { default: images.busybox }, output: { save: false } } },
    });
    await host.acode.run(['echo', 'hi']);
    await host.acode.close();
    // What was run is written down all the same.
    expect(readdirSync(join(state, 'acode'))).toEqual(['audit', 'masks', 'users']);
  });
});
