// `acode fleet up`: a server that this machine has, one worker, and the files with which tasks are submitted. It runs until a signal.

import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import { AcodeError, ensurePrivateDirectory, readPrivateFile, writePrivateFile } from '@acode/sandbox';
import { stringify } from 'yaml';
import { openEngine } from '../connect/open-engine.ts';
import { FLEET_ERRORS } from '../errors.ts';
import { makeKeys } from '../tasks/signature.ts';
import type { KeyPair } from '../tasks/signature.ts';
import { workerFileFrom } from '../worker/file.ts';
import { Worker } from '../worker/worker.ts';
import { startServer } from './local-server.ts';
import type { LocalServer } from './local-server.ts';
import { places } from './places.ts';
import type { RequestOf, Terminal } from './requests.ts';

const TENANT = 'local';
const MAX_KEYS = 4096;

/** `acode fleet up`. */
export async function up(request: RequestOf<'up'>, terminal: Terminal): Promise<number> {
  assertOrdinaryUser();
  const { up: directory, workerRoot, workerRuntime, fleetFile } = places();
  await ensurePrivateDirectory(directory, process.getuid?.() ?? 0);
  await using server = await startServer(directory, request, terminal.signal);
  const keys = keysIn(directory);
  const settings = workerSettings(request, server, keys);
  const file = workerFileFrom(settings, hostname());
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
    const written = writeFiles(directory, { server, settings, keys, workerKey: worker.publicKey, fleet: file.fleet });
    if (written.isOther)
      terminal.say(`acode: ${fleetFile} is of another fleet: name this one with --file ${written.fleetFile}.\n`);
    terminal.value('acode.fleet-up/1', {
      server: server.name,
      file: written.isOther ? written.fleetFile : fleetFile,
      join: written.join,
      worker: { name: file.name, slots: file.slots, level: file.level, images: file.images },
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

/** Refuses root before anything is started. */
export function assertOrdinaryUser(): void {
  if (process.getuid?.() === 0) throw new AcodeError('ACODE-SBX-011', { uid: 0 });
}

function workerSettings(request: RequestOf<'up'>, server: LocalServer, keys: KeyPair): Record<string, unknown> {
  const { images, slots, level, socket, fleet } = request;
  if (images === undefined || images.length === 0)
    throw FLEET_ERRORS.create('ACODE-FLT-022', {
      file: '--image',
      reason: 'no image is named that tasks may use',
      remedy:
        'Name one that this machine has: `acode fleet up --image node:20-alpine`. `acode sandbox images` shows them.',
    });
  return {
    engine: server.address,
    ...(fleet === undefined ? {} : { fleet }),
    images,
    ...(slots === undefined ? {} : { slots }),
    ...(level === undefined ? {} : { level }),
    ...(socket === undefined ? {} : { socket }),
    tenants: { [TENANT]: { keys: [keys.publicKey] } },
  };
}

function keysIn(directory: string): KeyPair {
  const path = join(directory, 'keys.json');
  const found = readPrivateFile(path, { maxBytes: MAX_KEYS });
  if (found) {
    const pair: unknown = JSON.parse(found.text);
    if (isPair(pair)) return pair;
  }
  const made = makeKeys();
  writePrivateFile(path, JSON.stringify(made), { durable: 'name' });
  return made;
}

function isPair(value: unknown): value is KeyPair {
  return (
    typeof value === 'object' &&
    value !== null &&
    'publicKey' in value &&
    'privateKey' in value &&
    typeof value.publicKey === 'string' &&
    typeof value.privateKey === 'string'
  );
}

interface Written {
  readonly fleetFile: string;
  readonly join: string | null;
  /** Whether the user’s own file is of another fleet. */
  readonly isOther: boolean;
}

function writeFiles(
  directory: string,
  about: {
    readonly server: LocalServer;
    readonly settings: Record<string, unknown>;
    readonly keys: KeyPair;
    readonly workerKey: string;
    readonly fleet: string;
  },
): Written {
  const { server, settings, keys, workerKey, fleet } = about;
  const { fleetFile: own } = places();
  // Where other hosts join, their workers sign too, and who can connect is trusted.
  const workers = server.remote === null ? { workers: [workerKey] } : {};
  const client = stringify({ engine: server.address, fleet, tenant: TENANT, keys, ...workers });
  const fleetFile = join(directory, 'fleet.yml');
  const before = existsSync(fleetFile) ? readFileSync(fleetFile, 'utf8') : null;
  writePrivateFile(fleetFile, client);
  const found = existsSync(own) ? readFileSync(own, 'utf8') : null;
  const isOther = found !== null && found !== client && found !== before;
  if (!isOther) {
    mkdirSync(dirname(own), { recursive: true, mode: 0o700 });
    writePrivateFile(own, client);
  }
  if (server.remote === null) return { fleetFile, join: null, isOther };
  const path = join(directory, 'join.yml');
  const { socket: _, ...shared } = settings;
  writePrivateFile(path, stringify({ ...shared, engine: server.remote }));
  return { fleetFile, join: path, isOther };
}
