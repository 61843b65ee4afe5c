// Locks, the index and shared work: what several processes and several callers see of each other.

import { spawn } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { holderText, thisHolder } from '../../lifecycle/lock.ts';
import { systemClock } from '../../lifecycle/clock.ts';
import { PulledImages, SharedWork } from '../pulls.ts';
import type { PulledEntry } from '../pulls.ts';
import { LockTimeoutError, Locks } from '../../lifecycle/lock.ts';

const uid = process.getuid?.() ?? 0;
const signal = AbortSignal.timeout(600_000);
let top = '';
beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'registry-'));
});
afterEach(() => rmSync(top, { recursive: true, force: true }));

const locks = () => new Locks({ directory: top, uid, clock: systemClock });
const wait = (ms: number) => new Promise<void>(resolve => void setTimeout(resolve, ms));
const terms = { deadlineMs: 30_000, signal };

describe('a lock for a key', () => {
  it('is held by one at a time, and another key is not locked by it', async () => {
    let inside = 0;
    let most = 0;
    const work = async (): Promise<void> => {
      most = Math.max(most, ++inside);
      await wait(20);
      inside -= 1;
    };
    await Promise.all(Array.from({ length: 8 }, () => locks().during('one', terms, work)));
    expect(most).toBe(1);
    let other = false;
    await locks().during('one', terms, () => locks().during('two', terms, async () => void (other = true)));
    expect(other).toBe(true);
  });

  it('is given back when the work fails, and leaves nothing', async () => {
    await expect(locks().during('k', terms, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    await expect(locks().during('k', terms, () => Promise.resolve(7))).resolves.toBe(7);
    for (const name of readdirSync(join(top, 'pulls'))) expect(readdirSync(join(top, 'pulls', name))).toEqual([]);
  });

  it('of a process that does not end is not awaited beyond the deadline', async () => {
    let end: () => void = () => undefined;
    let begun = false;
    const held = locks().during('k', terms, () => {
      begun = true;
      return new Promise<void>(resolve => (end = resolve));
    });
    await expect.poll(() => begun).toBe(true);
    await expect(locks().during('k', { ...terms, deadlineMs: 100 }, wait.bind(null, 0))).rejects.toThrow(
      LockTimeoutError,
    );
    end();
    await held;
  });

  it('of a process that died is taken over at once', async () => {
    const child = spawn('/bin/sleep', ['60']);
    const pid = child.pid ?? 0;
    const start = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1]?.split(' ')[19] ?? '';
    let begun: () => void = () => undefined;
    const began = new Promise<void>(resolve => (begun = resolve));
    // Where the lock is, found by taking it once.
    await locks().during('k', terms, () => Promise.resolve());
    const directory = join(top, 'pulls', readdirSync(join(top, 'pulls'))[0] ?? '');
    symlinkSync(holderText({ ...thisHolder(), pid, start }), join(directory, 'lock.1'));
    const mine = locks().during('k', { ...terms, onWait: () => begun() }, () => Promise.resolve('mine'));
    await began;
    child.kill('SIGKILL');
    await new Promise(resolve => child.once('exit', resolve));
    await expect(mine).resolves.toBe('mine');
    // And once more, over what the dead one left.
    await expect(locks().during('k', terms, () => Promise.resolve('again'))).resolves.toBe('again');
  });
});

const entry = (more: Partial<PulledEntry> = {}): PulledEntry => ({
  engine: 'e',
  reference: 'docker.io/library/node:20',
  id: 'sha256:1',
  digest: 'sha256:2',
  brought: true,
  pulledAt: 1000,
  lastUsedAt: 1000,
  ...more,
});

describe('the index', () => {
  const index = () => new PulledImages(join(top, 'state'), uid, locks());

  it('keeps what was pulled, by engine and reference, for the user alone', async () => {
    await index().add(entry(), signal);
    await index().add(entry({ id: 'sha256:3' }), signal);
    await index().add(entry({ engine: 'other' }), signal);
    await expect(index().on('e')).resolves.toEqual([entry({ id: 'sha256:3' })]);
    expect(existsSync(join(top, 'state', 'images.json'))).toBe(true);
    await index().forget('e', entry().reference, signal);
    await expect(index().on('e')).resolves.toEqual([]);
    await expect(index().on('other')).resolves.toHaveLength(1);
    expect(readdirSync(join(top, 'state'))).toEqual(['images.json']);
  });

  it('loses nothing where many write at once', async () => {
    await Promise.all(Array.from({ length: 6 }, (_, n) => index().add(entry({ reference: `r/x:${n}` }), signal)));
    await expect(index().on('e')).resolves.toHaveLength(6);
  });

  it('notes a use once an hour, and no use of what was not pulled', async () => {
    await index().add(entry(), signal);
    await index().used('sha256:1', 2000, signal);
    await expect(index().on('e')).resolves.toEqual([entry()]);
    await index().used('sha256:1', 1000 + 3600 * 1000, signal);
    await expect(index().on('e')).resolves.toEqual([entry({ lastUsedAt: 1000 + 3600 * 1000 })]);
    await index().used('sha256:9', 9e12, signal);
    await expect(index().on('e')).resolves.toHaveLength(1);
  });

  it('is not read again within a minute for the same image', async () => {
    const one = index();
    const late = 1000 + 3600 * 1000;
    await one.add(entry(), signal);
    await one.used('sha256:1', late - 30_000, signal);
    await one.used('sha256:1', late, signal);
    await expect(one.on('e')).resolves.toEqual([entry()]);
    await one.used('sha256:1', late + 30_000, signal);
    await expect(one.on('e')).resolves.toEqual([entry({ lastUsedAt: late + 30_000 })]);
  });

  it('is ignored where it is damaged, or another user could have written it', async () => {
    await index().add(entry(), signal);
    const file = join(top, 'state', 'images.json');
    chmodSync(file, 0o666);
    await expect(index().on('e')).resolves.toEqual([]);
    chmodSync(file, 0o600);
    await expect(index().on('e')).resolves.toHaveLength(1);
    writeFileSync(file, '{"version":1,"images":[{}]}');
    await expect(index().on('e')).resolves.toEqual([]);
    rmSync(file);
    mkdirSync(join(top, 'elsewhere'));
    writeFileSync(join(top, 'elsewhere', 'images.json'), JSON.stringify({ version: 1, images: [entry()] }), {
      mode: 0o600,
    });
    symlinkSync(join(top, 'elsewhere', 'images.json'), file);
    await expect(index().on('e')).resolves.toEqual([]);
  });
});

describe('shared work', () => {
  it('is begun once for all who want it, and all hear how far it is', async () => {
    const shared = new SharedWork<number, string>();
    let begun = 0;
    const heard: number[][] = [[], [], []];
    const work = async (_: AbortSignal, tell: (n: number) => void): Promise<string> => {
      begun += 1;
      tell(1);
      await wait(20);
      tell(2);
      return 'done';
    };
    const all = heard.map(list => shared.join('k', { signal, onProgress: n => void list.push(n) }, work));
    await expect(Promise.all(all)).resolves.toEqual(['done', 'done', 'done']);
    expect(begun).toBe(1);
    for (const list of heard) expect(list).toEqual([1, 2]);
    await expect(shared.join('k', { signal }, work)).resolves.toBe('done');
    expect(begun).toBe(2);
  });

  it('continues when one of two leaves, and ends when the last has left', async () => {
    const shared = new SharedWork<number, string>();
    let given: AbortSignal | null = null;
    const work = (until: AbortSignal): Promise<string> => {
      given = until;
      return new Promise((_, reject) => until.addEventListener('abort', () => reject(new Error('cancelled'))));
    };
    const [one, other] = [new AbortController(), new AbortController()];
    const first = shared.join('k', { signal: one.signal }, work);
    const second = shared.join('k', { signal: other.signal }, work);
    await wait(5);
    one.abort();
    await expect(first).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    expect(isAborted(given)).toBe(false);
    other.abort();
    await expect(second).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    expect(isAborted(given)).toBe(true);
  });

  it('continues for the others when a listener throws, which gets its error', async () => {
    const shared = new SharedWork<number, string>();
    const errors: unknown[] = [];
    const heard: number[] = [];
    let given: AbortSignal | null = null;
    const work = async (until: AbortSignal, tell: (n: number) => void): Promise<string> => {
      given = until;
      tell(1);
      await wait(20);
      tell(2);
      return 'done';
    };
    const throws = {
      signal,
      onProgress: (n: number): void => {
        throw new Error(`no ${n}`);
      },
      onListenerError: (error: unknown): void => void errors.push(String(error)),
    };
    const first = shared.join('k', throws, work);
    const second = shared.join('k', { signal, onProgress: n => void heard.push(n) }, work);
    await wait(5);
    // A later participant gets the progress at once, and may throw then; one that has left is not counted.
    const late = shared.join('k', { ...throws, onListenerError: undefined }, work);
    await expect(Promise.all([first, second, late])).resolves.toEqual(['done', 'done', 'done']);
    expect(heard).toEqual([1, 2]);
    expect(errors).toEqual(['Error: no 1', 'Error: no 2']);
    expect(isAborted(given)).toBe(true);
  });

  it('is left at once by who hears enough while joining', async () => {
    const shared = new SharedWork<number, string>();
    const work = (until: AbortSignal, tell: (n: number) => void): Promise<string> => {
      tell(1);
      return new Promise((_, reject) => until.addEventListener('abort', () => reject(new Error('cancelled'))));
    };
    const first = new AbortController();
    const staying = shared.join('k', { signal: first.signal }, work);
    await wait(5);
    const enough = new AbortController();
    const leaving = shared.join('k', { signal: enough.signal, onProgress: () => enough.abort() }, work);
    await expect(leaving).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    first.abort();
    await expect(staying).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
  });

  it('that fails fails for all, and is begun anew by the next', async () => {
    const shared = new SharedWork<number, string>();
    const fails = (): Promise<string> => Promise.reject(new Error('no registry'));
    const both = await Promise.allSettled([shared.join('k', { signal }, fails), shared.join('k', { signal }, fails)]);
    expect(both.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    await expect(shared.join('k', { signal }, () => Promise.resolve('well'))).resolves.toBe('well');
  });
});

function isAborted(given: AbortSignal | null): boolean | undefined {
  return given?.aborted;
}
