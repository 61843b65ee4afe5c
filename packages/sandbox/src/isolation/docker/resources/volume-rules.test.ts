// The volumes of caches as requests, and what is wrong with a volume that only has the name of one.

import { describe, expect, it } from 'vitest';
import type { CacheSpec } from '../../../contract/caches.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import {
  cacheFault,
  cacheMount,
  cacheRequest,
  layerName,
  mountpointOf,
  ownedDirectory,
  partRequest,
} from './volume-rules.ts';

const cache: CacheSpec = {
  tool: 'npm',
  volume: 'acode-cache-npm-1001',
  target: '/cache/npm',
  fill: false,
  environment: { npm_config_cache: '/cache/npm/data' },
};
const labels = { 'acode.managed': 'true', 'acode.keep': 'true', 'acode.cache': 'npm', 'acode.uid': '1001' };
const spec = {
  identity: { sandboxId: 's1', labels: { 'acode.uid': '1001', 'acode.owner': 'o', 'acode.host': 'h' } },
  user: { uid: 1001, gid: 1002 },
  caches: [cache],
} as unknown as SandboxSpec;

describe('a cache', () => {
  it('is kept on purpose and has no owner that could die', () => {
    const request = cacheRequest(spec, cache);
    expect(request).toMatchObject({ Name: 'acode-cache-npm-1001', Driver: 'local', DriverOpts: {} });
    expect(request['Labels']).toMatchObject(labels);
    expect(request['Labels']).not.toHaveProperty('acode.owner');
  });

  it('is mounted as a layer of the sandbox’s own, and as itself only to be filled', () => {
    expect(cacheMount(spec, cache)).toMatchObject({ Type: 'volume', Source: 'acode-s1-npm-layer', ReadOnly: false });
    expect(cacheMount(spec, { ...cache, fill: true })).toMatchObject({ Source: 'acode-cache-npm-1001' });
  });

  it('is known as ours even where the engine has to make it anew: the mount carries its labels', () => {
    const made = [{ target: '/cache/npm', labels: { 'acode.nonce': 'n', 'acode.managed': 'true' } }];
    expect(cacheMount(spec, cache, made)).toMatchObject({
      VolumeOptions: { NoCopy: true, Labels: { 'acode.nonce': 'n', 'acode.managed': 'true' } },
    });
    expect(cacheMount(spec, cache)).toMatchObject({
      VolumeOptions: { Labels: { 'acode.owner': 'o', 'acode.keep': 'false', 'acode.cache-layer': cache.volume } },
    });
    expect(cacheMount(spec, { ...cache, fill: true })).toMatchObject({ VolumeOptions: { Labels: labels } });
  });

  it('has layers that go with their session', () => {
    const request = partRequest(spec, cache, 'layer', { nonce: 'n', layer: { lower: '/l', upper: '/u', work: '/w' } });
    expect(request).toMatchObject({
      Name: layerName(spec, cache, 'layer'),
      DriverOpts: { type: 'overlay', device: 'overlay', o: 'lowerdir=/l,upperdir=/u,workdir=/w,nosuid,nodev' },
      Labels: { 'acode.owner': 'o', 'acode.keep': 'false', 'acode.nonce': 'n' },
    });
  });

  it.each([
    ['nothing', {}, null],
    ['a stranger', { Labels: {} }, 'not made by acode'],
    ['another tool', { Labels: { ...labels, 'acode.cache': 'pip' } }, 'not made by acode'],
    ['another user', { Labels: { ...labels, 'acode.uid': '7' } }, 'another user'],
    ['a directory of the host', { Options: { type: 'none', o: 'bind', device: '/etc' } }, 'somewhere else'],
    ['another driver', { Driver: 'nfs' }, 'somewhere else'],
  ])('is refused for %s', (_, change, fault) => {
    const found = { Name: cache.volume, Driver: 'local', Labels: labels, Options: null, ...change };
    const said = cacheFault(found, cache, '1001');
    if (fault === null) expect(said).toBeNull();
    else expect(said).toContain(fault);
  });

  it.each(['', 'relative', '/a,upperdir=/etc', '/a:b', '/a b', '/a\\b'])(
    'is not layered where the engine’s path %j would be an option',
    Mountpoint => {
      expect(() => mountpointOf({ Name: 'v', Driver: 'local', Mountpoint })).toThrow(
        expect.objectContaining({ code: 'ACODE-SBX-001' }),
      );
      expect(mountpointOf({ Name: 'v', Driver: 'local', Mountpoint: '/var/lib/docker/volumes/v/_data' })).toContain(
        'v',
      );
    },
  );
});

describe('a directory for the user inside', () => {
  const octal = (tar: Buffer, at: number): number => Number.parseInt(tar.toString('latin1', at, at + 7), 8);

  it('is one entry with owner and mode, and a sum that holds', () => {
    const tar = ownedDirectory('data', { uid: 1001, gid: 1002 });
    expect(tar).toHaveLength(1536);
    expect(tar.toString('latin1', 0, 5)).toBe('data/');
    expect([octal(tar, 100), octal(tar, 108), octal(tar, 116)]).toEqual([0o700, 1001, 1002]);
    const sum = tar.subarray(0, 512).reduce((total, byte, at) => total + (at >= 148 && at < 156 ? 32 : byte), 0);
    expect(Number.parseInt(tar.toString('latin1', 148, 154), 8)).toBe(sum);
  });

  it('has room for the largest number of a user', () => {
    const tar = ownedDirectory('data', { uid: 2 ** 31 - 1, gid: 5 });
    expect(tar[108]).toBe(0x80);
    expect(tar.readUIntBE(110, 6)).toBe(2 ** 31 - 1);
  });
});
