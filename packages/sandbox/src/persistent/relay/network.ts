// The network of a sandbox, offered by the process that has its proxy: another process of the user sees its connections, and
// tells it what a person granted.

import { rm } from 'node:fs/promises';
import { createConnection } from 'node:net';
import type { Server, Socket } from 'node:net';
import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { EgressConnection } from '../../contract/egress.ts';
import type { RunningNetwork } from '../../contract/network-access.ts';
import { listenAt, networkSocketPath, networkSocketPaths } from '../../lifecycle/ownership.ts';
import type { Host, GrantedHost, OfferedNetwork } from '../../run/host.ts';
import { failure, lines, packed, unpacked } from './wire.ts';

const VERSION = 1;
const MAX_READERS = 8;
const MAX_LINE = 4096;
// 256 rows of the longest names.
const MAX_ANSWER = 1024 ** 2;
// A change of the list waits for the forwarder inside.
const ANSWER_MS = 20_000;
const QUESTION_MS = 5000;

const question = z.discriminatedUnion('ask', [
  z.strictObject({ version: z.literal(VERSION), ask: z.literal('report') }),
  z.strictObject({
    version: z.literal(VERSION),
    ask: z.literal('grant'),
    host: z.string(),
    port: z.int(),
    entry: z.string(),
  }),
]);

// Both ends are this library, and of one user.
const connection = z.custom<EgressConnection>(value => typeof value === 'object' && value !== null);

const answer = z.discriminatedUnion('is', [
  z.object({
    is: z.literal('report'),
    sandboxId: z.string(),
    command: z.array(z.string()),
    workspace: z.string().nullable(),
    taskId: z.string().nullable(),
    startedAt: z.string(),
    connections: z.array(connection),
  }),
  z.object({ is: z.literal('granted') }),
  z.object({ is: z.literal('failed'), failure }),
]);

type Question = z.infer<typeof question>;
type Answer = z.infer<typeof answer>;

/** Offers a network until it ends. Where the socket cannot be made, nothing is offered. */
export async function offerNetwork({ directories }: Pick<Host, 'directories'>, network: OfferedNetwork): Promise<void> {
  const path = networkSocketPath(directories.runtime, network.about.sandboxId);
  const sockets = new Set<Socket>();
  const { server } = await listenAt(path, socket => {
    sockets.add(socket);
    socket.unref().once('close', () => sockets.delete(socket));
    void serve(socket, network).finally(() => socket.destroy());
  });
  server.maxConnections = MAX_READERS;
  void closeAfter(network.ended, { path, server, sockets });
}

async function closeAfter(
  ended: Promise<void>,
  { path, server, sockets }: { readonly path: string; readonly server: Server; readonly sockets: ReadonlySet<Socket> },
): Promise<void> {
  await ended;
  server.close();
  for (const socket of sockets) socket.destroySoon();
  await rm(path, { force: true });
}

async function serve(socket: Socket, network: OfferedNetwork): Promise<void> {
  socket.on('error', () => undefined);
  const late = setTimeout(() => void socket.destroy(), QUESTION_MS).unref();
  try {
    const { value, done } = await lines(socket, MAX_LINE).next();
    clearTimeout(late);
    if (done !== true) await write(socket, await replyTo(question.parse(value), network));
  } catch {
    // What is no question gets no answer.
  } finally {
    clearTimeout(late);
  }
}

async function replyTo(asked: Question, network: OfferedNetwork): Promise<Answer> {
  if (asked.ask === 'report')
    return {
      is: 'report',
      ...network.about,
      command: [...network.about.command],
      connections: [...(await network.report())],
    };
  try {
    const { host, port, entry } = asked;
    await network.grant({ host, port, entry });
    return { is: 'granted' };
  } catch (error) {
    return { is: 'failed', failure: packed(error) };
  }
}

function write(socket: Socket, said: Answer): Promise<void> {
  return new Promise(resolve => {
    socket.once('close', () => resolve());
    socket.end(`${JSON.stringify(said)}\n`, () => resolve());
  });
}

/** The networks that processes of this user have open, and the way to each. */
export async function openNetworks(runtimeDirectory: string, signal: AbortSignal): Promise<OpenNetwork[]> {
  const paths = await networkSocketPaths(runtimeDirectory);
  const found = await Promise.all(paths.map(path => reportOf(path, signal)));
  return found.flatMap(one => one ?? []);
}

/** A network that another process, or this one, has open. */
export interface OpenNetwork {
  /** What it is, and its connections so far. */
  readonly now: RunningNetwork;
  /** Tells its process what a person granted. */
  grant(granted: GrantedHost, signal: AbortSignal): Promise<void>;
}

async function reportOf(path: string, signal: AbortSignal): Promise<OpenNetwork | null> {
  const said = await ask(path, { version: VERSION, ask: 'report' }, signal).catch(() => null);
  if (said?.is !== 'report') return null;
  const { is: _, ...now } = said;
  return { now, grant: (granted, until) => grantAt(path, granted, until) };
}

async function grantAt(path: string, granted: GrantedHost, signal: AbortSignal): Promise<void> {
  const said = await ask(path, { version: VERSION, ask: 'grant', ...granted }, signal);
  if (said?.is === 'granted') return;
  if (said?.is === 'failed') throw unpacked(said.failure);
  throw new AcodeError('ACODE-EGR-002', { host: granted.host, reason: 'the process of its sandbox does not answer' });
}

// A socket without a listener is that of a process that was killed.
async function ask(path: string, asked: Question, signal: AbortSignal): Promise<Answer | null> {
  signal.throwIfAborted();
  const socket = createConnection({ path, signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]) });
  socket.on('error', () => undefined);
  try {
    await new Promise<void>((resolve, reject) => void socket.once('connect', resolve).once('error', reject));
    socket.write(`${JSON.stringify(asked)}\n`);
    const { value, done } = await lines(socket, MAX_ANSWER).next();
    return done === true ? null : answer.parse(value);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof Error && 'code' in error && error.code === 'ECONNREFUSED')
      await rm(path, { force: true }).catch(() => undefined);
    return null;
  } finally {
    socket.destroy();
  }
}
