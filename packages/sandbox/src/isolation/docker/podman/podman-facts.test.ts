// The system call filter as a file: whole, unchanged and its owner’s alone, or no sandbox.

import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { AcodeError } from '../../../contract/errors.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { podmanFacts, writeFilter } from './podman-facts.ts';

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'acode-filter-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const spec = { identity: { name: 'n', sandboxId: 'i', labels: {}, correlationId: 'c' } } as unknown as SandboxSpec;

it('is written once, also by many at a time, and put right where somebody changed it', async () => {
  const { filterFile } = podmanFacts(join(directory, 'new'), '{"a":1}');
  await Promise.all(Array.from({ length: 20 }, () => writeFilter(filterFile, '{"a":1}', spec)));
  expect(readFileSync(filterFile, 'utf8')).toBe('{"a":1}');
  expect(statSync(filterFile).mode & 0o777).toBe(0o600);
  expect(readdirSync(join(directory, 'new'))).toHaveLength(1);
  const before = statSync(filterFile).mtimeMs;
  await writeFilter(filterFile, '{"a":1}', spec);
  expect(statSync(filterFile).mtimeMs).toBe(before);
  writeFileSync(filterFile, '{}');
  await writeFilter(filterFile, '{"a":1}', spec);
  expect(readFileSync(filterFile, 'utf8')).toBe('{"a":1}');
});

it('has another name for another content', () => {
  expect(podmanFacts('/d', 'x').filterFile).not.toBe(podmanFacts('/d', 'y').filterFile);
});

it('keeps a sandbox from being made where it cannot be written', async () => {
  const { filterFile } = podmanFacts(join(directory, 'taken'), 'x');
  mkdirSync(filterFile, { recursive: true });
  const failure: unknown = await writeFilter(filterFile, 'x', spec).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(AcodeError);
  expect(failure).toMatchObject({ code: 'ACODE-SBX-001', message: expect.stringContaining('system call filter') });
});

it('asks for no more processes than the kernel has numbers for', () => {
  const most = Number(readFileSync('/proc/sys/kernel/pid_max', 'utf8'));
  const { mostProcesses } = podmanFacts('/d', 'x');
  expect(mostProcesses).toBeGreaterThan(0);
  expect(mostProcesses).toBeLessThanOrEqual(most);
});
