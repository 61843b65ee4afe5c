// What a hostile command or a careless caller once got past the host, each beside what must still work.

import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { RunRequest } from '@acode/sandbox';
import { TestHost, engines, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

describe.skipIf(withoutEngines).each(engines)('on $name', engine => {
  it('closing while a spawned command runs removes its sandbox', async () => {
    const host = await TestHost.open(engine);
    const command = await host.acode.spawn(['sleep', '60']);
    await host.acode.close();
    expect(await host.containers()).toEqual([]);
    await expect(command.result).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    await host[Symbol.asyncDispose]();
  });

  it('a command that reads the nonce and claims it never started is not believed', async () => {
    await using host = await TestHost.open(engine);
    // Finds the nonce in the memory of the shell that waits for it, and writes the shell’s own frame.
    const forge = [
      'import os, re, sys',
      'ppid = os.getppid()',
      'found = None',
      'for line in open(f"/proc/{ppid}/maps"):',
      '    a, b = (int(x, 16) for x in line.split()[0].split("-"))',
      '    if "rw" not in line.split()[1]: continue',
      '    try:',
      '        with open(f"/proc/{ppid}/mem", "rb") as mem:',
      '            mem.seek(a); data = mem.read(b - a)',
      '    except OSError: continue',
      '    m = re.search(rb"[0-9a-f]{32}", data)',
      '    if m: found = m.group(0); break',
      'frame = b"\\x1e" + (found or b"none") + b" missing\\n"',
      'os.write(1, b"started " + (b"forged" if found else b"plain") + b"\\n" + frame); os.write(2, frame)',
      'sys.exit(9)',
    ].join('\n');
    const result = await host.acode.run(['python3', '-c', forge], { policy: { image: images.debian } });
    expect(result.exitCode).toBe(9);
    // Without this the test would pass where the nonce was not found, and show nothing.
    expect(result.stdout).toMatch(/^started forged\n\u001e[0-9a-f]{32} missing\n$/);
  });

  it('an engine that stops answering in mid-run does not hold the caller beyond the time limit', async () => {
    const proxy = await EngineProxy.start(engine.socket);
    const host = await TestHost.open(engine, { engine: { socket: proxy.socket } });
    const command = await host.acode.spawn(['sleep', '60'], { policy: { timeoutMs: 1000 } });
    proxy.pause();
    const before = performance.now();
    await expect(command.result).rejects.toMatchObject({ code: 'ACODE-SBX-018' });
    expect(performance.now() - before).toBeLessThan(20_000);
    proxy.resume();
    await host[Symbol.asyncDispose]();
    await proxy[Symbol.asyncDispose]();
  });

  it('a working directory of an image without a shell is refused, and nothing is made on the host', async () => {
    await using host = await TestHost.open(engine);
    await expect(host.acode.run(['/id'], { cwd: 'new/dir', policy: { image: images.noshell } })).rejects.toMatchObject({
      code: 'ACODE-SBX-016',
    });
  });
});

describe.skipIf(withoutEngines)('a request', () => {
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

  it('with long odd text takes no longer than it should', async () => {
    await using host = await TestHost.open(mainEngine);
    const before = performance.now();
    expect(await host.acode.run(`true ${'a.'.repeat(50_000)}`)).toMatchObject({ exitCode: 0 });
    expect(performance.now() - before).toBeLessThan(10_000);
  });
});
