// `acode fleet status`, `hosts` and `drain`: what the fleet has, and a host that leaves it.

import * as z from 'zod';
import { Fleet } from '../client/fleet.ts';
import { readFleetFile } from '../client/file.ts';
import { openEngine } from '../connect/open-engine.ts';
import { FLEET_ERRORS } from '../errors.ts';
import type { FleetEngine } from '../engine/engine.ts';
import { paused } from '../engine/retry.ts';
import { places } from './places.ts';
import type { RequestOf, Terminal } from './requests.ts';

const AGAIN_MS = 1000;
const ASK_MS = 5000;
const MAX_TRIES = 120;

const bodySchema = z.object({
  name: z.string(),
  pool: z.string(),
  slots: z.number(),
  level: z.string(),
  key: z.string(),
  draining: z.boolean().default(false),
  tasks: z.array(z.object({ tenant: z.string(), id: z.string(), attempt: z.number() })),
});

/** A host of the fleet, as its worker’s lease describes it. */
export type Host = z.infer<typeof bodySchema> & { readonly worker: string };

/** The hosts whose workers have a lease. A lease that says something else is left out. */
export async function hostsOf(engine: FleetEngine, signal?: AbortSignal): Promise<Host[]> {
  const found = (await engine.leases(signal)).flatMap(({ worker, body }) => {
    const parsed = bodySchema.safeParse(valueOf(body));
    return parsed.success ? [{ worker, ...parsed.data }] : [];
  });
  return found.sort((one, other) => one.name.localeCompare(other.name) || one.worker.localeCompare(other.worker));
}

function valueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The engine of the operator’s file. A tenant’s file reaches none. */
async function engineOf(file: string | undefined, command: string, signal: AbortSignal): Promise<FleetEngine> {
  const settings = await readFleetFile(file ?? places().fleetFile);
  if (settings.gate) throw FLEET_ERRORS.create('ACODE-FLT-034', { command });
  return openEngine(settings, signal);
}

/** `acode fleet status`: the pools and this user’s tasks, or one task. */
export async function status({ file, id }: RequestOf<'status'>, terminal: Terminal): Promise<number> {
  const settings = await readFleetFile(file ?? places().fleetFile);
  const outbox = places().outbox;
  const engine = settings.gate ? null : await openEngine(settings, terminal.signal);
  await using fleet = await Fleet.open(
    engine ? { ...settings, gate: undefined, engine, outbox } : { ...settings, outbox },
  );
  if (id !== undefined) return await statusOf(fleet, id, terminal);
  // A tenant sees its own tasks, and nothing of the pools.
  const pools = engine ? await poolsOf(engine, settings.pool, terminal.signal) : [];
  const tasks = await Promise.all(
    fleet.pending().map(async task => ({ id: task.id, ...(await positionOf(fleet, task.id, terminal.signal)) })),
  );
  const { fleet: name, tenant } = settings;
  terminal.value('acode.fleet-status/1', { fleet: name, engine: engine?.kind ?? 'gate', tenant, pools, tasks });
  return 0;
}

async function poolsOf(engine: FleetEngine, usual: string, signal: AbortSignal): Promise<object[]> {
  const found = await hostsOf(engine, signal);
  const names = [...new Set([usual, ...found.map(({ pool }) => pool)])].sort();
  return Promise.all(
    names.map(async pool => {
      const own = found.filter(host => host.pool === pool);
      const slots = own.reduce((sum, host) => sum + host.slots, 0);
      const busy = own.reduce((sum, host) => sum + host.tasks.length, 0);
      return { pool, hosts: own.length, slots, busy, queued: await engine.depth(pool, signal) };
    }),
  );
}

async function positionOf(fleet: Fleet, id: string, signal: AbortSignal): Promise<object> {
  const found = await fleet.task(id).state(signal);
  return found
    ? { state: found.state, attempt: found.attempt, worker: found.worker, at: found.at }
    : { state: 'queued', attempt: 0, worker: null, at: null };
}

async function statusOf(fleet: Fleet, id: string, terminal: Terminal): Promise<number> {
  const isKnown =
    fleet.pending().some(task => task.id === id) || (await fleet.task(id).state(terminal.signal)) !== null;
  if (!isKnown) throw FLEET_ERRORS.create('ACODE-FLT-011', { tenant: 'yours', task: id });
  terminal.value('acode.fleet-task/1', { id, ...(await positionOf(fleet, id, terminal.signal)) });
  return 0;
}

/** `acode fleet hosts`. */
export async function hosts({ file }: RequestOf<'hosts'>, terminal: Terminal): Promise<number> {
  await using engine = await engineOf(file, 'acode fleet hosts', terminal.signal);
  terminal.value('acode.fleet-hosts/1', { items: await hostsOf(engine, terminal.signal) });
  return 0;
}

/** `acode fleet drain`: the workers of a host take no more, end what they have, and leave. */
export async function drain({ file, host, wait }: RequestOf<'drain'>, terminal: Terminal): Promise<number> {
  const { signal } = terminal;
  await using engine = await engineOf(file, 'acode fleet drain', signal);
  const isMeant = ({ name, worker }: Host): boolean => name === host || worker === host;
  const workers = (await hostsOf(engine, signal)).filter(isMeant).map(({ worker }) => worker);
  if (workers.length === 0) throw FLEET_ERRORS.create('ACODE-FLT-021', { host });
  // A fleet of one machine ends with its host: what cannot be asked any more has left.
  const still = async (): Promise<Host[]> =>
    (await hostsOf(engine, AbortSignal.any([signal, AbortSignal.timeout(ASK_MS)])).catch(() => [])).filter(
      ({ worker }) => workers.includes(worker),
    );
  let left = await still();
  // A notice may be lost: it is repeated until the worker’s lease says that it heard it.
  for (let tries = 0; tries < MAX_TRIES && !signal.aborted; tries += 1) {
    const deaf = left.filter(({ draining }) => !draining);
    if (left.length === 0 || (!wait && deaf.length === 0)) break;
    for (const { worker } of deaf) await engine.notify({ control: worker }, 'drain');
    await paused(AGAIN_MS, signal);
    left = await still();
  }
  const items = workers.map(worker => ({ worker, draining: true, left: !left.some(one => one.worker === worker) }));
  terminal.value('acode.fleet-drain/1', { host, items });
  return wait && left.length > 0 ? 1 : 0;
}
