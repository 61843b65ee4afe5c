// Shows what a pull asks for.
import { describe, expect, it } from 'vitest';
import { splitReference } from './reference.ts';

const digest = `sha256:${'a'.repeat(64)}`;

describe('splitReference', () => {
  it.each([
    ['alpine', 'alpine', 'latest'],
    ['alpine:3', 'alpine', '3'],
    ['library/alpine:3.19', 'library/alpine', '3.19'],
    ['127.0.0.1:5000/a/b', '127.0.0.1:5000/a/b', 'latest'],
    ['127.0.0.1:5000/a/b:1', '127.0.0.1:5000/a/b', '1'],
    [`alpine@${digest}`, 'alpine', digest],
    [`127.0.0.1:5000/a:1@${digest}`, '127.0.0.1:5000/a', digest],
  ])('%s', (reference, name, version) => {
    expect(splitReference(reference)).toEqual({ name, version });
  });
});
