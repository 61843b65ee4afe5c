// Builds the library and the command, and prints each step with the seconds it took. A failed step prints its own output.

import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');

/** @type {readonly [step: string, program: string, ...argv: string[]][]} */
const STEPS = [
  [
    'compile libraries and command',
    join(root, 'node_modules', '.bin', 'tsc'),
    '-b',
    'packages/sandbox',
    'packages/agents',
    'packages/swarm',
    'packages/fleet',
    'packages/cli',
  ],
  ['bundle the adapter of a swarm’s sandboxes', process.execPath, 'scripts/swarm-adapter.mjs'],
  ['bundle the command', process.execPath, 'scripts/bundle-cli.mjs'],
];

/** @param {number} from */
const secondsSince = from => `${((performance.now() - from) / 1000).toFixed(1)} s`;

const began = performance.now();
for (const [at, [step, program, ...argv]] of STEPS.entries()) {
  const from = performance.now();
  process.stdout.write(`[${at + 1}/${STEPS.length}] ${step} … `);
  const { status, stdout, stderr, error } = spawnSync(program, argv, { cwd: root, encoding: 'utf8' });
  if (status !== 0) {
    process.stdout.write('failed\n');
    process.stderr.write(`${stdout ?? ''}${stderr ?? ''}${error ? `${error.message}\n` : ''}`);
    process.exit(status ?? 1);
  }
  process.stdout.write(`${secondsSince(from)}${stdout.trim() === '' ? '' : ` (${stdout.trim()})`}\n`);
}
process.stdout.write(`Built in ${secondsSince(began)}. The command is packages/cli/bin/acode.js.\n`);
