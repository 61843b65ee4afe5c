// Shows that an absent file is told apart from one that cannot be read.
import { mkdtempSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { thisHost } from './locate-host.ts';

const directory = mkdtempSync(join(tmpdir(), 'locate-host-'));
afterEach(() => rm(directory, { recursive: true, force: true }));

describe('thisHost', () => {
  it('reads what is there, says what is not, and throws at the rest', () => {
    const file = join(directory, 'config.json');
    writeFileSync(file, '{}');
    const host = thisHost();
    expect(host.exists(file)).toBe(true);
    expect(host.readFile(file)).toBe('{}');
    expect(host.readFile(join(directory, 'absent'))).toBeUndefined();
    expect(host.readFile(join(file, 'below'))).toBeUndefined();
    expect(() => host.readFile(directory)).toThrow('EISDIR');
  });
});
