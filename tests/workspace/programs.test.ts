// Programs of the store: sandboxes of any image have them, and none can change them.

import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';

const STORE = join(process.env['XDG_STATE_HOME'] ?? '', 'acode/programs');
const SCRIPT = '#!/bin/sh\necho "hello $1"\n';

describe.skipIf(withoutEngines)('a program of the store', () => {
  let host: TestHost;

  beforeAll(async () => {
    host = await TestHost.open(mainEngine);
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
  });

  const add = (id: string, content: string): Promise<boolean> =>
    host.acode.programs.add(id, async directory => {
      writeFileSync(join(directory, 'hello'), content, { mode: 0o755 });
    });

  it('is added once and whole, and runs in any image', async () => {
    expect(await add('hello-1', SCRIPT)).toBe(true);
    expect(await add('hello-1', 'another')).toBe(false);
    const programs = [{ id: 'hello-1', target: '/opt/hello' }];
    for (const image of [images.busybox, images.debian]) {
      const { stdout } = await host.acode.run(['/opt/hello/hello', 'you'], { policy: { image, programs } });
      expect(stdout).toBe('hello you\n');
    }
    await expect(
      host.acode.programs.add('broken-1', async directory => {
        writeFileSync(join(directory, 'half'), '');
        throw new Error('the connection broke');
      }),
    ).rejects.toThrow('the connection broke');
    expect(host.acode.programs.has('broken-1')).toBe(false);
    expect(readdirSync(STORE)).toEqual(['hello-1']);
  });

  it('cannot be changed from inside, nor take the place of anything but a directory in /opt', async () => {
    await add('hello-1', SCRIPT);
    const programs = [{ id: 'hello-1', target: '/opt/hello' }];
    const { exitCode, stderr } = await host.acode.run('echo evil > /opt/hello/hello; chmod 777 /opt/hello', {
      policy: { programs },
    });
    expect(exitCode).not.toBe(0);
    expect(stderr).toMatch(/read-only/i);
    // The control: what was added is still what runs.
    expect((await host.acode.run(['/opt/hello/hello', '1'], { policy: { programs } })).stdout).toBe('hello 1\n');
    for (const target of ['/usr/bin', '/opt', '/opt/../etc', '/workspace/x'])
      await expect(
        host.acode.run(['true'], { policy: { programs: [{ id: 'hello-1', target }] } }),
      ).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    for (const id of ['../f', 'absent', '.new-x'])
      await expect(
        host.acode.run(['true'], { policy: { programs: [{ id, target: '/opt/x' }] } }),
      ).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
  });
});
