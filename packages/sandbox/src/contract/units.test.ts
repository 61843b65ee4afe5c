// Sizes for people.

import { expect, it } from 'vitest';
import { formatBytes } from './units.ts';

it.each([
  [0, '0 bytes'],
  [1, '1 byte'],
  [2, '2 bytes'],
  [1024, '1 KiB'],
  [1536, '1.5 KiB'],
])('%i is %s', (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});
