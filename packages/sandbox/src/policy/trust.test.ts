// Trust: for exactly one content at exactly one path, and granted only by the user.

import {
  chmodSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { TrustStore } from './trust.ts';

const uid = process.getuid?.() ?? 0;
const DATE = new Date('2026-01-02T03:04:05Z');

function store() {
  const state = mkdtempSync(join(tmpdir(), 'acode-trust-'));
  const trust = new TrustStore(state, uid);
  const record = () => join(state, 'trust', readdirSync(join(state, 'trust'))[0] ?? '');
  return { state, trust, record };
}

describe('TrustStore', () => {
  it('trusts nothing that was not granted, and no longer than it was', async () => {
    const { trust } = store();
    expect(await trust.isTrusted('/a', 'h')).toBe(false);
    await trust.revoke('/a');
    await trust.grant('/a', 'h', DATE);
    expect(await trust.isTrusted('/a', 'h')).toBe(true);
    await trust.revoke('/a');
    expect(await trust.isTrusted('/a', 'h')).toBe(false);
  });

  it('trusts no other content and no other place', async () => {
    const { trust } = store();
    await trust.grant('/a', 'h', DATE);
    expect(await trust.isTrusted('/a', 'other')).toBe(false);
    expect(await trust.isTrusted('/b', 'h')).toBe(false);
    await trust.grant('/a', 'other', DATE);
    expect(await trust.isTrusted('/a', 'h')).toBe(false);
    expect(await trust.isTrusted('/a', 'other')).toBe(true);
  });

  it('keeps its records to the user, whole, and leaves no drafts', async () => {
    const { state, trust, record } = store();
    await Promise.all([trust.grant('/a', 'h', DATE), trust.grant('/a', 'h', DATE), trust.grant('/a', 'h', DATE)]);
    expect(readdirSync(join(state, 'trust'))).toHaveLength(1);
    expect(statSync(join(state, 'trust')).mode & 0o777).toBe(0o700);
    expect(statSync(record()).mode & 0o777).toBe(0o600);
    expect(JSON.parse(readFileSync(record(), 'utf8'))).toEqual({ path: '/a', hash: 'h', date: DATE.toISOString() });
  });

  it('counts no record that another could have written, that is a link, or that says something else', async () => {
    const { state, trust, record } = store();
    await trust.grant('/a', 'h', DATE);
    const file = record();
    const text = readFileSync(file, 'utf8');
    chmodSync(file, 0o622);
    expect(await trust.isTrusted('/a', 'h')).toBe(false);
    chmodSync(file, 0o600);
    expect(await trust.isTrusted('/a', 'h')).toBe(true);
    expect(await new TrustStore(state, uid + 1).isTrusted('/a', 'h')).toBe(false);
    renameSync(file, `${file}.real`);
    symlinkSync(`${file}.real`, file);
    expect(await trust.isTrusted('/a', 'h')).toBe(false);
    renameSync(`${file}.real`, file);
    for (const other of [
      '',
      '{',
      '[]',
      text.replace('/a', '/b'),
      text.replace('}', ',"more":1}'),
      ' '.repeat(20_000) + text,
    ]) {
      writeFileSync(file, other);
      expect(await trust.isTrusted('/a', 'h')).toBe(false);
    }
  });
});
