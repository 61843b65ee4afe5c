// Board of a swarm: the terminal while tasks run, one row for each, with keys that act on the selected one. Leaving it changes nothing.

import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { channel } from 'node:diagnostics_channel';
import type { SwarmEvent, SwarmRecord, SwarmStore, TaskRecord } from '@acode/swarm';
import type { Observer, TerminalSize } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { RowScreen } from '../terminal/row-screen.ts';
import { oneLine } from '../terminal/text.ts';
import { boardRows, ordered, roomIn, topFor } from './board-view.ts';
import type { Board, Load, OpenLog } from './board-view.ts';
import { EventReader, isLast, lineOf, watchDirectory } from './follow.ts';

/** How a person left the board; otherwise the last event, or null where the orchestrator is gone before. */
export type BoardEnd = SwarmEvent | 'left' | 'interrupted' | null;

const TICK_MS = 1000;
const FRAME_MS = 100;
const NOTICE_MS = 8000;
const USAGE_MS = 2000;
const MAX_LOG_BYTES = 128 * 1024;
// Who measures redraws listens there.
const redraws = channel('acode.swarm.board');

/** Whether this call has a terminal for a board: otherwise what happens is printed as lines. */
export function canShowBoard({ io, options, stdout }: Call): boolean {
  if (options.json || options.verbose || io.env['TERM'] === 'dumb' || io.stdin.setRawMode === undefined) return false;
  return io.stdin.isTTY === true && io.stderr.isTTY === true && stdout.size !== null;
}

/** Shows the board until the swarm has ended, or the person leaves. */
export async function showBoard(call: Call, store: SwarmStore, id: string, from: number): Promise<BoardEnd> {
  return call.withObserver(async observer => {
    using board = new LiveBoard(call, store, id, observer);
    return await board.show(from);
  });
}

class LiveBoard implements Disposable {
  readonly #call: Call;
  readonly #store: SwarmStore;
  readonly #id: string;
  readonly #observer: Observer;
  readonly #screen: RowScreen;
  readonly #loads = new Map<string, Load>();
  readonly #samples = new Map<string, { readonly at: number; readonly cpuMs: number }>();
  readonly #over = new AbortController();
  #record: SwarmRecord;
  #read: string;
  #keys: string[] = [];
  #selected: string | null = null;
  #top = 0;
  #notice = { text: '', until: 0, isOwn: false };
  #asks: { readonly question: string; readonly yes: () => Promise<void> } | null = null;
  #log: { readonly task: string; above: number } | null = null;
  #logged: { readonly key: string; readonly lines: string[] } = { key: '', lines: [] };
  #end: 'left' | 'interrupted' | null = null;
  #wake = (): void => undefined;

  constructor(call: Call, store: SwarmStore, id: string, observer: Observer) {
    this.#call = call;
    this.#store = store;
    this.#id = id;
    this.#observer = observer;
    this.#read = this.#version();
    this.#record = store.read(id);
    this.#screen = new RowScreen(call.io, call.stdout, keys => {
      this.#keys.push(...keys);
      this.#wake();
    });
  }

  async show(from: number): Promise<BoardEnd> {
    const { isListening } = await import('@acode/swarm');
    const { signal } = this.#call.interruption;
    const file = this.#store.eventsFile(this.#id);
    const reader = new EventReader(file, from);
    using watching = watchDirectory(this.#store.directory(this.#id), () => this.#wake());
    using resizes = this.#call.stdout.onResize(() => {
      this.#screen.forget();
      this.#wake();
    });
    void [watching, resizes];
    this.#screen.enter();
    void this.#sample();
    for (let silent = 0; silent < 2;) {
      const events = [...reader.read()];
      const last = this.#hear(events);
      if (last !== null) return last;
      signal.throwIfAborted();
      if (this.#call.stdout.broken) return null;
      await this.#pressAll();
      if (this.#end !== null) return this.#end;
      await this.#draw();
      // Twice, since one that has just ended may still have something to read.
      silent = events.length === 0 && !(await isListening(this.#store.socketPath(this.#id))) ? silent + 1 : 0;
      await this.#pause(signal);
    }
    return null;
  }

  // Gives the event after which nothing comes.
  #hear(events: readonly SwarmEvent[]): SwarmEvent | null {
    for (const event of events) {
      if (isLast(event)) return event;
      const line = lineOf(event, this.#call.look);
      // What a key did is not overwritten by what happens meanwhile.
      if (line !== null && !this.#isSaying) this.#notice = noticeOf(line, false);
    }
    return null;
  }

  [Symbol.dispose](): void {
    this.#over.abort();
    this.#screen.leave();
  }

  // Until something happens; events that come at once are drawn at once, and not one after the other.
  async #pause(signal: AbortSignal): Promise<void> {
    if (this.#keys.length > 0) return;
    await waited(TICK_MS, signal, wake => (this.#wake = wake));
    if (this.#keys.length === 0)
      await waited(FRAME_MS, signal, wake => (this.#wake = () => this.#keys.length > 0 && wake()));
  }

  #say(text: string): void {
    this.#notice = noticeOf(text, true);
  }

  get #isSaying(): boolean {
    return this.#notice.isOwn && Date.now() < this.#notice.until;
  }

  async #draw(): Promise<void> {
    const { size } = this.#call.stdout;
    if (size === null) return;
    const began = performance.now();
    const used = process.cpuUsage();
    this.#refresh();
    const board = this.#board(size);
    this.#top = board.top;
    this.#screen.draw(boardRows(board, { ...this.#call.look, width: size.columns, now: Date.now() }, size));
    // A slow terminal gets fewer frames, not a queue of them.
    await this.#call.stdout.flush(this.#call.interruption.signal);
    if (!redraws.hasSubscribers) return;
    const { user, system } = process.cpuUsage(used);
    redraws.publish({ ms: performance.now() - began, cpuMs: (user + system) / 1000 });
  }

  #refresh(): void {
    const version = this.#version();
    if (version === this.#read) return;
    this.#record = this.#store.read(this.#id);
    this.#read = version;
  }

  // Another one after each write of the record.
  #version(): string {
    const { mtimeMs = 0, ino = 0 } = statSync(this.#store.recordFile(this.#id), { throwIfNoEntry: false }) ?? {};
    return `${mtimeMs} ${ino}`;
  }

  #board(size: TerminalSize): Board {
    const tasks = ordered(this.#record);
    const at = Math.max(
      0,
      tasks.findIndex(({ id }) => id === this.#selected),
    );
    const top = topFor(at, tasks.length, { top: this.#top, room: roomIn(size, null) });
    const notice = this.#asks?.question ?? (Date.now() < this.#notice.until ? this.#notice.text : '');
    return {
      record: this.#record,
      loads: this.#loads,
      selected: this.#selected,
      top,
      notice,
      log: this.#openLog(size),
    };
  }

  #openLog(size: TerminalSize): OpenLog | null {
    if (this.#log === null) return null;
    const { task } = this.#log;
    const file = this.#store.logFile(this.#id, task);
    const { size: bytes = 0 } = statSync(file, { throwIfNoEntry: false }) ?? {};
    const key = `${task} ${bytes}`;
    if (this.#logged.key !== key) this.#logged = { key, lines: lastLines(file) };
    const { lines } = this.#logged;
    this.#log.above = Math.min(this.#log.above, Math.max(0, lines.length - roomIn(size, { task, lines, above: 0 })));
    return { task, lines, above: this.#log.above };
  }

  get #task(): TaskRecord | undefined {
    const tasks = ordered(this.#record);
    return tasks.find(({ id }) => id === this.#selected) ?? tasks[0];
  }

  async #pressAll(): Promise<void> {
    for (let key = this.#keys.shift(); key !== undefined; key = this.#keys.shift()) await this.#press(key);
  }

  async #press(key: string): Promise<void> {
    if (key === 'interrupt') this.#end = 'interrupted';
    else if (this.#asks !== null) await this.#answer(key);
    else if (this.#log !== null) this.#scroll(key);
    else await this.#act(key);
  }

  async #answer(key: string): Promise<void> {
    const { yes } = this.#asks ?? {};
    this.#asks = null;
    this.#notice.until = 0;
    if (key === 'y' || key === 'Y') await yes?.();
  }

  #scroll(key: string): void {
    const log = this.#log;
    if (!log) return;
    const page = roomIn(this.#call.stdout.size ?? { columns: 80, rows: 24 }, { ...log, lines: [] }) - 1;
    const steps: Readonly<Record<string, number>> = {
      up: 1,
      k: 1,
      down: -1,
      j: -1,
      pageup: page,
      pagedown: -page,
      home: 1e9,
      end: -1e9,
    };
    const step = steps[key];
    if (step !== undefined) log.above = Math.max(0, log.above + step);
    else if (['q', 'l', 'escape', 'enter'].includes(key)) this.#log = null;
  }

  async #act(key: string): Promise<void> {
    const tasks = ordered(this.#record);
    const page = roomIn(this.#call.stdout.size ?? { columns: 80, rows: 24 }, null) - 1;
    const steps: Readonly<Record<string, number>> = {
      up: -1,
      k: -1,
      down: 1,
      j: 1,
      pageup: -page,
      pagedown: page,
      home: -1e9,
      end: 1e9,
    };
    const step = steps[key];
    if (step !== undefined) {
      const at = Math.max(
        0,
        tasks.findIndex(({ id }) => id === this.#selected),
      );
      this.#selected = tasks[Math.max(0, Math.min(tasks.length - 1, at + step))]?.id ?? null;
      return;
    }
    if (key === 'q' || key === 'escape') this.#end = 'left';
    const task = this.#task;
    if (!task) return;
    const { id } = task;
    const actions: Readonly<Record<string, () => Promise<void> | void>> = {
      l: () => void (this.#log = { task: id, above: 0 }),
      enter: () => void (this.#log = { task: id, above: 0 }),
      a: () => this.#elsewhere(async () => this.#attach(id)),
      s: () => void (this.#asks = { question: `Stop ${id}? [y/N]`, yes: () => this.#ask('stop', id) }),
      r: () => this.#ask('retry', id),
      g: () => this.#grant(task),
    };
    const action = actions[key];
    if (!action) return;
    // What a key was meant for stays selected, wherever its row goes.
    this.#selected = id;
    await action();
  }

  async #ask(op: 'stop' | 'retry', task: string): Promise<void> {
    const { ask } = await import('@acode/swarm');
    try {
      const { detail } = await ask(this.#store.socketPath(this.#id), this.#id.slice(0, 8), { op, task });
      this.#say(`${task}: ${detail}`);
    } catch (error) {
      this.#say(error instanceof Error ? error.message : String(error));
    }
  }

  async #attach(task: string): Promise<string> {
    const { attach } = await import('./attach.ts');
    await attach(this.#call, { id: this.#id, task });
    return `${task} goes on without this terminal`;
  }

  // The question and its consequences are those of `acode egress allow`.
  async #grant({ id, waitsFor }: TaskRecord): Promise<void> {
    if (waitsFor.length === 0) return this.#say(`${id} waits for no host`);
    await this.#elsewhere(async () => {
      const { allow } = await import('../egress/grant-actions.ts');
      const granted: string[] = [];
      for (const { id: grant, host } of waitsFor)
        if ((await allow(this.#call, grant, { task: true })) === 0) granted.push(host);
      return granted.length === 0
        ? 'nothing was granted'
        : `${id} was granted ${granted.join(', ')}; r begins it again if it failed`;
    });
  }

  // Gives the terminal to something else, and takes it again.
  async #elsewhere(work: () => Promise<string>): Promise<void> {
    this.#screen.leave();
    try {
      this.#say(await work());
    } catch (error) {
      if (this.#call.interruption.signal.aborted) throw error;
      const hint = error instanceof UsageError || !(error instanceof Error) ? '' : hintOf(error);
      this.#say(`${error instanceof Error ? error.message : String(error)}${hint}`);
    } finally {
      if (!this.#call.interruption.signal.aborted) this.#screen.enter();
    }
  }

  async #sample(): Promise<void> {
    const { signal } = this.#over;
    while (!signal.aborted) {
      const running = this.#record.tasks.filter(({ status }) => status === 'running');
      // An engine that does not answer leaves the columns empty.
      const found = running.length === 0 ? [] : await this.#observer.usage().catch(() => []);
      const at = performance.now();
      this.#loads.clear();
      for (const { id, containerName } of running) {
        const used = found.find(({ taskId }) => taskId === containerName);
        if (!used) continue;
        const before = this.#samples.get(containerName);
        const ms = used.cpuMs - (before?.cpuMs ?? 0);
        const cpus = before && ms >= 0 ? ms / (at - before.at) : null;
        this.#samples.set(containerName, { at, cpuMs: used.cpuMs });
        this.#loads.set(id, { cpus, memoryBytes: used.memoryBytes });
      }
      await waited(USAGE_MS, signal, () => undefined);
    }
  }
}

function noticeOf(text: string, isOwn: boolean): { text: string; until: number; isOwn: boolean } {
  return { text: oneLine(text), until: Date.now() + NOTICE_MS, isOwn };
}

function hintOf(error: Error): string {
  return 'hint' in error && typeof error.hint === 'string' ? ` ${error.hint}` : '';
}

// The end of a log, as lines that drive no terminal. A line that was drawn over and over is as it was drawn last.
function lastLines(path: string): string[] {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch {
    return [];
  }
  try {
    const { size } = fstatSync(file);
    const buffer = Buffer.alloc(Math.min(size, MAX_LOG_BYTES));
    const count = readSync(file, buffer, 0, buffer.length, size - buffer.length);
    const text = buffer.toString('utf8', 0, count);
    const lines = text
      .replace(/\n$/, '')
      .split('\n')
      .map(line => oneLine(line.replace(/\r+$/, '').split('\r').at(-1) ?? ''));
    return size > buffer.length ? lines.slice(1) : lines;
  } finally {
    closeSync(file);
  }
}

// Waits; `expose` is given what ends the wait.
async function waited(ms: number, signal: AbortSignal, expose: (wake: () => void) => void): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>(resolve => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener('abort', end, { once: true });
    expose(end);
  });
}
