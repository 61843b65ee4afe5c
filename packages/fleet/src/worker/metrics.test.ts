// Figures for Prometheus in their text format; and the examples of docs/fleet-operations.md, which have to be what the programs take.

import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { MemoryEngine } from '../engine/memory.ts';
import { WorkerMetrics } from './metrics.ts';

const ROOT = fileURLToPath(new URL('../../../../', import.meta.url));
const EXAMPLES = join(ROOT, 'examples', 'fleet');
const read = (name: string): string => readFileSync(join(EXAMPLES, name), 'utf8');

describe('figures of a worker', () => {
  it('count tasks, starts, waits, and the pool as its leases and queue have it', async () => {
    await using engine = new MemoryEngine();
    const lease = { pool: 'default', slots: 4, tasks: [{ tenant: 'acme', id: 'one', attempt: 1 }] };
    await engine.renew({ worker: 'a', body: JSON.stringify(lease) }, 60_000);
    await engine.renew({ worker: 'b', body: JSON.stringify({ ...lease, pool: 'other' }) }, 60_000);
    await engine.renew({ worker: 'c', body: 'no JSON' }, 60_000);
    for (const id of ['one', 'two', 'three'])
      await engine.enqueue({ tenant: 'acme', id, pool: 'default', priority: 'normal', body: '{}' });
    const metrics = new WorkerMetrics({ pool: 'default', name: 'a "b"', slots: 4 }, engine);
    metrics.observe({ is: 'waited', ms: 2000 });
    metrics.observe({ is: 'ran', warm: true, obtainMs: 20 });
    metrics.observe({ is: 'ran', warm: false, obtainMs: 300 });
    metrics.observe({ is: 'task', event: 'succeeded' });
    metrics.observe({ is: 'task', event: 'succeeded' });
    const text = await metrics.text();
    const own = String.raw`pool="default",host="a \"b\""`;
    for (const line of [
      `acode_fleet_engine_up{${own}} 1`,
      'acode_fleet_pool_tasks{pool="default",state="queued"} 2',
      'acode_fleet_pool_tasks{pool="default",state="running"} 1',
      'acode_fleet_pool_slots{pool="default"} 4',
      'acode_fleet_pool_workers{pool="default"} 1',
      `acode_worker_tasks_total{${own},event="succeeded"} 2`,
      `acode_worker_starts_total{${own},warm="true"} 1`,
      `acode_worker_start_seconds_bucket{${own},le="0.05"} 1`,
      `acode_worker_start_seconds_bucket{${own},le="+Inf"} 2`,
      `acode_worker_queue_seconds_bucket{${own},le="1"} 0`,
      `acode_worker_queue_seconds_bucket{${own},le="5"} 1`,
      `acode_worker_queue_seconds_sum{${own}} 2`,
    ])
      expect(text.split('\n')).toContain(line);
    // Each line is a comment or a sample, and each sample has its type before it.
    const types = new Set<string>();
    for (const line of text.trimEnd().split('\n')) {
      const [, typed] = /^# TYPE (\w+) (?:counter|gauge|histogram)$/.exec(line) ?? [];
      if (typed !== undefined) types.add(typed);
      if (line.startsWith('#')) continue;
      const [, name = ''] =
        /^(\w+?)(?:_bucket|_sum|_count)?\{(?:\w+="(?:[^"\\]|\\.)*",?)+\} \d+(?:\.\d+)?$/.exec(line) ?? [];
      expect(types, line).toContain(name);
    }
  });

  it('are for this machine alone, and for its own name', async () => {
    await using engine = new MemoryEngine();
    const port = await new WorkerMetrics({ pool: 'default', name: 'a', slots: 4 }, engine).listen(0);
    const ask = async (path: string, host: string): Promise<IncomingMessage> => {
      const sent = request({ host: '127.0.0.1', port, path, headers: { host } });
      sent.end();
      const [response] = await once(sent, 'response');
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion
      return (response as IncomingMessage).resume();
    };
    expect((await ask('/metrics', `localhost:${port}`)).headers['content-type']).toContain('version=0.0.4');
    expect((await ask('/metrics', 'attacker.example')).statusCode).toBe(421);
    expect((await ask('/other', `127.0.0.1:${port}`)).statusCode).toBe(404);
  });

  it('say that the server of the fleet does not answer, and have the rest all the same', async () => {
    const away = async (): Promise<never> => Promise.reject(new Error('away'));
    const metrics = new WorkerMetrics({ pool: 'default', name: 'a', slots: 4 }, { depth: away, leases: away });
    const text = await metrics.text();
    expect(text).toContain('acode_fleet_engine_up{pool="default",host="a"} 0\n');
    expect(text).not.toContain('acode_fleet_pool');
    expect(text).toContain('acode_worker_slots{pool="default",host="a"} 4\n');
  });
});

describe('examples of docs/fleet-operations.md', () => {
  it('are all on that page', () => {
    const page = readFileSync(join(ROOT, 'docs', 'fleet-operations.md'), 'utf8');
    for (const name of readdirSync(EXAMPLES)) expect(page).toContain(`../examples/fleet/${name}`);
  });

  it('are units that call acode with options that it has, and give tasks their time', () => {
    const sources = ['worker.ts']
      .map(name => readFileSync(join(ROOT, 'packages/cli/src/commands', name), 'utf8'))
      .join('');
    for (const name of ['acode-worker.service', 'acode-gate.service']) {
      const unit = read(name);
      const [, verb = '', options = ''] = /^ExecStart=acode (\w+) (.+)$/m.exec(unit) ?? [];
      expect(sources).toContain(`new Command('${verb}')`);
      for (const [option] of options.matchAll(/--[a-z-]+/g)) expect(sources).toContain(`'${option} <`);
      expect(unit).toMatch(/^User=acode$/m);
      expect(unit).toMatch(/^SuccessExitStatus=143$/m);
    }
    expect(Number(/^TimeoutStopSec=(\d+)$/m.exec(read('acode-worker.service'))?.[1])).toBeGreaterThan(30);
  });

  it('are three servers that write before they answer, each with a disk of its own', () => {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const { services, volumes } = parse(read('compose.yml'), { merge: true }) as {
      readonly services: Readonly<Record<string, { readonly image: string; readonly ports: readonly string[] }>>;
      readonly volumes: object;
    };
    expect(Object.keys(services)).toEqual(Object.keys(volumes));
    const [major = 0, minor = 0, patch = 0] = services['one']?.image.split(':')[1]?.split('.').map(Number) ?? [];
    expect(major * 10_000 + minor * 100 + patch).toBeGreaterThanOrEqual(21_203);
    for (const { ports } of Object.values(services)) for (const one of ports) expect(one).toMatch(/^127\.0\.0\.1:/);
    expect(read('nats.conf')).toContain('sync_interval: always');
    for (const name of Object.keys(services)) expect(read('nats.conf')).toContain(`nats://${name}:6222`);
  });

  it('are a script that starts the next host, drains the last one, or leaves things as they are', () => {
    const bin = mkdtempSync(join(tmpdir(), 'acode-autoscale-'));
    const step = (pool: object): string => {
      writeFileSync(join(bin, 'status'), JSON.stringify({ pools: [{ pool: 'default', ...pool }] }));
      const script = `#!/bin/sh\n[ "$2" = status ] && exec cat ${bin}/status\necho "acode $*"\n`;
      writeFileSync(join(bin, 'acode'), script, { mode: 0o755 });
      writeFileSync(join(bin, 'ssh'), '#!/bin/sh\necho "ssh $*"\n', { mode: 0o755 });
      const env = { PATH: `${bin}:${process.env['PATH'] ?? ''}` };
      return execFileSync('bash', [join(EXAMPLES, 'autoscale.sh'), 'h1', 'h2', 'h3'], { env, encoding: 'utf8' });
    };
    expect(step({ hosts: 1, slots: 4, busy: 4, queued: 9 })).toMatch(/^ssh .* h2 sudo systemctl start acode-worker$/m);
    expect(step({ hosts: 0, slots: 0, busy: 0, queued: 1 })).toMatch(/^ssh .* h1 /m);
    expect(step({ hosts: 3, slots: 12, busy: 12, queued: 90 })).toMatch(/^nothing to do/);
    expect(step({ hosts: 2, slots: 8, busy: 8, queued: 8 })).toMatch(/^nothing to do/);
    expect(step({ hosts: 2, slots: 8, busy: 1, queued: 1 })).toContain('acode fleet drain h2');
    expect(step({ hosts: 1, slots: 4, busy: 0, queued: 0 })).toMatch(/^nothing to do/);
    rmSync(bin, { recursive: true });
  });
});
