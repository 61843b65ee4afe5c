// `acode fleet join`: this host becomes a worker of a fleet, with the file that `acode fleet up` or the operator wrote.

import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import { text } from 'node:stream/consumers';
import { writePrivateFile } from '@acode/sandbox';
import { parse } from 'yaml';
import { openEngine } from '../connect/open-engine.ts';
import { FLEET_ERRORS } from '../errors.ts';
import { reasonOf } from '../engine/retry.ts';
import { workerFileFrom } from '../worker/file.ts';
import { Worker } from '../worker/worker.ts';
import { places } from './places.ts';
import type { RequestOf, Terminal } from './requests.ts';
import { assertOrdinaryUser } from './up.ts';

/** `acode fleet join`: checks file, servers and host, keeps the file, and works until a signal. */
export async function join(request: RequestOf<'join'>, terminal: Terminal): Promise<number> {
  assertOrdinaryUser();
  const { workerFile, workerRoot, workerRuntime } = places();
  const content = await contentOf(request.from);
  const settings = parsed(content, request.from);
  const named = request.socket === undefined ? settings : { ...settings, socket: request.socket };
  const file = workerFileFrom(named, hostname(), request.from);
  const engine = await openEngine(file, terminal.signal);
  const drained = new AbortController();
  const worker = await Worker.start({
    file,
    engine,
    root: workerRoot,
    runtime: workerRuntime,
    onDrain: () => drained.abort(),
  });
  try {
    keep(workerFile, content, request.replace);
    terminal.value('acode.fleet-join/1', {
      file: workerFile,
      worker: { name: file.name, pool: file.pool, slots: file.slots, key: worker.publicKey },
    });
    await new Promise<void>(resolve => {
      for (const signal of [terminal.signal, drained.signal]) {
        signal.addEventListener('abort', () => resolve(), { once: true });
        if (signal.aborted) resolve();
      }
    });
  } finally {
    await worker.close();
  }
  return 0;
}

async function contentOf(from: string): Promise<string> {
  if (from === '-') return text(process.stdin);
  try {
    return await readFile(from, 'utf8');
  } catch (cause) {
    throw FLEET_ERRORS.create('ACODE-FLT-014', { file: from, reason: reasonOf(cause) }, { cause });
  }
}

function parsed(content: string, from: string): object {
  let value: unknown;
  try {
    value = parse(content);
  } catch (cause) {
    throw FLEET_ERRORS.create('ACODE-FLT-014', { file: from, reason: reasonOf(cause).split('\n')[0] ?? '' }, { cause });
  }
  if (typeof value === 'object' && value !== null) return value;
  throw FLEET_ERRORS.create('ACODE-FLT-014', { file: from, reason: 'it is not a mapping' });
}

function keep(path: string, content: string, replace: boolean): void {
  const found = existsSync(path) ? readFileSync(path, 'utf8') : null;
  if (found === content) return;
  if (found !== null && !replace)
    throw FLEET_ERRORS.create('ACODE-FLT-022', {
      file: path,
      reason: 'it is there already, with other content',
      remedy: 'Compare both; `acode fleet join --replace` writes the new one.',
    });
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  writePrivateFile(path, content);
}
