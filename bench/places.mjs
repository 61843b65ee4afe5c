// Where there is something to measure on this machine: its engines, each with the levels it has, and the levels without one.
// @ts-check

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { availableParallelism, release, totalmem } from 'node:os';
import * as z from 'zod';

const ENGINES = '/run/acode-engines/engines.json';

const engineSchema = z.looseObject({
  name: z.string(),
  socket: z.string(),
  runtimes: z.array(z.string()).optional(),
});

const listSchema = z.looseObject({
  engines: z.array(engineSchema),
  podman: engineSchema.nullish(),
  images: z.looseObject({ busybox: z.string() }),
});

/**
 * An engine at one level, or a level that needs none. `isHeld` says whether the limits are set for it.
 *
 * @typedef {object} Place
 * @property {string} name
 * @property {string} engineName
 * @property {'none' | 'ulimit' | 'bubblewrap' | 'docker' | 'gvisor'} level
 * @property {{ socket: string, image: string } | null} engine
 * @property {boolean} onEngine
 * @property {boolean} isHeld
 */

/** @typedef {z.infer<typeof engineSchema>} Listed */

/**
 * The test engines that are up. Podman is Docker in its answers alone, so that no limit is set for it.
 *
 * @param {unknown} list
 * @returns {Place[]}
 */
export function placesOf(list) {
  const { engines, podman, images } = listSchema.parse(list);
  return [
    ...engines.flatMap(engine => onEngine(engine, images.busybox, true)),
    ...(podman ? onEngine(podman, images.busybox, false) : []),
  ];
}

/**
 * @param {Listed} engine
 * @param {string} image
 * @param {boolean} isHeld
 * @returns {Place[]}
 */
function onEngine({ name, socket, runtimes = [] }, image, isHeld) {
  const common = { engineName: name, engine: { socket, image }, onEngine: true, isHeld };
  return [
    { ...common, name, level: 'docker' },
    ...(runtimes.includes('runsc')
      ? [{ ...common, name: `${name} gvisor`, level: /** @type {const} */ ('gvisor') }]
      : []),
  ];
}

/** @type {readonly Place[]} */
const LOCAL = /** @type {const} */ (['none', 'ulimit', 'bubblewrap']).map(level => ({
  name: level,
  engineName: '',
  level,
  engine: null,
  onEngine: false,
  isHeld: false,
}));

/**
 * @param {import('./arguments.mjs').Asked} asked
 * @returns {Place[]}
 */
export function placesHere({ places, engine }) {
  const listed = existsSync(ENGINES) ? placesOf(JSON.parse(readFileSync(ENGINES, 'utf8'))) : [];
  const named = engine ? onEngine({ name: 'engine', socket: engine.socket }, engine.image, true) : [];
  return chosen([...LOCAL, ...listed, ...named], places);
}

/**
 * Those that were asked for. Podman only by name: it is no engine that the limits are set for.
 *
 * @param {readonly Place[]} all
 * @param {readonly string[]} names
 */
export function chosen(all, names) {
  const known = new Set(all.flatMap(({ name, level, engineName }) => [name, level, engineName]));
  const unknown = names.filter(name => !known.has(name));
  if (unknown.length > 0) throw new Error(`nothing here has the name ${unknown.join(', ')}`);
  if (names.length === 0) return all.filter(({ isHeld, onEngine: on }) => isHeld || !on);
  return all.filter(({ name, level, engineName }) => [name, level, engineName].some(one => names.includes(one)));
}

/**
 * Whether a program can be started, and what it says of itself.
 *
 * @param {string} program
 */
export function versionOf(program) {
  const { status, stdout } = spawnSync(program, ['--version'], { timeout: 10_000, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : null;
}

/** What the figures depend on and the reader cannot see. */
export function machine() {
  return {
    node: process.version,
    kernel: release(),
    cpus: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 1024 ** 3),
    docker: versionOf('docker'),
    bubblewrap: versionOf('bwrap'),
  };
}

/** CPU time of this machine so far, and what of it the machine’s own host gave to others. */
export function cpuTime() {
  const [line = ''] = readFileSync('/proc/stat', 'utf8').split('\n');
  const fields = line.split(/\s+/).slice(1, 9).map(Number);
  return { all: fields.reduce((sum, field) => sum + field, 0), stolen: fields[7] ?? 0, idle: fields[3] ?? 0 };
}

/**
 * The share of CPU time since then that others had: figures of a robbed machine say nothing.
 *
 * @param {ReturnType<typeof cpuTime>} since
 */
export function stolenSince(since) {
  const now = cpuTime();
  const all = now.all - since.all;
  return all > 0 ? (now.stolen - since.stolen) / all : 0;
}
