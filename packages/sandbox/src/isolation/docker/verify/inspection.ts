// Step 5, the doing part: asks engine and kernel about a container and throws at the first difference from its plan.

import { basename, dirname } from 'node:path';
import { AcodeError } from '../../../contract/errors.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { givenNameIn, isOwn, isReachable, SANDBOX, UID } from '../../../lifecycle/labels.ts';
import { isInPlace, isWithin } from '../../../workspace/file-identity.ts';
import type { ContainerDetails } from '../engine/containers.ts';
import type { Engine } from '../engine/index.ts';
import { asked } from '../failure.ts';
import { hold, type Held } from '../../process/held.ts';
import { type Difference, exposedTo, type KernelView, readKernelView, uncoveredDifferences } from '../../kernel.ts';
import type { MountConflicts, Neighbour } from '../resources/creation.ts';
import { absentPaths, podmanAccount, podmanKernelView } from '../podman/podman.ts';
import type { AttachedFacts } from '../resources/owned.ts';
import { runtimeKind } from '../runtime.ts';
import { isWaitingCommand } from '../../handover/script.ts';
import { compareWithEngine, compareWithKernel } from './verify.ts';

const CALL_MS = 10_000;
const MAX_LOOKS = 8;
const BETWEEN_LOOKS_MS = 25;

/** What a container is held against. */
export interface Expected {
  readonly spec: SandboxSpec;
  readonly facts: AttachedFacts;
  /** Who else is on the engine. */
  readonly around: Around;
  /** What its first process is, where it does not wait for a command. */
  readonly argv?: readonly string[];
  /** Whether an earlier version of acode may have made it. */
  readonly isKept?: boolean;
}

type Around = Pick<MountConflicts, 'remembered' | 'ask'>;

/** A difference, and the other sandboxes that it comes from. */
interface Conflict extends Difference {
  readonly others?: readonly OtherSandbox[];
}

/** A sandbox that could exchange what another has mounted. */
interface OtherSandbox {
  readonly id: string;
  /** The name its creator gave it, or its id. */
  readonly name: string;
  /** Whether `acode sandbox kill` ends it: it was kept, and is this user’s. */
  readonly canBeKilled: boolean;
}

/** A container that was compared with its plan. */
export interface Inspected {
  readonly details: ContainerDetails;
  /** What the kernel showed of it before it was compared: whatever changes from there on is a change. Null where it shows nothing. */
  readonly held: Held | null;
}

/** Compares a container that runs and waits. Gives its state back where it does not run. */
export async function inspectRunning(
  engine: Engine,
  id: string,
  expected: Expected,
  signal: AbortSignal,
): Promise<Inspected> {
  for (let looks = 1; ; looks += 1) {
    const { details, held, differences } = await look(engine, id, expected, signal);
    // Podman says that a container runs a moment before its first process is what it is going to be.
    const settled = differences.length === 0 || !expected.facts.podman || looks >= MAX_LOOKS;
    if (settled) refuse(differences);
    if (settled) return { details, held };
    await new Promise(resolve => void setTimeout(resolve, BETWEEN_LOOKS_MS));
    signal.throwIfAborted();
  }
}

// No differences are looked for where it does not run.
async function look(
  engine: Engine,
  id: string,
  { spec, facts, around, ...expected }: Expected,
  signal: AbortSignal,
): Promise<Inspected & { differences: readonly Conflict[] }> {
  const asking = around.remembered === null ? around.ask(signal) : null;
  const [details, others] = await asked(() => Promise.all([inspectNow(engine, id, signal), asking]), signal);
  // Under a kernel of its own the host’s sees the runtime’s process there, and nothing of the sandbox.
  const { hostKernel } = runtimeKind(facts.runtime);
  // First: a mount that goes while the others are looked at must not be missing from what is held.
  const held = hostKernel ? hold(details.State.Pid, id) : null;
  const view = hostKernel ? await readKernelView(details.State.Pid, id, spec) : null;
  if (!details.State.Running) return { details, held, differences: [] };
  // A process that ended while it was looked at has no view either.
  if (view === null && hostKernel) {
    const again = await asked(() => inspectNow(engine, id, signal), signal);
    if (!again.State.Running) return { details: again, held, differences: [] };
  }
  const seen = await inDockersWords(details, view, { spec, facts });
  const differences = [
    ...compareWithEngine(spec, facts, seen.details, firstCommand(expected, seen.details)),
    ...(seen.view ? compareWithKernel(spec, seen.view) : swappedSources(spec)),
    ...facts.attachments.verify(spec, facts, seen),
    ...uncoveredDifferences(spec),
    // Last where it is remembered: by now the engine has told of whoever came before this sandbox was started.
    ...(others ? nestedMounts(id, spec, others) : await asked(() => nestedNow(id, spec, around, signal), signal)),
  ];
  return { details, held, differences };
}

function firstCommand(
  { argv, isKept }: Pick<Expected, 'argv' | 'isKept'>,
  { Config: { Entrypoint } }: ContainerDetails,
): readonly string[] | undefined {
  return isKept && Entrypoint && isWaitingCommand(Entrypoint) ? Entrypoint : argv;
}

async function inDockersWords(
  details: ContainerDetails,
  view: KernelView | null,
  { spec, facts: { runtime, seccomp, podman } }: Omit<Expected, 'around'>,
): Promise<{ details: ContainerDetails; view: KernelView | null }> {
  if (!podman) return { details, view };
  const reading = { spec, facts: { runtime, seccomp, podman }, view, absent: await absentPaths() };
  return { details: podmanAccount(details, reading), view: view && podmanKernelView(view, details.Id) };
}

/** Compares a container that was created to run its command and was not started. */
export async function inspectCreated(
  engine: Engine,
  id: string,
  { spec, facts, around, argv }: Expected,
  signal: AbortSignal,
): Promise<void> {
  const [details, others] = await asked(
    () => Promise.all([inspectNow(engine, id, signal), around.ask(signal)]),
    signal,
  );
  const differences = [
    ...compareWithEngine(spec, facts, details, argv),
    ...facts.attachments.verify(spec, facts, { details, view: null }),
    ...nestedMounts(id, spec, others),
  ];
  // Last, when no other sandbox is left that could exchange a source after this look.
  refuse([...differences, ...swappedSources(spec), ...uncoveredDifferences(spec)]);
}

/**
 * Compares a container that was started with its command: whoever came while it was started could have exchanged what it has
 * mounted, and only now does the kernel show that. One that has ended already shows nothing, but who is there still does.
 */
export async function inspectStarted(
  engine: Engine,
  id: string,
  expected: Expected,
  signal: AbortSignal,
): Promise<Inspected> {
  const { spec, around } = expected;
  let seen = await look(engine, id, expected, signal);
  // A runtime sets the last things of a process up in the moment it starts.
  const unsettled = (): boolean => seen.differences.some(({ violation }) => violation === 'KernelMismatch');
  for (let looks = 1; unsettled() && looks < MAX_LOOKS; looks += 1) {
    await new Promise(resolve => void setTimeout(resolve, BETWEEN_LOOKS_MS));
    signal.throwIfAborted();
    seen = await look(engine, id, expected, signal);
  }
  const { details, held, differences } = seen;
  refuse(differences);
  if (!details.State.Running) {
    assertSources(spec);
    await assertNotNested(id, spec, around, signal);
  }
  return { details, held };
}

/**
 * Refuses a plan whose mounts another sandbox could exchange, before its container is made. Where the kernel does not show
 * what was mounted, a look afterwards is too late: the other may have put everything back, and ended.
 */
export async function assertNoNeighbour(
  around: Pick<Around, 'ask'>,
  spec: SandboxSpec,
  signal: AbortSignal,
): Promise<void> {
  refuse([...mountsFromWorkspace(spec), ...nestedMounts('', spec, await asked(() => around.ask(signal), signal))]);
}

/**
 * Further mounts of what the workspace holds. Any sandbox of that workspace can exchange them, even one that begins and ends
 * between two looks; the protected parts it cannot, since it has them read-only itself.
 */
export function mountsFromWorkspace({ mounts }: SandboxSpec): Difference[] {
  const mount = mounts.find(({ purpose }) => purpose === 'workspace');
  const workspace = mount?.copyOf?.path ?? mount?.source;
  return mounts
    .filter(({ purpose, source }) => purpose === 'additional' && workspace !== undefined && isWithin(source, workspace))
    .map(({ source }) => ({
      violation: 'NestedWritableMount',
      detail: `${source} lies in the workspace, where another sandbox could exchange it unseen by this runtime`,
    }));
}

/** Refuses a plan of which a mount source is not there any more, or is another than was checked. */
export function assertSources(spec: SandboxSpec): void {
  refuse(swappedSources(spec));
}

/** The sources that are not what was checked: all that can be seen of a swap where the kernel does not show the mounts. */
export function swappedSources({ mounts }: SandboxSpec): Difference[] {
  return mounts
    .filter(mount => !isInPlace(mount))
    .map(({ source }) => ({ violation: 'MountMismatch', detail: `${source} is not what was checked` }));
}

function inspectNow(engine: Engine, id: string, signal: AbortSignal): Promise<ContainerDetails> {
  return engine.containers.inspect(id, { signal, deadlineMs: CALL_MS });
}

/** Below a directory that another sandbox can write, everything may be swapped at any moment: checking it proves nothing. */
export function nestedMounts(id: string, spec: SandboxSpec, others: readonly Neighbour[]): Conflict[] {
  const running = others.filter(other => other.id !== id);
  return exposedTo(running, spec).map(({ source, above }) => {
    const from = running
      .filter(other => exposedTo([other], spec).some(exposed => exposed.source === source))
      .flatMap(other => otherSandbox(other, spec));
    const isNew = spec.mounts.some(mount => mount.source === source && mount.purpose === 'protected');
    const detail =
      isNew && dirname(source) === above && from.length > 0
        ? `\`${basename(source)}\`, which acode protects, was created in ${above} while ${runningText(from)}, which could replace it`
        : `${source} lies below ${above}, which another sandbox can write`;
    return { violation: 'NestedWritableMount', detail, others: from };
  });
}

function runningText(others: readonly OtherSandbox[]): string {
  const names = others.map(({ name }) => name).join(' and ');
  return others.length === 1 ? `sandbox ${names} is running` : `sandboxes ${names} are running`;
}

function otherSandbox({ labels = {} }: Neighbour, { identity }: SandboxSpec): OtherSandbox[] {
  const id = labels[SANDBOX];
  if (id === undefined) return [];
  // A name is unique for its user only: that of another user’s sandbox could end the wrong one.
  const isSameUser = isOwn({ labels }, Number(identity.labels[UID]));
  const name = (isSameUser ? givenNameIn(labels) : null) ?? id;
  return [{ id, name, canBeKilled: isSameUser && isReachable(labels) }];
}

// Where nobody in question has come since the engine was asked last, it need not be asked again. Who was there then may be
// gone by now, so that only the engine’s own word refuses a sandbox.
async function nestedNow(id: string, spec: SandboxSpec, around: Around, signal: AbortSignal): Promise<Conflict[]> {
  const { remembered } = around;
  if (remembered !== null && nestedMounts(id, spec, remembered).length === 0) return [];
  return nestedMounts(id, spec, await around.ask(signal));
}

/** Refuses a sandbox that waits if somebody has come since who could exchange what it has mounted. */
export async function assertNotNested(
  id: string,
  spec: SandboxSpec,
  around: Around,
  signal: AbortSignal,
): Promise<void> {
  refuse(await asked(() => nestedNow(id, spec, around, signal), signal));
}

function refuse(differences: readonly Conflict[]): void {
  const [first] = differences;
  if (!first) return;
  throw new AcodeError('ACODE-SBX-010', {
    violation: first.violation,
    detail: differences.map(({ detail }) => detail).join('; '),
    ...(first.violation === 'NestedWritableMount' ? whatToEnd(differences) : {}),
  });
}

/** The sandboxes that are in the way, and how to end them where a command does. */
export function whatToEnd(differences: readonly Conflict[]): {
  readonly sandboxes?: readonly string[];
  readonly remedy?: string;
} {
  const others = new Map(differences.flatMap(one => one.others ?? []).map(other => [other.id, other]));
  if (others.size === 0) return {};
  const sandboxes = [...others.keys()];
  // The rest ends with its command or its process.
  const kept = [...others.values()].filter(({ canBeKilled }) => canBeKilled);
  if (kept.length === 0) return { sandboxes };
  const commands = kept.map(({ name }) => `\`acode sandbox kill ${name}\``).join(' and ');
  const remedy = `Nothing of the command ran. End ${kept.length === 1 ? 'that sandbox' : 'those sandboxes'} with ${commands}, then run the command again.`;
  return { sandboxes, remedy };
}
