// What the log costs: on the way of a run, and when it is verified.

import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { NO_HASH, seal } from '../../packages/sandbox/src/records/audit/record.ts';
import { CHECKPOINT_EVERY } from '../../packages/sandbox/src/records/audit/checkpoints.ts';
import { makeKey, signHead } from '../../packages/sandbox/src/records/audit/signature.ts';
import { verifyLog } from '../../packages/sandbox/src/records/audit/verify.ts';
import type { AuditIntent, AuditOutcome } from '../../packages/sandbox/src/contract/audit.ts';
import { Place } from './log.ts';

const intent: AuditIntent = {
  kind: 'intent',
  operation: 'run',
  correlationId: '8d3c3c1e-6f5b-4f8e-9d0f-3f6f0a1b2c3d',
  sessionId: 'a1b2c3d4',
  taskId: 'run',
  sandbox_level: 'docker',
  profile: 'exec',
  runtime: null,
  image: 'node:20-alpine',
  imageDigest: `sha256:${'a'.repeat(64)}`,
  command: ['npm', 'test', '--', '--watch=false'],
  env: ['CI', 'HOME', 'PATH'],
  cwd: '.',
  stdin: 'none',
  commandHash: 'c'.repeat(64),
  network: 'none',
  limits: { memoryBytes: 536_870_912, cpus: 1, pids: 256, openFiles: 1024, tmpBytes: 67_108_864 },
  mounts: [
    { target: '/workspace', mode: 'rw' },
    { target: '/workspace/.git/hooks', mode: 'ro' },
  ],
  user: '1000:1000',
  risk: 'medium',
  riskReasons: ['a package is installed'],
  decision: 'allowed',
  policyHash: 'b'.repeat(64),
  specHash: 'c'.repeat(64),
  requestHash: 'd'.repeat(64),
  workspace: '/home/me/project',
};
const outcome = (seq: number): AuditOutcome => ({
  kind: 'outcome',
  operation: 'run',
  correlationId: intent.correlationId,
  intent: seq,
  exitCode: 0,
  durationMs: 1234,
  oomKilled: false,
  timedOut: false,
});

function median(values: number[]): number {
  return values.sort((one, other) => one - other)[Math.floor(values.length / 2)] ?? NaN;
}

describe('the records of a run', { timeout: 60_000 }, () => {
  it('take 3 ms or less at the median, intent and outcome together', async () => {
    await using place = await Place.make();
    const warm: number[] = [];
    const cold: number[] = [];
    const log = place.log();
    for (let run = 0; run < 200; run += 1) {
      const began = performance.now();
      const { seq } = await log.append(intent);
      await log.append(outcome(seq));
      warm.push(performance.now() - began);
    }
    await log.close();
    // As a command that runs one thing and ends: everything is opened and read first.
    for (let run = 0; run < 100; run += 1) {
      const fresh = place.log();
      const began = performance.now();
      const { seq } = await fresh.append(intent);
      await fresh.append(outcome(seq));
      cold.push(performance.now() - began);
      await fresh.close();
    }
    const [first, later] = [median(cold), median(warm)];
    process.stdout.write(
      `intent and outcome: ${later.toFixed(2)} ms at the median, ${first.toFixed(2)} ms in a new log\n`,
    );
    expect(later).toBeLessThanOrEqual(3);
    expect(first).toBeLessThanOrEqual(3);
  });
});

describe('verifying', { timeout: 60_000 }, () => {
  it('reads 20,000 records a second or more', async () => {
    await using place = await Place.make();
    const count = 30_000;
    await mkdir(place.directory);
    makeKey(place.directory);
    const { kind, ...content } = intent;
    const lines: string[] = [];
    let prev = NO_HASH;
    for (let seq = 1; seq <= count; seq += 1) {
      const stand = { seq, ts: '2026-01-01T00:00:00.000Z', prev };
      const signed = seq % CHECKPOINT_EVERY === 0;
      const sealed = signed
        ? seal(stand, 'checkpoint', { ...signHead(place.directory, { seq: seq - 1, hash: prev }) })
        : seal(stand, kind, content);
      lines.push(sealed.line);
      prev = sealed.hash;
    }
    await writeFile(join(place.directory, '000000000001.jsonl'), lines.join(''));
    let rate = 0;
    for (let go = 0; go < 5 && rate < 20_000; go += 1) {
      const began = performance.now();
      expect(await verifyLog(place.directory)).toMatchObject({ ok: true, records: count });
      rate = Math.max(rate, count / ((performance.now() - began) / 1000));
    }
    process.stdout.write(`verified ${Math.round(rate)} records/s of ${lines[0]?.length} bytes\n`);
    expect(rate).toBeGreaterThan(20_000);
  });
});
