// Limits as a caller meets them: set field by field, refused where they are invalid, and told about in the log.

import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { LogFields, PolicyInput } from '@acode/sandbox';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

const MIB = 1024 ** 2;
const created = z.looseObject({ HostConfig: z.looseObject({ Ulimits: z.array(z.looseObject({ Name: z.string() })) }) });

describe.skipIf(withoutEngines)('a limit', () => {
  const lines: { level: string; message: string; fields: LogFields }[] = [];
  const counted: string[] = [];
  let proxy: EngineProxy;
  let host: TestHost;

  beforeAll(async () => {
    const write = (level: string) => (fields: LogFields, message: string) =>
      void lines.push({ level, message, fields });
    proxy = await EngineProxy.start(mainEngine.socket);
    host = await TestHost.open(mainEngine, {
      engine: { socket: proxy.socket },
      logger: { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') },
      metrics: {
        increment: name => void counted.push(name),
        observe: () => undefined,
        gauge: () => undefined,
      },
      config: { sandbox: { images: { default: images.busybox }, defaults: { memory_mb: 100, pids_limit: 33 } } },
    });
  });
  beforeEach(() => {
    lines.length = 0;
    counted.length = 0;
    proxy.requests.length = 0;
  });
  afterAll(async () => {
    await host[Symbol.asyncDispose]();
    await proxy.close();
  });

  const requested = () =>
    proxy.requests
      .filter(({ method, path }) => method === 'POST' && path.includes('/containers/create'))
      // Not the container that the image’s lists of users are read from, which is never started.
      .filter(({ body }) => !body.includes('/.acode-probe'))
      .map(({ body }) => created.parse(JSON.parse(body.toString())).HostConfig);
  const ofRun = () => lines.find(({ message }) => message === 'run ok')?.fields;

  it('of a request replaces that one field for that one run, and every other stays as it was', async () => {
    await host.acode.run(['true'], { policy: { limits: { pids: 44 } } });
    await host.acode.run(['true']);
    const same = { Memory: 100 * MIB, NanoCpus: 1e9 };
    expect(requested()).toMatchObject([
      { ...same, PidsLimit: 44 },
      { ...same, PidsLimit: 33 },
    ]);
    for (const { Ulimits } of requested()) expect(Ulimits).toContainEqual({ Name: 'nofile', Soft: 1024, Hard: 1024 });
  });

  it.each<[string, PolicyInput]>([
    ['a negative one', { limits: { pids: -1 } }],
    ['none at all', { limits: { memoryBytes: 0 } }],
    ['less memory than an engine takes', { limits: { memoryBytes: MIB } }],
    ['more memory than there is anywhere', { limits: { memoryBytes: 32 * 1024 ** 4 } }],
    ['no number', { limits: { cpus: NaN } }],
    ['swap without end', { limits: { swapBytes: -1 } }],
    ['no time', { timeoutMs: 0 }],
  ])('that is invalid, %s, is refused before anything is made', async (_, policy) => {
    await expect(host.acode.run(['true'], { policy })).rejects.toMatchObject({
      code: 'ACODE-SBX-017',
      cause: { code: 'ACODE-CTN-007' },
      hint: expect.stringMatching(/\w/),
    });
    expect(requested()).toEqual([]);
  });

  it('on swap is none unless it was asked for, and then that much beyond the memory', async () => {
    await host.acode.run(['true']);
    await host.acode.run(['true'], { policy: { limits: { swapBytes: 20 * MIB } } });
    expect(requested()).toMatchObject([
      { Memory: 100 * MIB, MemorySwap: 100 * MIB },
      { Memory: 100 * MIB, MemorySwap: 120 * MIB },
    ]);
  });

  it('on CPU holds a busy command back, and what it used and how long it was held is in the log of the run', async () => {
    const busy = (cpus: number) =>
      host.acode.run('timeout 2 sh -c "while :; do :; done"; true', { policy: { limits: { cpus } } });
    const held = await busy(0.1);
    expect(ofRun()?.['usage']).toEqual(held.usage);
    // On a busy machine it gets less of the CPU, and so is held back for less.
    expect(held.usage?.throttledMs).toBeGreaterThan(0);
    expect(held.usage?.cpuMs).toBeLessThan(600);
    lines.length = 0;
    const free = await busy(1);
    expect(ofRun()?.['usage']).toEqual(free.usage);
    expect(free.usage?.throttledMs).toBeLessThan(held.usage?.throttledMs ?? 0);
  });

  it('that was hit is a warning with its name, its value and who set it, and a process killed for memory is counted', async () => {
    const hog = "sh -c 'a=xxxxxxxxxxxxxxxx; while :; do a=$a$a; done'; exit 0";
    const { oomKilled } = await host.acode.run(hog, { policy: { limits: { memoryBytes: 64 * MIB } } });
    expect(oomKilled).toBe(true);
    const warned = lines.filter(({ level }) => level === 'warn');
    expect(warned).toContainEqual(
      expect.objectContaining({
        message: 'limit exceeded: memory',
        fields: expect.objectContaining({ limit: 'memory' }),
      }),
    );
    expect(warned).toContainEqual(
      expect.objectContaining({
        message: 'denied: a process was killed at the memory limit of 64 MiB',
        fields: expect.objectContaining({
          rule: 'limit.memory',
          setBy: expect.objectContaining({ where: 'policy.limits.memoryBytes' }),
        }),
      }),
    );
    expect(ofRun()).toMatchObject({ oomKilled: true, limitExceeded: 'memory' });
    expect(counted).toEqual(expect.arrayContaining(['acode_oom_total', 'acode_limit_exceeded_total']));
    lines.length = 0;
    await host.acode.run('exit 137');
    expect(lines.filter(({ level }) => level === 'warn')).toEqual([]);
  });

  it('on memory ends the whole command where the policy says so, in a sandbox of its own and in a persistent one', async () => {
    const hog = "sh -c 'a=xxxxxxxxxxxxxxxx; while :; do a=$a$a; done'; echo went on; sleep 60";
    const limits = { memoryBytes: 64 * MIB };
    const policy = { limits, timeoutMs: 30_000 };
    // The control: without the field the command goes on after its child was killed.
    const reported = await host.acode.run(hog.replace('; sleep 60', ''), { policy });
    expect(reported).toMatchObject({ exitCode: 0, oomKilled: true, stdout: 'went on\n' });
    const ended = { exitCode: 137, oomKilled: true, timedOut: false, limitExceeded: 'memory' };
    expect(await host.acode.run(hog, { policy: { ...policy, onOutOfMemory: 'end' } })).toMatchObject(ended);
    await using sandbox = await host.acode.create({ policy: { limits, onOutOfMemory: 'end' } });
    expect(await sandbox.commands.run(hog)).toMatchObject(ended);
    expect(await sandbox.commands.run(['echo', 'next'])).toMatchObject({ exitCode: 0, stdout: 'next\n' });
  });
});
