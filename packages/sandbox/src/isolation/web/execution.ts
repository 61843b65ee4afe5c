// One command in one fresh instance: booted, filled, torn down, with a deadline on every word of the SDK.

import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import type { Clock } from '../../contract/ports.ts';
import { inTime, unlessCancelled } from '../../lifecycle/clock.ts';

const BOOT_MS = 60_000;
const SPAWN_MS = 10_000;
const KILL_MS = 2000;
// What was printed last may come a little after the end; a stream that nobody ends is not waited for.
const DRAIN_MS = 1000;

/** What is to run, and where its output goes. */
export interface WebJob {
  readonly words: readonly string[];
  readonly env: Record<string, string>;
  readonly cwd: string;
  readonly files: FileTree;
  readonly timeoutMs: number;
  readonly output: (text: string) => void;
  /** Called when the command is handed over. */
  readonly handedOver: () => void;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** How a command ended. */
export interface WebEnding {
  readonly exitCode: number | null;
  readonly timedOut: boolean;
}

/** The head of what a command prints, and how much more there was. */
export class Output {
  readonly #limit: number;
  readonly #onChunk: ((chunk: Uint8Array) => void) | undefined;
  readonly #chunks: Uint8Array[] = [];
  #kept = 0;
  #dropped = 0;

  constructor(limit: number, onChunk?: (chunk: Uint8Array) => void) {
    this.#limit = limit;
    this.#onChunk = onChunk;
  }

  /** Bytes beyond the limit. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Takes what comes next. */
  push(text: string): void {
    const data = new TextEncoder().encode(text);
    const taken = data.slice(0, this.#limit - this.#kept);
    this.#dropped += data.length - taken.length;
    if (taken.length === 0) return;
    this.#kept += taken.length;
    this.#chunks.push(taken);
    this.#onChunk?.(taken.slice());
  }

  /** Everything that was kept. */
  bytes(): Uint8Array {
    const all = new Uint8Array(this.#kept);
    let at = 0;
    for (const chunk of this.#chunks) {
      all.set(chunk, at);
      at += chunk.length;
    }
    return all;
  }
}

/** Runs one command. `gone` never rejects: its instance is torn down then, or did not come in time. */
export function execute(
  sdk: WebSdk,
  job: WebJob,
): { readonly ended: Promise<WebEnding>; readonly gone: Promise<void> } {
  const booting = boot(sdk, job.signal);
  const ready = inTime(job.clock, BOOT_MS, booting, () => notMade('it was not ready within a minute'));
  const ended = use(ready, job);
  // However late an instance comes, even after everybody has left, it is torn down, and once.
  const tornDown = booting.then(async instance => tearDown(instance, ended));
  tornDown.catch(() => undefined);
  // What cannot be torn down is in the way of the next instance, which the SDK refuses then.
  const gone = ready.then(async () => tornDown).catch(() => undefined);
  return { ended, gone };
}

// Asynchronous, so that what the SDK throws at once is a rejection too.
async function boot(sdk: WebSdk, signal: AbortSignal): Promise<WebInstance> {
  signal.throwIfAborted();
  return sdk.boot();
}

async function tearDown(instance: WebInstance, ended: Promise<unknown>): Promise<void> {
  await ended.catch(() => undefined);
  instance.teardown();
}

async function use(ready: Promise<WebInstance>, job: WebJob): Promise<WebEnding> {
  try {
    const instance = await unlessCancelled(ready, job.signal);
    return await supervise(await handOver(instance, job), job);
  } catch (error) {
    throw error instanceof AcodeError ? error : notMade(reasonOf(error), error);
  }
}

async function handOver(instance: WebInstance, job: WebJob): Promise<WebProcess> {
  const { clock, cwd, env } = job;
  const late = (): AcodeError => notMade('it did not answer in time');
  await unlessCancelled(inTime(clock, SPAWN_MS, instance.mount(job.files), late), job.signal);
  job.handedOver();
  const [program = '', ...words] = job.words;
  const spawning = instance.spawn(program, words, { cwd, env }).catch((error: unknown) => {
    if (!/ENOENT|not found/i.test(reasonOf(error))) throw error;
    const context = { command: program, image: 'the WebContainer', reason: 'not found', imageless: true } as const;
    throw new AcodeError('ACODE-SBX-015', context, { cause: error });
  });
  return unlessCancelled(inTime(clock, SPAWN_MS, spawning, late), job.signal);
}

async function supervise(process: WebProcess, job: WebJob): Promise<WebEnding> {
  const { clock } = job;
  const timeUp = new Error('its time is up');
  const ended = process.exit.catch((error: unknown) => {
    throw failed(error);
  });
  const read = readAll(process, job.output);
  read.catch(() => undefined);
  try {
    const exitCode = await unlessCancelled(
      inTime(clock, job.timeoutMs, ended, () => timeUp),
      job.signal,
    );
    await inTime(clock, DRAIN_MS, read, () => timeUp).catch((error: unknown) => {
      if (error !== timeUp) throw failed(error);
    });
    return { exitCode, timedOut: false };
  } catch (error) {
    process.kill();
    if (error !== timeUp) throw error;
    // What does not end now ends with its instance.
    await unlessCancelled(
      inTime(clock, KILL_MS, ended, () => timeUp),
      job.signal,
    ).catch(() => undefined);
    return { exitCode: null, timedOut: true };
  }
}

async function readAll({ output }: WebProcess, take: (text: string) => void): Promise<void> {
  const reader = output.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (value !== undefined) take(value);
    if (done) return;
  }
}

function notMade(reason: string, cause?: unknown): AcodeError {
  const remedy =
    'A WebContainer needs a page that is cross-origin isolated and has no other instance, and its vendor’s services; then try again.';
  return new AcodeError('ACODE-SBX-001', { name: 'web', reason, remedy }, { cause });
}

function failed(cause: unknown): AcodeError {
  return new AcodeError('ACODE-SBX-018', { operation: 'the command', reason: reasonOf(cause) }, { cause });
}

/** What an error says, in a few words. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

// The part of the WebContainer SDK that acode uses, and how it is found. Its package is the caller’s to install.

/** Files as the SDK takes them. */
export interface FileTree {
  [name: string]: { directory: FileTree } | { file: { contents: string | Uint8Array } };
}

/** A process inside an instance. Its two streams come as one. */
export interface WebProcess {
  readonly exit: Promise<number>;
  readonly output: { getReader(): { read(): Promise<{ done: boolean; value?: string | undefined }> } };
  kill(): void;
}

/** A running instance. */
export interface WebInstance {
  mount(tree: FileTree): Promise<void>;
  spawn(program: string, words: string[], options: { cwd?: string; env: Record<string, string> }): Promise<WebProcess>;
  teardown(): void;
}

/** What makes instances: one at a time in each page. */
export interface WebSdk {
  boot(): Promise<WebInstance>;
}

const REMEDY =
  'Install the optional peer dependency yourself (`npm install @webcontainer/api`; its vendor has terms of its own), or run the command with Acode on a host.';

const moduleSchema = z.object({
  WebContainer: z.custom<WebSdk>(
    value => typeof value === 'function' && 'boot' in value && typeof value.boot === 'function',
    'makes no instances',
  ),
});

/** The SDK of the page. Where it is not there, nothing takes its place. */
export async function sdkFrom(load: () => Promise<unknown>): Promise<WebSdk> {
  const refused = (available: string, cause: unknown): AcodeError =>
    new AcodeError('ACODE-SBX-012', { required: 'web', available, remedy: REMEDY }, { cause });
  const loaded = await load().catch((error: unknown) => {
    throw refused('a page without @webcontainer/api', error);
  });
  const parsed = moduleSchema.safeParse(loaded);
  if (!parsed.success) throw refused('another version of @webcontainer/api', parsed.error);
  return parsed.data.WebContainer;
}

/** The installed SDK. */
export async function installedSdk(): Promise<unknown> {
  return import('@webcontainer/api');
}

/** Files by their paths, relative to the working directory, as the SDK takes them. */
export function treeOf(files: Readonly<Record<string, string | Uint8Array>>): FileTree {
  const tree: FileTree = {};
  for (const [path, contents] of Object.entries(files)) {
    const names = namesIn(path, 'files');
    const last = names.pop() ?? '';
    const directory = names.reduce((inside, name) => {
      const found = (inside[name] ??= { directory: {} });
      if ('file' in found) throw invalid('files', `${path} lies below a file`);
      return found.directory;
    }, tree);
    if (last in directory) throw invalid('files', `${path} is a directory too`);
    directory[last] = { file: { contents } };
  }
  return tree;
}

/** The names of a path that stays where it begins; throws for any other. */
export function namesIn(path: string, field: string): string[] {
  const names = path.split('/');
  if (names.some(name => ['', '.', '..', '__proto__'].includes(name) || name.includes('\0')))
    throw invalid(field, `${JSON.stringify(path)} is no relative path that stays in the working directory`);
  return names;
}

function invalid(field: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', { field, reason, remedy: `Correct ${field}.` });
}
