// `npm run bench:compare -- DIRECTORY`: this tree beside another built one, such as an older commit, interleaved in one run: a cold
// sandbox, a warm one, and the start of the command. Prints a line `FIGURE …` for each. Run it as an ordinary user; build both first.
// @ts-check

import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { readArguments } from './arguments.mjs';
import { percentile } from './figures.mjs';
import { cpuTime, placesHere, stolenSince } from './places.mjs';
import { interleave, pause, reasonOf } from './rounds.mjs';

/** @typedef {import('./rounds.mjs').Contender<number>} Contender */
/** @typedef {import('@acode/sandbox').Acode} Acode */
/** @typedef {Record<'cold' | 'warm' | 'command start' | 'cold command', Contender[]>} Groups */

const HERE = fileURLToPath(new URL('..', import.meta.url));
const POOL = { min: 2, max: 2, idleMs: 3_600_000 };
const MAX_MS = 1_800_000;
const TURN_MS = 60_000;
// For the pool to be full again, and for what was used to be removed.
const SETTLED_MS = 400;

const USAGE = `npm run bench:compare -- DIRECTORY [options]

  DIRECTORY         another tree of acode, built
  --place NAME      docker28, docker20 or "docker20 gvisor" (docker28)
  --rounds N        rounds (60)`;

process.exitCode = await main().catch(error => {
  console.error(`bench: ${reasonOf(error)}`);
  return 2;
});

async function main() {
  const { values: asked, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      help: { type: 'boolean', default: false },
      place: { type: 'string', default: 'docker28' },
      rounds: { type: 'string', default: '60' },
    },
  });
  const [directory] = positionals;
  if (asked.help || !directory || positionals.length > 1) {
    console.log(USAGE);
    return asked.help ? 0 : 2;
  }
  const [place] = placesHere({ ...readArguments([]), places: [asked.place] });
  if (!place?.engine) throw new Error(`${asked.place} is not a place with an engine`);
  const top = mkdtempSync('/var/tmp/acode-compare-');
  const from = cpuTime();
  /** @type {Acode[]} */
  const opened = [];
  try {
    /** @type {Groups} */
    const groups = { cold: [], warm: [], 'command start': [], 'cold command': [] };
    const trees = { this: HERE, other: resolve(directory) };
    for (const [side, tree] of Object.entries(trees))
      await open(groups, opened, { side, tree, top: join(top, side), level: place.level, ...place.engine });
    const signal = AbortSignal.timeout(MAX_MS);
    for (const [group, contenders] of Object.entries(groups))
      await figure(`${group} on ${place.name}`, contenders, Number(asked.rounds), signal);
    console.log(`CPU steal ${Math.round(stolenSince(from) * 100)} %`);
    return 0;
  } finally {
    await Promise.allSettled(opened.map(acode => acode.close()));
    rmSync(top, { recursive: true, force: true });
  }
}

/**
 * Opens one tree, and adds what it can do to the groups.
 *
 * @param {Groups} groups
 * @param {Acode[]} opened
 * @param {{ side: string, tree: string, top: string, level: string, socket: string, image: string }} of
 */
async function open(groups, opened, { side, tree, top, level, socket, image }) {
  const env = user(top, level, image);
  // The library reads them when it is opened.
  Object.assign(process.env, env);
  const library = await import(pathToFileURL(join(tree, 'packages/sandbox/dist/index.js')).href);
  const workspace = join(top, 'work');
  const config = { sandbox: { level, images: { default: image } } };
  for (const [name, pool] of /** @type {const} */ ([
    ['cold', false],
    ['warm', POOL],
  ])) {
    /** @type {Acode} */
    const acode = await library.Acode.open({ workspace, engine: { socket }, config, pool });
    opened.push(acode);
    groups[name].push({ name: side, settled, turn: signal => echo(acode, signal) });
  }
  const command = join(tree, 'packages/cli/bin/acode.js');
  // With CI set, no background process is started.
  const variables = { ...env, DOCKER_HOST: `unix://${socket}`, CI: '1' };
  groups['command start'].push(started(side, [command, '--version'], variables, workspace));
  groups['cold command'].push(started(side, [command, 'run', '--', 'true'], variables, workspace));
}

/**
 * @param {string} name
 * @param {readonly Contender[]} contenders
 * @param {number} rounds
 * @param {AbortSignal} signal
 */
async function figure(name, contenders, rounds, signal) {
  const turns = [...(await interleave(contenders, { rounds, signal, turnMs: TURN_MS })).values()];
  const failed = turns.flatMap(({ errors }) => errors);
  if (turns.some(({ values }) => values.length === 0)) throw new Error(`${name}: ${failed.join('; ')}`);
  const [now = 0, before = 0] = turns.map(({ values }) => percentile(values, 0.5));
  const [tail = 0, tailBefore = 0] = turns.map(({ values }) => percentile(values, 0.95));
  const spread = `p50 ${now.toFixed(1)} and ${before.toFixed(1)} ms, p95 ${tail.toFixed(1)} and ${tailBefore.toFixed(1)} ms`;
  console.log(`FIGURE ${name}: ${(now / before).toFixed(3)} of the other tree (${spread}, ${rounds} rounds)`);
}

async function settled() {
  await pause(SETTLED_MS);
}

/**
 * A user of its own whose configuration names the place.
 *
 * @param {string} top
 * @param {string} level
 * @param {string} image
 */
function user(top, level, image) {
  const at = (/** @type {string} */ name) => {
    mkdirSync(join(top, name), { recursive: true, mode: 0o700 });
    return join(top, name);
  };
  at('work');
  at('config/acode');
  writeFileSync(
    join(top, 'config/acode/config.yml'),
    JSON.stringify({ sandbox: { level, images: { default: image } } }),
  );
  return { HOME: at('home'), XDG_CONFIG_HOME: at('config'), XDG_STATE_HOME: at('state'), XDG_RUNTIME_DIR: at('run') };
}

/**
 * @param {Acode} acode
 * @param {AbortSignal} signal
 */
async function echo(acode, signal) {
  const began = performance.now();
  const { stdout } = await acode.run(['echo', 'hi'], { signal });
  if (stdout !== 'hi\n') throw new Error(`printed ${JSON.stringify(stdout)}`);
  return performance.now() - began;
}

/**
 * @param {string} name
 * @param {readonly string[]} argv
 * @param {NodeJS.ProcessEnv} env
 * @param {string} cwd
 * @returns {Contender}
 */
function started(name, argv, env, cwd) {
  const turn = (/** @type {AbortSignal} */ signal) =>
    new Promise((resolved, reject) => {
      const began = performance.now();
      let told = '';
      const child = spawn(process.execPath, argv, {
        cwd,
        env: { ...env, PATH: process.env['PATH'] },
        stdio: ['ignore', 'ignore', 'pipe'],
        signal,
      });
      child.stderr.on('data', chunk => (told += chunk));
      child.once('error', reject);
      child.once('close', code => {
        if (code === 0) resolved(performance.now() - began);
        else reject(new Error(`exit status ${code}: ${told.slice(0, 500)}`));
      });
    });
  return { name, settled, turn };
}
