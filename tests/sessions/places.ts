// Where persistent sandboxes are tried, and what their tests share.

import type { Sandbox } from '@acode/sandbox';
import type { ConformanceHost } from '../conformance/host.ts';
import { targets } from '../conformance/targets.ts';
import type { Target } from '../conformance/targets.ts';
import { everything } from '../support/targets.ts';

/** Every engine of this machine, for what the engine has a part in; slow runtimes and Podman in the long test suite alone. */
export const everyPlace: readonly Target[] = targets.filter(
  ({ lacks, level, engine }) =>
    lacks.engine === undefined && (everything || (level !== 'gvisor' && engine.name !== 'podman')),
);

/** Where everything else is tried: one engine, and in the long test suite all of them. */
export const places: readonly Target[] = everything ? everyPlace : everyPlace.slice(-1);

/** How often a look inside finds a process with these words. A pattern in brackets does not find the look itself. */
export async function countInside(sandbox: Sandbox, words: string): Promise<number> {
  const pattern = `[${words.slice(0, 1)}]${words.slice(1)}`;
  const { stdout } = await sandbox.commands.run(['sh', '-c', 'ps -o args | grep -c -- "$1"', 'sh', pattern]);
  return Number(stdout);
}

/** Everything that a stream of a command has to say. */
export async function textOf(stream: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}

/** Reads a stream until it has said something; throws where it ends without. */
export async function untilSaid(stream: AsyncIterable<Uint8Array>, words: string): Promise<string> {
  let text = '';
  for await (const chunk of stream) {
    text += Buffer.from(chunk).toString('utf8');
    if (text.includes(words)) return text;
  }
  throw new Error(`it ended without ${JSON.stringify(words)}: ${JSON.stringify(text)}`);
}

/** What the engine has of a host’s sandboxes. */
export async function countOf(host: ConformanceHost): Promise<number> {
  return (await host.remains()).length;
}
