// The log is read while it is written: newest first, one by one, as it grows, and as it is.

import { appendFile, chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { auditIn } from '../../packages/sandbox/src/records/audit/read.ts';
import type { AuditRecord } from '../../packages/sandbox/src/contract/audit.ts';
import { Place, event, uid, writer } from './log.ts';

const SMALL = { rotateBytes: 2000, checkpointEvery: 7 };

let place: Place;
beforeAll(async () => {
  place = await Place.make();
  const log = place.log(SMALL);
  for (let index = 0; index < 40; index += 1) await log.append(event(`c${index % 10}`));
  await log.close();
});
afterAll(async () => place[Symbol.asyncDispose]());

async function collected<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}

const numbersOf = (records: readonly AuditRecord[]): number[] => records.map(({ seq }) => seq);

describe('the newest records', () => {
  it('come oldest first, over as many files as they are in', async () => {
    const audit = auditIn(place.directory);
    const last = (await place.lines()).length;
    expect((await place.files()).length).toBeGreaterThan(5);
    for (const count of [1, 5, 30])
      expect(numbersOf(await audit.tail({ count }))).toEqual(
        Array.from({ length: count }, (_, index) => last - count + 1 + index),
      );
    expect(await audit.tail({ count: 10_000 })).toHaveLength(last);
    expect(await audit.tail({ count: 0 })).toEqual([]);
    expect(await audit.tail()).toHaveLength(20);
  });

  it('are none where there is no log', async () => {
    const audit = auditIn(join(place.top, 'nowhere'));
    expect(await audit.tail()).toEqual([]);
    expect(await audit.verify()).toMatchObject({ ok: true, records: 0, head: null, key: null });
    await expect(audit.find('1')).rejects.toMatchObject({ code: 'ACODE-AUD-003' });
  });

  it('do not include one that is being written', async () => {
    await using other = await Place.make();
    const log = other.log();
    await log.append(event('whole'));
    await log.close();
    await appendFile(join(other.directory, '000000000001.jsonl'), '{"half":');
    expect(numbersOf(await auditIn(other.directory).tail())).toEqual([1]);
  });

  it('are not shown as if nothing had happened where one of them was changed', async () => {
    await using other = await Place.make();
    const log = other.log();
    for (const id of ['a', 'b', 'c']) await log.append(event(id));
    await log.close();
    const lines = await other.lines();
    const file = join(other.directory, '000000000001.jsonl');
    await writeFile(file, `${lines.with(1, (lines[1] ?? '').replace('tested', 'Tested')).join('\n')}\n`);
    await expect(auditIn(other.directory).tail()).rejects.toMatchObject({
      code: 'ACODE-AUD-002',
      context: { seq: 2, line: 2, file },
    });
    expect(numbersOf(await auditIn(other.directory).tail({ count: 1 }))).toEqual([3]);
  });

  it.skipIf(uid === 0)('of another user are not readable, and that is said', async () => {
    await using other = await Place.make();
    await mkdir(other.directory);
    await chmod(other.directory, 0o000);
    await expect(auditIn(other.directory).tail()).rejects.toMatchObject({
      code: 'ACODE-AUD-004',
      message: expect.stringContaining('permission denied'),
    });
    await chmod(other.directory, 0o700);
  });
});

describe('one record', () => {
  it('is found by its number, all of a run by their correlation id', async () => {
    const audit = auditIn(place.directory);
    for (const seq of [1, 2, 23, (await place.lines()).length])
      expect(numbersOf(await audit.find(String(seq)))).toEqual([seq]);
    const found = await audit.find('c3');
    expect(found).toHaveLength(4);
    for (const { correlationId } of found) expect(correlationId).toBe('c3');
  });

  it.each(['0', '4711', 'c', 'c99', '../x', ''])('is not found by %j', async reference => {
    await expect(auditIn(place.directory).find(reference)).rejects.toMatchObject({ code: 'ACODE-AUD-003' });
  });

  it('is not found by an id that only stands in its text', async () => {
    await using other = await Place.make();
    const log = other.log();
    await log.append({ ...event('true'), event: '"correlationId":"false"', detail: { correlationId: 'false' } });
    await log.close();
    await expect(auditIn(other.directory).find('false')).rejects.toMatchObject({ code: 'ACODE-AUD-003' });
    expect(await auditIn(other.directory).find('true')).toHaveLength(1);
  });
});

describe('what is exported', () => {
  it('is what stands in the files, byte by byte, from and to a number', async () => {
    const all = (await collected(auditIn(place.directory).export())).join('');
    expect(all).toBe(`${(await place.lines()).join('\n')}\n`);
    const some = await collected(auditIn(place.directory).export({ from: 12, to: 15 }));
    expect(some.map(line => (JSON.parse(line) as AuditRecord).seq)).toEqual([12, 13, 14, 15]);
  });

  it('ends when it is told to', async () => {
    await expect(collected(auditIn(place.directory).export({ signal: AbortSignal.abort() }))).rejects.toMatchObject({
      name: 'AbortError',
    });
  });
});

describe('following', () => {
  it('shows every record once and in order, from file to file, while others write', async () => {
    await using other = await Place.make();
    const writers = await Promise.all([1, 2].map(name => writer(other.directory, 60, `w${name}`, SMALL)));
    const stop = new AbortController();
    const seen: number[] = [];
    const following = (async () => {
      for await (const { seq } of auditIn(other.directory).follow({ after: 0, signal: stop.signal })) seen.push(seq);
    })();
    for (const one of writers) one.begin();
    await Promise.all(writers.map(({ ended }) => ended));
    const last = (await other.lines()).length;
    expect(last).toBeGreaterThan(120);
    await expect.poll(() => seen.length).toBe(last);
    stop.abort();
    await following;
    expect(seen).toEqual(Array.from({ length: last }, (_, index) => index + 1));
  });

  it('begins with what comes next', async () => {
    const stop = new AbortController();
    const seen: number[] = [];
    const following = (async () => {
      for await (const { seq } of auditIn(place.directory).follow({ signal: stop.signal })) seen.push(seq);
    })();
    await new Promise(resolve => setTimeout(resolve, 300));
    const log = place.log(SMALL);
    const { seq } = await log.append(event('new'));
    await log.close();
    await expect.poll(() => seen.at(-1)).toBe(seq);
    stop.abort();
    await following;
    expect(seen.length).toBeLessThanOrEqual(2);
  });
});

describe('verifying while others write', () => {
  it('never takes a line that is being written for a bad one', async () => {
    await using other = await Place.make();
    const writers = await Promise.all(
      [1, 2].map(name => writer(other.directory, 300, `w${name}`, { rotateBytes: 50_000 })),
    );
    for (const one of writers) one.begin();
    let running = true;
    const ended = Promise.all(writers.map(one => one.ended)).then(() => (running = false));
    let looks = 0;
    while (running) {
      expect(await auditIn(other.directory).verify()).toMatchObject({ ok: true });
      looks += 1;
    }
    await ended;
    expect(looks).toBeGreaterThan(3);
  });
});
