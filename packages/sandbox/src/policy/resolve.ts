// Step 1 of the pipeline: merges the layers and the request into one effective policy whose values record who set them.

import { AcodeError } from '../contract/errors.ts';
import { isAtLeast } from '../contract/levels.ts';
import { networkName } from '../contract/network.ts';
import type { PolicyRules } from '../contract/host.ts';
import type { LanguageFound } from '../contract/languages.ts';
import type { MaskPolicy } from '../contract/masks.ts';
import type { EffectivePolicy, MountRequest, PolicyFields, Sourced, UserId } from '../contract/policy.ts';
import type { ProfileName } from '../contract/profiles.ts';
import type { Text } from '../contract/wording.ts';
import { text } from '../contract/wording.ts';
import { govern, riskRulesOf } from './risk.ts';
import type { Task } from './risk.ts';
import { resolveImageNaming } from './pull.ts';
import { resolveImageTrust, chooseImage } from './images.ts';
import { resolveCaches } from './caches.ts';
import { builtInValue, pick, placeOf, resolveMode, sourceIn, sourceOf } from './layers.ts';
import type { Layers } from './layers.ts';
import {
  resolveDisk,
  resolveDiskRates,
  resolveLimits,
  resolveNetworkLimits,
  resolveNetworkTimeout,
  resolveTimeout,
  strictestCeilings,
} from './limits.ts';
import { allowedNetworks, resolveCaFile, resolveNetwork, resolveGitSsh, resolveUpstreamProxy } from './network.ts';
import type { NetworkPolicy } from './network.ts';
import { checkRepository } from './repository.ts';
import { checkedPolicy, invalid } from './request-policy.ts';
import { resolveRuntime } from './runtime.ts';
import { resolveServices } from './services.ts';
import { isWithin } from '../workspace/file-identity.ts';

/** Facts about the caller and the machine that resolving needs. */
export interface ResolveHost {
  /** The user the sandbox runs as by default: the caller, so that files belong to them. */
  readonly caller: UserId;
  /** The engine’s number of CPUs; it refuses more. */
  readonly cpus: number;
  /** The memory of the engine’s machine; 4 GiB if unknown. */
  readonly memoryBytes?: number;
  /** The profile of a request that names none; `exec` unless the host was opened with another. */
  readonly profile?: ProfileName;
  /** The programming languages of the workspace; empty unless it was scanned. */
  readonly languages?: readonly LanguageFound[];
  /** The name of the workspace’s project image, if the workspace is known. */
  readonly projectImage?: string;
  /** The command that the policy is for, if there is one. */
  readonly task?: Task;
}

const WORKSPACE_PATH = '/workspace';
const UNKNOWN_MEMORY = 4 * 1024 ** 3;
const NO_TASK: Task = { command: [] };

/** Merges every layer and the request, and clamps them by every ceiling. Pure. */
export function resolvePolicy(input: PolicyFields, layers: Layers, host: ResolveHost): EffectivePolicy {
  const request = checkedPolicy(input);
  const available = refuseUnavailable(request);
  if (layers.repository) checkRepository(layers.repository, layers);
  const warnings = [...layers.user.warnings, ...(layers.repository?.warnings ?? [])];
  const mode = resolveMode(layers);
  const profile: EffectivePolicy['profile'] =
    request.profile === undefined
      ? builtInValue(host.profile ?? 'exec')
      : { value: request.profile, layer: 'request', where: 'policy.profile' };
  const machine = { cpus: host.cpus, memoryBytes: host.memoryBytes ?? UNKNOWN_MEMORY };
  const limitsFor = { request, profile: profile.value, machine };
  const mounts = resolveMounts(request, layers);
  const user = resolveUser(request, layers, host.caller);
  const choice = chooseImage(request.image, layers, host.languages, profile.value);
  const network = resolveNetwork(request, layers, mode);
  return {
    mode,
    profile,
    level: resolveLevel(request, layers, warnings),
    ...govern(host.task ?? NO_TASK, layers),
    runtime: resolveRuntime(request, layers),
    ...choice,
    imageTrust: resolveImageTrust(layers),
    imageNaming: resolveImageNaming(layers, choice.image, request.askedBy, host.projectImage),
    pull: pick(layers, {
      field: 'pull',
      request: request.pull,
      key: 'sandbox.images.pull_policy',
      read: sandbox => sandbox.images?.pull_policy,
      builtIn: 'missing',
    }),
    offline: resolveOffline(layers),
    limits: resolveLimits(layers, limitsFor, warnings),
    timeoutMs: resolveTimeout(layers, limitsFor, warnings),
    onOutOfMemory: pick(layers, {
      field: 'onOutOfMemory',
      request: request.onOutOfMemory,
      key: 'sandbox.defaults.on_out_of_memory',
      read: sandbox => sandbox.defaults?.on_out_of_memory,
      builtIn: 'report',
    }),
    ...network,
    caFile: resolveCaFile(layers),
    networkTimeoutMs: resolveNetworkTimeout(layers, warnings),
    ...refuseUnlimitable(network, resolveNetworkLimits(request, layers, warnings)),
    ...budgetOf(request, network),
    upstreamProxy: resolveUpstreamProxy(layers),
    gitSsh: resolveGitSsh(layers),
    workspace: pick(layers, {
      field: 'workspace',
      request: available.workspace,
      key: 'sandbox.mounts.workspace_mode',
      read: sandbox => workspaceMode(sandbox.mounts?.workspace_mode),
      builtIn: 'direct',
    }),
    workspacePath: pick(layers, {
      field: 'workspacePath',
      request: request.workspacePath,
      key: 'sandbox.mounts.workspace_path',
      read: sandbox => sandbox.mounts?.workspace_path,
      builtIn: WORKSPACE_PATH,
    }),
    fork: onlyRequested(request.fork, 'policy.fork', null),
    services: resolveServices(request, layers),
    programs: onlyRequested(request.programs, 'policy.programs', []),
    state: onlyRequested(request.state, 'policy.state', null),
    diskBytes: resolveDisk(request, layers),
    diskHard: onlyRequested(request.disk?.hard, 'policy.disk.hard', false),
    ...resolveDiskRates(layers),
    forkCopy: onlyRequested(request.forkCopy, 'policy.forkCopy', false),
    mounts,
    caches: resolveCaches(request.caches, layers, { caller: host.caller, user: user.value, languages: host.languages }),
    deps: onlyRequested(request.deps, 'policy.deps', false),
    hostRoots: resolveHostRoots(layers, mounts),
    masks: resolveMasks(layers),
    user,
    warnings,
  };
}

// What no configuration file can set.
function onlyRequested<Value>(asked: Value | undefined, where: string, otherwise: Value): Sourced<Value> {
  return asked === undefined ? builtInValue(otherwise) : { value: asked, layer: 'request', where };
}

// A network of the engine has no limit that acode could enforce: a promise of one is not kept in silence.
function refuseUnlimitable(
  { network }: NetworkPolicy,
  limits: Pick<EffectivePolicy, 'networkRate' | 'networkBytes'>,
): Pick<EffectivePolicy, 'networkRate' | 'networkBytes'> {
  const { networkRate, networkBytes } = limits;
  const set = [networkRate, networkBytes].find(({ value }) => value !== null);
  const isOfEngine = network.value.kind === 'bridge' || network.value.kind === 'named';
  if (!set || !isOfEngine) return limits;
  throw new AcodeError('ACODE-SBX-016', {
    what: text`A limit of traffic (set by ${sourceOf(set)}) on the network ${networkName(network.value)}`,
    instead: 'Leave the limit out, or use an allow-list: no engine limits what a container sends.',
  });
}

// Only requests to which acode adds a credential are counted: others can be sent past it.
function budgetOf(
  { networkLimits }: PolicyFields,
  { network: { value } }: NetworkPolicy,
): Pick<EffectivePolicy, 'networkRequests' | 'networkTokens'> {
  const { requests, tokens } = networkLimits ?? {};
  const isLent = value.kind === 'allow' && (value.credentials ?? []).length > 0;
  if (!isLent && (requests ?? tokens) !== undefined)
    throw new AcodeError('ACODE-SBX-017', {
      field: 'policy.networkLimits',
      reason: 'has a budget of requests or tokens, and acode adds a credential to no request of this network',
      remedy: text`Leave the budget out, or use an allow-list with a credential: ${{ field: 'policy.network' }}.`,
    });
  return {
    networkRequests: onlyRequested(requests, 'policy.networkLimits.requests', null),
    networkTokens: onlyRequested(tokens, 'policy.networkLimits.tokens', null),
  };
}

/** The rules behind a policy: what may be asked for, and who set that. Pure. */
export function resolveRules(
  layers: Layers,
  { cpus, memoryBytes }: Pick<ResolveHost, 'cpus' | 'memoryBytes'>,
): PolicyRules {
  const machine = { cpus, memoryBytes: memoryBytes ?? UNKNOWN_MEMORY };
  return { ...allowedNetworks(layers), ...riskRulesOf(layers), ceilings: strictestCeilings(layers, machine) };
}

/** The fields of a request that currently have an effect. */
interface Available {
  readonly workspace: PolicyFields['workspace'];
}

// Fields of the full policy that a later version will implement. They are refused, never ignored.
function refuseUnavailable({ workspace, fork, forkCopy, disk }: PolicyFields): Available {
  if (fork !== undefined && workspace !== undefined && workspace !== 'fork')
    throw new AcodeError('ACODE-SBX-017', {
      field: 'policy.fork',
      reason: `names a fork, and the workspace is to be ${workspace}`,
      remedy: text`Leave ${{ field: 'policy.workspace' }} out, or ${{ field: 'policy.fork' }}.`,
    });
  const isFork = fork !== undefined || workspace === 'fork';
  refuseDisk(disk, isFork);
  if (forkCopy === true && !isFork)
    throw later(text`${{ field: 'policy.forkCopy' }} without a fork`, text`Add ${{ field: 'policy.fork' }}.`);
  return { workspace: fork === undefined ? workspace : 'fork' };
}

function refuseDisk(disk: PolicyFields['disk'], isFork: boolean): void {
  if (disk === undefined) return;
  if (!isFork)
    throw later(
      text`${{ field: 'policy.disk' }} without a fork`,
      text`Add ${{ field: 'policy.fork' }}: the disk limit counts what the layers of a fork take. Nothing limits what a command writes to the workspace itself.`,
    );
}

function later(what: Text, instead: Text): AcodeError {
  return new AcodeError('ACODE-SBX-016', { what, instead });
}

// The machine’s level is a floor. `auto` promises docker at least, so only a stronger floor has to be named.
function resolveLevel(request: PolicyFields, layers: Layers, warnings: string[]): EffectivePolicy['level'] {
  const asked: EffectivePolicy['level'] = pick(layers, {
    field: 'level',
    request: request.level,
    key: 'sandbox.level',
    read: sandbox => sandbox.level,
    builtIn: 'auto',
  });
  const { machine } = layers;
  const floor = machine?.config.sandbox?.level;
  if (!machine || floor === undefined || floor === 'auto') return asked;
  const where = placeOf(machine, 'sandbox.level');
  if (isAtLeast(asked.value === 'auto' ? 'docker' : asked.value, floor))
    // Nobody asked for a level, and the machine’s is what holds: it is named as the source.
    return asked.layer === 'built-in' ? { ...asked, layer: 'machine', where } : asked;
  if (asked.layer !== 'built-in')
    warnings.push(`The level was raised from ${asked.value} to ${floor}, the least that ${where} allows.`);
  return { value: floor, layer: 'machine', where };
}

// Offline if any layer requests it, since that can only restrict; a repository that requests the opposite was already
// refused.
function resolveOffline({ user, repository }: Layers): Sourced<boolean> {
  const key = 'sandbox.images.offline';
  const own = user.config.sandbox?.images?.offline;
  if (repository?.config.sandbox?.images?.offline === true && own !== true)
    return { value: true, layer: 'repository', where: placeOf(repository, key) };
  return own === undefined ? builtInValue(false) : { value: own, ...sourceIn(user, key) };
}

function resolveMounts(request: PolicyFields, layers: Layers): Sourced<readonly MountRequest[]> {
  return pick<readonly MountRequest[]>(layers, {
    field: 'mounts',
    request: request.mounts,
    key: 'sandbox.mounts.additional',
    read: sandbox =>
      sandbox.mounts?.additional?.map(({ source, target, readonly = true }) => ({
        source,
        target,
        readOnly: readonly,
      })),
    builtIn: [],
  });
}

// The user’s roots apply only to the user’s own mounts: a repository’s mount could reach one of them through a link.
function resolveHostRoots({ machine, user }: Layers, mounts: Sourced): Sourced<readonly string[]> {
  const roots = user.config.sandbox?.mounts?.allowed_host_roots;
  if (!roots || mounts.layer === 'repository') return builtInValue([]);
  const key = 'sandbox.mounts.allowed_host_roots';
  const limit = machine?.config.sandbox?.mounts?.allowed_host_roots;
  if (!machine || !limit) return { value: roots, ...sourceIn(user, key) };
  const value = roots.flatMap(root =>
    limit.flatMap(outer => (isWithin(root, outer) ? [root] : isWithin(outer, root) ? [outer] : [])),
  );
  return { value: [...new Set(value)], layer: 'machine', where: placeOf(machine, key) };
}

/** Every layer adds. Only the user’s own file removes, not the team’s defaults below it, and nothing that the machine’s policy masks. */
export function resolveMasks({ machine, user, repository }: Layers): MaskPolicy {
  const from = [
    { layer: 'machine', loaded: machine },
    { layer: 'user', loaded: user },
    { layer: 'repository', loaded: repository },
  ] as const;
  const add = from.flatMap(({ layer, loaded }) => {
    if (!loaded) return [];
    const patterns = loaded.config.sandbox?.mask ?? [];
    return patterns.map((value, index) => ({ value, layer, where: placeOf(loaded, `sandbox.mask.${index}`) }));
  });
  const removed = user.config.sandbox?.unmask;
  const remove: MaskPolicy['remove'] =
    removed === undefined
      ? builtInValue([])
      : { value: removed, layer: 'user', where: placeOf(user, 'sandbox.unmask') };
  return { add, remove };
}

function resolveUser(request: PolicyFields, layers: Layers, caller: UserId): Sourced<UserId> {
  const asked = pick<string>(layers, {
    field: 'user',
    request: request.user,
    key: 'sandbox.defaults.user',
    read: sandbox => sandbox.defaults?.user,
    builtIn: 'caller',
  });
  const { layer, where } = asked;
  const value = asked.value === 'caller' || asked.value === 'host' ? caller : parseUser(asked);
  if (value.uid === 0 || value.gid === 0) {
    throw new AcodeError('ACODE-SBX-010', {
      violation: 'PrivilegedUser',
      detail: text`a sandbox never runs as root (set by ${sourceOf(asked)})`,
    });
  }
  return { value, layer, where };
}

function parseUser({ value, layer, where }: Sourced<string>): UserId {
  const [uid = NaN, gid = NaN] = value.split(':').map(Number);
  if (![uid, gid].every(id => Number.isInteger(id) && id >= 0 && id < 2 ** 31)) {
    throw invalid(layer === 'request' ? 'policy.user' : where, `${value} is not uid:gid`);
  }
  return { uid, gid };
}

function workspaceMode(mode: 'rw' | 'ro' | undefined): 'direct' | 'readonly' | undefined {
  if (mode === undefined) return undefined;
  return mode === 'ro' ? 'readonly' : 'direct';
}
