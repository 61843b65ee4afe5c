// A process that writes audit records until it is done or killed; what it was told is written down, it prints.
// @ts-check

import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { AuditLog } from '../../packages/sandbox/dist/records/audit/log.js';
import { systemClock } from '../../packages/sandbox/dist/lifecycle/clock.js';

/** @typedef {'symlinkSync' | 'writeSync' | 'unlinkSync' | 'openSync' | 'lstatSync'} Call */
/** @typedef {{ call: Call, when: 'before' | 'half' | 'after', at: number } | { chance: number }} Death */

const [directory = '', count = '1', name = 'writer', given = '{}'] = process.argv.slice(2);
const { death, ...options } = JSON.parse(given);
const CALLS = /** @type {const} */ (['symlinkSync', 'writeSync', 'unlinkSync', 'openSync', 'lstatSync']);

function die() {
  process.kill(process.pid, 'SIGKILL');
  // The signal takes effect before this process does anything else.
  for (;;);
}

/** @param {Death} how */
function arrange(how) {
  /** @type {any} */
  const system = fs;
  let calls = 0;
  for (const call of CALLS) {
    const real = system[call];
    /** @param {any[]} words */
    system[call] = (...words) => {
      const chosen = 'chance' in how ? Math.random() < how.chance : how.call === call && (calls += 1) === how.at;
      const when = 'chance' in how ? ['before', 'half', 'after'][Math.floor(Math.random() * 3)] : how.when;
      if (chosen && when === 'before') die();
      if (chosen && when === 'half' && call === 'writeSync') {
        const bytes = Buffer.from(words[1]);
        real(words[0], bytes.subarray(0, Math.floor(bytes.length / 2)));
        die();
      }
      try {
        return real(...words);
      } finally {
        if (chosen) die();
      }
    };
  }
  syncBuiltinESMExports();
}

const log = new AuditLog({ directory, uid: process.getuid?.() ?? 0, clock: systemClock, ...options });
process.stdout.write('ready\n');
// All begin at once: the first line on standard input is the signal, the end of it too.
await new Promise(resolve => process.stdin.once('data', resolve).once('end', resolve));
process.stdin.destroy();
if (death) arrange(death);
for (let index = 0; index < Number(count); index += 1) {
  try {
    const { seq, hash } = await log.append({
      kind: 'event',
      operation: 'run',
      correlationId: `${name}-${index}`,
      event: 'written',
      detail: { filling: 'x'.repeat(index % 7 === 0 ? 900 : 200) },
    });
    process.stdout.write(`${seq}:${hash} ${name}-${index}\n`);
  } catch (error) {
    const known = error instanceof Error && 'code' in error ? `${error.code} ${error.message}` : String(error);
    process.stdout.write(`error ${known}\n`);
  }
}
await log.close();
