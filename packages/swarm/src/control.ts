// Control of an orchestrator: a unix socket in the user’s own runtime directory, one JSON object in each direction.

import { lstatSync, rmSync } from 'node:fs';
import { createConnection, createServer } from 'node:net';
import type { Server } from 'node:net';
import * as z from 'zod';
import { swarmError } from './errors.ts';

const MAX_BYTES = 64 * 1024;
const ANSWER_MS = 10_000;

const requestSchema = z.strictObject({
  op: z.enum(['ping', 'stop', 'pause', 'continue', 'retry', 'attach']),
  task: z.string().optional(),
});

const answerSchema = z.strictObject({ ok: z.boolean(), detail: z.string() });

/** What an orchestrator is asked for. */
export type ControlRequest = z.infer<typeof requestSchema>;
/** What it answers. */
export type ControlAnswer = z.infer<typeof answerSchema>;

/** Listens for requests. Only for who holds the lock of the swarm: a socket that is there is a dead one’s. */
export async function listen(path: string, answer: (request: ControlRequest) => ControlAnswer): Promise<Server> {
  rmSync(path, { force: true });
  const server = createServer({ allowHalfOpen: true }, socket => {
    let text = '';
    socket.setTimeout(ANSWER_MS, () => socket.destroy());
    socket.setEncoding('utf8');
    socket.on('error', () => undefined);
    socket.on('data', (chunk: string) => {
      text += chunk;
      if (text.length > MAX_BYTES) socket.destroy();
      else if (text.includes('\n')) socket.end(`${JSON.stringify(answered(text, answer))}\n`);
    });
  });
  const before = process.umask(0o077);
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(path, resolve);
    });
  } finally {
    process.umask(before);
  }
  return server;
}

function answered(text: string, answer: (request: ControlRequest) => ControlAnswer): ControlAnswer {
  try {
    return answer(requestSchema.parse(JSON.parse(text.split('\n')[0] ?? '')));
  } catch (error) {
    return { ok: false, detail: error instanceof Error ? error.message.slice(0, 500) : 'it is not a request' };
  }
}

/** Whether an orchestrator listens. */
export async function isListening(path: string, uid = process.getuid?.()): Promise<boolean> {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found?.isSocket() !== true || found.uid !== uid) return false;
  return ask(path, 'any', { op: 'ping' }).then(
    () => true,
    () => false,
  );
}

/** Asks an orchestrator. */
export function ask(path: string, swarm: string, request: ControlRequest): Promise<ControlAnswer> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ path });
    let text = '';
    const fail = (reason: string): void => {
      socket.destroy();
      reject(swarmError('ACODE-SWM-009', { swarm, reason }));
    };
    socket.setEncoding('utf8');
    socket.setTimeout(ANSWER_MS, () => fail('it did not answer in time'));
    socket.on('error', () => fail('no process listens'));
    socket.on('data', (chunk: string) => (text = (text + chunk).slice(0, MAX_BYTES)));
    socket.on('end', () => {
      try {
        resolve(answerSchema.parse(JSON.parse(text)));
      } catch {
        fail('its answer cannot be read');
      }
      socket.destroy();
    });
    socket.write(`${JSON.stringify(request)}\n`);
  });
}
