// A program of this host that a level starts: by its absolute path, with words and never a line for a shell.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { Readable, Writable } from 'node:stream';
import type { ImageFacts } from '../../contract/spec.ts';

/** How a program is started. */
export interface ChildOptions {
  /** Absolute, and outside every workspace: a name would be looked for in directories that others may write. */
  readonly program: string;
  readonly argv: readonly string[];
  /** Everything the program gets; nothing of our own environment is passed on. */
  readonly environment: Readonly<Record<string, string>>;
  readonly cwd: string;
  /** Where its further descriptors begin; 3 unless told otherwise. */
  readonly first?: number;
  /** How many descriptors from there on it may write to. */
  readonly outputs?: number;
  /** What it reads from the descriptors after those, each to its end. */
  readonly inputs?: readonly (Uint8Array | string)[];
}

/** How a program ended. */
export interface ChildExit {
  /** As a shell gives it: 128 and the signal’s number, where it was ended by one. */
  readonly exitCode: number;
}

const FIRST_EXTRA = 3;
const BY_SIGNAL = 128;

/** A program that was started, with its streams. */
export class Child {
  readonly pid: number;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** Settles when the program itself has ended, whoever still holds its streams. */
  readonly exit: Promise<ChildExit>;
  readonly #process: ChildProcess;
  readonly #stdin: Writable;
  readonly #outputs: readonly Readable[];
  #ended = false;

  private constructor(child: ChildProcess, outputs: readonly Readable[]) {
    this.#process = child;
    this.pid = child.pid ?? 0;
    this.stdout = readable(child.stdout);
    this.stderr = readable(child.stderr);
    this.#stdin = writable(child.stdin);
    this.#outputs = outputs;
    this.exit = new Promise(resolve => {
      child.once('exit', (code, signal) => {
        this.#ended = true;
        resolve({ exitCode: code ?? BY_SIGNAL + (signal === null ? 0 : constants.signals[signal]) });
      });
    });
    // Node throws away what nobody has read when a program ends; with somebody who listens it waits for a reader.
    for (const stream of [this.stdout, this.stderr]) stream.on('readable', () => undefined);
    // A program that ends without reading its input is no error; that it ended is seen in its exit.
    this.#stdin.on('error', () => undefined);
    for (const stream of [this.stdout, this.stderr, ...outputs]) stream.on('error', () => undefined);
  }

  /** Starts a program in a session and process group of its own; rejects where it cannot be started. */
  static async start(options: ChildOptions): Promise<Child> {
    const { first = FIRST_EXTRA, outputs = 0, inputs = [] } = options;
    const nothing = openSync('/dev/null', 'r');
    const child = spawnWith(options, { first, last: first + outputs + inputs.length, nothing });
    closeSync(nothing);
    // Rejects where the program cannot be started; there may be no streams then.
    await once(child, 'spawn');
    // From here on an error is of a signal that could not be sent, and whoever sent it sees that.
    child.on('error', () => undefined);
    const streams = child.stdio.slice(first);
    inputs.forEach((content, index) => feed(writable(streams[outputs + index]), content));
    return new Child(child, streams.slice(0, outputs).map(readable));
  }

  /** Whether the program itself has ended. */
  get ended(): boolean {
    return this.#ended;
  }

  /** What the program writes to one of its further descriptors. */
  output(index: number): Readable {
    return this.#outputs[index] ?? Readable.from([]);
  }

  /** Resolves when the bytes are with the operating system, so awaiting each write is back-pressure. */
  write(data: Uint8Array | string): Promise<void> {
    return new Promise((resolve, reject) => {
      const closed = (): void => resolve();
      this.#stdin.once('close', closed);
      this.#stdin.write(data, error => {
        this.#stdin.off('close', closed);
        if (error && !hasNoReader(error)) reject(error);
        else resolve();
      });
    });
  }

  /** Ends the program’s standard input; its output goes on. */
  closeStdin(): Promise<void> {
    return new Promise(resolve => {
      if (this.#stdin.destroyed) {
        resolve();
        return;
      }
      this.#stdin.once('close', () => resolve());
      this.#stdin.end(() => resolve());
    });
  }

  /** Sends the program itself a signal; safe at any time, since it is ours to bury and its number is not used again before. */
  kill(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  /** Ends the program and everything it has started that is in its group. For one that was never used: a command may leave. */
  killGroup(): void {
    this.#process.kill('SIGKILL');
    try {
      // Its number is not used again within moments, nor while anything is in the group.
      process.kill(-this.pid, 'SIGKILL');
    } catch {
      // None is left.
    }
  }

  /** Lets go of the streams: a process that outlived the program may hold their other ends for ever. */
  release(): void {
    for (const stream of [this.#stdin, this.stdout, this.stderr, ...this.#outputs]) stream.destroy();
  }
}

interface Spawning {
  /** The first of the further descriptors that are pipes to us, and the one after the last. */
  readonly first: number;
  readonly last: number;
  /** What stands in place of every other one that would be passed on. */
  readonly nothing: number;
}

function spawnWith(
  { program, argv, environment, cwd }: ChildOptions,
  { first, last, nothing }: Spawning,
): ChildProcess {
  const isPipe = (descriptor: number): boolean => descriptor < FIRST_EXTRA || descriptor >= first;
  const stdio: ('pipe' | 'ignore' | number)[] = Array.from({ length: last }, (_, descriptor) =>
    isPipe(descriptor) ? 'pipe' : 'ignore',
  );
  for (const descriptor of inheritedDescriptors(FIRST_EXTRA)) {
    if (descriptor >= first && descriptor < last) continue;
    while (stdio.length < descriptor) stdio.push('ignore');
    stdio[descriptor] = nothing;
  }
  return spawn(program, [...argv], { detached: true, shell: false, cwd, env: { ...environment }, stdio });
}

/** A signal by its name; null where this system has none of that name. */
export function signalNamed(name: string): NodeJS.Signals | null {
  const full = name.startsWith('SIG') ? name : `SIG${name}`;
  return isSignal(full) ? full : null;
}

function isSignal(name: string): name is NodeJS.Signals {
  return Object.hasOwn(constants.signals, name);
}

function hasNoReader(error: Error): boolean {
  return (
    'code' in error &&
    ['EPIPE', 'ECONNRESET', 'ERR_STREAM_DESTROYED', 'ERR_STREAM_WRITE_AFTER_END'].includes(String(error.code))
  );
}

// A program that stops before it has read everything says why in its own way.
function feed(stream: Writable, data: Uint8Array | string): void {
  stream.on('error', () => undefined);
  stream.end(data);
}

function readable(stream: Readable | Writable | null | undefined): Readable {
  return stream instanceof Readable ? stream : Readable.from([]);
}

function writable(stream: Readable | Writable | null | undefined): Writable {
  return stream instanceof Writable ? stream : new Writable({ write: (_chunk, _encoding, done) => done() });
}

// Descriptors that this process was started with and would pass on to everything it starts, whoever opened them and for what.
//
// Node marks its own descriptors and the first few others; one that a terminal, an editor or a build tool left open under a
// higher number goes on into every child. In a sandbox it would be a way out that no mount and no namespace closes.

// O_CLOEXEC as the kernel prints it, in octal.
const CLOSED_ON_EXEC = 0o2_000_000;

/** The descriptors from `first` on that a child would inherit; none where the system does not say. */
export function inheritedDescriptors(first: number): number[] {
  try {
    return readdirSync('/proc/self/fd')
      .map(Number)
      .filter(descriptor => descriptor >= first && isPassedOn(descriptor));
  } catch {
    return [];
  }
}

function isPassedOn(descriptor: number): boolean {
  try {
    const flags = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'utf8'))?.[1];
    return flags === undefined || (Number.parseInt(flags, 8) & CLOSED_ON_EXEC) === 0;
  } catch {
    // Closed meanwhile: the one that listed them.
    return false;
  }
}

// What stands for an image where there is none: the system of this host, with the one variable its programs need.

/** The system of this host. */
export const HOST_IMAGE: ImageFacts = {
  reference: 'host',
  id: 'host',
  digest: 'host',
  environment: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'],
  volumes: [],
  repositoryDigests: [],
};

/** Variables that no command may find; only a control of the doctor’s, which lacks that protection, has them. */
export const LEAKED_VARIABLES = {
  ACODE_DOCTOR_LEAK: '1',
  HTTP_PROXY: 'http://user:secret@proxy.invalid:1',
} as const;

// Reads the limits a process really has, as the kernel lists them. Pure.

/** Reads the limits a process really has. */
export function parseLimits(content: string): ReadonlyMap<string, { readonly soft: number; readonly hard: number }> {
  const rows = content.split('\n').slice(1);
  const number = (text: string | undefined): number => (text === 'unlimited' ? Infinity : Number(text));
  return new Map(
    rows.flatMap(row => {
      const match = /^(Max .+?)\s{2,}(\S+)\s+(\S+)/.exec(row);
      return match ? [[match[1] ?? '', { soft: number(match[2]), hard: number(match[3]) }] as const] : [];
    }),
  );
}
