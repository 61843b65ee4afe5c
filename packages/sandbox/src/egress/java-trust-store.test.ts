// The trust store for Java: its bytes, and where a JDK is installed, what its own tool reads in it.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { describe, expect, it } from 'vitest';
import { javaTrustStore } from './java-trust-store.ts';

const PEM = rootCertificates.slice(0, 3).join('\n');

describe('a trust store for Java', () => {
  it('has every certificate, and is the same for the same ones', () => {
    const store = javaTrustStore(`comment\n${PEM}\n`);
    expect([store.readUInt32BE(0), store.readUInt32BE(4), store.readUInt32BE(8)]).toEqual([0xfeedfeed, 2, 3]);
    expect(javaTrustStore(PEM).equals(store)).toBe(true);
    expect(javaTrustStore('').length).toBe(12 + 20);
  });

  it.skipIf(!hasKeytool())('is read by keytool, whose check of the whole file passes', () => {
    const directory = mkdtempSync(join(tmpdir(), 'acode-jks-'));
    try {
      writeFileSync(join(directory, 'store'), javaTrustStore(PEM));
      const words = ['-list', '-keystore', join(directory, 'store'), '-storepass', 'changeit'];
      const listed = execFileSync('keytool', words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
      expect(listed.match(/trustedCertEntry/g)).toHaveLength(3);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });
});

function hasKeytool(): boolean {
  try {
    execFileSync('keytool', ['-help'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
