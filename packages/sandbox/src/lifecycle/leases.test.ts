// A lease says how long a kept sandbox may exist, and can be changed; what cannot be read is no lease.

import { randomUUID } from 'node:crypto';
import { mkdtempSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Leases } from './leases.ts';

const state = () => mkdtempSync(join(tmpdir(), 'acode-leases-'));

it('is read as it was last granted, and only its owner can read it', async () => {
  const directory = state();
  const leases = new Leases(directory);
  const id = randomUUID();
  expect(await leases.read(id)).toBeNull();
  await leases.grant(id, new Date(1000));
  await leases.grant(id, new Date(2000));
  expect(await leases.read(id)).toBe(2000);
  expect(readdirSync(join(directory, 'leases'))).toEqual([id]);
  expect(statSync(join(directory, 'leases')).mode & 0o077).toBe(0);
});

it('is never looked for outside its directory', async () => {
  const directory = state();
  writeFileSync(join(directory, 'x'), new Date(1000).toISOString());
  const leases = new Leases(directory);
  expect(await leases.read('../x')).toBeNull();
  await expect(leases.grant('../x', new Date(0))).rejects.toThrow('is not the id of a sandbox');
});

it('that cannot be understood is none', async () => {
  const directory = state();
  const leases = new Leases(directory);
  const id = randomUUID();
  await leases.grant(id, new Date(1000));
  writeFileSync(join(directory, 'leases', id), 'soon');
  expect(await leases.read(id)).toBeNull();
});

it('ends with its sandbox', async () => {
  const leases = new Leases(state());
  const [gone, there] = [randomUUID(), randomUUID()];
  await leases.grant(gone, new Date(1000));
  await leases.grant(there, new Date(1000));
  await leases.prune(new Set([there]));
  expect([await leases.read(gone), await leases.read(there)]).toEqual([null, 1000]);
});
