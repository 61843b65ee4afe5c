// Finds the status line in a stream of output and reads what it claims.

import { EARLIER, statusMarker } from './script.ts';

/** How a command ended, by the sandbox’s own account. The engine’s word counts where it differs. */
export type Claim =
  | { readonly kind: 'exit'; readonly exitCode: number; readonly counters: Counters }
  | { readonly kind: 'cwd' | 'missing' | 'forbidden' };

/** What the control group counted. */
export interface Counters {
  /** Since the command began. */
  readonly oomKills: number;
  /** Since the command began. */
  readonly pidsRefused: number;
  readonly peakMemoryBytes: number | undefined;
  readonly cpuMs: number | undefined;
  readonly throttledMs: number | undefined;
  /** What came in through interfaces other than the loopback. */
  readonly rxBytes: number | undefined;
  /** What went out through them. */
  readonly txBytes: number | undefined;
}

const LONGEST_LINE = 16 * 1024;

/** Passes output on and stops at the status line. One scanner per stream. */
export class StatusScanner {
  readonly #marker: Buffer;
  readonly #pass: (data: Buffer) => void;
  #held: Buffer = Buffer.alloc(0);
  #line: Buffer | null = null;
  #claim: Claim | null = null;
  #passed = false;

  constructor(nonce: string, pass: (data: Buffer) => void) {
    this.#marker = statusMarker(nonce);
    this.#pass = pass;
  }

  /** The claim, once its line has been seen. What comes after it is not output of the command any more. */
  get claim(): Claim | null {
    return this.#claim;
  }

  /** Whether any output came before. */
  get passed(): boolean {
    return this.#passed;
  }

  /** Takes the next bytes of the stream. */
  push(chunk: Buffer): void {
    if (this.#claim) return;
    if (this.#line) {
      this.#readLine(chunk);
      return;
    }
    const data = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const at = data.indexOf(this.#marker);
    if (at >= 0) {
      this.#held = Buffer.alloc(0);
      this.#emit(data.subarray(0, at));
      this.#line = Buffer.alloc(0);
      this.#readLine(data.subarray(at + this.#marker.length));
      return;
    }
    const keep = tailThatMayBegin(data, this.#marker);
    this.#emit(data.subarray(0, data.length - keep));
    // A copy: the tail is a few bytes of a chunk that may be large.
    this.#held = Buffer.from(data.subarray(data.length - keep));
  }

  /** The stream has ended: what was held back was output after all. */
  end(): void {
    this.#emit(this.#held);
    this.#held = Buffer.alloc(0);
  }

  #emit(data: Buffer): void {
    if (data.length === 0) return;
    this.#passed = true;
    this.#pass(data);
  }

  #readLine(chunk: Buffer): void {
    const line = Buffer.concat([this.#line ?? Buffer.alloc(0), chunk]);
    const end = line.indexOf(0x0a);
    this.#line = line.subarray(0, LONGEST_LINE);
    if (end >= 0) this.#claim = parseClaim(line.subarray(0, end).toString('latin1'));
  }
}

// How many bytes at the end could be the beginning of the marker.
function tailThatMayBegin(data: Buffer, marker: Buffer): number {
  const start = data.indexOf(marker[0] ?? 0, Math.max(0, data.length - marker.length + 1));
  for (let at = start; at >= 0; at = data.indexOf(marker[0] ?? 0, at + 1)) {
    if (data.subarray(at).equals(marker.subarray(0, data.length - at))) return data.length - at;
  }
  return 0;
}

/** Reads the text of a status line; one that makes no sense counts as an exit that says nothing, and the engine decides. */
export function parseClaim(line: string): Claim | null {
  if (line === 'cwd' || line === 'missing' || line === 'forbidden') return { kind: line };
  const match = /^exit (\d{1,3})(;.*)?$/.exec(line);
  return match && Number(match[1]) < 256
    ? { kind: 'exit', exitCode: Number(match[1]), counters: parseCounters(match[2] ?? '') }
    : null;
}

function parseCounters(text: string): Counters {
  const files = new Map<string, Map<string, number>>();
  let traffic: readonly Traffic[] = [];
  for (const part of text.split(';').slice(1)) {
    const [name = '', ...lines] = part.split('|');
    if (name === 'net') traffic = lines.flatMap(readInterface);
    files.set(name, new Map(lines.map(readCounter)));
  }
  // The places of one counter in the two versions of control groups, each with what turns it into our unit.
  const read = (...places: readonly (readonly [file: string, key: string, per?: number])[]): number | undefined => {
    for (const [file, key, per = 1] of places) {
      const value = files.get(file)?.get(key);
      if (value !== undefined && !Number.isNaN(value)) return value / per;
    }
    return undefined;
  };
  const since = (...places: readonly (readonly [file: string, key: string])[]): number => {
    const earlier = places.map(([file, key]) => [`${EARLIER}${file}`, key] as const);
    return Math.max(0, (read(...places) ?? 0) - (read(...earlier) ?? 0));
  };
  return {
    oomKills: since(['memory/memory.oom_control', 'oom_kill'], ['memory.events', 'oom_kill']),
    pidsRefused: since(['pids/pids.events', 'max'], ['pids.events', 'max']),
    peakMemoryBytes: read(['memory/memory.max_usage_in_bytes', ''], ['memory.peak', '']),
    cpuMs: read(['cpuacct/cpuacct.usage', '', 1e6], ['cpu.stat', 'usage_usec', 1e3]),
    throttledMs: read(['cpu/cpu.stat', 'throttled_time', 1e6], ['cpu.stat', 'throttled_usec', 1e3]),
    rxBytes: total(traffic.map(({ rx }) => rx)),
    txBytes: total(traffic.map(({ tx }) => tx)),
  };
}

interface Traffic {
  readonly rx: number;
  readonly tx: number;
}

// `eth0: received packets … sent packets …`: eight numbers for each direction. The two lines above them are no interface.
function readInterface(line: string): Traffic[] {
  const match = /^\s*([^\s:]{1,32}):\s*(\d{1,20}(?:\s+\d{1,20}){8,15})\s*$/.exec(line);
  if (!match || match[1] === 'lo') return [];
  const numbers = (match[2] ?? '').split(/\s+/).map(Number);
  return [{ rx: numbers[0] ?? 0, tx: numbers[8] ?? 0 }];
}

// A claim beyond what a number can hold is no number.
function total(numbers: readonly number[]): number | undefined {
  const sum = numbers.reduce((before, number) => before + number, 0);
  return numbers.length === 0 || !Number.isSafeInteger(sum) ? undefined : sum;
}

// `key value`, or a lone value under the empty key.
function readCounter(line: string): [string, number] {
  const [first = '', second] = line.trim().split(/\s+/);
  return second === undefined ? ['', Number(first)] : [first, Number(second)];
}
