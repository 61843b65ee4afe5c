// Start of the background process of a workspace after a command, with a notice once per user.

import { spawn } from 'node:child_process';
import { closeSync, constants, mkdirSync, openSync, readFileSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { isatty } from 'node:tty';
import type { ServeSetting } from '@acode/sandbox';
import type { Caller } from '../caller.ts';
import type { OwnProgram } from '../own-program.ts';
import { oneLine } from '../terminal/text.ts';
import { enginePath, hashedVariables, identityOf, inheritedTraits } from './identity.ts';
import { runtimeDirectory, stateDirectory, userConfigFile } from './identity.ts';
import { throughServer } from './client.ts';
import { obstacleOf, surroundingsOf } from './obstacles.ts';
import { lives } from './presence.ts';
import { forgetEnds, noteEnd } from './recent.ts';
import { SocketDirectory } from './socket-path.ts';
import { whereOf, whereOnRequest } from './location-options.ts';
import type { Where } from './location-options.ts';

const ANNOUNCED = 'serve-announced';
const DESCRIPTORS = '/proc/self/fd';
const STANDARD = 2;
// O_CLOEXEC, as the kernel shows it.
const CLOSED_ON_EXEC = 0o2000000;

/** Where a background process would be started. */
interface Spot {
  readonly root: string;
  readonly here: string;
  readonly where: Where;
  readonly entry: string;
}

/**
 * Notes that a command has ended, and starts the background process of its workspace where that is due. The command’s output
 * is with its reader by then, and nothing that happens here changes its exit status.
 */
export async function afterCommand(call: Caller, program: OwnProgram, setting: ServeSetting): Promise<void> {
  const where = whereOf(call.before);
  const uid = process.getuid?.();
  if (where === null || uid === undefined || setting.value === 'never') return;
  const { root, here } = await call.place();
  const { env } = call.io;
  const { socketName } = identityOf({ ...where, root, cwd: here, env, uid, inherited: inheritedTraits() });
  const place = SocketDirectory.open(runtimeDirectory(env, uid), uid);
  if ('unsafe' in place) return;
  using held = place;
  const isDue = noteEnd(held, socketName, call.io.now()) || isDueAtOnce(call, setting);
  if (!isDue || obstacleOf(surroundingsOf(call.io, { root, written: call.written, program, setting })) !== null) return;
  if (await isTaken(held, socketName, uid)) return;
  await announce(call);
  forgetEnds(held, socketName);
  start({ root, here, where, entry: program.entry }, hashedVariables(env));
}

// An agent that sends one command sends more.
function isDueAtOnce({ isHook }: Caller, { value }: ServeSetting): boolean {
  return value === 'always' || isHook === true;
}

const START_MS = 20_000;
const ASK_MS = 50;
// One that has just begun on a busy machine.
const ANSWER_MS = 20_000;
const STANDARD_STREAMS = [0, 1, 2];

/**
 * Has the background process of a workspace do a call that needs a process which goes on; starts that process if there is none.
 * Returns the exit status, or why no such process does it.
 */
export async function inBackground(
  call: Caller,
  program: OwnProgram | undefined,
  setting: ServeSetting,
): Promise<number | { readonly reason: string }> {
  const where = whereOnRequest(call.before);
  if (where === null) return { reason: 'it has none of the variables of your environment, and reads no --env-file' };
  const reason = await whyNotUp(call, where, program, setting);
  if (reason !== null) return { reason };
  const terminals = STANDARD_STREAMS.filter(stream => isatty(stream));
  const outcome = await throughServer(call.before, call.io, terminals, where, ANSWER_MS);
  if (outcome.kind === 'done') return outcome.status;
  if (setting.value === 'never') return { reason: `sandbox.serve is never (${setting.setBy ?? 'unknown'})` };
  return { reason: outcome.kind === 'alone' ? (outcome.note?.message ?? 'it did not take the call') : 'it ended' };
}

// Null once a server listens for such calls: one that was there, or one that is started here.
async function whyNotUp(
  call: Caller,
  where: Where,
  program: OwnProgram | undefined,
  setting: ServeSetting,
): Promise<string | null> {
  const uid = process.getuid?.();
  if (uid === undefined || !program) return 'this process cannot start one';
  const { root, here } = await call.place();
  const { env } = call.io;
  const { socketName } = identityOf({ ...where, root, cwd: here, env, uid, inherited: inheritedTraits() });
  const place = SocketDirectory.open(runtimeDirectory(env, uid), uid);
  if ('unsafe' in place) return place.unsafe;
  using held = place;
  if (await isTaken(held, socketName, uid)) return null;
  // It was asked for, so that neither a CI system nor little memory is a reason.
  const surroundings = surroundingsOf({ env: {} }, { root, written: call.written, program, setting });
  const obstacle = obstacleOf({ ...surroundings, availableBytes: Infinity });
  if (obstacle !== null) return obstacle;
  start({ root, here, where, entry: program.entry }, hashedVariables(env));
  return (await isUp(held, socketName, uid)) ? null : 'it did not start';
}

async function isUp(place: SocketDirectory, socketName: string, uid: number): Promise<boolean> {
  const until = performance.now() + START_MS;
  while (performance.now() < until) {
    if (await isTaken(place, socketName, uid)) return true;
    await new Promise(done => void setTimeout(done, ASK_MS));
  }
  return false;
}

// One that lives and did not take the command has its reasons; a second one would find its place taken.
async function isTaken(place: SocketDirectory, socketName: string, uid: number): Promise<boolean> {
  return place.whyUnsafe(socketName, uid) === null && (await lives(place.path(socketName)));
}

function start({ root, here, where, entry }: Spot, env: Record<string, string>): void {
  closeInherited();
  const options = [
    '--workspace',
    root,
    ...(where.config === undefined ? [] : ['--config', resolve(here, where.config)]),
    ...(where.socket === undefined ? [] : ['--socket', enginePath(here, where.socket)]),
  ];
  // In a session of its own (`detached`), so that neither Ctrl-C nor the end of the terminal reaches it. Its working
  // directory is `/`, which the user never wants to unmount or remove.
  const child = spawn(process.execPath, ['--', entry, 'serve', '--background', ...options], {
    cwd: '/',
    env,
    detached: true,
    stdio: 'ignore',
  });
  child.on('error', () => undefined);
  child.unref();
}

// Node closes what it opened itself when it starts a program, but not everything that this process was given: a `$(…)`, a lock
// or a pipe of the shell would stay open for as long as the background process lives. Nothing here reads them any more.
function closeInherited(): void {
  for (const name of readdirSync(DESCRIPTORS)) {
    const descriptor = Number(name);
    if (descriptor <= STANDARD || isClosedOnExec(name)) continue;
    try {
      closeSync(descriptor);
    } catch {
      // It was that of the directory that is being listed.
    }
  }
}

function isClosedOnExec(name: string): boolean {
  try {
    const [, flags = '0'] = /^flags:\s+([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${name}`, 'utf8')) ?? [];
    return (Number.parseInt(flags, 8) & CLOSED_ON_EXEC) !== 0;
  } catch {
    return true;
  }
}

/** Whether this user has not been notified yet; records that they now have. */
function isFirstTime(directory: string): boolean {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    closeSync(openSync(join(directory, ANNOUNCED), constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY, 0o600));
    return true;
  } catch {
    return false;
  }
}

async function announce(call: Caller): Promise<void> {
  if (!call.stderr.isTerminal || !isFirstTime(stateDirectory(call.io.env))) return;
  const file = oneLine(userConfigFile(call.io.env));
  await call.say(
    `${call.errorLook.colours.cyan('acode:')} a background process now keeps a sandbox warm for this workspace, so that ` +
      'commands start faster. It ends after 10 idle minutes. `acode serve stop` ends it now; `sandbox: { serve: never }` ' +
      `in ${file} switches it off. (Shown once.)\n`,
  );
  await call.stderr.flush();
}
