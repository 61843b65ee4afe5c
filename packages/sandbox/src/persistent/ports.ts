// Reaching servers inside a sandbox from the host’s loopback, by a program inside: its network does not change.

import { createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { AcodeError } from '../contract/errors.ts';
import type { ForwardedPort, Ports } from '../contract/sandbox.ts';
import type { Inside, InsideProgram } from '../isolation/backend.ts';

// What can lead a stream to a port of the loopback, the smallest first. The port is an argument, and no part of any text.
const NODE = `const s=require('net').connect(+process.argv[1],'127.0.0.1');s.on('error',()=>process.exit(1));process.stdin.pipe(s).pipe(process.stdout)`;
const PYTHON = `
import os,socket,sys,threading
s=socket.create_connection(('127.0.0.1',int(sys.argv[1])))
def up():
    while True:
        d=os.read(0,65536)
        if not d: break
        s.sendall(d)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=up,daemon=True).start()
while True:
    d=s.recv(65536)
    if not d: break
    os.write(1,d)
`;
const LEADERS: readonly { readonly program: string; readonly argv: (port: string) => readonly string[] }[] = [
  { program: 'nc', argv: port => ['nc', '127.0.0.1', port] },
  { program: 'socat', argv: port => ['socat', '-', `TCP4:127.0.0.1:${port}`] },
  { program: 'python3', argv: port => ['python3', '-c', PYTHON, port] },
  { program: 'node', argv: port => ['node', '-e', NODE, port] },
];
const LOOK = 'for p in "$@"; do command -v "$p" >/dev/null 2>&1 && { printf %s "$p"; exit 0; }; done; exit 1';
const MAX_PORT = 65_535;
const MAX_CONNECTIONS = 64;
const OPTIONS: ReadonlySet<string> = new Set(['hostPort', 'onUnanswered', 'signal']);

type ForwardOptions = NonNullable<Parameters<Ports['forward']>[1]>;

/** The ports of a sandbox. */
export function portsOf(inside: Inside, closing: AbortSignal): Ports {
  let leader: Promise<(port: string) => readonly string[]> | null = null;
  return {
    forward: async (containerPort, options = {}) => {
      const { hostPort = 0, onUnanswered, signal } = checkedOptions(options);
      checkPort('containerPort', containerPort, 1);
      checkPort('hostPort', hostPort, 0);
      leader ??= findLeader(inside, closing);
      // What failed once is asked again.
      leader.catch(() => (leader = null));
      const argv = (await leader)(String(containerPort));
      const until = AbortSignal.any([closing, ...(signal ? [signal] : [])]);
      until.throwIfAborted();
      return Forwarding.listen({ inside, argv, hostPort, until, onUnanswered });
    },
  };
}

async function findLeader(inside: Inside, signal: AbortSignal): Promise<(port: string) => readonly string[]> {
  const names = LEADERS.map(({ program }) => program);
  const { stdout } = await inside.call(['/bin/sh', '-c', LOOK, 'sh', ...names], { signal });
  const found = LEADERS.find(({ program }) => program === stdout.toString('utf8'));
  if (found) return found.argv;
  throw new AcodeError('ACODE-FIL-001', { program: names.join(', '), operation: 'reaching a port' });
}

interface Forwarded {
  readonly inside: Inside;
  readonly argv: readonly string[];
  readonly hostPort: number;
  readonly until: AbortSignal;
  readonly onUnanswered: (() => void) | undefined;
}

/** A port of the host’s loopback that leads inside. */
class Forwarding implements ForwardedPort {
  readonly #server: Server;
  readonly #connections = new Set<Socket>();
  readonly #of: Forwarded;
  readonly #stop = (): void => void this.close();

  private constructor(of: Forwarded) {
    this.#of = of;
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, socket => void this.#lead(socket));
    this.#server.maxConnections = MAX_CONNECTIONS;
  }

  static async listen(of: Forwarded): Promise<ForwardedPort> {
    const forwarding = new Forwarding(of);
    await new Promise<void>((resolve, reject) => {
      forwarding.#server.once('error', (error: NodeJS.ErrnoException) =>
        reject(new AcodeError('ACODE-SBX-021', { port: of.hostPort, reason: inWords(error) })),
      );
      forwarding.#server.listen({ host: '127.0.0.1', port: of.hostPort }, resolve);
    });
    of.until.addEventListener('abort', forwarding.#stop, { once: true });
    return forwarding;
  }

  get port(): number {
    const address: AddressInfo | string | null = this.#server.address();
    return typeof address === 'object' && address ? address.port : 0;
  }

  async close(): Promise<void> {
    this.#of.until.removeEventListener('abort', this.#stop);
    for (const socket of this.#connections) socket.destroy();
    await new Promise<void>(resolve => void this.#server.close(() => resolve()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #lead(socket: Socket): Promise<void> {
    this.#connections.add(socket);
    const { inside, argv, until, onUnanswered } = this.#of;
    const gone = new AbortController();
    socket.on('error', () => undefined);
    socket.once('close', () => {
      this.#connections.delete(socket);
      gone.abort();
    });
    try {
      const program = await inside.open(argv, AbortSignal.any([until, gone.signal]));
      let answered = false;
      program.stdout.once('data', () => (answered = true));
      program.stdout.pipe(socket);
      program.stdout.on('error', () => socket.destroy());
      // A program that found no server takes nothing either, and only its exit status says why.
      const [sent, ended] = await Promise.allSettled([send(socket, program), program.ended]);
      if (ended.status === 'fulfilled' && ended.value.exitCode !== 0 && !answered) onUnanswered?.();
      if (sent.status === 'rejected' || ended.status === 'rejected') socket.destroy();
    } catch {
      socket.destroy();
    }
  }
}

// Data that the other side does not read waits at the sender. A sender that has finished still wants the answer, so that the
// end of what it sends must not end the connection.
async function send(socket: Socket, program: InsideProgram): Promise<void> {
  const sent: AsyncIterable<Buffer> = socket.iterator({ destroyOnReturn: false });
  for await (const chunk of sent) await program.write(chunk);
  await program.closeStdin();
}

function inWords({ code, message }: NodeJS.ErrnoException): string {
  if (code === 'EADDRINUSE') return 'something else listens on it';
  if (code === 'EACCES') return 'only root may listen on ports below 1024';
  return code ?? message;
}

// Nothing that was asked for is ignored: a port by another name would listen anywhere.
function checkedOptions(options: ForwardOptions): ForwardOptions {
  if (typeof options !== 'object') throw invalid('options', 'must be an object');
  const unknown = Object.entries(options).find(([field, value]) => value !== undefined && !OPTIONS.has(field));
  if (unknown) throw invalid(unknown[0], 'is not an option that this call knows');
  const { onUnanswered, signal } = options;
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw invalid('signal', 'must be an AbortSignal');
  if (onUnanswered !== undefined && typeof onUnanswered !== 'function')
    throw invalid('onUnanswered', 'must be a function');
  return options;
}

function checkPort(field: string, port: number, least: number): void {
  if (Number.isInteger(port) && port >= least && port <= MAX_PORT) return;
  throw invalid(field, `must be a whole number from ${least} to ${MAX_PORT}`);
}

function invalid(field: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', { field, reason });
}
