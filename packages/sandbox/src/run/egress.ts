// The network of a run with an allow-list: its proxy is open before the command has its sandbox, and closed when the command has ended.

import { readFile } from 'node:fs/promises';
import type { Duplex } from 'node:stream';
import type { EgressConnection, EgressPlan, SpentBudget } from '../contract/egress.ts';
import { AcodeError } from '../contract/errors.ts';
import type { NetworkMode } from '../contract/network.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import { plannedCredentials } from '../egress/credentials/placeholder.ts';
import { decideHost } from '../egress/decide.ts';
import { gitSshOf, limitsOf, planOf, upstreamOf, widened } from '../egress/plan.ts';
import type { EgressTask, EgressTaskRequest } from '../egress/proxy/proxy.ts';
import type { BindFault } from '../egress/relay/control.ts';
import type { Operation } from '../records/telemetry.ts';
import { assertGrantable } from '../policy/network.ts';
import type { GrantedHost, Host, Planned, RunningParts } from './host.ts';
import { givenUp, obtainRecorded } from './obtaining.ts';
import type { Obtained, Taken } from './obtaining.ts';
import { printable, workspaceOf } from './trail.ts';
import type { Recorded } from './trail.ts';

/** The network of a sandbox, as one command in it has it. */
export type CommandEgress = NonNullable<RunningParts['egress']>;

type EgressHost = Pick<
  Host,
  | 'directories'
  | 'egressMounts'
  | 'locks'
  | 'egressProxy'
  | 'uid'
  | 'workspace'
  | 'telemetry'
  | 'machine'
  | 'config'
  | 'environmentMode'
  | 'offerNetwork'
>;

/** What is known of a network besides its proxy. */
interface About {
  readonly host: Pick<EgressHost, 'machine' | 'config' | 'environmentMode'>;
  readonly operation: Pick<Operation, 'step'>;
  readonly plan: EgressPlan;
}

/** The network of one sandbox. */
export class RunEgress implements CommandEgress {
  readonly #task: EgressTask;
  readonly #about: About;
  /** Resolves when the network has ended. */
  readonly ended: Promise<void>;
  /** Resolves when a budget of the sandbox is used up; never where it is not. */
  readonly spent: Promise<SpentBudget>;
  #end: () => void = () => undefined;
  #plan: EgressPlan;
  #granting: Promise<void> = Promise.resolve();
  #closing: Promise<readonly EgressConnection[]> | null = null;
  #fault: BindFault = null;

  constructor(task: EgressTask, about: About) {
    this.#task = task;
    this.#about = about;
    this.#plan = about.plan;
    this.spent = task.spent;
    this.ended = new Promise(resolve => (this.#end = resolve));
    void this.#watch(about.operation);
  }

  /** Adds what a person granted to the list. One after the other: each makes a new plan of the one before. */
  async grant(granted: GrantedHost): Promise<void> {
    const mine = this.#granting.then(() => this.#grant(granted));
    this.#granting = mine.catch(() => undefined);
    await mine;
  }

  async #grant({ host, port, entry }: GrantedHost): Promise<void> {
    const asked = { host, port, via: 'any' } as const;
    if (decideHost(this.#plan, asked).allowed) return;
    const { machine, config: user, environmentMode } = this.#about.host;
    const rules = assertGrantable(entry, { machine, user, repository: null, environmentMode }, host, port);
    if (rules.some(({ mode }) => mode !== 'pass'))
      throw notGranted(
        host,
        'acode reads its requests, and programs have to trust that from the start of their sandbox',
        'Commands that start later can have it.',
      );
    const next = widened(this.#plan, rules);
    // What a file denied when the sandbox was made stays denied.
    if (!decideHost(next, asked).allowed) throw notGranted(host, 'a rule of its sandbox denies it');
    await this.#task.update(next);
    this.#plan = next;
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
      spent: this.spent,
      cut: () => this.cut(),
      close: async () => rowsSince(before, await this.#report()),
    };
  }

  /** The connections so far. */
  report(): Promise<readonly EgressConnection[]> {
    return this.#report();
  }

  #report(): Promise<readonly EgressConnection[]> {
    return this.#closing ?? this.#task.report().catch(() => []);
  }

  /** Ends every connection. The connections that there were, each time. */
  close(): Promise<readonly EgressConnection[]> {
    // A proxy that does not answer is no reason to lose the result of the command.
    this.#closing ??= this.#task.close().catch(() => []);
    this.#end();
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
  const opening = openEgress(host, planned, operation, signal);
  opening.catch(() => undefined);
  const obtained = await obtainRecorded(recorded, planned, from, signal).catch((error: unknown) => {
    host.keep(opening.then(opened => opened?.close()));
    throw error;
  });
  try {
    const opened = await opening;
    if (!opened) return obtained;
    const pipe = await obtained.sandbox.openForwarder?.(signal);
    const egress = pipe ? await overStreams(host, planned, operation, { opened, pipe, signal }) : opened;
    offer(recorded, planned.spec, egress);
    return { ...obtained, egress };
  } catch (error) {
    host.keep(opening.then(opened => opened?.close()));
    throw await givenUp(obtained.sandbox, { ...recorded, planned, signal, sinceMs: from.sinceMs }, error);
  }
}

// The user’s other processes see it, and can grant it hosts.
function offer({ host, command, request }: Recorded, spec: SandboxSpec, egress: RunEgress): void {
  const text = printable(command);
  const about = {
    sandboxId: spec.identity.sandboxId,
    command: typeof text === 'string' ? [text] : text,
    workspace: workspaceOf(spec).workspace ?? null,
    taskId: request.taskId ?? null,
    startedAt: new Date(host.telemetry.clock.now()).toISOString(),
  };
  host.offerNetwork({ about, report: () => egress.report(), grant: of => egress.grant(of), ended: egress.ended });
}

function notGranted(host: string, reason: string, remedy?: string): AcodeError {
  return new AcodeError('ACODE-EGR-002', { host, reason, ...(remedy === undefined ? {} : { remedy }) });
}

// The network of a plan with an allow-list; null for any other plan.
async function openEgress(
  host: EgressHost,
  { spec, policy }: Pick<Planned, 'spec' | 'policy'>,
  operation: Pick<Operation, 'step'>,
  signal: AbortSignal,
): Promise<RunEgress | null> {
  const { value: network } = policy.network;
  if (network.kind !== 'allow') return null;
  const [proxy, directory, asked] = await Promise.all([
    host.egressProxy(),
    host.egressMounts.directory(spec),
    taskOf(host, { spec, network, policy }, signal),
  ]);
  const task = await proxy.open({ ...asked, transport: { kind: 'socket', directory } });
  return trusted(spec, task, { host, operation, plan: asked.plan });
}

// What the proxy follows, which certificate authorities of the user’s it trusts besides those of this host, and where the values of
// its credentials are.
async function taskOf(
  host: EgressHost,
  {
    spec: { identity, mounts },
    network: { rules, credentials = [] },
    policy,
  }: { spec: SandboxSpec; network: Extract<NetworkMode, { kind: 'allow' }>; policy: Planned['policy'] },
  signal: AbortSignal,
): Promise<Omit<EgressTaskRequest, 'transport'>> {
  const bundle = mounts.find(({ purpose }) => purpose === 'ca');
  const extraRoots = bundle ? { extraRoots: await readFile(bundle.source, 'utf8') } : {};
  const lent = plannedCredentials(credentials, identity.sandboxId);
  const ssh = gitSshOf(policy, process.env['SSH_AUTH_SOCK']);
  const plan = planOf(rules, limitsOf(policy), 1, { upstream: upstreamOf(policy), ssh, credentials: lent });
  const task = { id: identity.sandboxId, plan, ...extraRoots };
  if (credentials.length === 0) return task;
  const { providersOf } = await import('./credentials/providers.ts');
  const around = {
    env: process.env,
    uid: host.uid,
    workspace: host.workspace,
    visible: mounts.filter(({ purpose }) => VISIBLE.has(purpose)).map(({ source }) => source),
    clock: host.telemetry.clock,
    state: host.directories.state,
    locks: host.locks,
    rules,
    upstream: upstreamOf(policy),
    ...extraRoots,
  };
  return { ...task, credentials: await providersOf(credentials, around, signal) };
}

const VISIBLE: ReadonlySet<SandboxSpec['mounts'][number]['purpose']> = new Set([
  'workspace',
  'worktree',
  'additional',
  'state',
]);

// The sandbox has to trust the proxy before its command begins.
async function trusted(
  spec: SandboxSpec,
  task: EgressTask,
  about: About & { readonly host: Pick<Host, 'egressMounts'> },
): Promise<RunEgress> {
  const trust = task.trust();
  if (trust) await about.host.egressMounts.trust(spec, trust);
  return new RunEgress(task, about);
}

// The network of a sandbox that reaches no socket: over the streams of its forwarder, in place of the one that was opened.
async function overStreams(
  host: EgressHost,
  { spec, policy }: Pick<Planned, 'spec' | 'policy'>,
  operation: Pick<Operation, 'step'>,
  { opened, pipe, signal }: { readonly opened: RunEgress; readonly pipe: Duplex; readonly signal: AbortSignal },
): Promise<RunEgress> {
  const { value: network } = policy.network;
  if (network.kind !== 'allow') return opened;
  const [proxy] = await Promise.all([host.egressProxy(), opened.close()]);
  const asked = await taskOf(host, { spec, network, policy }, signal);
  const task = await proxy.open({ ...asked, transport: { kind: 'frames', pipe } });
  const fault = await task.bound;
  if (fault === null) return trusted(spec, task, { host, operation, plan: asked.plan });
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
    const earlier: Omit<EgressConnection, 'host' | 'port' | 'verdict'> = known.get(keyOf(row)) ?? NOTHING;
    const since = {
      ...row,
      count: row.count - earlier.count,
      bytesIn: row.bytesIn - earlier.bytesIn,
      bytesOut: row.bytesOut - earlier.bytesOut,
      ms: row.ms - earlier.ms,
      ...(row.tokens === undefined ? {} : { tokens: row.tokens - (earlier.tokens ?? 0) }),
    };
    return since.count > 0 || since.bytesIn > 0 || since.bytesOut > 0 ? [since] : [];
  });
}

const NOTHING = { count: 0, bytesIn: 0, bytesOut: 0, ms: 0 };

function keyOf({ host, port, verdict, rule, reason }: EgressConnection): string {
  return JSON.stringify([host, port, verdict, rule, reason]);
}

function faultText(fault: BindFault): string | null {
  return fault && [fault.listener, fault.reason].filter(word => word !== undefined).join(': ');
}
