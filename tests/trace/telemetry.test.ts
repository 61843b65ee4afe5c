// Logs and metrics say what really happened: figures that fit, gauges that come down again, one id on every line.

import { describe, expect, it } from 'vitest';
import type { Clock, LogFields, Metrics } from '@acode/sandbox';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

interface Recorded {
  readonly lines: { level: string; message: string; fields: LogFields }[];
  readonly samples: { kind: string; name: string; value: number; labels?: Readonly<Record<string, string>> }[];
}

function recorder() {
  const recorded: Recorded = { lines: [], samples: [] };
  const write = (level: string) => (fields: LogFields, message: string) =>
    void recorded.lines.push({ level, message, fields });
  const metrics: Metrics = {
    increment: (name, labels = {}, by = 1) => void recorded.samples.push({ kind: 'counter', name, value: by, labels }),
    observe: (name, value) => void recorded.samples.push({ kind: 'histogram', name, value }),
    gauge: (name, value) => void recorded.samples.push({ kind: 'gauge', name, value }),
  };
  const values = (name: string) => recorded.samples.filter(sample => sample.name === name).map(({ value }) => value);
  const logger = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
  return { ...recorded, metrics, logger, values };
}

// A host looks once, by itself, for what dead sessions left: an operation of its own, at a moment of its own.
const BY_ITSELF = 'sweep';

describe.skipIf(withoutEngines)('a host', () => {
  it('writes the correlation id of the operation, a UUID, on every line the operation causes', async () => {
    const { lines, logger } = recorder();
    await using host = await TestHost.open(mainEngine, { logger });
    // Connecting belongs to the host and not to the first operation that needed it.
    await host.acode.list();
    lines.length = 0;
    const command = await host.acode.spawn('echo hi', { policy: { limits: { cpus: 1000, outputBytes: 1 } } });
    const { correlationId } = await command.result;
    await command[Symbol.asyncDispose]();
    expect(correlationId).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(lines.map(({ level }) => level)).toEqual(expect.arrayContaining(['debug', 'info', 'warn']));
    const caused = lines.filter(({ fields }) => fields['operation'] !== BY_ITSELF);
    expect(new Set(caused.map(({ fields }) => fields['correlationId']))).toEqual(new Set([correlationId]));
  });

  it('writes it also on the line about a sandbox that could not be removed', async () => {
    await using proxy = await EngineProxy.start(mainEngine.socket);
    const { lines, logger } = recorder();
    await using host = await TestHost.open(mainEngine, {
      engine: { socket: proxy.socket },
      logger,
      config: {
        sandbox: { images: { default: images.busybox }, retry: { attempts: 0 }, cleanup: { timeout_seconds: 1 } },
      },
    });
    const command = await host.acode.spawn(['cat']);
    proxy.onRequest(method => (method === 'DELETE' ? 'drop' : undefined));
    await command.closeStdin();
    const { correlationId } = await command.result;
    await command[Symbol.asyncDispose]();
    proxy.onRequest(undefined);
    expect(lines.filter(({ message }) => message === 'container could not be removed')).toMatchObject([
      { level: 'warn', fields: { correlationId, errorCode: 'ACODE-CTN-004' } },
    ]);
  });

  it('gives each operation an id of its own, whatever the operation', async () => {
    const { lines, logger } = recorder();
    await using host = await TestHost.open(mainEngine, { logger });
    await host.acode.list();
    await host.acode.explain(['true']);
    await host.acode.cleanup({ dryRun: true });
    await host.acode.run(['true']);
    await host.acode.inspect('acode-none-none-001').catch(() => undefined);
    const ends = lines.filter(({ fields }) => fields['outcome'] !== undefined);
    const asked = ends.filter(({ fields }) => fields['operation'] !== BY_ITSELF);
    expect(asked.map(({ level, message }) => `${level} ${message}`)).toEqual([
      'info list ok',
      'info explain ok',
      'info cleanup ok',
      'info run ok',
      'error inspect error',
    ]);
    expect(new Set(ends.map(({ fields }) => fields['correlationId'])).size).toBe(ends.length);
  });

  it('measures how long creating, executing and removing took, and counts how it went', async () => {
    const { metrics, values, samples } = recorder();
    await using host = await TestHost.open(mainEngine, { metrics });
    await host.acode.run(['sleep', '0.5']);
    await host.acode.run(['no-such-command']).catch(() => undefined);
    await host.acode.close();
    const [creates, executions, removals] = [
      values('acode_container_create_ms'),
      values('acode_container_exec_ms'),
      values('acode_container_cleanup_ms'),
    ];
    expect([creates.length, executions.length, removals.length]).toEqual([2, 1, 2]);
    for (const ms of [...creates, ...removals]) {
      expect(ms).toBeGreaterThan(0.1);
      expect(ms).toBeLessThan(20_000);
    }
    expect(executions[0]).toBeGreaterThan(490);
    expect(executions[0]).toBeLessThan(20_000);
    const counted = samples.filter(({ name }) => name === 'acode_container_ops_total').map(({ labels }) => labels);
    expect(counted.filter(labels => labels?.['op'] !== BY_ITSELF)).toEqual([
      { op: 'run', outcome: 'ok' },
      { op: 'run', outcome: 'error' },
    ]);
  });

  it('has a gauge of its sandboxes that goes up with each and down again to none', async () => {
    const { metrics, values } = recorder();
    await using host = await TestHost.open(mainEngine, { metrics });
    const active = () => values('acode_containers_active').at(-1);
    const one = await host.acode.spawn(['cat']);
    expect(active()).toBe(1);
    const two = await host.acode.spawn(['cat']);
    expect(active()).toBe(2);
    await one[Symbol.asyncDispose]();
    expect(active()).toBe(1);
    await two[Symbol.asyncDispose]();
    expect(active()).toBe(0);
    await host.acode.run(['true'], { policy: { image: 'acode-test/none:1' } }).catch(() => undefined);
    expect(active()).toBe(0);
  });

  it('measures a run by the clock that never jumps', async () => {
    // Time of day runs backwards, and in a hundred real milliseconds one of the steady clock passes: no deadline comes too early.
    let day = Date.now();
    const clock: Clock = {
      now: () => (day -= 1000),
      monotonic: () => performance.now() / 100,
      after: (ms, action) => {
        const timer = setTimeout(action, ms);
        return () => clearTimeout(timer);
      },
    };
    await using host = await TestHost.open(mainEngine, {
      clock,
      config: { sandbox: { images: { default: images.busybox }, output: { save: false } } },
    });
    const { durationMs } = await host.acode.run(['sleep', '0.5']);
    expect(durationMs).toBeGreaterThan(4.9);
    expect(durationMs).toBeLessThan(500);
  });
});
