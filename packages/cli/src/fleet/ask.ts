// One request to the program of the fleet’s package: what it prints is shown as it comes, and its result is returned.

import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import * as z from 'zod';
import type { Call } from '../call.ts';
import { Screen } from '../terminal/pump.ts';
import { FAILED, errorOfFleet, programOfFleet } from './package.ts';

const toldSchema = z.discriminatedUnion('is', [
  z.object({ is: z.literal('output'), stream: z.union([z.literal(1), z.literal(2)]), bytes: z.instanceof(Uint8Array) }),
  z.object({ is: z.literal('say'), text: z.string() }),
  z.object({ is: z.literal('value'), schema: z.string(), value: z.looseObject({}) }),
  z.object({ is: z.literal('failed'), error: z.looseObject({}) }),
  z.object({ is: z.literal('ended'), status: z.int() }),
]);

/** Receives the result of a request. */
export type OnValue = (schema: string, value: Readonly<Record<string, unknown>>) => Promise<void>;

/** Does one request; returns the exit status. */
export async function askFleet(call: Call, request: object, onValue: OnValue, input = false): Promise<number> {
  const child = fork(programOfFleet('A fleet', 'command', 'program.js'), [], {
    execArgv: [],
    serialization: 'advanced',
    stdio: [input ? 'inherit' : 'ignore', 'ignore', 'inherit', 'ipc'],
  });
  const stop = (): void => send(child, { is: 'stop' });
  call.interruption.signal.addEventListener('abort', stop, { once: true });
  try {
    send(child, { is: 'request', request });
    return await conversation(call, child, onValue);
  } finally {
    call.interruption.signal.removeEventListener('abort', stop);
  }
}

async function conversation(call: Call, child: ChildProcess, onValue: OnValue): Promise<number> {
  const screens = { 1: new Screen(call.stdout), 2: new Screen(call.stderr) };
  let status: number | null = null;
  // In the order in which they came.
  let doing: Promise<void> = Promise.resolve();
  const hear = async (message: unknown): Promise<void> => {
    const told = toldSchema.parse(message);
    if (told.is === 'output') {
      // The end of a command that was interrupted is still shown.
      if (!call.options.json) await screens[told.stream].write(told.bytes, new AbortController().signal);
      send(child, { is: 'more' });
    } else if (told.is === 'say') await call.say(told.text);
    else if (told.is === 'value') await onValue(told.schema, told.value);
    else if (told.is === 'failed') throw errorOfFleet(told.error);
    else status = told.status;
  };
  const ended = new Promise<number | null>((resolve, reject) => {
    child.on('message', message => {
      doing = doing.then(() => hear(message));
      doing.catch(reject);
    });
    child.once('error', reject);
    child.once('close', resolve);
  });
  try {
    const left = await ended;
    await doing;
    return status ?? left ?? FAILED;
  } finally {
    for (const screen of Object.values(screens)) {
      await screen.finish(new AbortController().signal);
      screen.reset();
    }
  }
}

function send(child: ChildProcess, message: object): void {
  if (child.connected) child.send(message, () => undefined);
}
