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
  // The controls: a sandbox in which nothing works would pass, and so would an image in which there is nothing to read.
  const control = await acode.run(['cat', '/etc/passwd'], { policy });
  const there = await acode.run('test -e /etc/shadow', { policy });
  const attempt = await acode.run(['cat', '/etc/shadow'], { policy });
  if (control.exitCode !== 0 || control.stdout === '') fail('no file could be read at all');
  else if (there.exitCode !== 0)
    fail('the image has no /etc/shadow, so that reading it shows nothing: use another one');
  else if (attempt.exitCode === 0 || attempt.stdout !== '') fail(`${attempt.stdout.length} characters were read`);
  else console.log(`isolated at level ${attempt.level}`);
} finally {
  await acode.close();
  rmSync(workspace, { recursive: true, force: true });
}

/** @param {string} reason */
function fail(reason) {
  console.error(`not shown to be isolated: ${reason}`);
  process.exitCode = 1;
}
