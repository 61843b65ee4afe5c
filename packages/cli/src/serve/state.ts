// Server state: asks the server of a workspace for its state, and stops it.

import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import * as z from 'zod';
import { FRAME, FrameReader, frame } from './frames.ts';
import { runtimeDirectory } from './identity.ts';
import { SocketDirectory } from './socket-path.ts';

const stateSchema = z.object({
  pid: z.int().positive(),
  /** When it began, as an ISO date. */
  since: z.string(),
  /** Whether it was started by a command that ended, and ends by itself. */
  background: z.boolean(),
  /** How many commands run in it now. */
  commands: z.int(),
  sandboxes: z.array(z.object({ image: z.string(), count: z.int(), ids: z.array(z.string()).readonly() })).readonly(),
  state: z.enum(['ready', 'making', 'none']),
  reason: z.string(),
  image: z.string().nullable(),
});

/** What a server says of itself. */
export type ServerState = z.infer<typeof stateSchema>;

const ANSWER_MS = 5000;
const LOOK_MS = 50;

/** What the server at a socket says of itself; null where no server listens; `silent` where it does not answer. */
export async function stateOf(path: string, waitMs = ANSWER_MS): Promise<ServerState | 'silent' | null> {
  const reader = new FrameReader();
  let found: ServerState | null = null;
  const ended = await talk(path, FRAME.ask, waitMs, chunk => {
    for (const { kind, body } of reader.push(chunk))
      if (kind === FRAME.state) found = stateSchema.parse(JSON.parse(body.toString()));
  });
  if (ended === 'nobody') return null;
  return found ?? 'silent';
}

/**
 * Has the server at a socket end, and waits for its process to be gone.
 *
 * @returns whether it has stopped listening; it may still wait for commands that run in it
 */
export async function stopServer(path: string, { pid }: Pick<ServerState, 'pid'>, waitMs: number): Promise<boolean> {
  const end = performance.now() + waitMs;
  await talk(path, FRAME.stop, waitMs, () => undefined);
  while (isAlive(pid)) {
    if (performance.now() > end) return false;
    await new Promise(resolve => void setTimeout(resolve, LOOK_MS));
  }
  return true;
}

/** Ends every background process of the user, whatever workspace it is for. One that a person started is left alone. */
export async function stopBackground(env: Environment, waitMs: number): Promise<void> {
  await withServers(env, ANSWER_MS, async (state, path) => {
    if (state.background) await stopServer(path, state, waitMs);
  });
}

/** The ids of all containers that are warm in a server of the user’s, whatever workspace it is for. */
export async function warmContainers(env: Environment, waitMs: number): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  await withServers(env, waitMs, async ({ sandboxes }) => {
    for (const { ids } of sandboxes) for (const id of ids) found.add(id);
  });
  return found;
}

type Environment = Readonly<Record<string, string | undefined>>;

// Each server that answers in time. Only a socket that is this user’s alone is asked anything.
async function withServers(
  env: Environment,
  answerMs: number,
  use: (state: ServerState, path: string) => Promise<void>,
): Promise<void> {
  const uid = process.getuid?.();
  if (uid === undefined) return;
  const place = SocketDirectory.open(runtimeDirectory(env, uid), uid);
  if ('unsafe' in place) return;
  using held = place;
  const names = held.names().filter(name => name.endsWith('.sock') && held.whyUnsafe(name, uid) === null);
  await Promise.all(
    names.map(async name => {
      const state = await stateOf(held.path(name), answerMs);
      if (state !== null && state !== 'silent') await use(state, held.path(name));
    }),
  );
}

type Ended = 'nobody' | 'closed' | 'late';

/** Sends one frame and hears what comes until the other end closes. */
function talk(path: string, kind: number, waitMs: number, hear: (chunk: Buffer) => void): Promise<Ended> {
  return new Promise(resolve => {
    const socket: Socket = connect({ path });
    const late = setTimeout(() => end('late'), waitMs);
    const end = (how: Ended): void => {
      clearTimeout(late);
      socket.destroy();
      resolve(how);
    };
    socket.on('error', (error: NodeJS.ErrnoException) => end(isAbsence(error) ? 'nobody' : 'closed'));
    socket.on('close', () => end('closed'));
    socket.on('data', (chunk: Buffer) => {
      try {
        hear(chunk);
      } catch {
        end('closed');
      }
    });
    socket.write(frame(kind));
  });
}

// A killed server leaves its socket behind, and no process listens on it.
function isAbsence({ code }: NodeJS.ErrnoException): boolean {
  return code === 'ECONNREFUSED' || code === 'ENOENT';
}

// What has ended and was not asked for its status yet is not alive any more.
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^\d+ \(.*\) Z /s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
