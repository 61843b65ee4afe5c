// Starts a sandbox, tries to read the host’s passwords in it, and fails unless that failed without a byte of output.
// Usage: node scripts/verify-sandbox-isolation.mjs   (ACODE_IMAGE names the image; else the configured one)
// @ts-check

import { mkdtempSync, rmSync } from 'node:fs';
import { Acode } from '../packages/sandbox/dist/index.js';

const image = process.env['ACODE_IMAGE'];
const policy = image ? { image } : {};
const workspace = mkdtempSync('/var/tmp/acode-isolation-');

const acode = await Acode.open({ workspace });
try {
  // The control: without it, a sandbox in which nothing works would pass.
  const control = await acode.run(['cat', '/proc/version'], { policy });
  const attempt = await acode.run(['cat', '/etc/shadow'], { policy });
  const works = control.exitCode === 0 && control.stdout !== '';
  const isolated = attempt.exitCode !== 0 && attempt.stdout === '';
  if (!works || !isolated) {
    console.error({ control: control.exitCode, attempt: attempt.exitCode, bytes: attempt.stdout.length });
    process.exitCode = 1;
  } else {
    console.log(`isolated at level ${attempt.level}`);
  }
} finally {
  await acode.close();
  rmSync(workspace, { recursive: true, force: true });
}
