// A lease says how long a kept sandbox may exist, and can be changed; what cannot be read is no lease.

import { randomUUID } from 'node:crypto';
import { mkdtempSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Leases } from './ownership.ts';

const state = () => mkdtempSync(join(tmpdir(), 'acode-leases-'));

it('is read as it was last granted, and only its owner can read it', async () => {
  const directory = state();
  const leases = new Leases(directory);
  const id = randomUUID();
  expect(leases.read(id)).toBeNull();
  await leases.grant(id, new Date(1000));
  await leases.grant(id, new Date(2000));
  expect(leases.read(id)).toBe(2000);
  expect(readdirSync(join(directory, 'leases'))).toEqual([id]);
  expect(statSync(join(directory, 'leases')).mode & 0o077).toBe(0);
});

it('is never searched outside its directory', async () => {
  const directory = state();
  writeFileSync(join(directory, 'x'), new Date(1000).toISOString());
  const leases = new Leases(directory);
  expect(leases.read('../x')).toBeNull();
  await expect(leases.grant('../x', new Date(0))).rejects.toThrow('is not the id of a sandbox');
});

it('that cannot be understood is none', async () => {
  const directory = state();
  const leases = new Leases(directory);
  const id = randomUUID();
  await leases.grant(id, new Date(1000));
  writeFileSync(join(directory, 'leases', id), 'soon');
  expect(leases.read(id)).toBeNull();
  expect(leases.isCurrent(id, 0)).toBe(false);
});

it('is current only until its time, whatever else is left of its sandbox', async () => {
  const directory = state();
  const leases = new Leases(directory);
  const id = randomUUID();
  expect(leases.isCurrent(id, 0)).toBe(false);
  await leases.grant(id, new Date(2000));
  expect(leases.isCurrent(id, 1999)).toBe(true);
  expect(leases.isCurrent(id, 2000)).toBe(false);
  expect(leases.isCurrent('../x', 0)).toBe(false);
});

it('is dropped when its sandbox no longer exists and every possible lease has expired, but not because it is on another engine', async () => {
  const directory = state();
  const leases = new Leases(directory);
  const [gone, there, elsewhere, strange] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
  const now = Date.parse('2030-01-10');
  const [old, recent] = [new Date(now - 26 * 3600_000), new Date(now - 3600_000)];
  await leases.grant(gone, old);
  await leases.grant(there, old);
  await leases.grant(elsewhere, recent);
  writeFileSync(join(directory, 'leases', strange), 'soon');
  await leases.prune(new Set([there]), now);
  expect(new Set(readdirSync(join(directory, 'leases')))).toEqual(new Set([there, elsewhere]));
});
