// Steps 1 to 3 of the pipeline: a command’s policy, its level, and the plan of its sandbox.

import { availableParallelism, totalmem } from 'node:os';
import { planCaBundle, planUserFiles } from './user-files.ts';
import type { Command, RunRequest } from '../contract/command.ts';
import type { EgressRule } from '../contract/egress.ts';
import { AcodeError } from '../contract/errors.ts';
import { isBoundary, usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy, PolicyFields } from '../contract/policy.ts';
import type { ImageFacts, MemoryLayerSpec, MountSpec, SandboxIdentity } from '../contract/spec.ts';
import type { Host, Planned } from './host.ts';
import type { Grant } from '../policy/trust.ts';
import type { KeptMask } from '../lifecycle/kept.ts';
import { HOLDER_NAME, planSandbox } from '../isolation/plan.ts';
import type { PlanFacts } from '../isolation/plan.ts';
import { refusePrivateValues } from './credentials/environment.ts';
import { chooseLevel } from './level.ts';
import type { Chosen } from './level.ts';
import { fullName, refuseUndecided, withImageReason } from '../policy/images.ts';
import { sourceOf } from '../policy/layers.ts';
import type { Layers } from '../policy/layers.ts';
import { projectReference } from '../policy/pull.ts';
import { NOTHING } from '../policy/request-policy.ts';
import { resolvePolicy } from '../policy/resolve.ts';
import { layersFor, workspaceOf } from './repository.ts';
import { abandonFork, claimFork, forkMounts } from './forking.ts';
import type { ForkedMounts, ForkFor } from './forking.ts';
import { planMasks } from './masking.ts';
import type { MasksFor } from './masking.ts';
import { programMounts } from './programs.ts';
import { forService, planServices } from './services.ts';
import type { ServicesFor } from './services.ts';
import { claimState, stateMounts } from './state.ts';
import type { StateFor } from './state.ts';
import { planThroughput } from './throughput.ts';
import type { ThroughputFor } from './throughput.ts';
import { lowDiskNotes } from '../workspace/disk-space.ts';
import { mayBeInterrupted } from '../workspace/fork/leftover.ts';
import { recogniseLanguages, nearestReal, validateWorkspace, workdirFor } from '../workspace/locate.ts';
import type { Workspace } from '../workspace/locate.ts';
import { planMounts, workspaceTarget } from '../workspace/mounts.ts';
import type { MountPlan } from '../workspace/mounts.ts';
import type { CacheSpec, CacheVolume } from '../contract/caches.ts';
import { text } from '../contract/wording.ts';
import type { Text } from '../contract/wording.ts';
import type { CacheState } from '../isolation/backend.ts';
import { cacheSpec } from '../policy/caches.ts';

// For a shell that waits.
const HOLDER_LIMITS = { memoryBytes: 32 * 1024 ** 2, swapBytes: 0, tmpBytes: 64 * 1024, outputBytes: 0 };

/** The purpose of a plan. */
interface PlanFor {
  readonly correlationId: string;
  /** Whether the plan is only shown. */
  readonly preview: boolean;
  /** Whether a sandbox is created from the plan; by default, if it is not a preview. */
  readonly makes?: boolean;
  /** Whether the sandbox outlives its session, or other processes can use it while the session lives. */
  readonly keep?: boolean | 'shared';
  /** The name that its creator gives the sandbox. */
  readonly givenName?: string;
  /** Whether the user sees the notes of the plan; by default, if it is not a preview. */
  readonly tells?: boolean;
  /** The masks that the sandbox has, if it exists. */
  readonly created?: readonly KeptMask[];
  /** The id of the persistent sandbox whose plan is made again. */
  readonly reopens?: string;
}

/** Plans a run. */
export async function plan(
  host: Host,
  { command, request }: { readonly command: Command; readonly request: RunRequest },
  of: PlanFor,
  signal: AbortSignal,
): Promise<Planned> {
  const found = await workspaceOf(host);
  const root = nearestReal(found);
  const lasting = await layersFor(host, root);
  const languages = recogniseLanguages(root);
  const task = { command, risk: request.risk };
  const projectImage = projectReference(root, host.uid);
  const machine = { cpus: availableParallelism(), memoryBytes: totalmem() };
  const asking = withProjectImage(request.policy ?? NOTHING, projectImage);
  const about = { caller: host.caller, profile: host.profile, task, languages, projectImage, ...machine };
  const offered = host.grants.for(root, request.taskId);
  const { layers, first } = resolveGranted(lasting, { host, offered, preview: of.preview }, all =>
    resolvePolicy(asking, all, about),
  );
  await checkAllowList(first.network, request.env);
  const chosen = await chooseLevel(host, first);
  const { level, runtime, capability } = chosen;
  await refuseDependencies(host, level, first);
  // The engine looks up the image while acode validates the workspace; neither needs the other. This never pulls.
  const asked = await imageAsked(host, level, first, signal);
  const around = { environment: process.env, ...(await engineSocketOf(host, level)) };
  const workspace = await validateWorkspace(found, host.directories, around);
  // The engine may have a different number of CPUs and less memory than this process sees, and refuses more CPUs than
  // it has.
  const { cpus, memoryBytes = machine.memoryBytes } = capability;
  const isHere = cpus === machine.cpus && memoryBytes === machine.memoryBytes;
  const there = { ...about, cpus, memoryBytes };
  const resolved = isHere ? first : resolvePolicy(asking, layers, there);
  const policy = { ...resolved, runtime: { ...resolved.runtime, value: runtime } };
  refuseUnheard(policy.onOutOfMemory, chosen);
  if (usesEngine(level)) refuseUndecided(policy.image, languages);
  const { image, notes: imageNotes } = await imageFor(host, chosen, policy, { ...of, ...asked }, signal).catch(
    (error: unknown) => {
      throw withImageReason(withoutProjectImage(error, policy), policy);
    },
  );
  const identify = (specHash: string, service?: string) =>
    host.session.identify({
      task: request.taskId,
      session: request.sessionId,
      profile: policy.profile.value,
      level,
      specHash,
      ...of,
      // A service belongs to the process that made it, no matter who else uses its sandbox.
      ...(service === undefined ? {} : { service, keep: false as const, givenName: '' }),
    });
  const { mounts, notes, workspacePath } = await mountsOf(host, policy, workspace);
  workdirFor(request.cwd, workspacePath.value);
  const lists = await planUserFiles(
    host,
    { level, image, policy, correlationId: of.correlationId, mayRead: of.makes ?? !of.preview },
    signal,
  );
  const cached = await planCaches(host, level, policy, signal);
  const own = policy.deps.value
    ? await host.images.dependencies({ imageId: image.id, root: workspace.root, target: workspacePath.value }, signal)
    : NO_DEPENDENCIES;
  const masks = await planMasks(
    host,
    {
      level,
      policy,
      workspace,
      mounts,
      dependencies: own.dependencies,
      ...maskTerms(of, policy),
    },
    signal,
  );
  const ca = unlessInTheWay(await planCaBundle(host, level, policy, mounts), lists.withoutCa);
  const artifacts = (request.artifacts?.length ?? 0) > 0;
  const beside = await servicesBeside(
    host,
    {
      level,
      policy,
      layers,
      askedBy: asking.askedBy,
      correlationId: of.correlationId,
      preview: of.preview,
      outlives: of.keep === true,
      identify: (service, specHash) => identify(specHash, service),
    },
    signal,
  );
  // Last: it makes the layer that the command writes.
  const written = await writtenMounts(
    host,
    {
      level,
      policy,
      workspace,
      image: image.id,
      command,
      preview: of.preview,
      backend: chosen.backend,
      masked: masks.layer,
      reopens: of.reopens,
    },
    mounts,
    signal,
  );
  return orAbandoned(host, { fork: written.fork, reopens: of.reopens }, async () => {
    const kept = await keptMounts(host, { level, policy, workspace }, of.preview, signal);
    const all = [...written.mounts, ...masks.mounts, ...lists.mounts, ...ca.mounts, ...kept];
    const disk = throughputOf({ level, policy, capability, mounts: all });
    const memoryLayer = memoryLayerOf(policy, written.memoryBytes, { level, image }, hash =>
      identify(hash, HOLDER_NAME),
    );
    const spec = planSandbox(
      policy,
      {
        level,
        image,
        mounts: all,
        memoryLayer,
        throughput: disk.throughput,
        caches: cached.caches,
        dependencies: own.dependencies,
        artifacts,
        services: beside.services,
      },
      specHash => identify(specHash),
    );
    if (written.fork !== undefined) await claimFork(host, written.fork, spec);
    if (policy.state.value !== null) await claimState(host, spec, of.preview, signal);
    return {
      policy: { ...policy, workspacePath },
      spec,
      fork: written.fork,
      earlierBytes: written.earlierBytes,
      backend: chosen.backend,
      masked: masks.masked,
      notes: [
        ...warningsOf(chosen),
        ...chosen.notes,
        ...imageNotes,
        ...notes,
        ...cached.notes,
        ...own.notes,
        ...masks.notes,
        ...ca.notes,
        ...written.notes,
        ...beside.notes,
        ...disk.notes,
        ...lowDiskNotes(workspace.root, capability.rootDirectory),
      ],
      machineBytes: there.memoryBytes,
      asides: [...lists.notes, ...masks.asides, ...written.asides],
    };
  });
}

// The sandbox that holds the memory of a fork runs nothing but the image’s own shell, which waits.
function memoryLayerOf(
  policy: EffectivePolicy,
  bytes: number | undefined,
  facts: Pick<PlanFacts, 'level' | 'image'>,
  identify: (specHash: string) => SandboxIdentity,
): MemoryLayerSpec | undefined {
  if (bytes === undefined) return undefined;
  const alone = { workdir: '/' };
  const holder = planSandbox(
    forService(policy, policy.user.value, HOLDER_LIMITS),
    { ...facts, mounts: [], alone, store: { bytes } },
    identify,
  );
  return { bytes, holder };
}

// Where it fails, no command will run: a layer that stayed would be in use for as long as this process lives. The layer of a persistent
// sandbox that is opened again is in use by that.
async function orAbandoned<Value>(
  host: Host,
  { fork, reopens }: { readonly fork: string | undefined; readonly reopens: string | undefined },
  work: () => Promise<Value>,
): Promise<Value> {
  try {
    return await work();
  } catch (error) {
    if (reopens === undefined) await abandonFork(host, fork);
    throw error;
  }
}

// What a person granted for some time counts besides what files say. What is for the next command is used up by one with a list;
// another one may have been faster.
function resolveGranted(
  lasting: Layers,
  { host, offered, preview }: { readonly host: Host; readonly offered: readonly Grant[]; readonly preview: boolean },
  resolve: (layers: Layers) => EffectivePolicy,
): { readonly layers: Layers; readonly first: EffectivePolicy } {
  const granted = withGrants(lasting, offered);
  const tried = resolve(granted);
  const isTaking = !preview && tried.network.value.kind === 'allow';
  const taken = isTaking ? host.grants.take(offered) : offered;
  if (taken.length === offered.length) return { layers: granted, first: tried };
  const layers = withGrants(lasting, taken);
  return { layers, first: resolve(layers) };
}

function withGrants(layers: Layers, grants: readonly Grant[]): Layers {
  return grants.length === 0 ? layers : { ...layers, grants: grants.map(({ entry }) => entry) };
}

// The mounts of a policy, and where the workspace is inside.
async function mountsOf(
  host: Host,
  { workspacePath: asked, workspace: mode, mounts, hostRoots }: EffectivePolicy,
  workspace: Workspace,
): Promise<MountPlan & Pick<EffectivePolicy, 'workspacePath'>> {
  const facts = {
    workspace,
    // Nothing of the host needs protection where nothing of it is written.
    readOnly: mode.value !== 'direct',
    additional: mounts.value,
    hostRoots: hostRoots.value,
    uid: host.uid,
  };
  const at = async (value: string): Promise<MountPlan & Pick<EffectivePolicy, 'workspacePath'>> => {
    const target = workspaceTarget(value, workspace.root, () => sourceOf(asked));
    return { ...(await planMounts({ ...facts, target })), workspacePath: { ...asked, value: target } };
  };
  const planned = await at(asked.value);
  const isLinked = planned.mounts.some(({ purpose }) => purpose === 'worktree');
  if (!isLinked || mode.value !== 'fork' || asked.layer !== 'built-in') return planned;
  // The repository names the worktree by its path, and submodules name the repository by the way from it.
  return at('same').catch(() => planned);
}

// An allow-list is checked where a plan is made: only there is the list of public suffixes worth loading.
async function checkAllowList({ value: network }: EffectivePolicy['network'], env: RunRequest['env']): Promise<void> {
  if (network.kind !== 'allow') return;
  if (network.rules.some(({ host }) => host.startsWith('*.'))) await refusePublicSuffixes(network.rules);
  refusePrivateValues(env, network);
}

async function refusePublicSuffixes(rules: readonly EgressRule[]): Promise<void> {
  const { publicSuffixIn } = await import('../egress/public-suffix.ts');
  const open = publicSuffixIn(rules);
  if (!open) return;
  throw new AcodeError('ACODE-SBX-005', {
    network: open.host,
    rule: 'anybody can register a name below it',
    setBy: sourceOf(open.setBy),
    remedy: `Name a domain of somebody’s own, such as *.example${open.host.slice(1)}.`,
  });
}

// Without events of the engine, a command that is to end would go on.
function refuseUnheard(
  onOutOfMemory: EffectivePolicy['onOutOfMemory'],
  { level, capability }: Pick<Chosen, 'level' | 'capability'>,
): void {
  if (onOutOfMemory.value === 'report' || capability.reportsOom === true) return;
  const where = usesEngine(level) ? 'on Podman' : text`at level ${level}`;
  throw new AcodeError('ACODE-SBX-016', {
    what: text`${[{ field: 'policy.onOutOfMemory', value: 'end' }]} ${where} (set by ${sourceOf(onOutOfMemory)})`,
    instead: 'Leave it out: the result still says that memory ran out.',
  });
}

function maskTerms(
  { preview, tells = !preview, created }: PlanFor,
  { workspace }: Pick<EffectivePolicy, 'workspace'>,
): Pick<MasksFor, 'tells' | 'isFork' | 'created'> {
  return { tells, isFork: workspace.value === 'fork', created };
}

function unlessInTheWay(
  mounts: readonly MountSpec[],
  reason: string | null,
): { readonly mounts: readonly MountSpec[]; readonly notes: readonly string[] } {
  return reason === null || mounts.length === 0 ? { mounts, notes: [] } : { mounts: [], notes: [reason] };
}

const NO_DEPENDENCIES = { dependencies: [], notes: [] };

async function servicesBeside(host: Host, of: ServicesFor, signal: AbortSignal): ReturnType<typeof planServices> {
  return of.policy.services.value.length === 0 ? { services: [], notes: [] } : planServices(host, of, signal);
}

async function writtenMounts(
  host: Host,
  wanted: ForkFor,
  mounts: readonly MountSpec[],
  signal: AbortSignal,
): Promise<ForkedMounts> {
  const isFork = wanted.policy.workspace.value === 'fork';
  if (isFork || mayBeInterrupted(wanted.workspace.root, host.directories.state))
    return forkMounts(host, wanted, mounts, signal);
  return { mounts, notes: [], asides: [] };
}

// What a sandbox has of acode’s own: its state directory and the programs of the store.
async function keptMounts(
  host: Host,
  of: StateFor & { readonly policy: EffectivePolicy },
  preview: boolean,
  signal: AbortSignal,
): Promise<readonly MountSpec[]> {
  const { level, policy } = of;
  return [
    ...(policy.state.value === null ? [] : await stateMounts(host, of, preview, signal)),
    ...(policy.programs.value.length === 0 ? [] : programMounts(host, level, policy)),
  ];
}

function throughputOf(of: ThroughputFor): ReturnType<typeof planThroughput> {
  const { diskReadRate, diskWriteRate } = of.policy;
  return diskReadRate.value === null && diskWriteRate.value === null ? { notes: [] } : planThroughput(of);
}

// The dependencies are those of the project image, so it is the image too: the container keeps its layer from being removed.
function withProjectImage(policy: PolicyFields, projectImage: string): PolicyFields {
  if (policy.deps !== true) return policy;
  if (policy.image !== undefined && fullName(policy.image) !== fullName(projectImage))
    throw new AcodeError('ACODE-SBX-017', {
      field: 'policy.deps',
      reason: `uses the project image ${projectImage}, and another image was named`,
      remedy: text`Leave ${{ field: 'policy.image' }} out, or ${{ field: 'policy.deps' }}.`,
    });
  return { ...policy, image: projectImage, pull: policy.pull ?? 'never' };
}

async function refuseDependencies(host: Host, level: Level, { deps }: Pick<EffectivePolicy, 'deps'>): Promise<void> {
  if (!deps.value) return;
  const instead = 'Leave it out: the dependencies are in a project image, which only a Docker Engine builds.';
  if (!usesEngine(level))
    throw new AcodeError('ACODE-SBX-016', { what: text`${{ field: 'policy.deps' }} at level ${level}`, instead });
  const { impossible } = (await host.engine()).builds;
  if (impossible !== null)
    throw new AcodeError('ACODE-SBX-016', { what: text`${{ field: 'policy.deps' }} on Podman`, instead });
}

const BUILD_FIRST =
  'Build it first, with the command that installs the dependencies: `acode sandbox build-image --install "npm ci --ignore-scripts" --network allow=npm:install`.';

function withoutProjectImage(error: unknown, { deps, image }: Pick<EffectivePolicy, 'deps' | 'image'>): unknown {
  if (!deps.value || !(error instanceof AcodeError) || !error.is('ACODE-SBX-009')) return error;
  return new AcodeError('ACODE-SBX-009', { image: image.value, remedy: BUILD_FIRST }, { cause: error.cause });
}

// A level without isolation warns at every run; notes about the others appear only in `explain`.
function warningsOf({ level, backend }: Pick<Chosen, 'level' | 'backend'>): readonly string[] {
  return isBoundary(level) ? [] : backend.notes;
}

// acode never mounts the engine’s socket into a sandbox. Without an engine, it still refuses the well-known socket
// paths.
async function engineSocketOf(host: Host, level: Level): Promise<{ engineSocket?: string }> {
  return usesEngine(level) ? { engineSocket: (await host.engine()).socket } : {};
}

interface Asked {
  readonly found?: Promise<ImageFacts | null>;
}

async function imageAsked(
  host: Host,
  level: Level,
  { image }: Pick<EffectivePolicy, 'image'>,
  signal: AbortSignal,
): Promise<Asked> {
  if (!usesEngine(level) || image.value === '') return {};
  const found = (await host.engine()).images.find(image.value, signal);
  // The code that awaits the lookup reports its error. If planning is refused earlier, nothing awaits it.
  found.catch(() => undefined);
  return { found };
}

async function imageFor(
  host: Host,
  { backend, level }: Chosen,
  policy: EffectivePolicy,
  of: PlanFor & Asked,
  signal: AbortSignal,
): Promise<{ image: ImageFacts; notes: readonly string[] }> {
  if (!usesEngine(level) && policy.image.layer === 'request') {
    throw new AcodeError('ACODE-SBX-016', {
      what: text`${{ field: 'policy.image' }} at level ${level}`,
      instead: 'Leave it out: this level has no images and runs the programs of this host.',
    });
  }
  if (usesEngine(level)) return host.images.forRun({ policy, ...of }, signal);
  return { image: await backend.resolveImage(policy, signal), notes: [] };
}

/** The plan of a command without special requests. It pulls nothing, since no such command was requested yet. */
export function planFirst(host: Host): Promise<Planned> {
  return plan(
    host,
    { command: ['true'], request: {} },
    { correlationId: '', preview: true, makes: true },
    host.closing,
  );
}

/** The caches of a plan, and notes about the ones left out. */
export interface PlannedCaches {
  readonly caches: readonly CacheSpec[];
  readonly notes: readonly string[];
}

const NONE: PlannedCaches = { caches: [], notes: [] };

/** Finds the caches of a policy. A cache that was never filled is not mounted, so it costs nothing. */
async function planCaches(
  host: Host,
  level: Level,
  { caches }: Pick<EffectivePolicy, 'caches'>,
  signal: AbortSignal,
): Promise<PlannedCaches> {
  const { volumes, fill } = caches.value;
  if (volumes.length === 0) return NONE;
  const asked = caches.layer === 'request';
  const field = fill ? 'policy.caches.fill' : 'policy.caches';
  if (!usesEngine(level)) return asked ? refused(text`${{ field }} at level ${level}`) : NONE;
  const states = await (await host.engine()).caches(volumes, host.uid, signal);
  if (states.includes('unsupported')) return asked ? refused(text`${{ field }} on Podman`) : NONE;
  if (fill) return { caches: volumes.map(volume => cacheSpec(volume, true)), notes: [FILLS] };
  const found = volumes.map((volume, at) => ({ volume, state: states[at] ?? 'absent' }));
  return {
    caches: found.flatMap(({ volume, state }) => (state === 'ready' ? [cacheSpec(volume, false)] : [])),
    notes: found.flatMap(one => noteOn(one, asked)),
  };
}

const FILLS = 'What this command writes into its caches is there for every later sandbox of yours that has them.';

function noteOn({ volume: { tool }, state }: { volume: CacheVolume; state: CacheState }, asked: boolean): string[] {
  if (state === 'filling') return [`The cache of ${tool} is left out: another run fills it now.`];
  if (state !== 'absent' || !asked) return [];
  return [
    `There is no cache of ${tool} yet: make one with --fill-cache ${tool} (in the library caches: { fill: ['${tool}'] }) in a run with a network.`,
  ];
}

function refused(what: Text): never {
  throw new AcodeError('ACODE-SBX-016', { what, instead: 'Leave it out: caches are volumes of a Docker engine.' });
}
