import { expect, it, vi } from 'vitest';
import type { LogBatch } from '../engine/engine.ts';
import { MemoryEngine } from '../engine/memory.ts';
import { decodePiece } from '../tasks/log-pieces.ts';
import { LogWriter } from './log-writer.ts';

const key = { tenant: 'acme', id: 'one', attempt: 1 };

/** An engine whose answers to pieces of logs the test gives. */
class SlowLog extends MemoryEngine {
  readonly pieces: LogBatch[] = [];
  readonly #answer: (signal: AbortSignal | undefined) => Promise<void>;

  constructor(answer: (signal: AbortSignal | undefined) => Promise<void>) {
    super();
    this.#answer = answer;
  }

  override async appendLog(_: unknown, batch: LogBatch, signal?: AbortSignal): Promise<void> {
    await this.#answer(signal);
    this.pieces.push(batch);
  }
}

const textOf = (pieces: readonly LogBatch[]): string =>
  pieces
    .flatMap(({ bytes }) => decodePiece(bytes))
    .map(({ bytes }) => Buffer.from(bytes).toString())
    .join('');

it('puts what comes while the engine is slow into the next piece, in order', async () => {
  vi.useFakeTimers();
  try {
    const engine = new SlowLog(() => new Promise(resolve => void setTimeout(resolve, 1000)));
    const log = new LogWriter(engine, key);
    for (let at = 0; at < 50; at += 1) {
      log.add(at % 2 === 0 ? 1 : 2, Buffer.from(`${at} `));
      await vi.advanceTimersByTimeAsync(100);
    }
    const ending = log.end();
    await vi.advanceTimersByTimeAsync(3000);
    expect(await ending).toBe(engine.pieces.length);
    expect(engine.pieces.length).toBeLessThan(10);
    expect(engine.pieces.map(({ sequence }) => sequence)).toEqual(engine.pieces.map((_, at) => at + 1));
    expect(textOf(engine.pieces)).toBe(Array.from({ length: 50 }, (_, at) => `${at} `).join(''));
  } finally {
    vi.useRealTimers();
  }
});

it('keeps no result back for long when the log cannot be written', async () => {
  vi.useFakeTimers();
  try {
    const never = (signal: AbortSignal | undefined): Promise<void> =>
      new Promise((_, reject) => {
        const late = (): void => reject(new Error('late'));
        if (signal?.aborted) late();
        signal?.addEventListener('abort', late);
      });
    const log = new LogWriter(new SlowLog(never), key);
    for (let at = 0; at < 100; at += 1) {
      log.add(1, new Uint8Array(30_000));
      await vi.advanceTimersByTimeAsync(100);
    }
    const ended = vi.fn<() => void>();
    void log.end().then(ended);
    await vi.advanceTimersByTimeAsync(5000);
    expect(ended).toHaveBeenCalledOnce();
    expect(log.dropped).toBe(3_000_000);
  } finally {
    vi.useRealTimers();
  }
});
