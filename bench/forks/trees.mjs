// Figures of forks of one tree: until a command has run in it, its diff, many at once, its disk space, and undo.
// @ts-check

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { closeSync, lstatSync, mkdirSync, openSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { percentile } from '../figures.mjs';
import { interleave } from '../rounds.mjs';

/** @typedef {import('../forks.mjs').Bench} Bench */
/** @typedef {import('../candidates/acode.mjs').AcodeCandidate} AcodeCandidate */
/** @typedef {import('@acode/sandbox').PolicyInput} PolicyInput */

const FILES_PER_DIRECTORY = 20;
const TURN_MS = 120_000;
const MIB = 1024 ** 2;
const BLOCK_BYTES = 512;

const DIRECT = /** @type {const} */ ({ workspace: 'direct' });
const inFork = (/** @type {string} */ fork) => /** @type {const} */ ({ workspace: 'fork', fork });

/** @param {readonly number[]} values */
export const median = values => percentile(values, 0.5);

/**
 * Whether a figure is what was asked for.
 *
 * @param {number} value
 * @param {number} most
 */
export const met = (value, most) => (value <= most ? 'met' : '**not met**');

/** CPU time of this process so far, in milliseconds: it says more than the clock on a machine that does other work. */
const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

/** @param {() => Promise<unknown>} work */
export async function timed(work) {
  const began = performance.now();
  await work();
  return performance.now() - began;
}

/**
 * Runs a script that must end well, and returns what it printed.
 *
 * @param {AcodeCandidate} host
 * @param {string} script
 * @param {PolicyInput} policy
 * @param {AbortSignal} [signal]
 */
export async function run(host, script, policy, signal) {
  const request = { policy, risk: /** @type {const} */ ('low'), stdin: script, ...(signal ? { signal } : {}) };
  const { exitCode, stdout, stderr } = await host.run(['sh', '-es'], request);
  if (exitCode !== 0) throw new Error(`a command ended with ${exitCode}: ${stderr.slice(-2000)}`);
  return stdout;
}

/**
 * The values of each, by name; a turn that failed is a failure of the bench.
 *
 * @param {Record<string, (signal: AbortSignal) => Promise<number>>} turns
 * @param {{ hosts: readonly AcodeCandidate[], rounds: number, signal: AbortSignal, turnMs?: number, warmUp?: boolean }} of
 * @returns {Promise<Record<string, number[]>>}
 */
export async function takeTurns(turns, { hosts, rounds, signal, turnMs = TURN_MS, warmUp = true }) {
  const settled = async () => void (await Promise.all(hosts.map(host => host.settled())));
  const contenders = Object.entries(turns).map(([name, turn]) => ({ name, turn, settled }));
  const all = await interleave(contenders, { rounds, signal, turnMs, warmUp });
  await settled();
  return Object.fromEntries(
    [...all].map(([name, { values, errors }]) => {
      if (errors.length > 0) throw new Error(`${name}: ${errors[0]}`);
      return [name, values];
    }),
  );
}

/**
 * A repository of many files, nearly all of them empty, with two secrets that git does not track.
 *
 * @param {string} top
 * @param {number} files
 */
function makeTree(top, files) {
  const directories = Math.ceil(files / FILES_PER_DIRECTORY);
  const paths = [];
  for (let number = 0; number < directories; number += 1) {
    const directory = join(`d${number % 100}`, `e${Math.floor(number / 100)}`);
    mkdirSync(join(top, directory), { recursive: true });
    for (let file = 0; file < FILES_PER_DIRECTORY; file += 1) {
      const path = join(directory, `file${file}.txt`);
      closeSync(openSync(join(top, path), 'wx', 0o644));
      paths.push(path);
    }
  }
  const git = (/** @type {string[]} */ words, input = '') =>
    execFileSync('git', words, { cwd: top, input, encoding: 'utf8', maxBuffer: 2 ** 28, timeout: 600_000 });
  git(['init', '--quiet']);
  const blob = git(['hash-object', '-w', '--stdin']).trim();
  git(['update-index', '--index-info'], paths.map(path => `100644 ${blob}\t${path}\n`).join(''));
  writeFileSync(join(top, '.env'), 'TOKEN=1\n');
  writeFileSync(join(top, 'd1/e0/.env.local'), 'TOKEN=2\n');
  return paths;
}

/**
 * How much longer a command takes in a fork of a large tree than in a direct mount of it, and the diff of 1,000 changes.
 *
 * @param {Bench} bench
 */
export async function large({ context, place, files, figure, rounds: asked }) {
  const rounds = asked || 15;
  const { signal } = context;
  const tree = context.directory('tree');
  const empty = context.directory('empty');
  context.say(`makes ${files} files`);
  const paths = makeTree(tree, files);
  const size = `${files.toLocaleString('en')} files`;
  /** @type {Record<string, number>} */
  const first = {};
  for (const [name, policy] of Object.entries({ direct: DIRECT, fork: inFork('first') })) {
    Object.assign(process.env, context.environment());
    const host = await context.acode(place, { options: { workspace: tree } });
    first[name] = await timed(() => run(host, 'true', policy));
    await host.settled();
    await host.close();
  }
  Object.assign(process.env, context.environment());
  const host = await context.acode(place, { options: { workspace: tree } });
  const other = await context.acode(place, { options: { workspace: empty } });
  try {
    // A fork that has changes already, and so persists.
    await run(host, 'echo one > made', inFork('bench'));
    const turn =
      (/** @type {AcodeCandidate} */ of, /** @type {PolicyInput} */ policy) => (/** @type {AbortSignal} */ at) =>
        timed(() => run(of, 'true', policy, at));
    const { fork, direct, small } = await takeTurns(
      { fork: turn(host, inFork('bench')), direct: turn(host, DIRECT), small: turn(other, DIRECT) },
      { hosts: [host, other], rounds, signal },
    );
    const [ofFork, ofDirect, ofSmall] = [median(fork ?? []), median(direct ?? []), median(small ?? [])];
    const beyond = ofFork - ofDirect;
    figure(
      `a command in a fork of ${size}, from the second on: ${beyond.toFixed(0)} ms beyond a direct mount (p50 of ${rounds}: ${ofFork.toFixed(0)} and ${ofDirect.toFixed(0)} ms; asked ≤ 150: ${met(beyond, 150)})`,
    );
    figure(
      `the same beyond a direct mount of an empty workspace, where nothing is to be masked: ${(ofFork - ofSmall).toFixed(0)} ms`,
    );
    figure(
      `the first command: ${first['fork']?.toFixed(0)} ms in a fork, ${first['direct']?.toFixed(0)} ms in a direct mount`,
    );
    await diffOf(host, paths, { figure, size });
  } finally {
    await closeAll(host, other);
    rmSync(tree, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

/**
 * @param {AcodeCandidate} host
 * @param {readonly string[]} paths
 * @param {{ figure: Bench['figure'], size: string }} of
 */
async function diffOf(host, paths, { figure, size }) {
  const CHANGES = 1000;
  const every = Math.floor(paths.length / CHANGES);
  const script = Array.from({ length: CHANGES }, (_, number) => {
    const path = paths[number * every];
    if (number % 5 === 3) return `rm ${path}`;
    return number % 5 === 4 ? `echo new > ${path}.new` : `echo changed ${number} >> ${path}`;
  }).join('\n');
  await run(host, script, inFork('changes'));
  await host.settled();
  /** @type {number[]} */
  const took = [];
  const before = cpuMs();
  for (let round = 0; round < 6; round += 1)
    took.push(
      await timed(async () => {
        const { counts } = await host.acode.forks.diff({ fork: 'changes' });
        const found = JSON.stringify(counts);
        if (found !== '{"added":200,"changed":600,"deleted":200}') throw new Error(`the diff has ${found}`);
      }),
    );
  const [first = Number.NaN, ...later] = took;
  figure(
    `diff of ${CHANGES.toLocaleString('en')} changes in ${size}: ${first.toFixed(0)} ms, then ${median(later).toFixed(0)} ms, with ${((cpuMs() - before) / took.length).toFixed(0)} ms of CPU time each (asked ≤ 1,000: ${met(first, 1000)})`,
  );
}

/** @param {readonly AcodeCandidate[]} hosts */
export async function closeAll(...hosts) {
  for (const host of hosts) {
    for (const { id } of await host.acode.forks.list({ all: true })) await host.acode.forks.discard(id);
    await host.settled();
    await host.close();
  }
}

const AT_ONCE = 32;

/**
 * Forks of one snapshot beside as many sandboxes that have the workspace itself.
 *
 * @param {Bench} bench
 */
export async function parallel({ context, place, figure, rounds: asked }) {
  const rounds = asked || 5;
  const workspace = context.directory('shared');
  for (let file = 0; file < 1000; file += 1) writeFileSync(join(workspace, `file${file}`), `${file}\n`);
  const host = await context.acode(place, { options: { workspace } });
  const numbers = Array.from({ length: AT_ONCE }, (_, number) => number);
  // For small sandboxes, so that the memory of the machine does not decide how many run at once.
  const limits = { limits: { memoryBytes: 128 * MIB } };
  const check = (/** @type {number} */ number, /** @type {string} */ printed) => {
    if (printed !== `${number}\nsnapshot\n`) throw new Error(`sandbox ${number} printed ${printed}`);
  };
  try {
    await run(host, 'echo snapshot > base', inFork('base'));
    await host.acode.forks.snapshot('clean', 'base');
    writeFileSync(join(workspace, 'base'), 'snapshot\n');
    const forks = async (/** @type {AbortSignal} */ signal) => {
      const took = await timed(async () => {
        for (const number of numbers) await host.acode.forks.create({ from: 'base@clean', name: `try-${number}` });
        await Promise.all(
          numbers.map(async number => {
            const script = `echo ${number} > own; cat own base`;
            check(number, await run(host, script, { ...inFork(`try-${number}`), ...limits }, signal));
          }),
        );
      });
      await host.settled();
      for (const number of numbers) await host.acode.forks.discard(`try-${number}`);
      return took;
    };
    const direct = (/** @type {AbortSignal} */ signal) =>
      timed(() =>
        Promise.all(
          numbers.map(async number => {
            const script = `echo ${number} > own-${number}; cat own-${number} base`;
            check(number, await run(host, script, { ...DIRECT, ...limits }, signal));
          }),
        ),
      );
    const took = await takeTurns({ forks, direct }, { hosts: [host], rounds, signal: context.signal });
    const [ofForks, ofDirect] = [median(took['forks'] ?? []), median(took['direct'] ?? [])];
    const ratio = ofForks / ofDirect;
    figure(
      `${AT_ONCE} forks of one snapshot: ${ratio.toFixed(2)} × as many direct mounts (p50 of ${rounds}: ${ofForks.toFixed(0)} and ${ofDirect.toFixed(0)} ms; asked ≤ 1.2: ${met(ratio, 1.2)})`,
    );
  } finally {
    await closeAll(host);
  }
}

/**
 * What a fork takes on disk beyond the files that its commands wrote.
 *
 * @param {Bench} bench
 */
export async function diskOfFork({ context, place, figure }) {
  const workspace = context.directory('disk');
  // Lines that differ, as those of sources do.
  for (let file = 0; file < 200; file += 1) {
    const lines = Array.from({ length: 2048 }, (_, line) =>
      `${String(line).padStart(6)} of file ${file}`.padEnd(31, '.'),
    );
    writeFileSync(join(workspace, `file${file}`), `${lines.join('\n')}\n`);
  }
  Object.assign(process.env, context.environment());
  const store = join(process.env['XDG_STATE_HOME'] ?? '', 'acode', 'f');
  const host = await context.acode(place, { options: { workspace } });
  const each = (/** @type {string} */ names, /** @type {string} */ work) =>
    `for n in $(seq ${names}); do ${work}; done`;
  const scripts = {
    'adds 100 files of 64 KiB': each('100', 'head -c 65536 /dev/urandom > new$n'),
    'changes 100 files of 64 KiB': each('0 99', "sed -i -e '5s/of/OF/' -e '1500s/of/OF/' file$n; echo x >> file$n"),
    'replaces 100 files of 64 KiB': each('0 99', 'head -c 65536 /dev/urandom > file$n'),
    'deletes 50 files': each('150 199', 'rm file$n'),
  };
  try {
    for (const [name, script] of Object.entries(scripts)) {
      await run(host, script, inFork('disk'));
      await host.settled();
      const { changes } = await host.acode.forks.diff({ fork: 'disk' });
      const written = changes.reduce((sum, { bytes }) => sum + (bytes?.after ?? 0), 0);
      const more = (usage(store) - written) / MIB;
      const [id = ''] = readdirSync(store).filter(entry => entry.length === 8);
      const layer = new Set(inodesIn(join(store, id)));
      const copies = usage(join(store, id, 'base'), layer) / MIB;
      figure(
        `disk of a fork that ${name}: changed bytes and ${more.toFixed(2)} MiB, of which ${copies.toFixed(2)} keep for a merge what was there before (asked ≤ 1: ${met(more, 1)})`,
      );
      await host.acode.forks.discard('disk');
    }
  } finally {
    await closeAll(host);
  }
}

/**
 * Disk space in bytes, as the file system counts it: a file with several names once.
 *
 * @param {string} path
 * @param {Set<number>} [counted] The inode numbers of files that were counted.
 * @returns {number}
 */
export function usage(path, counted = new Set()) {
  const found = lstatSync(path);
  const own = counted.has(found.ino) ? 0 : found.blocks * BLOCK_BYTES;
  if (found.nlink > 1) counted.add(found.ino);
  if (!found.isDirectory()) return own;
  try {
    return readdirSync(path).reduce((sum, name) => sum + usage(join(path, name), counted), own);
  } catch {
    // The kernel’s own directory, which is empty or has one entry.
    return own;
  }
}

/**
 * The inode numbers of the files of a fork’s layers.
 *
 * @param {string} fork
 */
function inodesIn(fork) {
  const layers = readdirSync(fork).filter(name => /^\d+$/.test(name));
  const files = layers.flatMap(layer =>
    readdirSync(join(fork, layer), { withFileTypes: true }).filter(entry => entry.isFile()),
  );
  return files.map(({ parentPath, name }) => lstatSync(join(parentPath, name)).ino);
}

const DELETED = 10_000;

/**
 * Undo of a command that deleted many files.
 *
 * @param {Bench} bench
 */
export async function undoing({ context, place, figure, rounds: asked }) {
  const rounds = asked || 3;
  const workspace = context.directory('undo');
  const top = join(workspace, 'scratch');
  mkdirSync(top);
  for (let file = 0; file < DELETED; file += 1) writeFileSync(join(top, `file${file}`), `${file}\n`);
  const hash = createHash('sha256');
  for (const name of readdirSync(top).toSorted()) hash.update(`${name}\n`).update(readFileSync(join(top, name)));
  const expected = hash.digest('hex');
  const listing = 'cd scratch; ls | LC_ALL=C sort | while read -r n; do echo $n; cat $n; done | sha256sum';
  const host = await context.acode(place, { options: { workspace } });
  /** @type {number[]} */
  const took = [];
  try {
    for (let round = 0; round < rounds; round += 1) {
      await run(host, 'echo kept > kept', inFork('undo'));
      await run(host, 'cd scratch; ls | xargs rm; cd ..; test -z "$(ls scratch)"', inFork('undo'));
      await host.settled();
      const { counts } = await host.acode.forks.diff({ fork: 'undo' });
      if (counts.deleted !== DELETED) throw new Error(`the diff has ${counts.deleted} deletions`);
      took.push(await timed(() => host.acode.forks.undo({ fork: 'undo' })));
      const found = await run(host, `${listing}; cat ../kept`, inFork('undo'));
      if (!found.startsWith(expected) || !found.endsWith('kept\n')) throw new Error(`after undo: ${found}`);
      await host.settled();
      await host.acode.forks.discard('undo');
    }
    const ms = median(took);
    figure(
      `undo of a command that deleted ${DELETED.toLocaleString('en')} files: all back with their content, ${ms.toFixed(0)} ms (p50 of ${rounds}; asked ≤ 1,000: ${met(ms, 1000)})`,
    );
  } finally {
    await closeAll(host);
  }
}
