// A chain whose signatures were taken out is found, although every hash in it is right.

import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AuditKind } from '../../contract/audit.ts';
import { systemClock } from '../../lifecycle/clock.ts';
import { CHECKPOINT_EVERY, isInPlaceOfCheckpoint } from './files.ts';
import { AuditLog } from './log.ts';
import { NO_HASH, seal } from './record.ts';
import { verifyLog } from './verify.ts';

const uid = process.getuid?.() ?? 0;
let directory = '';
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'verified-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

async function write(count: number, rotateBytes?: number): Promise<void> {
  const log = new AuditLog({ directory, uid, clock: systemClock, ...(rotateBytes ? { rotateBytes } : {}) });
  const entry = { kind: 'refusal', operation: 'deny', correlationId: 'c', errorCode: 'X', message: 'no' } as const;
  for (let index = 0; index < count; index += 1) await log.append(entry);
  await log.close();
}

const files = (): string[] =>
  readdirSync(directory)
    .filter(name => name.endsWith('.jsonl'))
    .sort();

type Fields = Record<string, unknown> & { seq: number; kind: AuditKind };
const records = (): Fields[][] =>
  files().map(name =>
    readFileSync(join(directory, name), 'utf8')
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line) as Fields),
  );

/** Writes the chain anew, with numbers and hashes that are right, out of the records that are to stay. */
function rewrite(keep: (record: Fields) => boolean): void {
  const kept = records().map(file => file.filter(keep));
  for (const name of files()) rmSync(join(directory, name));
  let [seq, prev] = [0, NO_HASH];
  for (const file of kept) {
    const name = `${String(seq + 1).padStart(12, '0')}.jsonl`;
    const lines = file.map(({ seq: _seq, hash: _hash, prev: _prev, ts, v: _v, kind, ...content }) => {
      const sealed = seal({ seq: (seq += 1), ts: String(ts), prev }, kind, content);
      prev = sealed.hash;
      return sealed.line;
    });
    writeFileSync(join(directory, name), lines.join(''));
  }
}

describe('a log as it was written', () => {
  it.each([1, 255, 256, 700])('of %i records is good, and says how many are signed', async count => {
    await write(count);
    const all = records().flat();
    const last = all.findLast(({ kind }) => kind === 'checkpoint')?.seq ?? 0;
    expect(await verifyLog(directory)).toMatchObject({
      ok: true,
      records: all.length,
      covered: Math.max(0, last - 1),
      checkpoints: Math.floor(all.length / CHECKPOINT_EVERY),
      warnings: [],
    });
  });

  it('of many small files is good, wherever they begin', async () => {
    await write(300, 700);
    expect(files().length).toBeGreaterThan(50);
    const report = await verifyLog(directory);
    expect(report).toMatchObject({ ok: true, problem: null });
    expect(report.records - report.covered).toBeLessThan(10);
  });

  it('is valid when no record was removed: the control of all below', async () => {
    await write(600);
    rewrite(() => true);
    expect(await verifyLog(directory)).toMatchObject({ ok: true, checkpoints: 2, covered: 511 });
  });
});

describe('a log written anew without its checkpoints', () => {
  it('is found where the first of them had to be', async () => {
    await write(600);
    rewrite(({ kind }) => kind !== 'checkpoint');
    expect(await verifyLog(directory)).toMatchObject({
      ok: false,
      covered: 0,
      problem: { fault: 'unsigned', seq: CHECKPOINT_EVERY + 1, detail: expect.stringContaining('none at all') },
    });
  });

  it('is found where they stop', async () => {
    await write(600);
    const [first] = records()
      .flat()
      .filter(({ kind }) => kind === 'checkpoint');
    rewrite(({ kind, seq }) => kind !== 'checkpoint' || seq === first?.seq);
    expect(await verifyLog(directory)).toMatchObject({
      ok: false,
      covered: 255,
      problem: { fault: 'unsigned', seq: 513, detail: expect.stringContaining('record 256') },
    });
  });

  it('is found at the beginning of its second file, however few records there are', async () => {
    await write(20, 2000);
    expect(files().length).toBeGreaterThan(1);
    rewrite(({ kind }) => kind !== 'checkpoint');
    const second = Number.parseInt(files()[1] ?? '', 10);
    expect((await verifyLog(directory)).problem).toMatchObject({ fault: 'unsigned', seq: second, line: 1 });
  });

  it('is found by its signatures where the private key is not at hand', async () => {
    await write(600);
    // Numbers move when a record before the checkpoint is removed.
    rewrite(({ seq }) => seq !== 3);
    expect((await verifyLog(directory)).problem).toMatchObject({ fault: 'bad-signature', seq: 255 });
  });
});

describe('a log without its key', () => {
  it('is good with a warning while nothing is signed, and bad as soon as something is', async () => {
    await write(10);
    rmSync(join(directory, 'key.pub'));
    expect(await verifyLog(directory)).toMatchObject({
      ok: true,
      key: null,
      warnings: [expect.stringContaining('key')],
    });
    rmSync(directory, { recursive: true });
    await write(300);
    rmSync(join(directory, 'key.pub'));
    expect((await verifyLog(directory)).problem).toMatchObject({ fault: 'bad-signature' });
  });
});

describe('a place for a checkpoint', () => {
  it.each([
    [{ seq: 1, kind: 'event', beginsFile: true, checkpoint: 0 }, false],
    [{ seq: 2, kind: 'event', beginsFile: true, checkpoint: 0 }, true],
    [{ seq: 2, kind: 'checkpoint', beginsFile: true, checkpoint: 0 }, false],
    [{ seq: 9, kind: 'event', beginsFile: true, checkpoint: 8 }, false],
    [{ seq: 256, kind: 'event', beginsFile: false, checkpoint: 0 }, false],
    [{ seq: 257, kind: 'event', beginsFile: false, checkpoint: 0 }, true],
    [{ seq: 511, kind: 'event', beginsFile: false, checkpoint: 255 }, false],
    [{ seq: 512, kind: 'event', beginsFile: false, checkpoint: 255 }, true],
  ] as const)('%j: %s', (stand, isOne) => {
    expect(isInPlaceOfCheckpoint(stand)).toBe(isOne);
  });
});
