// Standard input and output: nothing is lost, nothing waits for ever, and memory stays bounded.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines, mainEngine, withoutEngines } from '../support/engines.ts';
import { Bench } from './bench.ts';
import type { Given } from './bench.ts';

const MEGABYTE = 1_000_000;
const BOTH = `head -c ${MEGABYTE} /dev/zero | tr '\\0' o; head -c ${MEGABYTE} /dev/zero | tr '\\0' e >&2`;

const slowly: NonNullable<Given['read']> = async child => {
  const chunks: Buffer[] = [];
  for await (const chunk of child.stdout ?? []) {
    chunks.push(chunk as Buffer);
    await new Promise(resolve => setTimeout(resolve, 15));
  }
  return Buffer.concat(chunks);
};

describe.skipIf(withoutEngines).each(engines)('the streams of a command on $name', engine => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.at(engine);
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  it('lose no byte in 10 runs of a megabyte on each, also behind a slow reader', async () => {
    for (let batch = 0; batch < 2; batch += 1) {
      const runs = Array.from({ length: 5 }, (_, index) => bench.exec([BOTH], index === 0 ? { read: slowly } : {}));
      for (const { status, stdout, stderr } of await Promise.all(runs)) {
        expect({ status, out: stdout.length, err: stderr.length }).toEqual({ status: 0, out: MEGABYTE, err: MEGABYTE });
        expect(stdout.every(byte => byte === 0x6f)).toBe(true);
        expect(/^e+$/.test(stderr)).toBe(true);
      }
    }
  });

  it('carry standard input byte for byte', async () => {
    const bytes = Buffer.from(Array.from({ length: 3 * MEGABYTE }, (_, index) => (index * 7919) % 256));
    const { status, stdout } = await bench.exec(['--', 'cat'], { stdin: bytes });
    const hash = (data: Buffer) => createHash('sha256').update(data).digest('hex');
    expect({ status, hash: hash(stdout) }).toEqual({ status: 0, hash: hash(bytes) });
  });

  it('end with the command, though standard input stays open', async () => {
    const { status, stdout } = await bench.exec(['--', 'echo', 'done'], { stdin: 'open' });
    expect({ status, stdout: stdout.toString() }).toEqual({ status: 0, stdout: 'done\n' });
  });

  it('stop the command quietly with 141 when the reader goes away, as `| head -1` does', async () => {
    const { status, stderr } = await bench.exec(['--readonly', 'yes'], {
      read: async child => {
        for await (const chunk of child.stdout ?? []) return chunk as Buffer;
        return Buffer.alloc(0);
      },
    });
    expect({ status, stderr }).toEqual({ status: 141, stderr: '' });
  });

  it('leave nothing on the engine', async () => {
    expect(await bench.left()).toEqual([]);
  });
});

it.skipIf(withoutEngines)('a gigabyte of output is capped, counted, and never held in memory', async () => {
  await using bench = await Bench.at(mainEngine);
  let peak = 0;
  const { child, ended } = bench.start(['run', '--cpus', '2', 'dd if=/dev/zero bs=1M count=1024 2>/dev/null']);
  const timer = setInterval(() => (peak = Math.max(peak, residentBytes(child.pid))), 20);
  const { status, stdout, stderr, ms } = await ended;
  clearInterval(timer);
  process.stderr.write(`1 GiB through acode: ${Math.round(ms)} ms, peak RSS ${Math.round(peak / 1024 ** 2)} MiB\n`);
  expect({ status, kept: stdout.length }).toEqual({ status: 0, kept: 10 * 1024 ** 2 });
  expect(stderr).toContain(`${1024 ** 3 - 10 * 1024 ** 2} bytes were left out`);
  expect(peak).toBeGreaterThan(0);
  expect(peak).toBeLessThan(200 * 1024 ** 2);
});

function residentBytes(pid: number | undefined): number {
  try {
    return Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
