// A registry that wants a password: the user’s own credentials open it, and are never seen anywhere.

import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { engines, withoutEngines } from '../support/engines.ts';
import { PullBench } from './bench.ts';
import { PASSWORD, TestRegistry, USER } from './registry.ts';
import type { Pushed } from './registry.ts';

const BASIC = Buffer.from(`${USER}:${PASSWORD}`).toString('base64');

describe.skipIf(withoutEngines).each(engines)('on $name, a registry with a password', engine => {
  let registry: TestRegistry;
  let pushed: Pushed;
  let directory = '';
  const path = process.env['PATH'];

  const configure = (config: unknown): void =>
    writeFileSync(join(directory, 'config.json'), JSON.stringify(config), { mode: 0o600 });

  beforeAll(async () => {
    directory = mkdtempSync('/var/tmp/acode-test-docker-');
    process.env['DOCKER_CONFIG'] = directory;
    registry = await TestRegistry.on(engine, { locked: true });
    pushed = await registry.push('private/shell', '1');
  });

  afterEach(async () => {
    rmSync(join(directory, 'config.json'), { force: true });
    process.env['PATH'] = path;
    await registry.set({ echo: false });
    await registry.clear();
    await registry.forget();
  });

  afterAll(async () => {
    await registry[Symbol.asyncDispose]();
    rmSync(directory, { recursive: true, force: true });
  });

  it('fails clearly without credentials, and is asked once', async () => {
    await using bench = await PullBench.open(registry);
    await expect(bench.acode.images.pull(pushed.reference)).rejects.toMatchObject({
      code: 'ACODE-SBX-002',
      context: { kind: 'unauthorised' },
      hint: expect.stringContaining(`docker login ${registry.address}`) as string,
    });
    expect(bench.lines.some(({ message }) => message.includes('tried again'))).toBe(false);
  });

  it('fails clearly with the wrong ones', async () => {
    configure({ auths: { [registry.address]: { auth: Buffer.from(`${USER}:wrong-wrong-wrong`).toString('base64') } } });
    await using bench = await PullBench.open(registry);
    await expect(bench.acode.images.pull(pushed.reference)).rejects.toMatchObject({
      code: 'ACODE-SBX-002',
      context: { kind: 'unauthorised' },
      hint: expect.stringContaining('did not take the credentials') as string,
    });
    expect(bench.everythingSaid()).not.toContain('wrong-wrong-wrong');
  });

  it.each(['w', 'ww', 'www'])('is told them whatever their length: %s', async password => {
    configure({ auths: { [registry.address]: { auth: Buffer.from(`${USER}:${password}`).toString('base64') } } });
    await using bench = await PullBench.open(registry);
    await expect(bench.acode.images.pull(pushed.reference)).rejects.toThrow('could not be pulled');
    expect((await registry.seen()).requests.some(({ authorised }) => authorised)).toBe(true);
  });

  it('opens with what the user’s docker configuration says, which is in no log, record, event or file of ours', async () => {
    configure({ auths: { [registry.address]: { auth: BASIC } } });
    await using bench = await PullBench.open(registry);
    const { exitCode } = await bench.acode.run('env', { policy: { image: pushed.reference } });
    expect(exitCode).toBe(0);
    expect((await registry.seen()).requests.some(({ authorised }) => authorised)).toBe(true);
    await expect(bench.acode.images.pull(`${registry.address}/private/none:1`)).rejects.toThrow('could not be pulled');
    const said = `${bench.everythingSaid()}${JSON.stringify(await bench.acode.audit.tail({ count: 100 }))}`;
    // The control: what was pulled is in there, and so would be what must not.
    expect(said).toContain(pushed.digest);
    expect(said).toContain(directory);
    for (const secret of [PASSWORD, BASIC, Buffer.from(PASSWORD).toString('base64')])
      expect(said).not.toContain(secret);
  });

  it('that repeats what it was told is quoted without the credentials', async () => {
    configure({ auths: { [registry.address]: { auth: BASIC } } });
    await registry.set({ echo: true });
    await using bench = await PullBench.open(registry);
    const error: unknown = await bench.acode.images.pull(pushed.reference).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      code: 'ACODE-SBX-002',
      // The control: the words of the registry are in there.
      message: expect.stringContaining('you said [redacted]') as string,
      context: { kind: 'unauthorised' },
    });
    expect((await registry.seen()).requests.some(({ authorised }) => authorised)).toBe(true);
    const audited = async () => JSON.stringify(await bench.acode.audit.tail({ count: 100 }));
    await expect.poll(audited).toContain('you said [redacted]');
    const said = `${everythingOf(error)}${bench.everythingSaid()}${await audited()}`;
    for (const secret of [PASSWORD, BASIC, BASIC.replace(/=+$/, ''), Buffer.from(PASSWORD).toString('base64')])
      expect(said).not.toContain(secret);
  });

  it('opens with a credential helper of the user’s, by its absolute path', async () => {
    const bin = join(directory, 'bin');
    mkdirSync(bin, { mode: 0o755, recursive: true });
    const helper = join(bin, 'docker-credential-test');
    writeFileSync(
      helper,
      `#!/bin/sh\nread server\n[ "$server" = "${registry.address}" ] || { echo "credentials not found in native keychain"; exit 1; }\necho '{"ServerURL":"'$server'","Username":"${USER}","Secret":"${PASSWORD}"}'\n`,
    );
    chmodSync(helper, 0o755);
    process.env['PATH'] = `${bin}:${path}`;
    configure({ credHelpers: { [registry.address]: 'test' } });
    await using bench = await PullBench.open(registry);
    await expect(bench.acode.images.pull(pushed.reference)).resolves.toMatchObject({ digest: pushed.digest });
    expect((await bench.audited())[0]).toMatchObject({ detail: { login: 'docker-credential-test' } });
    expect(bench.everythingSaid()).not.toContain(PASSWORD);
  });

  it('is not given the credentials of another', async () => {
    configure({ auths: { 'elsewhere.invalid': { auth: BASIC }, [`${registry.address}0`]: { auth: BASIC } } });
    await using bench = await PullBench.open(registry);
    await expect(bench.acode.images.pull(pushed.reference)).rejects.toMatchObject({
      context: { kind: 'unauthorised' },
    });
    expect((await registry.seen()).requests.some(({ authorised }) => authorised)).toBe(false);
  });
});

function everythingOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return `${error.stack} ${JSON.stringify(error)} ${error.cause === undefined ? '' : everythingOf(error.cause)}`;
}
