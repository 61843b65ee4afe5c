// Server of a call: runs until it is interrupted, stopped, idle for too long, or its workspace no longer exists.

import { closeSync, constants, lstatSync, openSync, statSync } from 'node:fs';
import { AcodeError } from '@acode/sandbox';
import type { PoolOptions, WarmPool } from '@acode/sandbox';
import type { Call } from '../call.ts';
import type { Io } from '../io.ts';
import { hashedVariables, identityOf, inheritedTraits, runtimeDirectory } from './identity.ts';
import type { IdentityParts } from './identity.ts';
import { needsVariables } from './obstacles.ts';
import { isServed } from './presence.ts';
import { ServedHost } from './served-host.ts';
import { CallServer } from './server.ts';
import type { ServerState } from './state.ts';
import { directoryMark } from './request.ts';

/** Where a server is. */
export interface ServerFacts {
  readonly workspace: string;
  readonly socket: string;
}

/** How a server is run. */
export interface Serving {
  readonly pool: PoolOptions;
  /** Whether it was started by a command that ended: then it ends by itself, and says nothing. */
  readonly background: boolean;
  /** Called when clients can come. */
  listening(facts: ServerFacts): Promise<void>;
  /** Called when the first sandbox is warm, or it is known that none will be. */
  settled(facts: ServerFacts, pool: WarmPool): Promise<void>;
}

const ASK_MS = 100;
// A scan takes half of the time: commands pass through the same thread.
const SCAN_REST_MS = 10;
// An engine that does not answer by then has no part in what is said of the server.
const STATE_MS = 3000;
const UNKNOWN: WarmPool = {
  sandboxes: [],
  state: 'none',
  cause: null,
  reason: 'the engine does not answer',
  image: null,
};

/** Serves until the call is interrupted, or the server is not wanted any more; nothing is left then. */
export async function serveCalls(call: Call, serving: Serving): Promise<void> {
  const parts = await partsOf(call);
  // Somebody else was quicker; a person who started this one hears of it below.
  if (serving.background && (await isServed(parts))) return;
  const { Acode } = await import('@acode/sandbox');
  const { env } = call.io;
  const { ScansHere } = await import('../scans/hand-over.ts');
  const { storeUnused } = await import('../scans/unused.ts');
  const options = { ...(await call.serverOptions()), pool: serving.pool, foundWhileWaiting: storeUnused };
  await using scans = new ScansHere({
    uid: parts.uid,
    program: call.program,
    scan: (jobs, signal) => Acode.scan(jobs, { signal, restMs: SCAN_REST_MS }),
  });
  const host = new ServedHost({ open: given => Acode.open(given), options, env, scans });
  try {
    // Before any call is served: a user who may not run anything gets the error here, and the socket directory is private.
    await host.open();
    await loadAhead();
    await serve(call, serving, host, parts);
  } finally {
    await call.progress.during('Removing the sandboxes…', host.close());
  }
}

async function partsOf(call: Call): Promise<IdentityParts> {
  const uid = process.getuid?.();
  if (uid === undefined)
    throw new AcodeError('ACODE-SBX-016', {
      what: '`acode serve` on this system',
      instead: 'Call `acode run` as it is: every command has a sandbox made for it.',
    });
  const { root, here } = await call.place();
  return { ...call.options, root, cwd: here, env: call.io.env, uid, inherited: inheritedTraits() };
}

async function serve(call: Call, serving: Serving, host: ServedHost, parts: IdentityParts): Promise<void> {
  const { signal } = call.interruption;
  const since = new Date(call.io.now()).toISOString();
  const ending = new AbortController();
  const end = (): void => ending.abort();
  await using server = await CallServer.listen({
    directory: runtimeDirectory(parts.env, parts.uid),
    identity: identityOf(parts),
    workspace: parts.root,
    uid: parts.uid,
    perform: (argv, io) => call.runCli(argv, { ...io, env: servedEnvironment(parts.env, io.env) }, { lender: host }),
    whyDeclined: () => whyDeclined(host, serving.background ? end : null),
    state: async (): Promise<Omit<ServerState, 'commands'>> => ({
      pid: process.pid,
      since,
      background: serving.background,
      ...(await poolOf(host)),
    }),
    stop: end,
  });
  const facts = { workspace: parts.root, socket: server.path };
  const watched = {
    ...facts,
    entry: call.program?.entry ?? process.execPath,
    idleMs: () => (host.isHeld ? 0 : server.idleMs()),
  };
  using _life = serving.background ? watchLifetime(watched, longestIdle(parts.env), end) : null;
  await serving.listening(facts);
  const over = AbortSignal.any([signal, ending.signal]);
  if (!serving.background) void tellWhenSettled(host, over, pool => serving.settled(facts, pool));
  await aborted(over);
  // A person who interrupts a server means its commands too.
  if (!signal.aborted) await server.retire(signal);
}

/**
 * The variables of a call that a server runs. A client sends only those of its look; the others are part of the identity, so
 * its HOME and XDG_CONFIG_HOME are the server’s.
 */
export function servedEnvironment(own: Io['env'], sent: Io['env']): Io['env'] {
  return { ...hashedVariables(own), ...sent };
}

// Checked before each command: if the user switched it off, the next command is not served any more; and a credential is read from
// the environment of the process that runs the command.
async function whyDeclined(host: ServedHost, end: (() => void) | null): Promise<string | null> {
  const setting = await host.look(acode => acode.serveSetting());
  if (!setting) return null;
  if (end === null || setting.value !== 'never') return needsVariables(setting);
  end();
  return `sandbox.serve is never (${setting.setBy ?? 'unknown'})`;
}

async function poolOf(host: ServedHost): Promise<WarmPool> {
  const late = new Promise<null>(resolve => void setTimeout(() => resolve(null), STATE_MS).unref());
  const pool = await Promise.race([host.look(acode => acode.warmPool()), late]).catch(reasonOf);
  return pool ?? UNKNOWN;
}

function reasonOf(error: unknown): WarmPool {
  return { ...UNKNOWN, reason: error instanceof Error ? error.message : String(error) };
}

// What is said is what was seen, and not what is hoped for.
async function tellWhenSettled(
  host: ServedHost,
  over: AbortSignal,
  tell: (pool: WarmPool) => Promise<void>,
): Promise<void> {
  while (!over.aborted) {
    const pool = await poolOf(host);
    if (over.aborted) return;
    if (pool.state !== 'making') return tell(pool);
    await new Promise(resolve => void setTimeout(resolve, ASK_MS));
  }
}

// Where acode is installed in the workspace, a sandbox may have put something else in the place of what is loaded later.
async function loadAhead(): Promise<void> {
  await Promise.all([import('../structured-log.ts'), import('../scans/pending.ts')]);
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** After so long without a command it ends. */
const IDLE_MS = 10 * 60_000;
// How late it may notice that it is not wanted any more.
const CHECK_MS = 1000;

/** What a background process looks at. */
export interface Watched {
  readonly workspace: string;
  /** The path of its socket. */
  readonly socket: string;
  /** The file it was started from. */
  readonly entry: string;
  /** How long nothing has run; 0 while something does. */
  idleMs(): number;
}

/** Why it ends. */
export type EndReason = 'idle' | 'workspace gone' | 'socket gone' | 'acode replaced';

/** The longest idle time: `ACODE_SERVE_IDLE_SECONDS` may shorten it, and never lengthen. */
export function longestIdle(env: Readonly<Record<string, string | undefined>>): number {
  const asked = Number(env['ACODE_SERVE_IDLE_SECONDS'] || NaN) * 1000;
  return asked > 0 ? Math.min(asked, IDLE_MS) : IDLE_MS;
}

/** Calls `end` once, when the process is not wanted any more. */
function watchLifetime(watched: Watched, longestIdleMs: number, end: (why: EndReason) => void): Disposable {
  // Held open: the number of a directory that was removed could be given to the next one at once.
  const held = openSync(watched.workspace, constants.O_RDONLY | constants.O_DIRECTORY);
  const before = marks(watched);
  const timer = setInterval(() => {
    const why = reasonToEnd(before, marks(watched), watched.idleMs() >= longestIdleMs);
    if (why === null) return;
    clearInterval(timer);
    end(why);
  }, CHECK_MS);
  return {
    [Symbol.dispose]: () => {
      clearInterval(timer);
      closeSync(held);
    },
  };
}

interface Marks {
  readonly workspace: string | null;
  readonly socket: string | null;
  readonly entry: string | null;
}

function reasonToEnd(before: Marks, now: Marks, isIdle: boolean): EndReason | null {
  // One that was removed and made anew is another one, though it has the same path.
  if (before.workspace !== now.workspace) return 'workspace gone';
  // Whoever has its place now is found in its stead.
  if (before.socket !== now.socket) return 'socket gone';
  // What it has not loaded yet is another version’s by now.
  if (before.entry !== now.entry) return 'acode replaced';
  return isIdle ? 'idle' : null;
}

function marks({ workspace, socket, entry }: Watched): Marks {
  return {
    workspace: markOf(() => directoryMark(statSync(workspace))),
    socket: markOf(() => directoryMark(lstatSync(socket))),
    entry: markOf(() => `${directoryMark(statSync(entry))} ${statSync(entry).mtimeMs}`),
  };
}

function markOf(look: () => string): string | null {
  try {
    return look();
  } catch {
    return null;
  }
}
