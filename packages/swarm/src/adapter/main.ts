// Adapter: the program in a task’s sandbox, bundled into one file. It reads one request, and answers on standard output.

import { MAX_REQUEST_BYTES, LineReader, PROTOCOL_VERSION, ending, parseToAdapter } from '../protocol.ts';
import type { AdapterMessage } from '../protocol.ts';
import { prepare, readRefs, report, review } from './inquiries.ts';
import { merge } from './merge.ts';
import { TaskRun, completionFor } from './task-run.ts';

const FAILED = 70;

async function main(mode: string): Promise<number> {
  if (mode === 'task') return doTask();
  const inquiries: Readonly<Record<string, (input: unknown) => Promise<unknown>>> = {
    prepare,
    report,
    review,
    merge,
    refs: readRefs,
  };
  const inquiry = inquiries[mode];
  if (!inquiry) throw new Error(`there is no mode ${mode}`);
  const input: unknown = JSON.parse(await readLine());
  const answer = await inquiry(input).catch((error: unknown) => ({ error: ending(reasonOf(error), 2000) }));
  await write(`${JSON.stringify(answer)}\n`);
  return 0;
}

async function doTask(): Promise<number> {
  const stop = new AbortController();
  for (const name of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(name, () => stop.abort());
  const request = parseToAdapter(await readLine());
  const agentEnv = takeSeeds(process.env);
  const send = (message: AdapterMessage): Promise<void> => write(`${JSON.stringify(message)}\n`);
  try {
    const show = (bytes: Uint8Array): void => void process.stderr.write(bytes);
    await new TaskRun(request, { send, signal: stop.signal, show, agentEnv }).do();
    return 0;
  } catch (error) {
    const message = ending(reasonOf(error), 2000);
    const { swarmId, containerId } = request;
    const envelope = { version: PROTOCOL_VERSION, timestamp: new Date().toISOString(), swarmId, containerId } as const;
    await send({ type: 'error', ...envelope, payload: { code: 'ADAPTER_FAILED', message } });
    await send(completionFor(request, stop.signal.aborted ? 'stopped' : 'failed', [message], null));
    return FAILED;
  }
}

// The agent’s settings, which its start writes down; no other program needs them.
function takeSeeds(env: NodeJS.ProcessEnv): Record<string, string> {
  const seeds = Object.entries(env).filter(([name]) => name.startsWith('ACODE_SEED'));
  for (const [name] of seeds) delete env[name];
  return Object.fromEntries(seeds.map(([name, value]) => [name, value ?? '']));
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

// The first line; what comes after it is not for this version.
async function readLine(): Promise<string> {
  const reader = new LineReader(MAX_REQUEST_BYTES);
  for await (const chunk of process.stdin) {
    if (!(chunk instanceof Uint8Array)) continue;
    for (const line of reader.feed(chunk)) return line;
  }
  throw new Error('there was no request');
}

// Resolves when there is room for more: a slow reader slows the task down, and nothing piles up.
function write(text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(text, error => (error ? reject(error) : resolve()));
  });
}

main(process.argv[2] ?? 'task').then(
  // At once: a program that the task left in the background must not hold it.
  status => process.exit(status),
  (error: unknown) => {
    process.stderr.write(`${reasonOf(error)}\n`);
    process.exit(FAILED);
  },
);
