// What a host has to do with its persistent sandboxes: records, time, slots, the pool, refusals and its own end.

import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { AcodeError } from '@acode/sandbox';
import { openHost } from '../conformance/host.ts';
import type { ConformanceHost } from '../conformance/host.ts';
import { openWarm, untilWarm } from '../pool/warm-host.ts';
import { images, mainEngine, TestHost, warmth, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { until } from '../support/waiting.ts';
import { countOf, places } from './places.ts';

describe.skipIf(withoutEngines).each(places)('a host on $name', place => {
  let host: ConformanceHost;
  beforeAll(async () => {
    host = await openHost(place);
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('writes down what it is about to do and what became of it, for the sandbox and for each command', async () => {
    const taskId = `audited-${randomUUID()}`;
    const sandbox = await host.acode.create({ taskId });
    const { auditSequence, correlationId } = await sandbox.commands.run(['sh', '-c', 'exit 3'], {
      env: { API_TOKEN: 'hunter2' },
    });
    await sandbox.kill();
    const mine = async () =>
      (await host.acode.audit.tail({ count: 100 })).filter(
        ({ sandboxId, correlationId: own, taskId: task }) =>
          sandboxId === sandbox.id || own === correlationId || task === taskId,
      );
    await until(async () => (await mine()).filter(({ kind }) => kind === 'outcome').length === 2);
    const records = await mine();
    expect(records.map(({ kind, operation }) => `${kind} ${operation}`)).toEqual(
      expect.arrayContaining(['intent create', 'intent exec', 'outcome exec', 'outcome create']),
    );
    const exec = records.find(({ kind, operation }) => kind === 'intent' && operation === 'exec');
    expect(exec).toMatchObject({ seq: auditSequence, command: ['sh', '-c', 'exit 3'], env: ['API_TOKEN'] });
    expect(records.find(({ kind, operation }) => kind === 'outcome' && operation === 'exec')).toMatchObject({
      intent: auditSequence,
      exitCode: 3,
    });
    expect(JSON.stringify(records)).not.toContain('hunter2');
    expect(await host.acode.audit.verify()).toMatchObject({ ok: true });
  });

  it('ends a sandbox at its time, and later where it was extended', async () => {
    const reasons: string[] = [];
    using _ = host.acode.events.on('SandboxTeardown', ({ reason }) => reasons.push(reason));
    const extended = await host.acode.create({ expiresInMs: 5000 });
    const before = extended.expiresAt;
    const later = await extended.extend(90_000);
    expect(later.getTime()).toBeGreaterThan(before.getTime() + 60_000);
    const brief = await host.acode.create({ expiresInMs: 3000 });
    const running = brief.commands.run(['sleep', '600'], { background: true });
    await expect(running.then(({ result }) => result)).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
    await expect(brief.commands.run(['true'])).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
    await until(() => reasons.includes('its lease expired'));
    await until(() => Date.now() > before.getTime());
    expect((await extended.commands.run(['echo', 'on'])).stdout).toBe('on\n');
    // A day is the most.
    expect((await extended.extend(10 * 24 * 3_600_000)).getTime() - Date.now()).toBeLessThanOrEqual(24 * 3_600_000);
    await expect(extended.extend(0)).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    await extended.kill();
  });

  it('notices that a sandbox was removed from outside, however late the engine says so', async () => {
    await using proxy = await EngineProxy.start(place.engine.socket);
    proxy.onRequest((_, path) => (path.includes('/wait') ? { lateMs: 1500 } : undefined));
    await using slow = await openHost({ ...place, engine: { ...place.engine, socket: proxy.socket } });
    const kept = await slow.acode.create({ keep: true });
    await kept.leave();
    const sandbox = await slow.acode.connect(kept.id);
    // The control: a command that was killed alone has its status, and nobody waits for an end that does not come.
    expect((await sandbox.commands.run('kill -KILL $$')).exitCode).toBe(137);
    const command = await sandbox.commands.run(['sleep', '600'], { background: true });
    await using other = await openHost(place);
    await other.acode.kill(kept.id);
    await expect(command.result).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
    await expect(sandbox.commands.run(['true'])).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
  });

  it('refuses images without a shell, and makes nothing of them', async () => {
    const before = await countOf(host);
    await expect(host.acode.create({ policy: { image: images.noshell } })).rejects.toMatchObject({
      code: 'ACODE-SBX-016',
    });
    await until(async () => (await countOf(host)) === before);
  });

  it('connects to no sandbox that was not kept, nor to one that is not there', async () => {
    await using sandbox = await host.acode.create();
    await expect(host.acode.connect(sandbox.id)).rejects.toMatchObject({ code: 'ACODE-SBX-026' });
    await expect(host.acode.connect('00000000-0000-4000-8000-000000000000')).rejects.toMatchObject({
      code: 'ACODE-CTN-012',
    });
  });
});

describe.skipIf(withoutEngines || warmth.pool !== undefined).each(places)('a host on $name that closes', place => {
  let host: ConformanceHost;
  beforeEach(async () => {
    host = await openHost(place);
  });
  afterEach(() => host[Symbol.asyncDispose]());

  it('ends the sandboxes that are open, and spares those that were kept', async () => {
    const open = await host.acode.create();
    const running = await open.commands.run(['sleep', '600'], { background: true });
    const kept = await host.acode.create({ keep: true });
    await kept.commands.run('echo kept > /tmp/mine');
    await host.acode.close();
    await expect(running.result).rejects.toBeInstanceOf(AcodeError);
    expect((await host.remains()).map(text => text.slice(0, 64))).toEqual([kept.containerId]);
    await using later = await openHost({ ...place, options: { ...place.options, workspace: host.workspace } });
    const again = await later.acode.connect(kept.id);
    expect((await again.commands.run(['cat', '/tmp/mine'])).stdout).toBe('kept\n');
    await again.kill();
    expect(await countOf(host)).toBe(0);
    await expect(host.acode.create()).rejects.toMatchObject({ code: 'ACODE-SBX-019' });
  });
});

describe.skipIf(withoutEngines)('a host', () => {
  it('has as many persistent sandboxes as it has slots, and one more when one is gone', async () => {
    await using host = await TestHost.open(mainEngine, { maxConcurrent: 2 });
    const [first, second] = [await host.acode.create(), await host.acode.create()];
    let third: unknown = null;
    const waiting = host.acode.create().then(
      sandbox => (third = sandbox),
      (error: unknown) => (third = error),
    );
    await new Promise(resolve => void setTimeout(resolve, 700));
    // The control: those that are there answer while the third one waits.
    expect((await second.commands.run(['echo', 'on'])).stdout).toBe('on\n');
    expect(third).toBeNull();
    await first.kill();
    await waiting;
    expect(third).toMatchObject({ kept: false });
  });

  it('refuses persistent sandboxes at levels without an engine', async () => {
    for (const level of ['none', 'ulimit'] as const) {
      await using host = await TestHost.open(mainEngine, { config: { sandbox: { level } } });
      await expect(host.acode.create()).rejects.toMatchObject({ code: 'ACODE-SBX-016' });
    }
  });

  it('refuses a sandbox below the level that the user’s own configuration names', async () => {
    await using host = await TestHost.open(mainEngine, { config: { sandbox: { level: 'gvisor' } } });
    await expect(host.acode.create({ policy: { level: 'docker' } })).rejects.toMatchObject({ code: 'ACODE-SBX-012' });
    // The control: where nobody names one, the same request is met.
    await using other = await TestHost.open(mainEngine);
    await using sandbox = await other.acode.create({ policy: { level: 'docker' } });
    expect(sandbox.level).toBe('docker');
  });

  it('gives out a pre-started sandbox, once', async () => {
    const [place] = places;
    if (!place) return;
    await using host = await openWarm(place, { min: 1, max: 2 });
    await untilWarm(host);
    const seen: string[] = [];
    using _ = host.acode.events.on('ContainerCreated', ({ containerId }) => seen.push(containerId));
    const began = performance.now();
    await using sandbox = await host.acode.create();
    process.stdout.write(`FIGURE sandbox that stays, from the pool: ${Math.round(performance.now() - began)} ms\n`);
    // Nothing was made for it: it was there before.
    expect(seen).not.toContain(sandbox.containerId);
    expect((await sandbox.commands.run(['echo', 'on'])).stdout).toBe('on\n');
    await using other = await host.acode.create();
    expect(other.containerId).not.toBe(sandbox.containerId);
    const { containerId } = await host.acode.run(['true']);
    expect([sandbox.containerId, other.containerId]).not.toContain(containerId);
  });
});
