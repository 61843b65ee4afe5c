// What a person at a terminal waits for: the command as a process, less what Node itself takes to start.
// @ts-check

import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { NAMES } from '../names.mjs';
import { interleave, pause, reasonOf } from '../rounds.mjs';
import { dockerRun } from './open.mjs';

/** @typedef {import('../context.mjs').Context} Context */
/** @typedef {import('../places.mjs').Place} Place */
/** @typedef {import('../candidates/candidate.mjs').Absent} Absent */
/** @typedef {import('../rounds.mjs').Contender<number>} Contender */

const COMMAND = fileURLToPath(new URL('../../packages/cli/bin/acode.js', import.meta.url));
const EXEC = [COMMAND, 'sandbox', 'exec', '--', 'true'];
const RUN = [COMMAND, 'run', '--', 'true'];
const TURN_MS = 60_000;
const SERVING_MS = 30_000;
const HERE = 'this machine';

/**
 * @param {Context} context
 * @param {Place} place
 */
export async function command(context, place) {
  if (!existsSync(COMMAND)) throw new Error('the command is not built: npm run build');
  const rounds = context.asked.quick ? 8 : 25;
  if (!context.rows.some(({ group }) => group === 'command.start')) await start(context, rounds);
  if (!place.engine) return;
  await exec(context, place, rounds);
  await background(context, place, rounds);
}

/**
 * Needs nothing but this machine.
 *
 * @param {Context} context
 * @param {number} rounds
 */
async function start(context, rounds) {
  const env = user(context, null);
  const contenders = [bareNode(context, env), lessNode(context, NAMES.commandVersion, [COMMAND, '--version'], env)];
  add(
    context,
    { group: 'command.start', place: HERE, reference: NAMES.bareNode },
    await race(context, contenders, rounds),
    [],
  );
}

/**
 * @param {Context} context
 * @param {Place} place
 * @param {number} rounds
 */
async function exec(context, place, rounds) {
  const env = user(context, place);
  /** @type {Absent[]} */
  const absent = [];
  const contenders = [lessNode(context, NAMES.commandCold, EXEC, env)];
  try {
    contenders.unshift(await engineCommand(context, place));
  } catch (error) {
    absent.push({ name: NAMES.dockerRun, unavailable: reasonOf(error) });
  }
  const served = await serve(context, place).catch(error => {
    absent.push({ name: NAMES.commandServed, unavailable: reasonOf(error) });
    return null;
  });
  if (served) contenders.push(lessNode(context, NAMES.commandServed, EXEC, served.env, served.refilled));
  try {
    const turns = await race(context, contenders, rounds);
    add(context, { group: 'command.true', place: place.name, reference: NAMES.dockerRun }, turns, absent);
  } finally {
    await served?.stop();
  }
}

/**
 * What a person waits for from the third command on, with everything in it that they wait for.
 *
 * @param {Context} context
 * @param {Place} place
 * @param {number} rounds
 */
async function background(context, place, rounds) {
  const group = 'command.background';
  /** @type {Absent[]} */
  const absent = [];
  /** @type {Contender[]} */
  const contenders = [];
  try {
    contenders.push({ ...(await engineCommand(context, place)), settled: rested });
  } catch (error) {
    absent.push({ name: NAMES.dockerRun, unavailable: reasonOf(error) });
  }
  const srt = onPath('srt');
  // It needs files of its own in a home that it can write.
  if (srt) contenders.push(plain(context, NAMES.srt, srt, ['true'], srtUser(context), rested));
  else absent.push({ name: NAMES.srt, unavailable: 'srt (npm @anthropic-ai/sandbox-runtime) is not installed' });
  const own = await worked(context, place);
  contenders.push(plain(context, NAMES.commandBackground, process.execPath, RUN, own.env, rested));
  try {
    const turns = await race(context, contenders, rounds);
    add(context, { group, place: place.name, reference: NAMES.dockerRun }, turns, absent);
    // The same figures once more, to be held beside the other.
    const beside = new Map([...turns].filter(([name]) => name !== NAMES.dockerRun));
    if (srt) add(context, { group: 'command.srt', place: place.name, reference: NAMES.srt }, beside, []);
  } finally {
    await own.stop();
  }
}

// Between two commands of a person: the warm pool is full again, and every program starts on a processor that has rested.
async function rested() {
  await pause(1000);
}

/**
 * Two commands as at a person’s terminal, and the background process that they leave, once it says that it is ready.
 *
 * @param {Context} context
 * @param {Place} place
 */
async function worked(context, place) {
  const { CI: _, ...env } = user(context, place);
  const stop = async () =>
    void (await wall(context, process.execPath, [COMMAND, 'serve', 'stop'], env, context.signal));
  for (let commands = 0; commands < 2; commands += 1) await wall(context, process.execPath, RUN, env, context.signal);
  const until = performance.now() + SERVING_MS;
  for (;;) {
    const { state, reason } = JSON.parse(await printed(context, ['serve', 'status', '--json'], env));
    if (state === 'ready') return { env, stop };
    if (performance.now() > until) {
      await stop();
      throw new Error(`the background process is ${state}: ${reason}`);
    }
    await pause(300);
  }
}

/**
 * @param {Context} context
 * @param {string} name
 * @param {string} program
 * @param {readonly string[]} words
 * @param {NodeJS.ProcessEnv} env
 * @param {() => Promise<void>} [settled]
 * @returns {Contender}
 */
function plain(context, name, program, words, env, settled = async () => undefined) {
  return { name, settled, turn: signal => wall(context, program, words, env, signal) };
}

/** @param {string} name */
function onPath(name) {
  const places = (process.env['PATH'] ?? '').split(':').filter(Boolean);
  return places.map(directory => join(directory, name)).find(path => existsSync(path));
}

/** @param {Context} context */
function srtUser(context) {
  const { PATH, LD_LIBRARY_PATH } = process.env;
  return { PATH, ...(LD_LIBRARY_PATH ? { LD_LIBRARY_PATH } : {}), ...context.environment() };
}

/**
 * @param {Context} context
 * @param {readonly Contender[]} contenders
 * @param {number} rounds
 */
function race({ signal }, contenders, rounds) {
  return interleave(contenders, { rounds, signal, turnMs: TURN_MS });
}

/**
 * @param {Context} context
 * @param {{ group: string, place: string, reference: string }} of
 * @param {Map<string, { values: number[], errors: string[] }>} turns
 * @param {readonly Absent[]} absent
 */
function add(context, { group, place, reference }, turns, absent) {
  for (const [name, { values, errors }] of turns) {
    const key = { group, place, name };
    if (values.length === 0) context.miss(key, errors[0] ?? 'no value');
    else
      context.add({ ...key, unit: 'ms', better: 'less', reference: name === reference, errors: errors.length }, values);
  }
  for (const { name, unavailable } of absent) context.miss({ group, place, name }, unavailable);
}

/**
 * A user of the bench’s own whose configuration names the place.
 *
 * @param {Context} context
 * @param {Place | null} place
 * @returns {NodeJS.ProcessEnv}
 */
function user(context, place) {
  const own = context.environment();
  const sandbox = { level: place?.level, images: { default: place?.engine?.image } };
  const directory = join(own.XDG_CONFIG_HOME, 'acode');
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  if (place) writeFileSync(join(directory, 'config.yml'), JSON.stringify({ sandbox }), { mode: 0o600 });
  const socket = place?.engine?.socket ?? join(context.top, 'no-engine.sock');
  // No background process by itself: what is measured without one must have none.
  return { CI: 'true', PATH: process.env['PATH'], ...own, DOCKER_HOST: `unix://${socket}` };
}

/**
 * @param {Context} context
 * @param {NodeJS.ProcessEnv} env
 * @returns {Contender}
 */
function bareNode(context, env) {
  return {
    name: NAMES.bareNode,
    settled: async () => undefined,
    turn: signal => wall(context, process.execPath, ['-e', '0'], env, signal),
  };
}

/**
 * Node’s own time is taken in the same turn, so that a busy moment is in both.
 *
 * @param {Context} context
 * @param {string} name
 * @param {readonly string[]} words
 * @param {NodeJS.ProcessEnv} env
 * @param {() => Promise<void>} [settled]
 * @returns {Contender}
 */
function lessNode(context, name, words, env, settled = async () => undefined) {
  return {
    name,
    settled,
    turn: async signal => {
      const bare = await wall(context, process.execPath, ['-e', '0'], env, signal);
      return (await wall(context, process.execPath, words, env, signal)) - bare;
    },
  };
}

/**
 * @param {Context} context
 * @param {Place} place
 * @returns {Promise<Contender>}
 */
async function engineCommand(context, place) {
  const acode = await context.acode(place);
  try {
    const { engineRequest } = await acode.acode.explain(['true']);
    const docker = dockerRun(context, place, engineRequest);
    return { name: docker.name, settled: async () => undefined, turn: signal => docker.wall(['true'], signal) };
  } finally {
    await acode.close();
  }
}

/**
 * `acode serve`, running until `stop`. Rejects where there is none, and where what it keeps ready is not used.
 *
 * @param {Context} context
 * @param {Place} place
 */
async function serve(context, place) {
  const env = user(context, place);
  const child = spawn(process.execPath, [COMMAND, 'serve'], {
    env,
    cwd: context.workspace,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let complaint = '';
  child.stderr.on('data', chunk => (complaint = (complaint + String(chunk)).slice(-300)));
  const exited = new Promise(resolve => void child.on('exit', resolve));
  child.on('error', () => undefined);
  const stop = async () => {
    child.kill('SIGTERM');
    await Promise.race([exited, pause(SERVING_MS)]);
    child.kill('SIGKILL');
  };
  try {
    const until = performance.now() + SERVING_MS;
    while (!(await isWarm(context, env))) {
      if (child.exitCode !== null)
        throw new Error(`acode serve ended with ${child.exitCode}: ${complaint.split('\n')[0]}`);
      if (performance.now() > until) throw new Error('acode serve hands out nothing that waited');
      await pause(300);
    }
  } catch (error) {
    await stop();
    throw error;
  }
  // A second is longer than any engine here takes to make a sandbox.
  return { env, stop, refilled: rested };
}

/**
 * @param {Context} context
 * @param {NodeJS.ProcessEnv} env
 */
async function isWarm(context, env) {
  return /"warm":\s*true/.test(await printed(context, ['sandbox', 'exec', '--json', '--', 'true'], env));
}

/**
 * What the command prints, whatever its exit status.
 *
 * @param {Context} context
 * @param {readonly string[]} words
 * @param {NodeJS.ProcessEnv} env
 */
async function printed(context, words, env) {
  const child = spawn(process.execPath, [COMMAND, ...words], {
    env,
    cwd: context.workspace,
    stdio: ['ignore', 'pipe', 'ignore'],
    timeout: TURN_MS,
  });
  let text = '';
  child.stdout.on('data', chunk => (text += String(chunk)));
  await new Promise((resolve, reject) => {
    child.on('close', resolve);
    child.on('error', reject);
  });
  return text;
}

/**
 * @param {Context} context
 * @param {string} program
 * @param {readonly string[]} words
 * @param {NodeJS.ProcessEnv} env
 * @param {AbortSignal} signal
 * @returns {Promise<number>}
 */
async function wall(context, program, words, env, signal) {
  const began = performance.now();
  const child = spawn(program, words, { env, cwd: context.workspace, stdio: ['ignore', 'ignore', 'pipe'], signal });
  let complaint = '';
  child.stderr.on('data', chunk => (complaint = (complaint + String(chunk)).slice(-300)));
  const code = await new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', resolve);
  });
  const took = performance.now() - began;
  if (code !== 0)
    throw new Error(`${words.slice(-4).join(' ')} ended with ${code}: ${complaint.trim().split('\n')[0]}`);
  return took;
}
