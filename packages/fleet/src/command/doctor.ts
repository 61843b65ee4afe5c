// `acode fleet doctor`: whether this user can submit, and whether the fleet can run it. Each check does it, where it can.

import { statSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { AcodeError } from '@acode/sandbox';
import { readFleetFile } from '../client/file.ts';
import type { FleetFile } from '../client/file.ts';
import { GateAccess } from '../client/gate-access.ts';
import { openEngine } from '../connect/open-engine.ts';
import { openGate } from '../connect/open-gate.ts';
import type { FleetEngine } from '../engine/engine.ts';
import { reasonOf } from '../engine/retry.ts';
import { hostsOf } from './fleet-view.ts';
import { places } from './places.ts';
import type { RequestOf, Terminal } from './requests.ts';

interface Check {
  readonly id: string;
  readonly title: string;
  readonly status: 'ok' | 'warning' | 'failed';
  readonly observed: string;
  readonly remedy: string;
}

type OfGate = Extract<FleetFile, { readonly gate: object }>;
type OfEngine = Extract<FleetFile, { readonly engine: object }>;

const TRIES = 5;
const GATE_MS = 10_000;

/** `acode fleet doctor`: status 1 where a check failed. */
export async function doctor({ file }: RequestOf<'doctor'>, terminal: Terminal): Promise<number> {
  const path = file ?? places().fleetFile;
  const checks: Check[] = [];
  const settings = await tried(checks, 'file', 'The file of this client', async () => {
    const found = await readFleetFile(path);
    return { value: found, observed: `${path}, tenant ${found.tenant}` };
  });
  if (settings) {
    checks.push(privacy(path), transport(settings));
    if (settings.gate) await gateCheck(checks, settings, terminal.signal);
    else await engineChecks(checks, settings, terminal.signal);
  }
  terminal.value('acode.fleet-doctor/1', { checks });
  return checks.some(({ status }) => status === 'failed') ? 1 : 0;
}

async function gateCheck(checks: Check[], { gate, fleet, tenant }: OfGate, signal: AbortSignal): Promise<void> {
  await tried(checks, 'gate', 'A gate answers', async () => {
    const access = new GateAccess(await openGate(gate, fleet, tenant));
    try {
      const began = performance.now();
      const id = await access.hello(AbortSignal.any([signal, AbortSignal.timeout(GATE_MS)]));
      return { value: true, observed: `${id}, in ${(performance.now() - began).toFixed(1)} ms` };
    } finally {
      await access.close();
    }
  });
}

async function engineChecks(checks: Check[], settings: OfEngine, signal: AbortSignal): Promise<void> {
  const engine = await tried(checks, 'engine', 'The servers: version, settings, streams', async () => {
    const found = await openEngine(settings, signal);
    return { value: found, observed: `${found.kind}, and every check of it passed` };
  });
  if (!engine) return;
  await using _engine = engine;
  await tried(checks, 'fencing', 'Only one of two writers succeeds', () => fencing(engine, settings, signal));
  await tried(checks, 'hosts', `Hosts of the pool ${settings.pool}`, () => poolHosts(engine, settings, signal));
}

// The one thing that all rests on.
async function fencing(
  engine: FleetEngine,
  { tenant }: OfEngine,
  signal: AbortSignal,
): Promise<{ value: true; observed: string }> {
  const key = { tenant, id: `doctor-${randomUUID()}` };
  const began = performance.now();
  for (let at = 0; at < TRIES; at += 1) await engine.read(key, signal);
  const readMs = (performance.now() - began) / TRIES;
  const text = JSON.stringify({
    schema: 'acode.fleet.state/1',
    state: 'cancelled',
    attempt: 0,
    worker: null,
    claim: null,
    at: new Date().toISOString(),
  });
  const write = (): Promise<number | null> => engine.write(key, 0, text, { keepMs: 60_000 }, signal);
  const written = await Promise.all([write(), write()]);
  const winners = written.filter(revision => revision !== null).length;
  if (winners !== 1) throw new Error(`${winners} of two writers of one revision succeeded`);
  return { value: true, observed: `one of two; a read takes ${readMs.toFixed(1)} ms` };
}

async function poolHosts(
  engine: FleetEngine,
  { pool, workers }: OfEngine,
  signal: AbortSignal,
): Promise<{ value: true; observed: string }> {
  const found = (await hostsOf(engine, signal)).filter(host => host.pool === pool);
  if (found.length === 0) throw new Error(`no worker of the pool ${pool} has a lease`);
  const unknown = workers ? found.filter(({ key }) => !workers.includes(key)) : [];
  if (unknown[0]) throw new Error(`results of ${unknown[0].name} would be refused: its key is not in \`workers\``);
  const slots = found.reduce((sum, host) => sum + host.slots, 0);
  return {
    value: true,
    observed: `${found.length} with ${slots} slots; ${await engine.depth(pool, signal)} tasks in the queue`,
  };
}

function privacy(path: string): Check {
  const mode = statSync(path).mode & 0o077;
  return {
    id: 'private',
    title: 'Nobody else can read the key in the file',
    status: mode === 0 ? 'ok' : 'failed',
    observed: mode === 0 ? 'only you' : 'others can',
    remedy: mode === 0 ? '' : `chmod 600 ${path}`,
  };
}

// Without that word a connection to another machine is refused unless it is encrypted.
function transport({ engine, gate }: FleetFile): Check {
  const ways = [engine, gate].flatMap(way => (way ? Object.values<object>(way) : []));
  const isPlain = ways.some(way => 'unencrypted' in way && way.unencrypted === true);
  return {
    id: 'transport',
    title: 'Connections that leave this machine are encrypted',
    status: isPlain ? 'warning' : 'ok',
    observed: isPlain ? 'the file has `unencrypted: true`' : 'TLS, or the loopback',
    remedy: isPlain
      ? 'Give the servers certificates, name them with tls:// (NATS) or sslmode=verify-full (PostgreSQL), and remove `unencrypted`.'
      : '',
  };
}

async function tried<Value>(
  checks: Check[],
  id: string,
  title: string,
  check: () => Promise<{ value: Value; observed: string }>,
): Promise<Value | null> {
  try {
    const { value, observed } = await check();
    checks.push({ id, title, status: 'ok', observed, remedy: '' });
    return value;
  } catch (error) {
    const remedy = error instanceof AcodeError ? error.hint : 'Ask the operator of the fleet.';
    checks.push({ id, title, status: 'failed', observed: reasonOf(error), remedy });
    return null;
  }
}
