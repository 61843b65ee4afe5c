// Fingerprints bind a record to what ran, and show nothing of it.

import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Fingerprints } from './log.ts';

const uid = process.getuid?.() ?? 0;

describe('Fingerprints', () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'acode-fingerprint-'));
  });
  afterEach(() => rmSync(directory, { recursive: true }));

  it('are the same for the same value in every process, and different for any other', async () => {
    const [one, other] = [new Fingerprints(directory, uid), new Fingerprints(directory, uid)];
    const first = await one.of({ command: ['a', 'b'], cwd: '.' });
    expect(await other.of({ cwd: '.', command: ['a', 'b'] })).toBe(first);
    expect(await one.of({ command: ['a b'], cwd: '.' })).not.toBe(first);
    expect(await one.of({ command: ['a', 'b'], cwd: 'x' })).not.toBe(first);
    expect(first).toMatch(/^[0-9a-f]{64}$/);
  });

  it('are of no use to who has another key', async () => {
    const elsewhere = mkdtempSync(join(tmpdir(), 'acode-fingerprint-'));
    expect(await new Fingerprints(elsewhere, uid).of('x')).not.toBe(await new Fingerprints(directory, uid).of('x'));
    rmSync(elsewhere, { recursive: true });
  });

  it('come from one key, also where many make it at once, which is its owner’s alone', async () => {
    const all = Array.from({ length: 16 }, () => new Fingerprints(directory, uid).of('x'));
    expect(new Set(await Promise.all(all)).size).toBe(1);
    expect(readdirSync(directory)).toEqual(['command.key']);
    expect(statSync(join(directory, 'command.key')).mode & 0o777).toBe(0o600);
  });

  it('are refused where the key is damaged', async () => {
    writeFileSync(join(directory, 'command.key'), 'short');
    await expect(new Fingerprints(directory, uid).of('x')).rejects.toThrow('is not a key that only its owner can read');
  });
});
