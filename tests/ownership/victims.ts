// Clients that are killed, and what they leave: what the tests of ownership look at.

import type { ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Bench } from '../cli/bench.ts';
import { images, withEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { ownerSocketsIn, reapersIn } from '../support/remains.ts';
import { until } from '../support/waiting.ts';

const soon = () => AbortSignal.timeout(60_000);

/** A client whose command sleeps. */
export interface Sleeping {
  readonly child: ChildProcess;
  readonly ended: Promise<unknown>;
  readonly id: string;
}

/** Starts a client, and waits until its command runs. */
export async function sleeping(
  bench: Bench,
  engine: TestEngine,
  task: string,
  flags: readonly string[] = [],
): Promise<Sleeping> {
  // Of its own: tests that run at the same time may use the same word.
  const own = `${task}-${randomUUID().slice(0, 8)}`;
  const { child, ended } = bench.start(['run', ...flags, '--task', own, '--', 'sh', '-c', 'echo up; exec sleep 600']);
  await once(child.stdout ?? child, 'data');
  const labels = [`acode.task=${own}`];
  const id = await withEngine(engine, async direct => {
    const found = await direct.containers.list({ labels, signal: soon() });
    return found.find(one => one.labels['acode.uid'] === String(process.getuid?.()))?.id ?? '';
  });
  if (id === '') throw new Error(`there is no sandbox for ${own}`);
  return { child, ended, id };
}

/** A container with these labels, as a dead session leaves it: with the name that its labels say. */
export async function leftover(engine: TestEngine, labels: Record<string, string>): Promise<string> {
  return withEngine(engine, async direct => {
    const name = `acode-left-${randomUUID()}`;
    const own = { ...labels, 'acode.name': name };
    const body = { Image: images.busybox, Cmd: ['true'], Labels: own, HostConfig: { NetworkMode: 'none' } };
    return (await direct.containers.create(body, { name, signal: soon() })).id;
  });
}

/** Whether a container is still on the engine. */
export async function exists(engine: TestEngine, id: string): Promise<boolean> {
  return withEngine(engine, async direct =>
    (await direct.containers.list({ labels: ['acode.managed=true'], all: true, signal: soon() })).some(
      one => one.id === id,
    ),
  );
}

/** Waits until a container is gone. */
export async function gone(engine: TestEngine, id: string): Promise<void> {
  await withEngine(engine, direct =>
    until(async () => {
      const all = await direct.containers.list({ labels: ['acode.managed=true'], all: true, signal: soon() });
      return !all.some(one => one.id === id);
    }),
  );
}

/** The reapers of a bench. */
export function reapersOf(bench: Bench): number[] {
  return reapersIn(bench.env['XDG_RUNTIME_DIR'] ?? 'none');
}

/** The memory of a process. */
export function residentKiB(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? Infinity);
}

/** The sockets of owners that are there. */
export function sockets(bench: Bench): string[] {
  return ownerSocketsIn(bench.env['XDG_RUNTIME_DIR'] ?? 'none');
}
