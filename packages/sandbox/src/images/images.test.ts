// Image prune: the images it may remove, and those it must not.

import { describe, expect, it } from 'vitest';
import { judge } from './images.ts';
import type { StoredImage } from '../isolation/backend.ts';
import type { PulledEntry } from './pulls.ts';

const ID = `sha256:${'a'.repeat(64)}`;
const entry: PulledEntry = {
  engine: 'e',
  reference: 'docker.io/library/node:20-alpine',
  id: ID,
  digest: ID,
  brought: true,
  pulledAt: 1,
  lastUsedAt: 1,
};
const image: StoredImage = {
  id: ID,
  tags: ['node:20-alpine'],
  digests: [],
  sizeBytes: 1,
  createdAt: '',
  containers: 0,
};

describe('an image that was not used for long', () => {
  it('is removed if acode pulled it', () => {
    expect(judge(entry, image, 2)).toEqual({ remove: true });
  });

  it('loses the further name that acode gave it, and never its only one', () => {
    const named = { ...entry, brought: false, named: true };
    expect(judge(named, { ...image, tags: ['node:20-alpine', 'mine:1'] }, 2)).toEqual({ remove: true });
    expect(judge(named, image, 2)).toEqual({
      remove: false,
      reason: 'it is the only name of an image that acode did not pull',
    });
  });

  it.each([
    ['its name means another image now', { tags: ['node:22'] }],
    ['a container uses it', { containers: 1 }],
  ])('is not removed if %s', (reason, more) => {
    expect(judge(entry, { ...image, ...more }, 2)).toEqual({ remove: false, reason });
  });
});

it('an image that was used lately is not removed', () => {
  expect(judge(entry, image, 0)).toEqual({ remove: false, reason: 'it was used not long ago' });
});
