// `npm run bench:forks`: what forks of workspaces cost, each figure beside a direct mount in the same run, interleaved with it.
// Prints a line `FIGURE …` for each. Run it as an ordinary user.
// @ts-check

import { chmodSync, existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { readArguments } from './arguments.mjs';
import { Context } from './context.mjs';
import { overshoot } from './forks/overshoot.mjs';
import { packages } from './forks/packages.mjs';
import { diskOfFork, large, parallel, undoing } from './forks/trees.mjs';
import { cpuTime, placesHere, stolenSince } from './places.mjs';
import { reasonOf } from './rounds.mjs';

/** @typedef {import('./places.mjs').Place} Place */

/**
 * What a measurement works with.
 *
 * @typedef {object} Bench
 * @property {Context} context
 * @property {Place} place
 * @property {number} rounds
 * @property {number} files How many files the large tree has.
 * @property {(line: string) => void} figure Prints a figure.
 */

const MEASUREMENTS = { large, parallel, disk: diskOfFork, undo: undoing, packages, overshoot };

const USAGE = `npm run bench:forks -- NAME… [options]

  NAME              ${Object.keys(MEASUREMENTS).join(', ')}
  --place NAME      docker28, docker20, "docker20 gvisor", podman or bubblewrap (docker28)
  --rounds N        rounds of what is interleaved (each measurement has its own number)
  --files N         files of the large tree (1000000)`;

const MAX_MS = 2 * 3_600_000;

process.exitCode = await main().catch(error => {
  console.error(`bench: ${reasonOf(error)}`);
  return 2;
});

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      help: { type: 'boolean', default: false },
      place: { type: 'string', default: 'docker28' },
      rounds: { type: 'string' },
      files: { type: 'string', default: '1000000' },
    },
  });
  const names = Object.keys(MEASUREMENTS);
  if (values.help || positionals.length === 0 || positionals.some(name => !names.includes(name))) {
    console.log(USAGE);
    return values.help ? 0 : 2;
  }
  if (process.getuid?.() === 0)
    throw new Error('acode never runs as root: use `.ci/engines/as-user -- npm run bench:forks`');
  const asked = readArguments(['--only', values.place]);
  const [place] = placesHere(asked).filter(({ name }) => name === values.place);
  if (!place) throw new Error(`nothing here has the name ${values.place}`);
  const rounds = values.rounds === undefined ? Number.NaN : Number(values.rounds);
  return measure(asked, place, { names: positionals, rounds, files: Number(values.files) });
}

/**
 * @param {import('./arguments.mjs').Asked} asked
 * @param {Place} place
 * @param {{ names: readonly string[], rounds: number, files: number }} of
 */
async function measure(asked, place, { names, rounds, files }) {
  const interrupted = new AbortController();
  for (const name of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']))
    process.once(name, () => interrupted.abort(new Error(name)));
  const context = await Context.open({ asked, signal: interrupted.signal, deadlineMs: MAX_MS });
  const cpu = cpuTime();
  const figure = (/** @type {string} */ line) => console.log(`FIGURE ${line} (${place.name})`);
  try {
    for (const [name, work] of Object.entries(MEASUREMENTS))
      if (names.includes(name)) await work({ context, place, rounds, files, figure });
    console.log(`FIGURE CPU steal ${Math.round(stolenSince(cpu) * 100)} %`);
  } finally {
    openUp(context.top);
    await context.close([place]);
  }
  for (const complaint of context.complaints) console.error(complaint);
  return context.complaints.length > 0 ? 1 : 0;
}

// A kernel without an engine leaves a directory without any permission in each work directory.
/** @param {string} top */
function openUp(top) {
  for (const user of readdirSync(top).filter(name => /^u\d+$/.test(name))) {
    const store = join(top, user, 'state/acode/f');
    if (!existsSync(store)) continue;
    for (const fork of readdirSync(store)) {
      const work = join(store, fork, 'b/work');
      if (existsSync(work)) chmodSync(work, 0o700);
    }
  }
}
