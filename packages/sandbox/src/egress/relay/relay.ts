// The outer end of a forwarder: takes the connections of one sandbox, over a unix socket or over frames, and hands each on with the
// listener that it came in at.

import { constants } from 'node:fs';
import { chmod, open, type FileHandle } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import type { EgressPlan } from '../../contract/egress.ts';
import { type BindFault, Control, excessOf, type Listener } from './control.ts';
import { type FramePipe, Frames } from './frames.ts';

/** How the bytes of a sandbox come out of it. */
export type Transport =
  | {
      /** A unix socket in a directory that the sandbox has mounted. */
      readonly kind: 'socket';
      /** The directory, which only the user can access. */
      readonly directory: string;
    }
  | {
      /** Frames over the standard streams of the forwarder. */
      readonly kind: 'frames';
      readonly pipe: FramePipe;
    };

/** Called for each connection. The stream is paused, and is whoever takes it. */
export type OnConnection = (listener: Listener, stream: Duplex) => void;

/** One sandbox’s connections. */
export interface Relay {
  /** Resolves when the forwarder has bound everything, or cannot. */
  readonly bound: Promise<BindFault>;
  /** Tells the forwarder the names of another plan. */
  update(plan: EgressPlan): Promise<BindFault>;
  /** Ends every connection; the forwarder ends too. */
  close(): Promise<void>;
}

/** The name of the socket in its directory. */
export const SOCKET = 'relay';

const CONTROL_LINE = 'control';
const MAX_LINE = 32;
// For the line with which a connection begins; the forwarder sends it at once.
const LINE_MS = 5000;
const BIND_MS = 10_000;
const NEWLINE = 10;

/** Waits for the connections of a sandbox. Its forwarder may be started when this has resolved. */
export async function listen(transport: Transport, plan: EgressPlan, onConnection: OnConnection): Promise<Relay> {
  const excess = excessOf(plan);
  if (excess !== null) throw new RangeError(`the allow-list is too long for a sandbox: ${excess}`);
  if (transport.kind === 'frames') return overFrames(transport.pipe, plan, onConnection);
  return SocketRelay.open(transport.directory, plan, onConnection);
}

function overFrames(pipe: FramePipe, plan: EgressPlan, onConnection: OnConnection): Relay {
  let { connections } = plan.limits;
  const control = new Control(plan, text => frames.control(text));
  const frames = new Frames(pipe, {
    control: chunk => control.receive(chunk),
    open: (name, stream) => {
      const listener = control.listener(name);
      if (listener) onConnection(listener, stream);
      return listener !== null;
    },
    max: () => connections,
    closed: () => control.end(),
  });
  const update = (next: EgressPlan): Promise<BindFault> => {
    ({ connections } = next.limits);
    return inTime(control.update(next));
  };
  return { bound: update(plan), update, close: async () => frames.close() };
}

class SocketRelay implements Relay {
  readonly bound: Promise<BindFault>;
  readonly #server: Server;
  readonly #control: Control;
  readonly #onConnection: OnConnection;
  readonly #sockets = new Set<Socket>();
  #plan: EgressPlan;
  #controlSocket: Socket | null = null;
  #bind: (fault: BindFault) => void = () => undefined;

  static async open(directory: string, plan: EgressPlan, onConnection: OnConnection): Promise<SocketRelay> {
    // By the number of the open directory: the path of a socket can be read inside, in /proc/net/unix.
    const handle = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    try {
      const relay = new SocketRelay(plan, onConnection);
      await relay.#listen(handle);
      await chmod(join(directory, SOCKET), 0o600);
      return relay;
    } finally {
      await handle.close();
    }
  }

  private constructor(plan: EgressPlan, onConnection: OnConnection) {
    this.#plan = plan;
    this.#onConnection = onConnection;
    this.#control = new Control(plan, text => void this.#controlSocket?.write(text, 'latin1'));
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, socket => this.#accept(socket));
    this.bound = new Promise(resolve => (this.#bind = resolve));
    this.#limit();
  }

  async update(plan: EgressPlan): Promise<BindFault> {
    this.#plan = plan;
    this.#limit();
    return this.#controlSocket ? await inTime(this.#control.update(plan)) : null;
  }

  async close(): Promise<void> {
    const closed = new Promise(resolve => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    this.#bind({ reason: 'the relay was closed' });
    await closed;
  }

  // Counted by the server itself, before a byte is read: everything in the sandbox can connect to the socket.
  #limit(): void {
    this.#server.maxConnections = this.#plan.limits.connections + 1;
  }

  #listen({ fd }: FileHandle): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ path: `/proc/self/fd/${fd}/${SOCKET}`, backlog: 511 }, () => {
        this.#server.off('error', reject);
        // Accepting may fail for lack of descriptors: that connection is lost, and the others go on.
        this.#server.on('error', () => undefined);
        resolve();
      });
    });
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.on('close', () => this.#sockets.delete(socket));
    socket.on('error', () => undefined);
    const timer = setTimeout(() => socket.destroy(), LINE_MS);
    timer.unref();
    let first: Buffer = Buffer.alloc(0);
    const onEnd = (): void => void socket.destroy();
    const onData = (chunk: Buffer): void => {
      first = first.length > 0 ? Buffer.concat([first, chunk]) : chunk;
      const end = first.indexOf(NEWLINE);
      if (end === -1 && first.length <= MAX_LINE) return;
      clearTimeout(timer);
      socket.off('data', onData).off('end', onEnd);
      socket.pause();
      if (end === -1 || end > MAX_LINE) return void socket.destroy();
      const rest = first.subarray(end + 1);
      if (rest.length > 0) socket.unshift(rest);
      this.#take(socket, first.toString('latin1', 0, end));
    };
    socket.on('data', onData).on('end', onEnd);
    socket.once('close', () => clearTimeout(timer));
    socket.resume();
  }

  #take(socket: Socket, line: string): void {
    if (line === CONTROL_LINE) return this.#takeControl(socket);
    const listener = this.#control.listener(line);
    if (listener) this.#onConnection(listener, socket);
    else socket.destroy();
  }

  // The forwarder is the first to connect, before any command runs; a second control connection is somebody else’s.
  #takeControl(socket: Socket): void {
    if (this.#controlSocket) return void socket.destroy();
    this.#controlSocket = socket;
    socket.on('data', (chunk: Buffer) => {
      if (!this.#control.receive(chunk)) socket.destroy();
    });
    socket.on('end', () => socket.destroy());
    socket.on('close', () => this.#control.end());
    socket.resume();
    inTime(this.#control.update(this.#plan)).then(this.#bind, () => undefined);
  }
}

async function inTime(binding: Promise<BindFault>): Promise<BindFault> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<BindFault>(resolve => {
    timer = setTimeout(resolve, BIND_MS, { reason: 'the forwarder did not answer' });
  });
  try {
    return await Promise.race([binding, late]);
  } finally {
    clearTimeout(timer);
  }
}
