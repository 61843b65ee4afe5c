// Ownership and removal of sandboxes: labels, sessions, host identity.

import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { AcodeError } from '../contract/errors.ts';
import { hostIdentity, isStillHost } from './ownership.ts';
import { Removals, Serial } from './removal.ts';
import { Session } from './session.ts';

const session = (more: Partial<ConstructorParameters<typeof Session>[0]> = {}) =>
  new Session({
    id: undefined,
    host: 'h',
    uid: 7,
    leases: 'l',
    settings: { namePrefix: 'acode', labels: {} },
    clock: { now: () => 0 },
    ...more,
  });
const of = {
  task: undefined,
  session: undefined,
  profile: 'exec',
  level: 'docker' as const,
  specHash: 'spec',
  correlationId: 'c',
  preview: false,
};

describe('names and labels that others can read', () => {
  const secret = `ghp_${'a1B2'.repeat(9)}`;

  it.each([
    [{ team: secret }, 'looks like a secret'],
    [{ 'acode.team': 'x' }, 'reserved'],
  ])('a label of %j is refused', (labels, reason) => {
    expect(() => session({ settings: { namePrefix: 'acode', labels } })).toThrow(reason);
  });

  it.each([
    [secret, 'looks like a secret'],
    ['a b', '1 to 128 letters'],
  ])('a session %j is refused', (id, reason) => {
    expect(() => session({ id })).toThrow(reason);
  });
});

describe('Session', () => {
  it('labels each sandbox with everything, in full', () => {
    const long = `task-${'x'.repeat(100)}`;
    const mine = session({ id: 'my-session', settings: { namePrefix: 'acode', labels: { team: 'blue' } } });
    const { sandboxId, labels, name } = mine.identify({ ...of, task: long });
    expect(labels).toEqual({
      team: 'blue',
      'acode.managed': 'true',
      'acode.given-name': '',
      'acode.session': 'my-session',
      'acode.task': long,
      'acode.sandbox': sandboxId,
      'acode.name': name,
      'acode.keep': 'false',
      'acode.owner': mine.owner,
      'acode.host': 'h',
      'acode.uid': '7',
      'acode.profile': 'exec',
      'acode.level': 'docker',
      'acode.spec': 'spec',
      'acode.nonce': expect.stringMatching(/^[0-9a-f-]{36}$/),
      'acode.created': '1970-01-01T00:00:00.000Z',
      'acode.expires': '1970-01-02T01:00:00.000Z',
    });
    expect(name.length).toBeLessThanOrEqual(63);
  });

  it('labels a sandbox with the name that its user gave it', () => {
    expect(session().identify({ ...of, givenName: 'web-server' }).labels).toMatchObject({
      'acode.given-name': 'web-server',
    });
  });

  it('says of one that is kept where its lease is', () => {
    const { labels } = session().identify({ ...of, keep: true });
    expect(labels).toMatchObject({ 'acode.keep': 'true', 'acode.leases': 'l' });
  });

  it('counts per task, and gives every sandbox an id and a nonce of its own', () => {
    const mine = session({ id: 'a1b2c3d4-0000-4000-8000-000000000000' });
    const made = [mine.identify(of), mine.identify(of), mine.identify({ ...of, task: 'build' })];
    expect(made.map(({ name }) => name)).toEqual([
      'acode-a1b2c3d4-run-001',
      'acode-a1b2c3d4-run-002',
      'acode-a1b2c3d4-build-001',
    ]);
    expect(new Set(made.flatMap(({ sandboxId, labels }) => [sandboxId, labels['acode.nonce']])).size).toBe(6);
    expect(session().id).not.toBe(session().id);
  });

  it('names a service after the task that it is beside, and counts it apart', () => {
    const mine = session({ id: 'a1b2c3d4-0000-4000-8000-000000000000' });
    const made = [mine.identify(of), mine.identify({ ...of, service: 'db' }), mine.identify(of)];
    expect(made.map(({ name }) => name)).toEqual([
      'acode-a1b2c3d4-run-001',
      'acode-a1b2c3d4-run-db-001',
      'acode-a1b2c3d4-run-002',
    ]);
    expect(made.map(({ labels }) => labels['acode.task'])).toEqual(['run', 'run', 'run']);
  });

  it('does not use a number up for a preview', () => {
    const mine = session();
    expect(mine.identify({ ...of, preview: true }).name).toBe(mine.identify(of).name);
  });

  it('counts no more tasks than there is room for, and forgets the longest unused', () => {
    const mine = session({ id: 's' });
    for (let task = 0; task < 5000; task += 1) {
      mine.identify({ ...of, task: `t${task}` });
      mine.identify({ ...of, task: 'used' });
    }
    expect(mine.identify({ ...of, task: 't0' }).name).toMatch(/-001$/);
    expect(mine.identify({ ...of, task: 't4999' }).name).toMatch(/-002$/);
    expect(mine.identify({ ...of, task: 'used' }).name).toMatch(/-5001$/);
  });

  it('does not let anybody set a reserved label', () => {
    expect(() => session({ settings: { namePrefix: 'acode', labels: { 'acode.uid': '0' } } })).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-013' }),
    );
  });

  it.each(['', ' ', 'a b', '../x', '-x', 'x\n', 'x'.repeat(129), 'tökén'])('refuses the id %j', id => {
    expect(() => session({ id })).toThrow(expect.objectContaining({ code: 'ACODE-SBX-017' }));
    expect(() => session().identify({ ...of, task: id })).toThrow(expect.objectContaining({ code: 'ACODE-SBX-017' }));
    expect(() => session().identify({ ...of, session: id })).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-017' }),
    );
  });
});

describe('hostIdentity', () => {
  it('is the same for one runtime directory and another for another', async () => {
    const [one, two] = [mkdtempSync(join(tmpdir(), 'acode-run-')), mkdtempSync(join(tmpdir(), 'acode-run-'))];
    expect(await hostIdentity(one)).toBe(await hostIdentity(one));
    expect(await hostIdentity(one)).not.toBe(await hostIdentity(two));
  });

  it('is agreed on by those who ask for it first at the same time', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'acode-run-'));
    const all = await Promise.all(Array.from({ length: 20 }, () => hostIdentity(directory)));
    expect(new Set(all).size).toBe(1);
    expect(readdirSync(directory)).toEqual(['host']);
  });

  it('is made anew where what stands for it cannot be understood', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'acode-run-'));
    writeFileSync(join(directory, 'host'), '');
    const made = await hostIdentity(directory);
    expect(await hostIdentity(directory)).toBe(made);
    expect(readdirSync(directory)).toEqual(['host']);
  });

  it('is another one when the directory was removed and made again, whatever its inode', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'acode-run-'));
    const before = await hostIdentity(directory);
    expect(await isStillHost(directory, before)).toBe(true);
    rmSync(directory, { recursive: true });
    expect(await isStillHost(directory, before)).toBe(false);
    mkdirSync(directory);
    expect(await hostIdentity(directory)).not.toBe(before);
    expect(await isStillHost(directory, before)).toBe(false);
  });
});

describe('Removals', () => {
  function removals(remove: (id: string, signal: AbortSignal) => Promise<void>) {
    const removed: string[] = [];
    const failed: AcodeError[] = [];
    return {
      removed,
      failed,
      remove,
      removals: new Removals({
        reports: { removed: id => void removed.push(id), notRemoved: (_, error) => void failed.push(error) },
        attempts: 2,
        deadlineMs: 5000,
        clock: { monotonic: () => 0 },
      }),
    };
  }

  it('retries a failed removal, and reports it once it succeeds', async () => {
    let calls = 0;
    const { removed, failed, ...made } = removals(async () => {
      calls += 1;
      if (calls < 3) throw new Error('busy');
    });
    await made.removals.begin('a', made.remove);
    expect([calls, removed, failed]).toEqual([3, ['a'], []]);
  });

  it('never rejects, remembers what is left, and tries once more when asked to settle', async () => {
    let broken = true;
    const { removed, failed, ...made } = removals(async () => {
      if (broken) throw new Error('busy');
    });
    await made.removals.begin('a', made.remove);
    expect(made.removals.left).toEqual(['a']);
    expect(failed).toMatchObject([{ code: 'ACODE-CTN-004', context: { id: 'a', reason: 'busy' } }]);
    broken = false;
    await made.removals.settled();
    expect([made.removals.left, removed]).toEqual([[], ['a']]);
  });

  it.each(['another removal succeeds', 'a sandbox is about to be made'])(
    'retries an abandoned removal when %s',
    async when => {
      let broken = true;
      const { removed, ...made } = removals(async id => {
        if (broken && id === 'a') throw new Error('busy');
      });
      await made.removals.begin('a', made.remove);
      expect(made.removals.left).toEqual(['a']);
      broken = false;
      if (when.startsWith('another')) await made.removals.begin('b', made.remove);
      else made.removals.again();
      await expect.poll(() => made.removals.left).toEqual([]);
      expect(removed).toContain('a');
    },
  );

  it('does not try for ever what cannot be removed while others can', async () => {
    let calls = 0;
    const { remove, removals: made } = removals(async id => {
      if (id !== 'stuck') return;
      calls += 1;
      throw new Error('busy');
    });
    await made.begin('stuck', remove);
    const once = calls;
    for (const id of ['a', 'b', 'c']) await made.begin(id, remove);
    await made.settled();
    expect(made.left).toEqual(['stuck']);
    expect(calls).toBeLessThanOrEqual(5 * once);
  });

  it('removes one container once at a time', async () => {
    let now = 0;
    let most = 0;
    const { remove, removals: made } = removals(async () => {
      now += 1;
      most = Math.max(most, now);
      await new Promise(resolve => setTimeout(resolve, 2));
      now -= 1;
    });
    void made.begin('a', remove);
    void made.begin('a', remove);
    await made.settled();
    expect(most).toBe(1);
  });
});

// Operations on one container never overlap; operations on different ones do.

const pause = (): Promise<void> => new Promise(resolve => setTimeout(resolve, 2));

describe('Serial', () => {
  it('keeps 50 operations on five containers from overlapping on any one of them', async () => {
    const serial = new Serial();
    const busy = new Map<string, number>();
    let overlapping = 0;
    let together = 0;
    await Promise.all(
      Array.from({ length: 50 }, (_, n) =>
        serial.run(String(n % 5), async () => {
          const key = String(n % 5);
          if (busy.get(key)) overlapping += 1;
          busy.set(key, 1);
          together = Math.max(
            together,
            [...busy.values()].reduce((a, b) => a + b, 0),
          );
          await pause();
          busy.set(key, 0);
        }),
      ),
    );
    expect(overlapping).toBe(0);
    expect(together).toBe(5);
  });

  it('continues after a failed operation, and passes its error only to its own caller', async () => {
    const serial = new Serial();
    const failed = serial.run('a', () => Promise.reject(new Error('no')));
    const after = serial.run('a', () => Promise.resolve('yes'));
    await expect(failed).rejects.toThrow('no');
    await expect(after).resolves.toBe('yes');
  });
});
