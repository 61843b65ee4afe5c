// Caches: which ones are in use on the engine, and which belong to the user.

import { expect, it } from 'vitest';
import { cacheVolumesOf, cachesInUse } from './inventory.ts';

it('a cache is in use while a layer lies over it and while it is filled, and by nothing else', () => {
  const labelled = (labels: Record<string, string>): { labels: Record<string, string> } => ({ labels });
  const used = cachesInUse([
    labelled({ 'acode.managed': 'true', 'acode.cache-layer': 'read' }),
    labelled({ 'acode.managed': 'true', 'acode.cache-filling': 'filled' }),
    labelled({ 'acode.managed': 'true', 'acode.cache': 'npm' }),
    labelled({}),
  ]);
  expect([...used].sort()).toEqual(['filled', 'read']);
});

it('the caches of a user are volumes that are labelled as such, in order, and nobody else’s', () => {
  const one = (kind: 'network' | 'volume', name: string, labels: Record<string, string>) => ({
    kind,
    id: name,
    name,
    labels,
  });
  const mine = { 'acode.cache': 'npm', 'acode.uid': '1001' };
  const found = cacheVolumesOf(
    [
      one('volume', 'pip', mine),
      one('volume', 'npm', mine),
      one('volume', 'theirs', { ...mine, 'acode.uid': '1002' }),
      one('volume', 'layer', { 'acode.cache-layer': 'npm', 'acode.uid': '1001' }),
      one('network', 'net', mine),
    ],
    1001,
  );
  expect(found).toEqual(['npm', 'pip']);
});
