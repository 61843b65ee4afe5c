// Checksum of a project image: every input counts, and a change can be attributed to its input.

import { expect, it } from 'vitest';
import { NO_INSTALL, changedSince, checksumOf, partsText, wasInstalled } from './checksum.ts';

const INPUTS = { base: 'b', template: 't', install: 'i', ignore: 'g', lockfiles: 'l', context: 'c' };
const NAMES = ['base', 'template', 'install', 'ignore', 'lockfiles', 'context'] as const;

it('is the same for the same inputs', () => {
  expect(checksumOf({ ...INPUTS })).toEqual(checksumOf(INPUTS));
  expect(changedSince(partsText(checksumOf(INPUTS)), checksumOf(INPUTS))).toEqual([]);
});

it.each(NAMES)('is another one where %s is, and says so', name => {
  const other = checksumOf({ ...INPUTS, [name]: 'other' });
  expect(other.whole).not.toBe(checksumOf(INPUTS).whole);
  expect(changedSince(partsText(checksumOf(INPUTS)), other)).toEqual([name]);
});

it('has changed in everything where there was none before', () => {
  expect(changedSince(undefined, checksumOf(INPUTS))).toEqual(NAMES);
  expect(changedSince('nonsense', checksumOf(INPUTS))).toEqual(NAMES);
});

it('tells whether an install command had a part in it', () => {
  expect(wasInstalled(partsText(checksumOf(INPUTS)))).toBe(true);
  expect(wasInstalled(partsText(checksumOf({ ...INPUTS, install: NO_INSTALL })))).toBe(false);
  expect(wasInstalled(undefined)).toBe(false);
});
