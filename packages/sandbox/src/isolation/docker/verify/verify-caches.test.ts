// A cache that is anything but the layer made for the sandbox is found, by the engine’s account and by the kernel’s.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { cacheSpec } from '../../../policy/caches.ts';
import type { KernelView } from '../../kernel.ts';
import { parseMountinfo } from '../../kernel.ts';
import type { MountedCache } from '../resources/cache-rules.ts';
import { cacheDifferences, wantedCaches } from './verify-caches.ts';

const VOLUMES = '/var/lib/docker/volumes';
const at = (name: string): string => `${VOLUMES}/${name}/_data`;

const planned = (fill: boolean): SandboxSpec =>
  ({
    identity: { sandboxId: 's', labels: {} },
    caches: [cacheSpec({ tool: 'npm', volume: 'acode-cache-npm-1' }, fill)],
  }) as unknown as SandboxSpec;

const layer = { lower: at('acode-cache-npm-1'), upper: at('acode-s-npm-upper'), work: at('acode-s-npm-work') };
const own: MountedCache = {
  target: '/cache/npm',
  volume: 'acode-s-npm-layer',
  mountpoint: at('acode-s-npm-layer'),
  layer,
  labels: {},
};
const whole: MountedCache = {
  target: '/cache/npm',
  volume: 'acode-cache-npm-1',
  mountpoint: at('acode-cache-npm-1'),
  layer: null,
  labels: {},
};
const overlay = (parts: Partial<typeof layer> = {}): string => {
  const { lower, upper, work } = { ...layer, ...parts };
  return `9 1 0:50 / /cache/npm rw,nosuid,nodev,relatime - overlay overlay rw,lowerdir=${lower},upperdir=${upper},workdir=${work}`;
};
const plain = (name: string): string => `9 1 8:1 /lib/docker/volumes/${name}/_data /cache/npm rw - ext4 /dev/sda1 rw`;
const seen = (line: string): KernelView => ({ mounts: parseMountinfo(line) }) as unknown as KernelView;

describe('a cache in the kernel’s account', () => {
  it('is as planned: a layer of its own, or the volume that is filled', () => {
    expect(cacheDifferences(planned(false), seen(overlay()), [own])).toEqual([]);
    expect(cacheDifferences(planned(false), seen(overlay().replace(' - ', ' master:8 - ')), [own])).toEqual([]);
    expect(cacheDifferences(planned(true), seen(plain('acode-cache-npm-1')), [whole])).toEqual([]);
  });

  it.each<[string, boolean, string, readonly MountedCache[]]>([
    ['is not mounted', false, '', [own]],
    ['is the cache itself, in place of a layer', false, plain('acode-cache-npm-1'), [own]],
    ['is another sandbox’s layer', false, overlay({ upper: at('acode-t-npm-upper') }), [own]],
    ['lies over something else', false, overlay({ lower: '/etc' }), [own]],
    ['has the work of another', false, overlay({ work: at('acode-t-npm-work') }), [own]],
    ['lets programs gain rights', false, overlay().replace('nosuid,', ''), [own]],
    ['lets devices be', false, overlay().replace('nodev,', ''), [own]],
    ['was never made', false, overlay(), []],
    ['was made as the cache itself', false, plain('acode-cache-npm-1'), [whole]],
    ['is another volume than the one to be filled', true, plain('acode-cache-npm-2'), [whole]],
    ['is a directory of the host', true, '9 1 8:1 /etc /cache/npm rw - ext4 /dev/sda1 rw', [whole]],
    ['gives mounts to the host', false, overlay().replace(' - ', ' shared:7 - '), [own]],
    ['gives mounts to the host as well', false, overlay().replace(' - ', ' shared:7 master:8 - '), [own]],
  ])('is found where it %s', (_, fill, line, made) => {
    expect(cacheDifferences(planned(fill), seen(line), made)).toMatchObject([{ violation: 'MountMismatch' }]);
  });
});

it('a cache in the engine’s account is a writable volume at the place that was made for it', () => {
  expect(wantedCaches(planned(false), { caches: [own] })).toEqual([
    { type: 'volume', source: own.mountpoint, target: '/cache/npm', writable: true, propagation: '' },
  ]);
  expect(wantedCaches(planned(false), {})).toMatchObject([{ source: '' }]);
});
