// Names are DNS labels that can be read back, whatever the ids look like.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { containerName, parseName } from './session.ts';

const SESSION = 'a1b2c3d4-0000-4000-8000-000000000000';
const DNS_LABEL = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

describe('containerName', () => {
  it('is acode-{session}-{task}-{sequence} with both parts present', () => {
    expect(containerName({ session: SESSION, task: 'build', sequence: 1 })).toBe('acode-a1b2c3d4-build-001');
  });

  it('takes another prefix, also one with hyphens', () => {
    const name = containerName({ prefix: 'my-team', session: SESSION, task: 'build', sequence: 12 });
    expect(name).toBe('my-team-a1b2c3d4-build-012');
    expect(parseName(name, 'my-team')).toEqual({ session: 'a1b2c3d4', task: 'build-012' });
  });

  it('turns characters outside the set into single hyphens and trims the ends', () => {
    expect(containerName({ session: SESSION, task: '__Ünit//Test!!', sequence: 1 })).toBe(
      'acode-a1b2c3d4-nit-test-001',
    );
    expect(containerName({ session: SESSION, task: '***', sequence: 1 })).toBe('acode-a1b2c3d4-x-001');
  });

  it('gives a session id that people chose a hash, so that two that begin alike differ', () => {
    const one = containerName({ session: 'my-project-1', task: 't', sequence: 1 });
    const two = containerName({ session: 'my-project-2', task: 't', sequence: 1 });
    expect(one).not.toBe(two);
    expect(parseName(one)?.session).toHaveLength(8);
  });

  it('cuts overlong tasks to 63 characters and keeps them apart by a hash', () => {
    const one = containerName({ session: SESSION, task: `${'x'.repeat(500)}1`, sequence: 1 });
    const two = containerName({ session: SESSION, task: `${'x'.repeat(500)}2`, sequence: 1 });
    expect(one.length).toBe(63);
    expect(one).not.toBe(two);
  });

  it('drops a hyphen at the cut', () => {
    const name = containerName({ session: SESSION, task: 'ab-'.repeat(60), sequence: 1 });
    expect(name).not.toContain('--');
  });

  it('is a DNS label of at most 63 characters, the same for the same input, and reads back, for any ids', () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), fc.integer({ min: 1, max: 99_999 }), (session, task, sequence) => {
        const name = containerName({ session, task, sequence });
        expect(name).toMatch(DNS_LABEL);
        expect(name.length).toBeLessThanOrEqual(63);
        expect(containerName({ session, task, sequence })).toBe(name);
        const parsed = parseName(`/${name}`);
        expect(`acode-${parsed?.session}-${parsed?.task}`).toBe(name);
      }),
    );
  });
});

describe('parseName', () => {
  it.each([
    'my-acode-db',
    'acode',
    'acode-',
    'acode-a1b2',
    'acode-A1B2-x',
    'acode-a1-x-',
    `acode-a1-${'x'.repeat(70)}`,
  ])('does not take %s for one of ours', name => {
    expect(parseName(name)).toBeNull();
  });
});
