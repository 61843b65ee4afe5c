// Programs that use persistent sandboxes, each a process of its own in surroundings that they share.

import { spawn } from 'node:child_process';
import type { ChildProcess, ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { Bench } from '../cli/bench.ts';
import type { Target } from '../conformance/targets.ts';
import { images } from '../support/engines.ts';

const PROGRAM = fileURLToPath(new URL('./client.mjs', import.meta.url));
const BUILT = fileURLToPath(new URL('../../packages/sandbox/dist/index.js', import.meta.url));

const saidSchema = z.looseObject({
  id: z.string().default(''),
  containerId: z.string().default(''),
  name: z.string().default(''),
  expiresAt: z.string().default(''),
  stdout: z.string().default(''),
  exitCode: z.number().nullish(),
  error: z.string().optional(),
});

/** What a client says when it has done its work. */
export type Said = z.infer<typeof saidSchema>;

/** A task of client.mjs. */
export interface ClientTask {
  readonly what: 'hold' | 'keep' | 'use' | 'join';
  readonly sandbox?: string;
  readonly expiresInMs?: number;
  readonly extendMs?: number;
  readonly command?: string;
  readonly commands?: readonly string[];
  readonly kill?: boolean;
  /** Whether a client that keeps a sandbox lives on with it. */
  readonly stay?: boolean;
  /** What of another's command is waited for, and what is done with it then. */
  readonly until?: string;
  readonly write?: string;
  readonly signal?: string;
  readonly leave?: boolean;
}

/** A client that has said what it had to say. */
export interface Client {
  readonly child: ChildProcess;
  readonly said: Said;
  readonly ended: Promise<unknown>;
}

/** Surroundings for clients on one engine. */
export async function benchAt({ engine }: Target): Promise<Bench> {
  if (!existsSync(BUILT)) throw new Error('packages/sandbox is not built: run `npm run build` first');
  return Bench.at(engine);
}

function begin(bench: Bench, task: ClientTask): ChildProcessByStdio<null, Readable, null> {
  const words = { socket: bench.socket, workspace: bench.workspace, image: images.busybox, ...task };
  return spawn(process.execPath, [PROGRAM, JSON.stringify(words)], {
    env: bench.env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

/** Starts a client, and waits until it says something. */
export async function client(
  bench: Bench,
  task: ClientTask,
  started: (child: ChildProcess) => void = () => undefined,
): Promise<Client> {
  const child = begin(bench, task);
  started(child);
  const ended = once(child, 'close');
  let text = '';
  for await (const chunk of child.stdout) {
    text += String(chunk);
    if (text.includes('\n')) break;
  }
  return { child, ended, said: saidSchema.parse(JSON.parse(text)) };
}

/** Everything a client says, to its end; `heard` is called when it has said something. */
export async function everythingOf(
  bench: Bench,
  task: ClientTask,
  heard: () => void = () => undefined,
): Promise<Record<string, unknown>[]> {
  const child = begin(bench, task);
  const ended = once(child, 'close');
  child.stdout.once('data', heard);
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  await ended;
  return text
    .split('\n')
    .filter(line => line !== '')
    .map(line => z.record(z.string(), z.unknown()).parse(JSON.parse(line)));
}

/** Has a client do its work to its end. */
export async function done(bench: Bench, task: ClientTask): Promise<Said> {
  const { said, ended } = await client(bench, task);
  await ended;
  return said;
}

/** The keepers of a sandbox. */
export function keepersOf(sandboxId: string): number[] {
  return readdirSync('/proc').flatMap(name => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const words = readFileSync(`/proc/${name}/cmdline`, 'utf8');
      return words.includes('acode-keeper') && words.includes(sandboxId) ? [Number(name)] : [];
    } catch {
      return [];
    }
  });
}
