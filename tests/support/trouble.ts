// The engine that may be restarted, killed, frozen and filled up, and what is left on it and beside it afterwards.

import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import * as z from 'zod';
import { withEngine } from './engines.ts';
import type { TestEngine } from './engines.ts';
import { ownerSocketsIn, reapersIn } from './remains.ts';

const LIST = '/run/acode-engines/engines.json';
const CONTROL_MS = 120_000;
const POLL_MS = 20;

const listSchema = z.looseObject({
  trouble: z
    .looseObject({
      name: z.string(),
      socket: z.string(),
      control: z.string(),
      api: z.string(),
      version: z.string(),
      pidfile: z.string(),
    })
    .nullish(),
});

const found = existsSync(LIST) ? listSchema.parse(JSON.parse(readFileSync(LIST, 'utf8'))).trouble : null;

/** Whether this machine has no engine for trouble, or this process may not use a sandbox on it. */
export const withoutTrouble = !found || process.getuid?.() === 0;

/** The engine for trouble; where there is none, a placeholder, so that skipped tests are seen and not missing. */
export const trouble: TestEngine & { readonly control: string } = found ?? {
  name: 'trouble',
  socket: '/nonexistent',
  control: '/nonexistent',
  api: '',
  version: '',
  pidfile: '',
};

/** What can be done to the engine. */
export type Trouble =
  | 'restart'
  | 'kill'
  | 'stop-daemon'
  | 'start-daemon'
  | 'pause'
  | 'resume'
  | 'live-restore on'
  | 'live-restore off'
  | 'fill'
  | 'free';

/** Does it to the engine; resolves when it is done. */
export async function make(what: Trouble): Promise<void> {
  const answer = await new Promise<string>((resolve, reject) => {
    let text = '';
    const connection = createConnection(trouble.control, () => connection.write(`${what}\n`));
    connection.setTimeout(CONTROL_MS, () => connection.destroy(new Error(`${what}: no answer`)));
    connection.setEncoding('utf8').on('data', chunk => (text += String(chunk)));
    connection.once('end', () => resolve(text.trim()));
    connection.once('error', reject);
  });
  if (answer !== 'ok') throw new Error(`${what}: ${answer}`);
}

/** Makes the engine well again, whatever was done to it, with its standard configuration. */
export async function heal(): Promise<void> {
  await make('start-daemon');
  await make('resume');
  await make('free');
  await make('live-restore off');
}

/** A runtime directory of its own, so that the owners in it are the caller’s alone. */
export function makeRuntimeDirectory(): string {
  return mkdtempSync('/var/tmp/acode-rt-');
}

/** Everything of acode on the engine for trouble, and the owners and reapers that belong to a runtime directory. */
export async function remains(runtime: string): Promise<string[]> {
  const onEngine = await withEngine(trouble, async ({ containers, networks, volumes }) => {
    const signal = AbortSignal.timeout(60_000);
    const labels = ['acode.managed=true'];
    return [
      ...(await containers.list({ labels, all: true, signal })).map(({ id, state }) => `container ${id} ${state}`),
      ...(await networks.list({ labels, signal })).map(({ Name }) => `network ${Name}`),
      ...(await volumes.list({ labels, signal })).map(({ Name }) => `volume ${Name}`),
    ];
  });
  return [...onEngine, ...reapersIn(runtime).map(pid => `reaper ${pid}`), ...ownerSocketsIn(runtime)];
}

/** Waits until something holds, and says what was seen last where it does not come to that. */
export async function settles<Value>(
  what: string,
  withinMs: number,
  look: () => Value | Promise<Value>,
  holds: (seen: Value) => boolean,
): Promise<number> {
  const began = performance.now();
  for (;;) {
    const seen = await look();
    const ms = performance.now() - began;
    if (holds(seen)) return ms;
    if (ms > withinMs) throw new Error(`${what}: not within ${withinMs} ms, but ${JSON.stringify(seen)}`);
    await new Promise(resolve => setTimeout(resolve, POLL_MS));
  }
}
