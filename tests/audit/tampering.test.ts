// Whatever is done to the log is found, and the first record that is not what it was is named (F17).

import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, afterAll, describe, expect, it } from 'vitest';
import { auditIn } from '../../packages/sandbox/src/records/audit/read.ts';
import { seal } from '../../packages/sandbox/src/records/audit/record.ts';
import { verifyLog } from '../../packages/sandbox/src/records/audit/verify.ts';
import type { AuditHead } from '../../packages/sandbox/src/contract/audit.ts';
import { Place, event } from './log.ts';

const RECORDS = 120;
const TRIALS = 1000;

let place: Place;
let original: Map<string, string>;
let head: AuditHead;

beforeAll(async () => {
  place = await Place.make();
  const log = place.log({ rotateBytes: 8000, checkpointEvery: 16 });
  for (let index = 0; index < RECORDS; index += 1) await log.append(event(`record-${index}`));
  await log.close();
  original = new Map();
  for (const name of await place.files()) original.set(name, await readFile(join(place.directory, name), 'utf8'));
  head = (await verifyLog(place.directory)).head ?? { seq: 0, hash: '' };
});

afterAll(async () => place[Symbol.asyncDispose]());

/** A generator of numbers that gives the same ones for the same seed, so that what failed can be done again. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return below => {
    state = (Math.imul(state ^ (state >>> 15), 2_246_822_519) + 0x9e37_79b9) | 0;
    return (Math.imul(state ^ (state >>> 13), 3_266_489_917) >>> 0) % below;
  };
}

interface Tampered {
  readonly lines: string[];
  /** The first record that is not what it was. */
  readonly seq: number;
  readonly faults: readonly string[];
  readonly needsHead?: boolean;
}

type Deed = (lines: readonly string[], pick: (below: number) => number) => Tampered;

const BROKEN = ['edited', 'not-json', 'not-canonical'];

const deeds: Readonly<Record<string, Deed>> = {
  edit(lines, pick) {
    const at = pick(lines.length);
    const line = lines[at] ?? '';
    const byte = pick(line.length);
    const other = String.fromCharCode(32 + ((line.charCodeAt(byte) - 32 + 1 + pick(93)) % 94));
    const changed = line.slice(0, byte) + other + line.slice(byte + 1);
    return { lines: lines.with(at, changed), seq: at + 1, faults: BROKEN };
  },
  'edit white space'(lines, pick) {
    const at = pick(lines.length);
    return { lines: lines.with(at, (lines[at] ?? '').replace(':', ': ')), seq: at + 1, faults: BROKEN };
  },
  'edit with a new hash'(lines, pick) {
    const at = pick(lines.length);
    const { hash: _, seq, ts, prev, kind, v, ...content } = JSON.parse(lines[at] ?? '') as Record<string, string>;
    expect(v).toBe(1);
    const place_ = { seq: Number(seq), ts: ts ?? '', prev: prev ?? '' };
    const forged = seal(place_, (kind ?? 'event') as 'event', { ...content, forged: true }).line.trimEnd();
    // Nothing in the log itself can tell that the last one was written anew: only the head can.
    const last = at === lines.length - 1;
    return {
      lines: lines.with(at, forged),
      seq: last ? at + 1 : at + 2,
      faults: ['broken-chain', 'rewritten', 'bad-signature'],
      needsHead: last,
    };
  },
  delete(lines, pick) {
    const at = pick(lines.length - 1);
    return { lines: lines.toSpliced(at, 1), seq: at + 1, faults: ['missing'] };
  },
  reorder(lines, pick) {
    const one = pick(lines.length - 1);
    const other = one + 1 + pick(lines.length - one - 1);
    const swapped = lines.with(one, lines[other] ?? '').with(other, lines[one] ?? '');
    return { lines: swapped, seq: one + 1, faults: ['out-of-order'] };
  },
  'insert a copy'(lines, pick) {
    const [from, to] = [pick(lines.length), pick(lines.length)];
    const [at, source] = [Math.max(from, to) + 1, Math.min(from, to)];
    return { lines: lines.toSpliced(at, 0, lines[source] ?? ''), seq: at + 1, faults: ['inserted'] };
  },
  'insert a forgery'(lines, pick) {
    const at = 1 + pick(lines.length - 1);
    const { hash } = JSON.parse(lines[at - 1] ?? '') as { hash: string };
    const forged = seal({ seq: at + 1, ts: '2026-01-01T00:00:00.000Z', prev: hash }, 'event', { event: 'forged' });
    // It continues the chain, so that the first one which does not is the true record after it; but where a file begins only
    // a signed record can stand.
    const first = original.has(`${String(at + 1).padStart(12, '0')}.jsonl`);
    const signed = (JSON.parse(lines[at] ?? '') as { kind: string }).kind === 'checkpoint';
    const seq = first && signed ? at + 1 : at + 2;
    return { lines: lines.toSpliced(at, 0, forged.line.trimEnd()), seq, faults: ['inserted', 'unsigned'] };
  },
  truncate(lines, pick) {
    const left = 1 + pick(lines.length - 1);
    return { lines: lines.slice(0, left), seq: left + 1, faults: ['truncated'], needsHead: true };
  },
};

async function write(directory: string, lines: readonly string[]): Promise<void> {
  // Cut into files where the files were: each begins with the record that its name says.
  const starts = [...original.keys()].map(name => Number.parseInt(name, 10) - 1);
  for (const [index, name] of [...original.keys()].entries()) {
    const part = lines.slice(starts[index], starts[index + 1] ?? lines.length);
    const path = join(directory, name);
    if (part.length > 0) await writeFile(path, part.map(line => `${line}\n`).join(''));
    else await rm(path, { force: true });
  }
}

describe(`${TRIALS} random tamperings`, { timeout: 300_000 }, () => {
  it('are each found, with the first bad record by its number', async () => {
    const lines = [...original.values()].join('').split('\n').slice(0, -1);
    const copy = join(place.top, 'copy');
    await cp(place.directory, copy, { recursive: true });
    const names = Object.keys(deeds);
    const found: Record<string, number> = {};
    for (let trial = 0; trial < TRIALS; trial += 1) {
      const name = names[trial % names.length] ?? '';
      const { lines: changed, seq, faults, needsHead } = deeds[name]!(lines, numbers(trial + 1));
      await write(copy, changed);
      const alone = await verifyLog(copy);
      if (needsHead) expect(alone, `${name} ${trial}`).toMatchObject({ ok: true });
      const report = needsHead ? await verifyLog(copy, [head]) : alone;
      expect(report.ok, `${name} ${trial}`).toBe(false);
      expect(report.problem?.seq, `${name} ${trial}: ${JSON.stringify(report.problem)}`).toBe(seq);
      expect(faults, `${name} ${trial}`).toContain(report.problem?.fault);
      expect(report.records).toBe(seq - 1);
      found[report.problem?.fault ?? ''] = (found[report.problem?.fault ?? ''] ?? 0) + 1;
      // The control, and what shows that it was the tampering that was found.
      if (trial % 100 === 0) {
        await write(copy, lines);
        expect(await verifyLog(copy, [head])).toMatchObject({ ok: true, headsFound: 1, records: lines.length });
      }
    }
    process.stdout.write(`tamperings found: ${JSON.stringify(found)}\n`);
  });
});

describe('the log as it was written', () => {
  it('verifies, and its head is in it', async () => {
    const report = await auditIn(place.directory).verify({ heads: [head] });
    expect(report).toMatchObject({ ok: true, headsFound: 1, problem: null, unfinished: false });
    expect(report.files).toBeGreaterThan(3);
  });
});

describe('one byte anywhere', () => {
  it('cannot be another one without being found', async () => {
    await using small = await Place.make();
    const log = small.log({ checkpointEvery: 3 });
    for (const id of ['a', 'b', 'ü\ufffd\n']) await log.append(event(id));
    await log.close();
    const file = join(small.directory, '000000000001.jsonl');
    const bytes = await readFile(file);
    const next = numbers(7);
    for (let at = 0; at < bytes.length; at += 1) {
      const changed = Buffer.from(bytes);
      changed[at] = (bytes[at]! + 1 + next(254)) % 256;
      await writeFile(file, changed);
      expect((await verifyLog(small.directory)).ok, `byte ${at}`).toBe(false);
    }
    // Bytes that are no text read like the sign that stands for such bytes, which is in the record on purpose.
    const sign = bytes.indexOf(Buffer.from('\ufffd'));
    expect(sign).toBeGreaterThan(0);
    await writeFile(file, Buffer.concat([bytes.subarray(0, sign), Buffer.from([0xff]), bytes.subarray(sign + 3)]));
    expect((await verifyLog(small.directory)).problem).toMatchObject({ fault: 'edited' });
    await writeFile(file, bytes);
    expect(await verifyLog(small.directory)).toMatchObject({ ok: true, records: 4 });
  });
});

describe('files as a whole', () => {
  async function changed(deed: (directory: string, names: string[]) => Promise<void>) {
    const copy = join(place.top, `files-${Math.random()}`);
    await cp(place.directory, copy, { recursive: true });
    await deed(copy, [...original.keys()]);
    return (await verifyLog(copy)).problem;
  }
  const fs = import('node:fs/promises');

  it('are missed when one is gone from the middle or the beginning', async () => {
    for (const index of [0, 1]) {
      const problem = await changed(async (directory, names) => (await fs).rm(join(directory, names[index]!)));
      expect(problem).toMatchObject({ fault: 'missing', seq: Number.parseInt([...original.keys()][index]!, 10) });
    }
  });

  it('are not read through a link, and not where they are something else', async () => {
    const linked = await changed(async (directory, names) => {
      await (await fs).rename(join(directory, names[1]!), join(directory, 'elsewhere'));
      await (await fs).symlink('elsewhere', join(directory, names[1]!));
    });
    expect(linked).toMatchObject({ fault: 'unreadable', detail: expect.stringContaining('symbolic link') });
    const directory = await changed(async (top, names) => {
      await (await fs).rm(join(top, names[1]!));
      await (await fs).mkdir(join(top, names[1]!));
    });
    expect(directory).toMatchObject({ fault: 'unreadable' });
  });

  it('are bad where a line has no end, unless somebody is writing it', async () => {
    const cutOff = async (directory: string, names: string[]): Promise<void> =>
      (await fs).appendFile(join(directory, names.at(-1)!), '{"half":');
    expect(await changed(cutOff)).toMatchObject({ fault: 'incomplete', seq: head.seq + 1 });
    const writing = await changed(async (directory, names) => {
      await cutOff(directory, names);
      await (await fs).symlink('1.1.-.-.00000000', join(directory, `lock.${head.seq + 1}`));
    });
    expect(writing).toBeNull();
  });

  it('are bad where another key signed, or none is there', async () => {
    const { generateKeyPairSync } = await import('node:crypto');
    const other = generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' });
    const replaced = await changed(async directory => writeFile(join(directory, 'key.pub'), other));
    expect(replaced).toMatchObject({ fault: 'bad-signature', detail: expect.stringContaining('another key') });
    const gone = await changed(async directory => (await fs).rm(join(directory, 'key.pub')));
    expect(gone).toMatchObject({ fault: 'bad-signature', detail: expect.stringContaining('no public key') });
  });
});

describe('a chain that was written anew as a whole', () => {
  it('verifies by itself, and not with a head that was kept', async () => {
    await using other = await Place.make();
    const log = other.log();
    for (let index = 0; index < RECORDS * 2; index += 1) await log.append(event(`forged-${index}`));
    await log.close();
    expect(await verifyLog(other.directory)).toMatchObject({ ok: true });
    expect((await verifyLog(other.directory, [head])).problem).toMatchObject({ fault: 'rewritten', seq: head.seq });
  });
});

describe('a log that was cut under a process that writes to it', () => {
  it('is not written to any more', async () => {
    await using other = await Place.make();
    const log = other.log();
    for (const id of ['a', 'b', 'c']) await log.append(event(id));
    const file = join(other.directory, '000000000001.jsonl');
    const lines = (await readFile(file, 'utf8')).split('\n');
    await writeFile(file, `${lines.slice(0, 2).join('\n')}\n`);
    await expect(log.append(event('d'))).rejects.toMatchObject({ code: 'ACODE-AUD-002' });
    expect(await other.lines()).toHaveLength(2);
    await writeFile(file, lines.join('\n'));
    await expect(log.append(event('d'))).resolves.toMatchObject({ seq: 4 });
    await log.close();
  });
});
