// `npm test`: the unit tests always, the tests on real engines where this machine has them and this user may use them.
// @ts-check

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const ENGINES = '/run/acode-engines/engines.json';
const VITEST = fileURLToPath(new URL('../node_modules/vitest/vitest.mjs', import.meta.url));

/** Why the tests on real engines cannot run here, and what to do about it; null where they can. */
function obstacle() {
  if (!existsSync(ENGINES)) return 'no engine is up; `npm run engines:up` starts them';
  if (process.getuid?.() === 0) return 'acode never runs as root; use `.ci/engines/as-user -- npm test`';
  return null;
}

/**
 * Runs projects of vitest.config.ts; arguments of `npm test -- …` reach it.
 *
 * @param {...string} projects
 */
function run(...projects) {
  const { status, error } = spawnSync(
    process.execPath,
    [VITEST, 'run', ...projects.flatMap(project => ['--project', project]), ...process.argv.slice(2)],
    { stdio: 'inherit' },
  );
  if (error) throw error;
  // Without a status it was killed by a signal.
  return status ?? 1;
}

const skipped = obstacle();
const statuses = [run('unit')];
if (skipped === null) statuses.push(run('real', 'shared', 'alone'));
else console.error(`\nSKIPPED every test in tests/, which needs a real engine: ${skipped}.`);
process.exitCode = Math.max(...statuses);
