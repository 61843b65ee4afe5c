// The network of a run with an allow-list: its proxy is open before the command has its sandbox, and closed when the command has ended.

import { readFile } from 'node:fs/promises';
import type { Duplex } from 'node:stream';
import type { EgressConnection } from '../contract/egress.ts';
import { AcodeError } from '../contract/errors.ts';
import type { NetworkMode } from '../contract/network.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import { planOf } from '../egress/plan.ts';
import type { EgressTask, EgressTaskRequest } from '../egress/proxy/proxy.ts';
import type { BindFault } from '../egress/relay/control.ts';
import type { Operation } from '../records/telemetry/operation.ts';
import type { Host, Planned, RunningParts } from './host.ts';
import { givenUp, obtainRecorded } from './obtaining.ts';
import type { Obtained, Taken } from './obtaining.ts';
import type { Recorded } from './trail.ts';

/** The network of a sandbox, as one command in it has it. */
export type CommandEgress = NonNullable<RunningParts['egress']>;

/** The network of one sandbox. */
export class RunEgress implements CommandEgress {
  readonly #task: EgressTask;
  #closing: Promise<readonly EgressConnection[]> | null = null;
  #fault: BindFault = null;

  constructor(task: EgressTask, operation: Pick<Operation, 'step'>) {
    this.#task = task;
    void this.#watch(operation);
  }

  /** What the forwarder inside could not bind, in words; null if nothing is known. */
  get fault(): string | null {
    return faultText(this.#fault);
  }

  async #watch(operation: Pick<Operation, 'step'>): Promise<void> {
    this.#fault = await this.#task.bound;
    await this.#task.lost;
    if (!this.#closing)
      operation.step('warn', 'the proxy of the allow-list ended: the sandbox has no network any more');
  }

  /** Ends every connection, and the network. */
  async cut(): Promise<void> {
    await this.close();
  }

  /** The network for one of several commands, whose end leaves it as it is. */
  async forCommand(): Promise<CommandEgress> {
    const before = await this.#report();
    return {
      fault: this.fault,
      cut: () => this.cut(),
      close: async () => rowsSince(before, await this.#report()),
    };
  }

  #report(): Promise<readonly EgressConnection[]> {
    return this.#closing ?? this.#task.report().catch(() => []);
  }

  /** Ends every connection. The connections that there were, each time. */
  close(): Promise<readonly EgressConnection[]> {
    // A proxy that does not answer is no reason to lose the result of the command.
    this.#closing ??= this.#task.close().catch(() => []);
    return this.#closing;
  }
}

/** Obtains a sandbox, and opens the network of its allow-list meanwhile. Where one of the two fails, neither is left. */
export async function obtainConnected(
  recorded: Recorded,
  planned: Planned,
  from: Taken,
  signal: AbortSignal,
): Promise<Obtained & { readonly egress?: RunEgress }> {
  const { host, operation } = recorded;
  const opening = openEgress(host, planned, operation);
  opening.catch(() => undefined);
  const obtained = await obtainRecorded(recorded, planned, from, signal).catch((error: unknown) => {
    host.keep(opening.then(opened => opened?.close()));
    throw error;
  });
  try {
    const opened = await opening;
    if (!opened) return obtained;
    const pipe = await obtained.sandbox.openForwarder?.(signal);
    return { ...obtained, egress: pipe ? await overStreams(host, planned, operation, { opened, pipe }) : opened };
  } catch (error) {
    host.keep(opening.then(opened => opened?.close()));
    throw await givenUp(obtained.sandbox, { ...recorded, planned, signal, sinceMs: from.sinceMs }, error);
  }
}

// The network of a plan with an allow-list; null for any other plan.
async function openEgress(
  host: Pick<Host, 'egressMounts' | 'egressProxy'>,
  { spec, policy }: Pick<Planned, 'spec' | 'policy'>,
  operation: Pick<Operation, 'step'>,
): Promise<RunEgress | null> {
  const { value: network } = policy.network;
  if (network.kind !== 'allow') return null;
  const [proxy, directory] = await Promise.all([host.egressProxy(), host.egressMounts.directory(spec)]);
  const task = await proxy.open({ ...(await taskOf(spec, network)), transport: { kind: 'socket', directory } });
  return trusted(host, spec, task, operation);
}

// What the proxy follows, and which certificate authorities of the user’s it trusts besides those of this host.
async function taskOf(
  { identity, mounts }: Pick<SandboxSpec, 'identity' | 'mounts'>,
  { rules }: Extract<NetworkMode, { kind: 'allow' }>,
): Promise<Omit<EgressTaskRequest, 'transport'>> {
  const bundle = mounts.find(({ purpose }) => purpose === 'ca');
  const extraRoots = bundle ? { extraRoots: await readFile(bundle.source, 'utf8') } : {};
  return { id: identity.sandboxId, plan: planOf(rules), ...extraRoots };
}

// The sandbox has to trust the proxy before its command begins.
async function trusted(
  { egressMounts }: Pick<Host, 'egressMounts'>,
  spec: SandboxSpec,
  task: EgressTask,
  operation: Pick<Operation, 'step'>,
): Promise<RunEgress> {
  const trust = task.trust();
  if (trust) await egressMounts.trust(spec, trust);
  return new RunEgress(task, operation);
}

// The network of a sandbox that reaches no socket: over the streams of its forwarder, in place of the one that was opened.
async function overStreams(
  host: Pick<Host, 'egressMounts' | 'egressProxy'>,
  { spec, policy }: Pick<Planned, 'spec' | 'policy'>,
  operation: Pick<Operation, 'step'>,
  { opened, pipe }: { readonly opened: RunEgress; readonly pipe: Duplex },
): Promise<RunEgress> {
  const { value: network } = policy.network;
  if (network.kind !== 'allow') return opened;
  const [proxy] = await Promise.all([host.egressProxy(), opened.close()]);
  const task = await proxy.open({ ...(await taskOf(spec, network)), transport: { kind: 'frames', pipe } });
  const fault = await task.bound;
  if (fault === null) return trusted(host, spec, task, operation);
  await task.close();
  throw notStarted(spec, { fault: faultText(fault) });
}

/** Why a sandbox whose forwarder does not listen runs nothing. */
export function notStarted(
  { identity }: Pick<SandboxSpec, 'identity'>,
  egress: { readonly fault: string | null } | undefined,
): AcodeError {
  const reason = `the forwarder of its allow-list did not start: ${egress?.fault ?? 'it gave no reason'}`;
  return new AcodeError('ACODE-SBX-006', { name: identity.name, reason });
}

// What came to rows since an earlier report of the same network.
function rowsSince(before: readonly EgressConnection[], now: readonly EgressConnection[]): readonly EgressConnection[] {
  const known = new Map(before.map(row => [keyOf(row), row]));
  return now.flatMap(row => {
    const earlier = known.get(keyOf(row)) ?? { count: 0, bytesIn: 0, bytesOut: 0, ms: 0 };
    const since = {
      ...row,
      count: row.count - earlier.count,
      bytesIn: row.bytesIn - earlier.bytesIn,
      bytesOut: row.bytesOut - earlier.bytesOut,
      ms: row.ms - earlier.ms,
    };
    return since.count > 0 || since.bytesIn > 0 || since.bytesOut > 0 ? [since] : [];
  });
}

function keyOf({ host, port, verdict, rule, reason }: EgressConnection): string {
  return JSON.stringify([host, port, verdict, rule, reason]);
}

function faultText(fault: BindFault): string | null {
  return fault && [fault.listener, fault.reason].filter(word => word !== undefined).join(': ');
}
