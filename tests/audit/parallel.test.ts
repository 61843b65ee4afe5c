// Many processes write at once, are killed in the middle of it or stopped, and there is one chain (F18).

import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { writeFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { auditIn } from '../../packages/sandbox/src/records/audit/read.ts';
import { Place, event, writer } from './log.ts';

function receipts(printed: readonly string[]): Map<number, string> {
  const pairs = printed.map(line => /^(\d+):([0-9a-f]{64}) (.*)$/.exec(line)).filter(found => found !== null);
  return new Map(pairs.map(found => [Number(found[1]), `${found[2]} ${found[3]}`]));
}

/** Every record that a writer was told is written is in the log, as it was told. */
async function expectAllKept(place: Place, printed: readonly string[]): Promise<void> {
  const there = new Map(
    (await place.lines()).map(line => {
      const { seq, hash, correlationId } = JSON.parse(line) as Record<string, string>;
      return [Number(seq), `${hash} ${correlationId}`];
    }),
  );
  for (const [seq, told] of receipts(printed)) expect(there.get(seq)).toBe(told);
}

/** One go of eight processes; gives the records per second. */
async function eightAtOnce(): Promise<number> {
  await using place = await Place.make();
  const writers = await Promise.all(Array.from({ length: 8 }, (_, index) => writer(place.directory, 500, `w${index}`)));
  const began = performance.now();
  for (const one of writers) one.begin();
  await Promise.all(writers.map(({ ended }) => ended));
  const rate = 4000 / ((performance.now() - began) / 1000);
  process.stdout.write(`8 × 500 audit records: ${Math.round(rate)} records/s\n`);
  const printed = writers.flatMap(one => one.printed());
  expect(printed.filter(line => line.startsWith('error'))).toEqual([]);
  expect(receipts(printed).size).toBe(4000);
  await expectAllKept(place, printed);
  const report = await auditIn(place.directory).verify();
  expect(report).toMatchObject({ ok: true, problem: null, unfinished: false });
  expect(report.records).toBe(4000 + report.checkpoints);
  expect(report.checkpoints).toBeGreaterThan(10);
  expect(await place.locks()).toEqual([]);
  return rate;
}

describe('8 processes that write 500 records each at once', () => {
  it('make one unbroken chain, at 500 records a second or more', async () => {
    let rate = 0;
    // What else the machine does can only make it slower.
    for (let go = 0; go < 3 && rate < 500; go += 1) rate = Math.max(rate, await eightAtOnce());
    expect(rate).toBeGreaterThanOrEqual(500);
  });
});

describe('4 processes that write while files are full every few records', () => {
  it('go on in one chain from file to file, each begun with a signature', async () => {
    await using place = await Place.make();
    const options = { rotateBytes: 4096 };
    const writers = await Promise.all(
      Array.from({ length: 4 }, (_, index) => writer(place.directory, 150, `w${index}`, options)),
    );
    for (const one of writers) one.begin();
    await Promise.all(writers.map(({ ended }) => ended));
    const printed = writers.flatMap(one => one.printed());
    expect(receipts(printed).size).toBe(600);
    await expectAllKept(place, printed);
    const report = await auditIn(place.directory).verify();
    expect(report).toMatchObject({ ok: true, problem: null });
    expect(report.files).toBeGreaterThan(20);
    expect(report.checkpoints).toBeGreaterThanOrEqual(report.files - 1);
  });
});

describe('writers that are killed at random moments', () => {
  it('leave one chain, with every record they were told about', async () => {
    await using place = await Place.make();
    const options = { rotateBytes: 16 * 1024, checkpointEvery: 16 };
    const printed: string[] = [];
    let killed = 0;
    const deadline = performance.now() + 20_000;
    const life = async (name: string, given: object): Promise<void> => {
      for (let round = 0; performance.now() < deadline; round += 1) {
        const one = await writer(place.directory, 2000, `${name}-${round}`, { ...options, ...given });
        one.begin();
        // From outside at any moment, and from inside between any two calls that matter, or in the middle of a write.
        const outside = 'death' in given ? 5000 : 20 + Math.random() * 100;
        await Promise.race([one.ended, wait(outside, undefined, { ref: false })]);
        one.child.kill('SIGKILL');
        await one.ended;
        killed += 1;
        printed.push(...one.printed());
      }
    };
    const inside = { death: { chance: 0.01 } };
    await Promise.all([life('a', {}), life('b', {}), life('c', inside), life('d', inside), life('e', inside)]);
    process.stdout.write(`${killed} writers killed, ${receipts(printed).size} records acknowledged\n`);
    expect(printed.filter(line => line.startsWith('error'))).toEqual([]);
    expect(killed).toBeGreaterThan(20);
    // Nobody was kept waiting by the dead.
    expect(receipts(printed).size).toBeGreaterThan(killed);
    const survivor = place.log(options);
    // Whatever was left in the middle does not stop the next one.
    await survivor.append(event('after-the-storm'));
    await survivor.close();
    await expectAllKept(place, printed);
    expect(await auditIn(place.directory).verify()).toMatchObject({ ok: true, problem: null, unfinished: false });
  });

  const moments = (['symlinkSync', 'writeSync', 'unlinkSync', 'openSync', 'lstatSync'] as const).flatMap(call =>
    (call === 'writeSync' ? (['before', 'half', 'after'] as const) : (['before', 'after'] as const)).map(
      when => [call, when] as const,
    ),
  );

  it.each(moments)('killed in %s, %s it is done, leave a log that goes on', async (call, when) => {
    for (const at of [1, 3, 4, 5, 7]) {
      await using place = await Place.make();
      const options = { rotateBytes: 300 };
      const one = await writer(place.directory, 5, 'doomed', { ...options, death: { call, when, at } });
      one.begin();
      await one.ended;
      expect(one.child.signalCode).toBe('SIGKILL');
      const log = place.log(options);
      const began = performance.now();
      await log.append(event('next'));
      expect(performance.now() - began).toBeLessThan(1000);
      await log.close();
      await expectAllKept(place, one.printed());
      expect(await auditIn(place.directory).verify()).toMatchObject({ ok: true, problem: null, unfinished: false });
      expect(await place.locks()).toEqual([]);
    }
  });
});

describe('a writer that is stopped', () => {
  it('has its turn respected until the deadline, and is waited for after it goes on', async () => {
    await using place = await Place.make();
    const first = place.log();
    await first.append(event('before'));
    const other = await writer(place.directory, 1, 'stopped');
    try {
      // Stands for a process that was stopped between taking its turn and writing.
      const { pid = 0 } = other.child;
      const { holderText, thisHolder } = await import('../../packages/sandbox/src/lifecycle/lock.ts');
      const { symlinkSync, unlinkSync, readFileSync } = await import('node:fs');
      const { processLine } = await import('../../packages/sandbox/src/lifecycle/lock.ts');
      const start = processLine(readFileSync(`/proc/${pid}/stat`, 'latin1'))?.start ?? '';
      const lock = join(place.directory, 'lock.2');
      symlinkSync(holderText({ ...thisHolder(), pid, start }), lock);
      other.child.kill('SIGSTOP');
      const began = performance.now();
      await expect(first.append(event('refused'))).rejects.toMatchObject({
        code: 'ACODE-AUD-001',
        message: expect.stringContaining(`process ${pid}`),
      });
      const waited = performance.now() - began;
      expect(waited).toBeGreaterThan(4900);
      expect(waited).toBeLessThan(6000);
      expect(await place.lines()).toHaveLength(1);
      // The control: nobody holds it any more, and the same record is written at once.
      unlinkSync(lock);
      await expect(first.append(event('allowed'))).resolves.toMatchObject({ seq: 2 });
    } finally {
      other.child.kill('SIGKILL');
      await other.ended;
    }
    await first.close();
  });

  it('that died instead is passed over at once, however many of them there are', async () => {
    await using place = await Place.make();
    const log = place.log();
    await log.append(event('before'));
    const dead = await writer(place.directory, 0, 'dead');
    dead.begin();
    await dead.ended;
    const { holderText, thisHolder } = await import('../../packages/sandbox/src/lifecycle/lock.ts');
    const { symlinkSync } = await import('node:fs');
    const text = holderText({ ...thisHolder(), pid: dead.child.pid ?? 0, start: '1' });
    for (const name of ['lock.2', 'lock.2.1', 'lock.2.2']) symlinkSync(text, join(place.directory, name));
    await writeFile(join(place.directory, '000000000001.jsonl'), '{"half":"a rec', { flag: 'a' });
    const began = performance.now();
    await expect(log.append(event('after'))).resolves.toMatchObject({ seq: 2 });
    expect(performance.now() - began).toBeLessThan(1000);
    expect(await place.locks()).toEqual([]);
    expect(await auditIn(place.directory).verify()).toMatchObject({ ok: true, records: 2, unfinished: false });
    await log.close();
  });
});
