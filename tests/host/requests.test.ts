// Requests of a careless caller: refused with the field, or done, and never ignored.

import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { RunRequest } from '@acode/sandbox';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';

describe.skipIf(withoutEngines)('a request', () => {
  it('for a working directory of an image without a shell is refused, and nothing is made on the host', async () => {
    await using host = await TestHost.open(mainEngine);
    await expect(host.acode.run(['/id'], { cwd: 'new/dir', policy: { image: images.noshell } })).rejects.toMatchObject({
      code: 'ACODE-SBX-016',
    });
  });

  it('with a source that fails is a request whose input ended', async () => {
    await using host = await TestHost.open(mainEngine);
    const failing = Readable.from(
      (async function* () {
        yield 'first\n';
        await Promise.reject(new Error('disk'));
      })(),
    );
    expect(await host.acode.run(['cat'], { stdin: failing, policy: { timeoutMs: 8000 } })).toMatchObject({
      exitCode: 0,
      stdout: 'first\n',
    });
  });

  it.each<[string, unknown]>([
    ['policyy', { policyy: {} }],
    ['workspace', { workspace: 'readonly' }],
    ['risk', { risk: 'bogus' }],
    ['stdin', { stdin: 5 }],
    ['env.A', { env: { A: 1 } }],
    ['signal', { signal: {} }],
    ['onStdout', { onStdout: 'x' }],
  ])('with a wrong %s is refused, not ignored', async (field, request) => {
    await using host = await TestHost.open(mainEngine);
    await expect(host.acode.run(['true'], request as RunRequest)).rejects.toMatchObject({
      code: 'ACODE-SBX-017',
      context: { field },
    });
  });

  it('with a command of another kind, or one too large to start, is refused', async () => {
    await using host = await TestHost.open(mainEngine);
    for (const command of [5, ['echo', 5], ['echo', 'x'.repeat(200_000)], [], '']) {
      await expect(host.acode.run(command as string)).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    }
  });

  it('with long odd text is run', async () => {
    await using host = await TestHost.open(mainEngine);
    expect(await host.acode.run(`true ${'a.'.repeat(50_000)}`)).toMatchObject({ exitCode: 0 });
  });
});
