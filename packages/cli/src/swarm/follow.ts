// Events of a swarm as lines, as they come: to be watched, and left at any time without a change to the swarm.

import { closeSync, fstatSync, openSync, readSync, watch } from 'node:fs';
import { dirname } from 'node:path';
import type { SwarmEvent, SwarmStore } from '@acode/swarm';
import { formatBytes } from '@acode/sandbox';
import * as z from 'zod';
import type { Call } from '../call.ts';
import type { Look } from '../terminal/look.ts';
import { oneLine } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';
import { coloured } from './render.ts';

const LOOK_MS = 1000;
const CHUNK = 64 * 1024;
const ENDS = ['swarm-finished', 'swarm-failed'];

const eventSchema = z.looseObject({ at: z.string(), event: z.string() });

/** Says each event until the swarm has ended. Returns the last event; null where its orchestrator is gone before. */
export async function follow(call: Call, store: SwarmStore, id: string, from: number): Promise<SwarmEvent | null> {
  const { isListening } = await import('@acode/swarm');
  const { signal } = call.interruption;
  const file = store.eventsFile(id);
  let wake = (): void => undefined;
  using watching = watchDirectory(dirname(file), () => wake());
  void watching;
  const reader = new EventReader(file, from);
  for (let silent = 0; silent < 2;) {
    let isNew = false;
    for (const event of reader.read()) {
      isNew = true;
      await say(call, event);
      if (isLast(event)) return event;
    }
    signal.throwIfAborted();
    if (call.stdout.broken) return null;
    // Twice, since one that has just ended may still have something to read.
    silent = !isNew && !(await isListening(store.socketPath(id))) ? silent + 1 : 0;
    await new Promise<void>(resolve => {
      const timer = setTimeout(resolve, LOOK_MS);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
      signal.addEventListener('abort', wake, { once: true });
    });
    signal.removeEventListener('abort', wake);
  }
  return null;
}

/** Whether nothing comes after this event. */
export function isLast({ event }: SwarmEvent): boolean {
  return ENDS.includes(event);
}

/** An event as a line; null for one that is for programs. */
export function lineOf(event: SwarmEvent, look: Look): string | null {
  return LINES[event.event]?.(event, look) ?? null;
}

// JSON leaves these as they are, and some terminals act on them.
const DRIVING = /[\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** An event as a line of JSON that drives no terminal. */
export function jsonLine(event: SwarmEvent): string {
  const escaped = (one: string): string => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return `${JSON.stringify(event).replaceAll(DRIVING, escaped)}\n`;
}

async function say(call: Call, event: SwarmEvent): Promise<void> {
  const { signal } = call.interruption;
  const line = call.options.json ? null : lineOf(event, call.look);
  if (call.options.json) await call.stdout.write(jsonLine(event), signal);
  else if (line !== null) await call.stdout.write(fitted(`${line}\n`, call.look), signal);
}

/** Calls at each change in a directory. */
export function watchDirectory(directory: string, changed: () => void): Disposable {
  try {
    const watcher = watch(directory, changed);
    watcher.on('error', () => undefined);
    return { [Symbol.dispose]: () => watcher.close() };
  } catch {
    // Without it, the file is read once a second.
    return { [Symbol.dispose]: () => undefined };
  }
}

/** Reads the whole lines of a file that grows. */
export class EventReader {
  readonly #file: string;
  #at: number;
  #rest = '';

  constructor(file: string, from: number) {
    this.#file = file;
    this.#at = from;
  }

  *read(): Generator<SwarmEvent, void, undefined> {
    const file = open(this.#file);
    if (file === null) return;
    try {
      const buffer = Buffer.alloc(CHUNK);
      while (this.#at < fstatSync(file).size) {
        const count = readSync(file, buffer, 0, CHUNK, this.#at);
        if (count === 0) break;
        this.#at += count;
        const lines = (this.#rest + buffer.toString('latin1', 0, count)).split('\n');
        this.#rest = lines.pop() ?? '';
        for (const line of lines) {
          const event = parsed(Buffer.from(line, 'latin1').toString('utf8'));
          if (event) yield event;
        }
      }
    } finally {
      closeSync(file);
    }
  }
}

function open(path: string): number | null {
  try {
    return openSync(path, 'r');
  } catch {
    return null;
  }
}

function parsed(line: string): SwarmEvent | null {
  try {
    return eventSchema.parse(JSON.parse(line));
  } catch {
    return null;
  }
}

const textIn = (event: SwarmEvent, name: string): string => {
  const value = event[name];
  return oneLine(
    typeof value === 'string' ? value : value === undefined || value === null ? '' : JSON.stringify(value),
  );
};

const sizeIn = (event: SwarmEvent, name: string): string => formatBytes(Number(event[name]) || 0);

type Line = (event: SwarmEvent, look: Look) => string | null;

const LINES: Readonly<Record<string, Line>> = {
  fetching: event =>
    `Fetching ${textIn(event, 'agent')} from npm, once: ${sizeIn(event, 'bytes')}${typeof event['totalBytes'] === 'number' ? ` of ${sizeIn(event, 'totalBytes')}` : ''}`,
  preparing: () => 'Preparing the fork that tasks begin with…',
  prepared: event => `Tasks begin at commit ${textIn(event, 'base').slice(0, 12)}.`,
  warning: (event, { colours }) => `${colours.yellow('warning:')} ${textIn(event, 'text')}`,
  task: (event, look) => {
    const detail = textIn(event, 'detail');
    const reason = textIn(event, 'reason');
    return `${look.colours.bold(textIn(event, 'task'))}  ${coloured(textIn(event, 'status'), textIn(event, 'status'), look)}${reason === '' ? '' : ` (${reason})`}${detail === '' ? '' : `: ${detail.slice(0, 300)}`}`;
  },
  story: (event, { colours }) =>
    colours.dim(`${textIn(event, 'task')}  ${textIn(event, 'story')} ${textIn(event, 'status')}`),
  overlap: (event, { colours }) =>
    `${colours.yellow('overlap:')} ${textIn(event, 'tasks')
      .replaceAll(/["[\]]/g, '')
      .replace(
        ',',
        ' and ',
      )} both change ${textIn(event, 'path')}, lines ${textIn(event, 'from')} to ${textIn(event, 'to')}`,
  branch: event => {
    const result = textIn(event, 'result');
    if (result === 'made') return `${textIn(event, 'task')}  branch ${textIn(event, 'branch')}`;
    return result === 'risky'
      ? `${textIn(event, 'task')}  needs a review: \`acode swarm review ${textIn(event, 'task')}\``
      : null;
  },
  attention: event => {
    const state = textIn(event, 'attention');
    const waits = Array.isArray(event['waitsFor']) ? event['waitsFor'].length : 0;
    if (state === '') return `${textIn(event, 'task')}  needs nobody any more`;
    return `${textIn(event, 'task')}  ${state}${waits > 0 ? ': `acode egress pending` shows which hosts, `acode egress allow <id>` grants one' : ''}`;
  },
  attached: event => `${textIn(event, 'task')}  a terminal is attached`,
  'not-told': event => `The ${textIn(event, 'how')} of swarm.yml: ${textIn(event, 'detail')}`,
  fault: event => `${textIn(event, 'task')}  a fault of the engine or machine: ${textIn(event, 'detail')}`,
  reconciled: event => `${textIn(event, 'task')}  ${textIn(event, 'finding')} was found`,
  'adapter-error': event => `${textIn(event, 'task')}  ${textIn(event, 'message')}`,
};
