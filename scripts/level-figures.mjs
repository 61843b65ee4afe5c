// Prints what levels and their records cost on this machine: `acode sandbox status` beyond a bare Node, the two records of a
// run, and `true` at every level side by side. Rounds are interleaved, so that a busy moment is everybody’s.
// Usage, as an ordinary user: node scripts/level-figures.mjs [--rounds N] [--without-engines]
// @ts-check

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { AuditLog } from '../packages/sandbox/dist/records/audit/log.js';
import { Acode } from '../packages/sandbox/dist/index.js';
import { systemClock } from '../packages/sandbox/dist/lifecycle/clock.js';

const ENGINES = '/run/acode-engines/engines.json';
const COMMAND = fileURLToPath(new URL('../packages/cli/bin/acode.js', import.meta.url));
const MAX_MS = 60_000;
const STATUS_MOST_MS = 300;
const AUDIT_MOST_MS = 3;

/** @typedef {{ name: string, socket: string, level: 'docker' | 'gvisor' }} Engine */
/** @typedef {{ name: string, once: () => Promise<void>, close: () => Promise<void> }} Candidate */

const { values } = parseArgs({
  options: { rounds: { type: 'string', default: '15' }, 'without-engines': { type: 'boolean', default: false } },
});
const rounds = Math.max(3, Number(values.rounds));
if (process.getuid?.() === 0) throw new Error('acode never runs as root: use `.ci/engines/as-user -- node …`');

const top = mkdtempSync('/var/tmp/acode-figures-');
for (const name of ['config', 'state', 'run', 'home', 'workspace']) mkdirSync(join(top, name), { mode: 0o700 });
const own = {
  HOME: join(top, 'home'),
  XDG_CONFIG_HOME: join(top, 'config'),
  XDG_STATE_HOME: join(top, 'state'),
  XDG_RUNTIME_DIR: join(top, 'run'),
};
Object.assign(process.env, own);

/** @returns {Engine[]} */
function enginesHere() {
  if (values['without-engines'] || !existsSync(ENGINES)) return [];
  const { engines, podman } = JSON.parse(readFileSync(ENGINES, 'utf8'));
  /** @type {Engine[]} */
  const found = [];
  for (const { name, socket, runtimes = [] } of [...engines, ...(podman ? [podman] : [])]) {
    found.push({ name, socket, level: 'docker' });
    if (runtimes.includes('runsc')) found.push({ name: `${name} gvisor`, socket, level: 'gvisor' });
  }
  return found;
}

/** @param {number[]} figures */
function median(figures) {
  return figures.toSorted((one, other) => one - other)[Math.floor(figures.length / 2)] ?? Number.NaN;
}

/** @param {() => unknown} work */
async function timed(work) {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

/**
 * @param {readonly string[]} words
 * @param {string | undefined} socket
 */
function node(words, socket) {
  const { PATH } = process.env;
  const env = { CI: 'true', PATH, ...own, DOCKER_HOST: `unix://${socket ?? join(top, 'no-engine.sock')}` };
  const { status, stderr } = spawnSync(process.execPath, words, { env, timeout: MAX_MS, encoding: 'utf8' });
  // `status` says with 1 that there is no engine, which is what was asked for.
  if (status !== 0 && !(status === 1 && socket === undefined))
    throw new Error(`node ${words.join(' ')} ended with ${status}: ${stderr}`);
}

/** @param {string | undefined} socket */
async function statusFigure(socket) {
  /** @type {number[]} */
  const beyond = [];
  /** @type {number[]} */
  const alone = [];
  for (let round = -1; round < rounds; round += 1) {
    const bare = await timed(() => node(['-e', '0'], socket));
    const status = await timed(() => node([COMMAND, 'sandbox', 'status'], socket));
    // The first round reads everything from the disk.
    if (round < 0) continue;
    beyond.push(status - bare);
    alone.push(bare);
  }
  return { beyond: median(beyond), bare: median(alone) };
}

async function auditFigure() {
  const log = new AuditLog({ directory: join(top, 'audit'), uid: process.getuid?.() ?? 0, clock: systemClock });
  /** @type {number[]} */
  const took = [];
  const context = { correlationId: crypto.randomUUID(), operation: /** @type {const} */ ('run') };
  for (let run = 0; run < rounds * 10; run += 1)
    took.push(
      await timed(async () => {
        const { seq } = await log.append({
          ...context,
          kind: 'intent',
          sandbox_level: 'docker',
          command: ['npm', 'test', '--', '--watch=false'],
          env: ['CI', 'HOME', 'PATH'],
          cwd: '.',
          stdin: 'none',
          network: 'none',
          policyHash: 'a'.repeat(64),
          commandHash: 'b'.repeat(64),
          requestHash: 'c'.repeat(64),
          decision: 'allowed',
        });
        await log.append({ ...context, kind: 'outcome', intent: seq, exitCode: 0, durationMs: 1 });
      }),
    );
  await log.close();
  return median(took);
}

/**
 * @param {string} name
 * @param {import('../packages/sandbox/dist/index.js').AcodeOptions} options
 * @returns {Promise<Candidate>}
 */
async function candidate(name, options) {
  const acode = await Acode.open({ workspace: join(top, 'workspace'), ...options });
  return {
    name,
    once: async () => {
      const { exitCode } = await acode.run(['true']);
      if (exitCode !== 0) throw new Error(`true ended with ${exitCode} at ${name}`);
    },
    close: () => acode.close(),
  };
}

/** @param {readonly Engine[]} engines */
async function candidates(engines) {
  const local = /** @type {const} */ (['none', 'ulimit', 'bubblewrap']).map(level =>
    candidate(level, { config: { sandbox: { level, bubblewrap: { accept_process_limits: true } } } }),
  );
  const onEngines = engines.map(({ name, socket, level }) =>
    candidate(name, {
      engine: { socket },
      config: { sandbox: { level, images: { default: 'acode-test/busybox:1' } } },
    }),
  );
  /** @type {Candidate} */
  const bare = {
    name: 'no acode at all',
    once: async () => void spawnSync('/bin/true', { timeout: MAX_MS }),
    close: async () => undefined,
  };
  return [bare, ...(await Promise.all([...local, ...onEngines]))];
}

/** @param {readonly Candidate[]} all */
async function levelFigures(all) {
  /** @type {Map<string, number[] | string>} */
  const figures = new Map(all.map(({ name }) => [name, []]));
  for (let round = -1; round < rounds; round += 1)
    for (const { name, once } of all) {
      const so = figures.get(name);
      if (!Array.isArray(so)) continue;
      try {
        const took = await timed(once);
        if (round >= 0) so.push(took);
      } catch (error) {
        // One level that is not to be had here is no reason to know nothing of the others.
        figures.set(name, error instanceof Error ? error.message : String(error));
      }
    }
  return figures;
}

/** @param {number} ms */
function shown(ms) {
  return `${ms.toFixed(1)} ms`;
}

try {
  const engines = enginesHere();
  const socket = engines[0]?.socket;
  /** @type {[what: string, figure: string][]} */
  const rows = [];
  const { beyond, bare } = await statusFigure(socket);
  const where = socket === undefined ? 'without an engine' : `on ${engines[0]?.name}`;
  rows.push(['node -e 0', shown(bare)]);
  rows.push([`acode sandbox status ${where}, beyond node -e 0 (at most ${STATUS_MOST_MS})`, shown(beyond)]);
  rows.push([`intent and outcome of a run (at most ${AUDIT_MOST_MS})`, shown(await auditFigure())]);
  const all = await candidates(engines);
  try {
    for (const [name, figures] of await levelFigures(all))
      rows.push([`true, ${name}`, Array.isArray(figures) ? shown(median(figures)) : `not here: ${figures}`]);
  } finally {
    await Promise.all(all.map(({ close }) => close()));
  }
  const width = Math.max(...rows.map(([what]) => what.length));
  console.log(`p50 of ${rounds} rounds, Node ${process.version}\n`);
  for (const [what, figure] of rows) console.log(`${what.padEnd(width)}  ${figure}`);
  console.log('');
  for (const [what, figure] of rows) console.log(`FIGURE ${what}: ${figure}`);
} finally {
  rmSync(top, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
}
