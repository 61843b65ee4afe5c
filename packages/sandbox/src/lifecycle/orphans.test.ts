// Orphan decisions, every combination: no false hit and no miss.

import { describe, expect, it } from 'vitest';
import type { SandboxState } from '../contract/host.ts';
import { judge, mayGo } from './orphans.ts';
import type { Verdict } from './orphans.ts';
import type { OwnerState } from './ownership.ts';

const NOW = Date.parse('2030-01-01T00:00:00Z');
const asking = { uid: 1000, host: 'here', owner: 'me', leases: 'ours', now: NOW };

const MANAGED = [['managed', { 'acode.managed': 'true' }] as const, ['unlabelled', {}] as const];
const FOREIGN = [
  ['with labels of another program', { 'com.docker.compose.project': 'x' }] as const,
  ['plain', {}] as const,
];
const USERS = [
  ['mine', '1000'] as const,
  ['another user’s', '1001'] as const,
  ['without an owner', undefined] as const,
];
const HOSTS = [
  ['here', 'here'] as const,
  ['same boot, other runtime directory', 'there'] as const,
  ['unknown', undefined] as const,
];
const OWNERS: readonly OwnerState[] = ['alive', 'dead', 'unknown'];
const EXPIRES = [
  ['not expired', '2031-01-01T00:00:00Z'] as const,
  ['expired', '2029-01-01T00:00:00Z'] as const,
  ['with an unreadable expiry', 'soon'] as const,
  ['without an expiry', undefined] as const,
];
const KEEP = [['not kept', 'false'] as const, ['kept', 'true'] as const];

interface Case {
  readonly name: string;
  readonly labels: Record<string, string>;
  readonly owner: OwnerState;
  readonly remove: boolean;
}

function cases(): Case[] {
  const all: Case[] = [];
  for (const [managed, managedLabels] of MANAGED)
    for (const [foreign, foreignLabels] of FOREIGN)
      for (const [user, uid] of USERS)
        for (const [host, hostLabel] of HOSTS)
          for (const owner of OWNERS)
            for (const [expiry, expires] of EXPIRES)
              for (const [keep, kept] of KEEP) {
                const labels: Record<string, string> = { ...managedLabels, ...foreignLabels, 'acode.owner': 'other' };
                const set = (name: string, value: string | undefined): void => {
                  if (value !== undefined) labels[name] = value;
                };
                set('acode.uid', uid);
                set('acode.host', hostLabel);
                set('acode.expires', expires);
                set('acode.keep', kept);
                const mine = managed === 'managed' && user === 'mine';
                const orphaned = host === 'here' && owner === 'dead' && kept === 'false';
                all.push({
                  name: [managed, foreign, user, host, `owner ${owner}`, expiry, keep].join(', '),
                  labels,
                  owner,
                  remove: mine && (expiry === 'expired' || orphaned),
                });
              }
  return all;
}

describe('judge', () => {
  it('is right about every combination', () => {
    const wrong = cases().filter(
      ({ labels, owner, remove }) => judge({ labels }, owner, asking, null).remove !== remove,
    );
    expect(wrong.map(({ name }) => name)).toEqual([]);
    expect(cases()).toHaveLength(2 * 2 * 3 * 3 * 3 * 4 * 2);
    expect(cases().filter(({ remove }) => remove).length).toBeGreaterThan(20);
  });

  it('never touches what is its own, even expired', () => {
    const labels = {
      'acode.managed': 'true',
      'acode.uid': '1000',
      'acode.host': 'here',
      'acode.owner': 'me',
      'acode.expires': '2000-01-01',
    };
    expect(judge({ labels }, 'dead', asking, null)).toEqual({ remove: false, because: 'mine' });
  });

  it.each<[Record<string, string>, OwnerState, Verdict['because']]>([
    [{}, 'dead', 'not ours'],
    [{ 'acode.managed': 'true', 'acode.uid': '5' }, 'dead', 'another user'],
    [{ 'acode.managed': 'true', 'acode.uid': '1000', 'acode.host': 'x' }, 'dead', 'another host'],
    [{ 'acode.managed': 'true', 'acode.uid': '1000', 'acode.host': 'here', 'acode.keep': 'true' }, 'dead', 'kept'],
    [{ 'acode.managed': 'true', 'acode.uid': '1000', 'acode.host': 'here' }, 'alive', 'owner lives'],
    [{ 'acode.managed': 'true', 'acode.uid': '1000', 'acode.host': 'here' }, 'unknown', 'owner unknown'],
    [{ 'acode.managed': 'true', 'acode.uid': '1000', 'acode.host': 'here' }, 'dead', 'orphaned'],
    [{ 'acode.managed': 'true', 'acode.uid': '1000', 'acode.expires': '2000-01-01' }, 'alive', 'expired'],
  ])('says why: %o with an owner that is %s: %s', (labels, owner, because) => {
    expect(judge({ labels }, owner, asking, null).because).toBe(because);
  });

  it.each<[number | null, Verdict['because']]>([
    [null, 'kept'],
    [NOW + 1, 'kept'],
    [NOW - 1, 'expired'],
  ])('holds what was kept to its lease: %s', (lease, because) => {
    const labels = { 'acode.managed': 'true', 'acode.uid': '1000', 'acode.host': 'here', 'acode.keep': 'true' };
    expect(judge({ labels }, 'dead', asking, lease).because).toBe(because);
  });

  it.each<[string | undefined, Verdict['because']]>([
    ['acode-a1b2c3d4-run-001', 'orphaned'],
    ['focused_turing', 'not ours'],
    ['', 'not ours'],
  ])('takes a container for ours only under the name its labels say: %s', (containerName, because) => {
    const mine = { 'acode.managed': 'true', 'acode.uid': '1000', 'acode.host': 'here' };
    const labels = { ...mine, 'acode.name': 'acode-a1b2c3d4-run-001' };
    const past = { 'acode.expires': '2000-01-01' };
    const found = containerName === undefined ? { labels } : { labels, containerName };
    expect(judge(found, 'dead', asking, null).because).toBe(because);
    const expired = judge({ ...found, labels: { ...labels, ...past } }, 'alive', asking, null);
    expect(expired.remove).toBe(because === 'orphaned');
    // An image’s own labels need not have a name at all.
    expect(judge({ labels: { ...mine, ...past }, containerName: 'web' }, 'dead', asking, null).because).toBe(
      'not ours',
    );
  });

  it.each([
    ['ours', null, 'dead', 'orphaned'],
    // It may have a lease in a state directory that this host does not know.
    ['theirs', null, 'dead', 'kept'],
    [undefined, null, 'dead', 'kept'],
    ['ours', NOW + 1, 'dead', 'kept'],
    ['ours', null, 'alive', 'owner lives'],
    ['ours', null, 'unknown', 'owner unknown'],
  ] as const)('takes one whose maker died before it was kept for an orphan: %s, lease %s, owner %s', (...of) => {
    const [leases, lease, owner, because] = of;
    const own = { 'acode.managed': 'true', 'acode.uid': '1000', 'acode.host': 'here', 'acode.keep': 'true' };
    const labels = { ...own, ...(leases === undefined ? {} : { 'acode.leases': leases }) };
    expect(judge({ labels }, owner, asking, lease).because).toBe(because);
  });

  it('holds no sandbox of a live owner to a lease', () => {
    const labels = { 'acode.managed': 'true', 'acode.uid': '1000', 'acode.host': 'here' };
    expect(judge({ labels }, 'alive', asking, NOW - 1).because).toBe('owner lives');
  });
});

describe('cleaning up by hand', () => {
  const STATES: readonly SandboxState[] = [
    'created',
    'running',
    'paused',
    'restarting',
    'removing',
    'exited',
    'dead',
    'unknown',
  ];
  const ENDED: ReadonlySet<SandboxState> = new Set(['exited', 'dead']);
  const WANTED = [{}, { force: true }, { allSessions: true }, { force: true, allSessions: true }];

  it.each(STATES)('is right about every verdict and option for a sandbox that is %s', state => {
    for (const wanted of WANTED) {
      const { force = false, allSessions = false } = wanted;
      const ended = ENDED.has(state);
      for (const because of ['orphaned', 'expired'] as const)
        expect(mayGo({ remove: true, because }, state, wanted)).toBe(true);
      for (const because of ['not ours', 'another user', 'another host'] as const)
        expect(mayGo({ remove: false, because }, state, wanted)).toBe(false);
      expect(mayGo({ remove: false, because: 'mine' }, state, wanted)).toBe(force || ended);
      expect(mayGo({ remove: false, because: 'kept' }, state, wanted)).toBe(force);
      // Of whom nothing is known may live.
      for (const because of ['owner lives', 'owner unknown'] as const)
        expect(mayGo({ remove: false, because }, state, wanted)).toBe(allSessions && (force || ended));
    }
  });
});
