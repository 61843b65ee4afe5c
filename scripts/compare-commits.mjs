// Compares this build with the build of another checkout: speed, interleaved in one run, and whether what the other one wrote is still read.
//
//     DOCKER_HOST=unix://… node scripts/compare-commits.mjs <other checkout, built> [--rounds 15] [--image <reference>]
//
// Run it as an ordinary user on a quiet machine. A ratio below 1 means that this build is faster.
// @ts-check

import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

/** @typedef {{ name: string, root: string, home: string, workspace: string, env: NodeJS.ProcessEnv }} Build */
/** @typedef {{ code: number, stdout: string, stderr: string, ms: number }} Ended */

const MAX_COMMAND_MS = 60_000;
// Between two turns, so that a pool has refilled and removals are done.
const SETTLE_MS = 400;
// What the trusted repository asks for, and how a command sees that it was given.
const ALLOWED = String(3 * 1024 ** 3);
const LIMIT = [
  'run',
  '--',
  'sh',
  '-c',
  'cat /sys/fs/cgroup/memory.max || cat /sys/fs/cgroup/memory/memory.limit_in_bytes',
];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '15' },
    image: { type: 'string', default: 'acode-test/busybox:1' },
  },
});
const [other] = positionals;
if (other === undefined || !existsSync(join(other, 'packages/cli/bin/acode.js'))) {
  console.error('usage: node scripts/compare-commits.mjs <other checkout, built> [--rounds N] [--image <reference>]');
  process.exit(2);
}
const rounds = Number(values.rounds);
const top = mkdtempSync(join(tmpdir(), 'acode-compare-'));

/**
 * @param {string} name
 * @param {string} root
 * @returns {Build}
 */
function build(name, root) {
  const home = join(top, name);
  const workspace = join(home, 'workspace');
  mkdirSync(join(home, 'config/acode'), { recursive: true });
  mkdirSync(join(home, 'run'), { recursive: true, mode: 0o700 });
  mkdirSync(workspace);
  writeFileSync(
    join(home, 'config/acode/config.yml'),
    `sandbox:\n  images: { default: ${values.image} }\n  serve: never\n  security: { trusted_images: [docker.io/acode-test/*] }\n`,
    {
      mode: 0o600,
    },
  );
  const env = {
    PATH: process.env['PATH'],
    DOCKER_HOST: process.env['DOCKER_HOST'],
    HOME: home,
    XDG_CONFIG_HOME: join(home, 'config'),
    XDG_STATE_HOME: join(home, 'state'),
    XDG_CACHE_HOME: join(home, 'cache'),
    XDG_DATA_HOME: join(home, 'data'),
    XDG_RUNTIME_DIR: join(home, 'run'),
  };
  return { name, root, home, workspace, env };
}

/**
 * @param {Build} of
 * @param {string[]} argv
 * @param {Partial<Build>} [as] whose files and directories are used
 * @returns {Promise<Ended>}
 */
function acode(of, argv, as = of) {
  const began = performance.now();
  return new Promise(settle => {
    execFile(
      process.execPath,
      [join(of.root, 'packages/cli/bin/acode.js'), ...argv],
      { env: as.env ?? of.env, cwd: as.workspace ?? of.workspace, timeout: MAX_COMMAND_MS, encoding: 'utf8' },
      (error, stdout, stderr) =>
        settle({
          code: typeof error?.code === 'number' ? error.code : error ? 1 : 0,
          stdout,
          stderr,
          ms: performance.now() - began,
        }),
    );
  });
}

// Runs `true` once for each line on its standard input and prints how long that took.
const CLIENT = `
import { createInterface } from 'node:readline';
const [root, workspace, min] = process.argv.slice(1);
const { Acode } = await import(root + '/packages/sandbox/dist/index.js');
const acode = await Acode.open({ workspace, ...(min === '0' ? {} : { pool: { min: 1, max: 1 } }) });
console.log('0');
for await (const _ of createInterface({ input: process.stdin })) {
  const began = performance.now();
  const { exitCode } = await acode.run(['true']);
  if (exitCode !== 0) throw new Error('exit ' + exitCode);
  console.log(performance.now() - began);
}
await acode.close();
`;

/**
 * @param {Build} of
 * @param {boolean} warm
 */
async function library(of, warm) {
  const child = spawn(
    process.execPath,
    ['--input-type=module', '-e', CLIENT, of.root, of.workspace, warm ? '1' : '0'],
    {
      env: of.env,
      cwd: of.workspace,
      stdio: ['pipe', 'pipe', 'inherit'],
      timeout: 600_000,
    },
  );
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error(`the client of ${of.name} ended`);
    return Number(value);
  };
  await next();
  return {
    measure: () => {
      child.stdin.write('\n');
      return next();
    },
    close: async () => {
      child.stdin.end();
      await new Promise(ended => void child.once('exit', ended));
    },
  };
}

/** @param {number[]} figures */
function median(figures) {
  const sorted = figures.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? NaN;
}

/**
 * Turn and turn about; who begins changes with every round.
 *
 * @param {string} what
 * @param {(() => Promise<number>)[]} measures of this build and of the other one
 */
async function race(what, measures) {
  /** @type {number[][]} */
  const figures = measures.map(() => []);
  for (let round = -2; round < rounds; round += 1)
    for (const turn of [0, 1]) {
      const at = (turn + Math.abs(round)) % 2;
      const ms = (await measures[at]?.()) ?? NaN;
      if (round >= 0) figures[at]?.push(ms);
      await pause(SETTLE_MS);
    }
  const [ours = NaN, theirs = NaN] = figures.map(median);
  console.log(
    `FIGURE ${what}: ${ours.toFixed(1)} against ${theirs.toFixed(1)} ms, ratio ${(ours / theirs).toFixed(3)}, n = ${rounds}`,
  );
}

/**
 * @param {Build} of
 * @param {string[]} argv
 */
async function timed(of, argv) {
  const ended = await acode(of, argv);
  if (ended.code !== 0) throw new Error(`acode ${argv.join(' ')} of ${of.name}: exit ${ended.code}\n${ended.stderr}`);
  return ended.ms;
}

let failures = 0;
/**
 * @param {string} what
 * @param {boolean} holds
 * @param {Ended} ended
 */
function check(what, holds, ended) {
  console.log(`${holds ? 'ok    ' : 'FAILED'} ${what}`);
  if (holds) return;
  failures += 1;
  console.log(`${ended.stdout}${ended.stderr}`.trim().replaceAll(/^/gm, '         '));
}

/**
 * The other build writes a log, a trusted repository, and a persistent sandbox with its lease; this one reads them.
 *
 * @param {Build} ours
 * @param {Build} theirs
 */
async function compatible(ours, theirs) {
  const { workspace } = theirs;
  mkdirSync(join(workspace, '.agent'), { recursive: true });
  writeFileSync(join(workspace, '.agent/config.yml'), 'sandbox:\n  defaults: { memory_mb: 3g }\n');
  const trusted = await acode(theirs, ['trust']);
  check('the other build trusts a repository', trusted.code === 0, trusted);
  const before = await acode(theirs, LIMIT);
  check('and gives a command what that repository asks for', before.stdout.trim() === ALLOWED, before);
  const created = await acode(theirs, ['sandbox', 'create', '--for', '10m']);
  const id = created.stdout.trim();
  check('the other build creates a persistent sandbox', created.code === 0 && id !== '', created);

  const trust = await acode(ours, LIMIT, theirs);
  check('this build accepts the trust file', trust.stdout.trim() === ALLOWED, trust);
  const audit = await acode(ours, ['audit', 'verify'], theirs);
  check('this build verifies the log of both', audit.code === 0, audit);
  const list = await acode(ours, ['--json', 'sandbox', 'list'], theirs);
  check('this build lists the persistent sandbox', list.stdout.includes(id), list);
  const inside = await acode(ours, ['sandbox', 'exec', '--in', id, '--', 'echo', 'inside'], theirs);
  check('and runs a command in it', inside.stdout.trim() === 'inside', inside);
  const sweep = await acode(ours, ['sandbox', 'cleanup'], theirs);
  const after = await acode(ours, ['sandbox', 'exec', '--in', id, '--', 'true'], theirs);
  check('a sweep honours its lease', sweep.code === 0 && after.code === 0, after);
  const killed = await acode(ours, ['sandbox', 'kill', id], theirs);
  check('and this build removes it', killed.code === 0, killed);
}

try {
  const ours = build('this', fileURLToPath(new URL('..', import.meta.url)));
  const theirs = build('other', resolve(other));
  await compatible(ours, theirs);
  const both = [ours, theirs];
  await race(
    'start (acode --version)',
    both.map(of => () => timed(of, ['--version'])),
  );
  await race(
    'command (acode run -- true, no server)',
    both.map(of => () => timed(of, ['run', '--', 'true'])),
  );
  for (const warm of [false, true]) {
    const clients = await Promise.all(both.map(of => library(of, warm)));
    await race(
      warm ? 'warm (library, pool of 1)' : 'cold (library)',
      clients.map(client => client.measure),
    );
    await Promise.all(clients.map(client => client.close()));
  }
} finally {
  rmSync(top, { recursive: true, force: true });
}
process.exitCode = failures > 0 ? 1 : 0;
