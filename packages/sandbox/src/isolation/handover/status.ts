// Status lines: how acode finds the end of a command in its two streams of output, and what their last line claims.

import { BEGUN, EARLIER, statusMarker } from './script.ts';

/** How a command ended, by the sandbox’s own account. The engine’s word counts where it differs. */
export type Claim = ExitClaim | { readonly kind: NeverStarted };

/** That a command ran and ended. The command can forge it: it can read the nonce in the memory of the waiting shell. */
export interface ExitClaim {
  readonly kind: 'exit';
  readonly exitCode: number;
  readonly counters: Counters;
}

/** Why the waiting shell did not start a command. The command cannot forge it: it has no process before the shell acknowledges. */
export type NeverStarted = 'cwd' | 'missing' | 'forbidden' | 'network';

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

const MAX_LINE = 16 * 1024;
// A shell takes milliseconds to begin; one that hangs gets the signal all the same.
const BEGUN_MS = 5000;

/** The status with which the waiting shell ends where it does not start the command. */
const NEVER_STARTED_STATUS: Readonly<Record<NeverStarted, number>> = {
  cwd: 125,
  missing: 127,
  forbidden: 126,
  network: 125,
};

/**
 * Passes output on and stops at the status line. One scanner per stream.
 *
 * The shell acknowledges on each stream before it starts the command. Only a claim that comes instead of the
 * acknowledgement can say that the command never started, and only one that comes after it how the command ended. Any
 * other framed line is the command’s own output.
 */
export class StatusScanner {
  readonly #marker: Buffer;
  readonly #pass: (data: Buffer) => void;
  #held: Buffer = Buffer.alloc(0);
  #isInLine = false;
  #claim: Claim | null = null;
  #begun = false;

  constructor(nonce: string, pass: (data: Buffer) => void) {
    this.#marker = statusMarker(nonce);
    this.#pass = pass;
  }

  /** The claim, once its line has been seen. What comes after it is not output of the command any more. */
  get claim(): Claim | null {
    return this.#claim;
  }

  /** Whether the command’s process has acknowledged, or will not any more. */
  get isBegun(): boolean {
    return this.#begun || this.#claim !== null;
  }

  /** Takes the next bytes of the stream. */
  push(chunk: Buffer): void {
    let rest: Buffer | null = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = Buffer.alloc(0);
    while (rest && !this.#claim) rest = this.#isInLine ? this.#readLine(rest) : this.#readOutput(rest);
  }

  /** The stream has ended: what was held back was output after all. */
  end(): void {
    if (!this.#claim) this.#emit(this.#held);
    this.#held = Buffer.alloc(0);
  }

  #emit(data: Buffer): void {
    if (data.length > 0) this.#pass(data);
  }

  // Gives what is to be read next: from the marker on, or nothing.
  #readOutput(data: Buffer): Buffer | null {
    const at = data.indexOf(this.#marker);
    this.#isInLine = at >= 0;
    if (at >= 0) {
      this.#emit(data.subarray(0, at));
      return data.subarray(at);
    }
    const keep = tailThatMayBegin(data, this.#marker);
    this.#emit(data.subarray(0, data.length - keep));
    // A copy: the tail is a few bytes of a chunk that may be large.
    this.#held = Buffer.from(data.subarray(data.length - keep));
    return null;
  }

  // Begins with the marker.
  #readLine(data: Buffer): Buffer | null {
    const from = this.#marker.length;
    const end = data.subarray(0, from + MAX_LINE).indexOf(0x0a, from);
    if (end < 0 && data.length < from + MAX_LINE) {
      this.#held = Buffer.from(data);
      return null;
    }
    this.#isInLine = false;
    const text = data.subarray(from, Math.max(from, end)).toString('latin1');
    const claim = parseClaim(text);
    if (!this.#begun && text === BEGUN) this.#begun = true;
    else if (claim && (claim.kind === 'exit') === this.#begun) this.#claim = claim;
    // Without its marker, which would be found again.
    else return this.#notOurs(data, from);
    return data.subarray(end + 1);
  }

  #notOurs(data: Buffer, from: number): Buffer {
    this.#emit(data.subarray(0, from));
    return data.subarray(from);
  }
}

/**
 * Why the command was never started; null where it was. Both streams have to say so: on a stream that the shell has
 * acknowledged, the claim would be the command’s.
 */
export function neverStarted({
  stdout,
  stderr,
}: Readonly<Record<'stdout' | 'stderr', StatusScanner>>): NeverStarted | null {
  const kind = stdout.claim?.kind;
  return kind !== undefined && kind !== 'exit' && kind === stderr.claim?.kind ? kind : null;
}

/** Output of a command, by stream. */
export interface Output {
  stdout(data: Buffer): void;
  stderr(data: Buffer): void;
}

/** The ending of a command that was never started. */
export interface NeverStartedEnding {
  readonly exitCode: number;
  readonly neverStarted: NeverStarted;
  readonly oomKilled: false;
  readonly pidsRefused: false;
}

/** Both streams of a command that was handed over, up to its end. */
export class HandedStreams implements Output {
  /** Resolves when both streams have claimed an end: what follows is not output of the command. */
  readonly claimed: Promise<void>;
  readonly #begun: Promise<void>;
  readonly #scanners: { readonly stdout: StatusScanner; readonly stderr: StatusScanner };
  #bothClaimed: () => void = () => undefined;
  #hasBegun: () => void = () => undefined;

  constructor(nonce: string, output: Output) {
    this.claimed = new Promise(resolve => (this.#bothClaimed = resolve));
    this.#begun = new Promise(resolve => (this.#hasBegun = resolve));
    this.#scanners = {
      stdout: new StatusScanner(nonce, data => output.stdout(data)),
      stderr: new StatusScanner(nonce, data => output.stderr(data)),
    };
  }

  readonly stdout = (data: Buffer): void => this.#take('stdout', data);

  readonly stderr = (data: Buffer): void => this.#take('stderr', data);

  /** Reads one stream to its end. Pulled, not pushed: what is not yet passed on is still in the pipe of the command. */
  async read(name: keyof Output, stream: AsyncIterable<Buffer>): Promise<void> {
    for await (const chunk of stream) this.#take(name, chunk);
    this.#scanners[name].end();
    this.#hasBegun();
  }

  /** Both streams have ended. */
  end(): void {
    this.#scanners.stdout.end();
    this.#scanners.stderr.end();
    this.#hasBegun();
  }

  /**
   * Waits until a signal reaches the command: before it has a process of its own, the shell catches the signal, and it would be lost.
   * One that ends everything needs no process.
   */
  async readyFor(signal: string): Promise<void> {
    if (signal !== 'SIGKILL') await within(BEGUN_MS, this.#begun);
  }

  /** Resolves when the output is complete: both streams claimed an end, or ended, or are still open so long after the exit. */
  async complete(drained: Promise<unknown>, exit: Promise<unknown>, drainMs: number): Promise<void> {
    await Promise.race([this.claimed, drained, exit.then(() => Promise.race([drained, delay(drainMs)]))]);
  }

  /** Whether the command has a process, or its shell said why it has none. */
  get hasBegun(): boolean {
    return this.#scanners.stdout.isBegun || this.#scanners.stderr.isBegun;
  }

  /** Why the command was never started; null where it was. */
  get neverStarted(): NeverStarted | null {
    return neverStarted(this.#scanners);
  }

  /** How the command ended by its sandbox’s account; null where the engine has to be asked. */
  get exit(): ExitClaim | null {
    const claim = this.#scanners.stdout.claim ?? this.#scanners.stderr.claim;
    return claim?.kind === 'exit' ? claim : null;
  }

  /** The ending of the command; `started` reports that of one that was started, by its claim where it made one. */
  async ending<Ending>(started: (claim: ExitClaim | null) => Promise<Ending>): Promise<Ending | NeverStartedEnding> {
    const never = this.neverStarted;
    if (!never) return started(this.exit);
    return { exitCode: NEVER_STARTED_STATUS[never], neverStarted: never, oomKilled: false, pidsRefused: false };
  }

  #take(name: keyof Output, data: Buffer): void {
    const { stdout, stderr } = this.#scanners;
    this.#scanners[name].push(data);
    if (this.hasBegun) this.#hasBegun();
    if (stdout.claim && stderr.claim) this.#bothClaimed();
  }
}

/** What comes of `work` within so many milliseconds; undefined where nothing came. Does not keep the process alive. */
export function within<Value>(ms: number, work: Promise<Value>): Promise<Value | undefined> {
  return Promise.race([work, delay(ms)]);
}

function delay(ms: number): Promise<undefined> {
  return new Promise(resolve => {
    setTimeout(() => resolve(undefined), ms).unref();
  });
}

// How many bytes at the end could be the beginning of the marker.
function tailThatMayBegin(data: Buffer, marker: Buffer): number {
  const start = data.indexOf(marker[0] ?? 0, Math.max(0, data.length - marker.length + 1));
  for (let at = start; at >= 0; at = data.indexOf(marker[0] ?? 0, at + 1)) {
    if (data.subarray(at).equals(marker.subarray(0, data.length - at))) return data.length - at;
  }
  return 0;
}

function isNeverStarted(line: string): line is NeverStarted {
  return Object.hasOwn(NEVER_STARTED_STATUS, line);
}

/** Reads the text of a status line; null where it makes no sense. */
export function parseClaim(line: string): Claim | null {
  if (isNeverStarted(line)) return { kind: line };
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
