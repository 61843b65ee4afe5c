// Makes trouble with a test engine on behalf of ordinary users: restarts, kills, stops, freezes it and fills its disk.
// One line per connection: a command; the answer is `ok` or `error <why>`, when it is done. Started by up, ended by down.
// Usage: node control.mjs --socket PATH --group GID --engine SOCKET --pidfile FILE --config FILE --disk DIR --log FILE
//   -- cmd…, where cmd starts the daemon and takes a mount namespace as a last argument
// @ts-check

import { spawn } from 'node:child_process';
import { chmodSync, chownSync, closeSync, openSync, readFileSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { request } from 'node:http';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';

const text = /** @type {const} */ ({ type: 'string', default: '' });
const { values, positionals } = parseArgs({
  options: { socket: text, group: text, engine: text, pidfile: text, config: text, disk: text, log: text },
  allowPositionals: true,
});
const { socket, group, engine, pidfile, config, disk, log } = values;
const [program = '', ...words] = positionals;
const containerd = join(dirname(pidfile), 'exec', 'containerd', 'containerd.pid');

// Longer than the engine’s own --shutdown-timeout, and than what it needs to look after what a killed one has left.
const STOP_MS = 15_000;
const START_MS = 60_000;
const CALL_MS = 5000;
const LINE_MS = 5000;

/** @param {number} ms */
const pause = ms => new Promise(resolve => void setTimeout(resolve, ms));

/**
 * @param {string} what
 * @param {number} withinMs
 * @param {() => boolean | Promise<boolean>} holds
 */
async function until(what, withinMs, holds) {
  const deadline = Date.now() + withinMs;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`${what}: not within ${withinMs} ms`);
    await pause(20);
  }
}

/**
 * A process by its pidfile; null where there is none, or only what is left of one. Pids are used again, so its name counts.
 *
 * @param {string} file
 * @param {string} name
 */
function processOf(file, name) {
  try {
    const pid = Number(readFileSync(file, 'utf8'));
    const [, command, state] = /^\d+ \((.*)\) (.)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? [];
    return command === name && state !== 'Z' && state !== 'X' ? pid : null;
  } catch {
    return null;
  }
}

const daemon = () => processOf(pidfile, 'dockerd');

/** The daemon’s process, which must be there. */
function running() {
  const pid = daemon();
  if (pid === null) throw new Error('the daemon is not running');
  return pid;
}

// Held open for as long as this process lives: what the daemon mounted for its containers stays mounted while there is no
// daemon, as it does on a machine whose daemon has no mount namespace of its own.
const mounts = `/proc/${process.pid}/fd/${openSync(`/proc/${running()}/ns/mnt`, 'r')}`;

/**
 * Asks the engine; null where it does not answer.
 *
 * @param {string} path
 * @returns {Promise<string | null>}
 */
function ask(path) {
  return new Promise(resolve => {
    const call = request({ socketPath: engine, path, signal: AbortSignal.timeout(CALL_MS) }, response => {
      let body = '';
      response.setEncoding('utf8').on('data', chunk => (body += chunk));
      response.on('end', () => resolve(response.statusCode === 200 ? body : null));
      response.on('error', () => resolve(null));
    });
    call.on('error', () => resolve(null));
    call.end();
  });
}

const answers = async () => (await ask('/_ping')) === 'OK';

/** @param {'SIGTERM' | 'SIGKILL'} signal */
async function stop(signal) {
  const pid = daemon();
  if (pid === null) return;
  process.kill(pid, signal);
  process.kill(pid, 'SIGCONT');
  const gone = () => daemon() !== pid;
  await until('the end of the daemon', STOP_MS, gone).catch(async () => {
    process.kill(pid, 'SIGKILL');
    await until('the end of the daemon', STOP_MS, gone);
  });
}

async function start() {
  if (daemon() !== null) return;
  // A killed daemon takes its containerd along. Where nobody collects the dead, the next one would take that for alive by
  // its pid, and wait ten seconds for its answer.
  await until('the end of containerd', STOP_MS, () => processOf(containerd, 'containerd') === null);
  for (const file of [pidfile, containerd]) rmSync(file, { force: true });
  const output = openSync(log, 'a');
  const child = spawn(program, [...words, mounts], { detached: true, stdio: ['ignore', output, output] });
  closeSync(output);
  child.on('error', error => console.error(error));
  child.unref();
  await until('the engine’s answer', START_MS, answers);
}

/** @param {boolean} on */
async function liveRestore(on) {
  writeFileSync(config, JSON.stringify({ 'live-restore': on }));
  process.kill(running(), 'SIGHUP');
  await until('the new configuration', START_MS, async () => {
    const info = await ask('/info');
    return info !== null && JSON.parse(info).LiveRestoreEnabled === on;
  });
}

const filler = join(disk, 'filler');

/** Fills the disk to its last byte. */
function fill() {
  const file = openSync(filler, 'a');
  try {
    for (const size of [1024 ** 2, 4096]) writeUntilFull(file, Buffer.alloc(size));
  } finally {
    closeSync(file);
  }
}

/**
 * @param {number} file
 * @param {Buffer} bytes
 */
function writeUntilFull(file, bytes) {
  try {
    while (writeSync(file, bytes) === bytes.length);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOSPC')) throw error;
  }
}

/** @type {Readonly<Record<string, () => unknown>>} */
const COMMANDS = {
  restart: async () => {
    await stop('SIGTERM');
    await start();
  },
  kill: async () => {
    await stop('SIGKILL');
    await start();
  },
  'stop-daemon': () => stop('SIGTERM'),
  'start-daemon': start,
  pause: () => process.kill(running(), 'SIGSTOP'),
  resume: async () => {
    process.kill(running(), 'SIGCONT');
    await until('the engine’s answer', START_MS, answers);
  },
  'live-restore on': () => liveRestore(true),
  'live-restore off': () => liveRestore(false),
  fill,
  free: () => rmSync(filler, { force: true }),
};

// One after the other: a start in the middle of a stop would be neither.
let last = Promise.resolve();

/** @param {string} line */
async function obey(line) {
  const command = COMMANDS[line];
  if (!command) return `error there is no ${JSON.stringify(line)}; there are ${Object.keys(COMMANDS).join(', ')}`;
  const mine = last.then(command);
  last = mine.then(
    () => undefined,
    () => undefined,
  );
  return mine.then(
    () => 'ok',
    error => `error ${error.message}`,
  );
}

const server = createServer({ allowHalfOpen: true }, connection => {
  let said = '';
  connection.setTimeout(LINE_MS, () => connection.destroy());
  connection.on('error', () => connection.destroy());
  connection.setEncoding('utf8').on('data', chunk => {
    said += chunk;
    const end = said.indexOf('\n');
    if (end < 0) return;
    connection.setTimeout(0).removeAllListeners('data').resume();
    void obey(said.slice(0, end).trim()).then(answer => connection.end(`${answer}\n`));
  });
});

process.umask(0o177);
server.listen(socket, () => {
  chownSync(socket, 0, Number(group));
  chmodSync(socket, 0o660);
  process.umask(0o022);
});
