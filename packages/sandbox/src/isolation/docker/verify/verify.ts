// Step 5 of the pipeline: compares what the engine created, and what the kernel runs, with the plan. Pure.
//
// The expectations are derived independently from the plan and not from the request: otherwise a mistake in the request
// would go unnoticed.

import type { CacheSpec } from '../../../contract/caches.ts';
import type { MountSpec, SandboxSpec } from '../../../contract/spec.ts';
import { RESERVED } from '../../../lifecycle/labels.ts';
import { isSameNumber } from '../../../workspace/file-identity.ts';
import { WAITING_COMMAND } from '../../handover/script.ts';
import {
  coveredDifferences,
  type Difference,
  type KernelMount,
  type KernelView,
  last,
  mounted,
  tmpfsDifferences,
} from '../../kernel.ts';
import type { ContainerDetails } from '../engine/containers.ts';
import type { EngineFacts } from '../request.ts';
import { type CacheLayer, LAYER_FLAGS, type MountedCache, mountedName } from '../resources/volume-rules.ts';

type Check = readonly [what: string, actual: unknown, expected: unknown];

/** Everything in the engine’s account that is not as planned, but for the attachments. */
export function compareWithEngine(
  spec: SandboxSpec,
  facts: EngineFacts,
  details: ContainerDetails,
  entrypoint: readonly string[] = WAITING_COMMAND,
): Difference[] {
  const checks = [
    ...configChecks(spec, facts, details, entrypoint),
    ...namespaceChecks(facts, details.HostConfig),
    ...networkChecks(spec, facts, details.HostConfig),
    ...limitChecks(spec, facts, details.HostConfig),
    ...throughputChecks(spec, details.HostConfig),
  ];
  const differences = checks
    .filter(([, actual, expected]) => !same(actual, expected))
    .map(([what, actual, expected]) => mismatch(what, actual, expected));
  return [...differences, ...mountDifferences(spec, facts, details), ...environmentDifferences(spec, details)];
}

/** Everything in the kernel’s account that is not as planned. */
export function compareWithKernel(spec: SandboxSpec, view: KernelView): Difference[] {
  return [...processDifferences(spec, view), ...kernelMountDifferences(spec, view)];
}

function processDifferences(spec: SandboxSpec, view: KernelView): Difference[] {
  const found: Difference[] = [];
  const wrong = (detail: string): void => void found.push({ violation: 'KernelMismatch', detail });
  for (const [set, value] of Object.entries(view.capabilities))
    if (!/^0+$/.test(value)) wrong(`the process has capabilities (${set} ${value})`);
  if (!view.noNewPrivileges) wrong('the process may gain privileges');
  if (!view.seccompFilter) wrong('no system call filter is active');
  if (view.uids.some(uid => uid !== spec.user.uid))
    wrong(`the process runs as uid ${view.uids.join(', ')} instead of ${spec.user.uid}`);
  if (view.gids.some(gid => gid !== spec.user.gid))
    wrong(`the process runs as gid ${view.gids.join(', ')} instead of ${spec.user.gid}`);
  const foreign = view.groups.filter(group => group !== spec.user.gid);
  if (foreign.length > 0) wrong(`the process is in the groups ${foreign.join(', ')}`);
  if (view.sharedNamespaces && view.sharedNamespaces.length > 0)
    wrong(`it shares namespaces with the host: ${view.sharedNamespaces.join(', ')}`);
  return found;
}

// A service has the host name of its sandbox, or until it is started its own id.
function hostName({ network }: EngineFacts, { Id, Config }: ContainerDetails): string {
  const isService = network.startsWith('container:');
  return isService && Config.Hostname === Id.slice(0, 12) ? Config.Hostname : 'sandbox';
}

function configChecks(
  spec: SandboxSpec,
  facts: EngineFacts,
  details: ContainerDetails,
  entrypoint: readonly string[],
): Check[] {
  const { Image, Config } = details;
  return [
    ['image', Image, spec.image.id],
    ['user', Config.User, `${spec.user.uid}:${spec.user.gid}`],
    ['entrypoint', Config.Entrypoint, entrypoint],
    ['command', Config.Cmd ?? [], []],
    ['working directory', Config.WorkingDir, spec.workdir],
    ['health check', Config.Healthcheck?.['Test'] ?? ['NONE'], ['NONE']],
    ['host name', Config.Hostname, hostName(facts, details)],
    ['terminal', Config.Tty ?? false, false],
    ['standard input', [Config.OpenStdin, Config.StdinOnce], [true, true]],
    ['labels', ownLabels(Config.Labels ?? {}, spec.identity.labels), spec.identity.labels],
  ];
}

function networkChecks(spec: SandboxSpec, facts: EngineFacts, host: Record<string, unknown>): Check[] {
  const ports = Object.fromEntries(
    spec.ports.map(({ container, host: wanted, protocol }) => [
      `${container}/${protocol ?? 'tcp'}`,
      [{ HostIp: '127.0.0.1', HostPort: wanted === undefined ? '' : String(wanted) }],
    ]),
  );
  return [
    ['network', host['NetworkMode'], facts.network],
    ['name service', [list(host['Dns']), list(host['ExtraHosts'])], [spec.dns, loopbackNames(spec)]],
    ['published ports', [host['PortBindings'] ?? {}, host['PublishAllPorts']], [ports, false]],
  ];
}

// Each service by its name, on the loopback alone.
function loopbackNames({ services = [] }: SandboxSpec): string[] {
  return services.map(({ name }) => `${name}:127.0.0.1`);
}

function namespaceChecks(facts: EngineFacts, host: Record<string, unknown>): Check[] {
  const filter = facts.seccomp === null ? [] : [`seccomp=${facts.seccomp}`];
  return [
    ['privileged mode', host['Privileged'], false],
    ['added capabilities', host['CapAdd'] ?? [], []],
    ['dropped capabilities', host['CapDrop'], ['ALL']],
    ['runtime', host['Runtime'], facts.runtime],
    ['security options', host['SecurityOpt'], ['no-new-privileges', ...filter]],
    ['read-only root', host['ReadonlyRootfs'], true],
    ['ipc namespace', host['IpcMode'], 'private'],
    ['cgroup namespace', host['CgroupnsMode'], 'private'],
    ['pid namespace', host['PidMode'] ?? '', ''],
    ['uts namespace', host['UTSMode'] ?? '', ''],
    ['user namespace', host['UsernsMode'] ?? '', ''],
    ['init process', host['Init'], true],
    ['devices', [list(host['Devices']), list(host['DeviceRequests']), list(host['DeviceCgroupRules'])], [[], [], []]],
    ['bind strings', list(host['Binds']), []],
    ['volumes of others', list(host['VolumesFrom']), []],
    ['added groups', list(host['GroupAdd']), []],
    ['kernel parameters', host['Sysctls'] ?? {}, {}],
    ['control group parent', host['CgroupParent'] ?? '', ''],
    ['log driver', field(host['LogConfig'], 'Type'), 'none'],
    ['restart policy', field(host['RestartPolicy'], 'Name'), 'no'],
    ['automatic removal', host['AutoRemove'], false],
    ['masked paths', hasAll(host['MaskedPaths'], ['/proc/kcore', '/proc/keys', '/sys/firmware']), true],
    ['read-only paths', hasAll(host['ReadonlyPaths'], ['/proc/sys', '/proc/sysrq-trigger']), true],
  ];
}

// What an engine cannot enforce it leaves out, with a warning in its reply.
function throughputChecks({ throughput }: SandboxSpec, host: Record<string, unknown>): Check[] {
  const wanted = (rate: number | undefined): unknown[][] =>
    rate === undefined ? [] : (throughput?.devices ?? []).map(device => [device, rate]);
  const found = (name: string): unknown[][] => list(host[name]).map(one => [field(one, 'Path'), field(one, 'Rate')]);
  return [
    ['disk reads', found('BlkioDeviceReadBps'), wanted(throughput?.readBytes)],
    ['disk writes', found('BlkioDeviceWriteBps'), wanted(throughput?.writeBytes)],
  ];
}

function limitChecks({ limits }: SandboxSpec, { ownTasks = 0 }: EngineFacts, host: Record<string, unknown>): Check[] {
  const ulimits = list(host['Ulimits']).map(limit => [
    field(limit, 'Name'),
    field(limit, 'Soft'),
    field(limit, 'Hard'),
  ]);
  return [
    ['memory limit', host['Memory'], limits.memoryBytes],
    ['swap limit', host['MemorySwap'], limits.memoryBytes + limits.swapBytes],
    ['cpu limit', host['NanoCpus'], Math.max(1e7, Math.round(limits.cpus * 1e9))],
    ['process limit', host['PidsLimit'], limits.pids + ownTasks],
    ['shared memory', host['ShmSize'], Math.min(limits.memoryBytes, 64 * 1024 ** 2)],
    ['out-of-memory killer', [host['OomKillDisable'] ?? false, host['OomScoreAdj']], [false, 500]],
    [
      'open files, core size and file size',
      ulimits,
      [
        ['nofile', limits.openFiles, limits.openFiles],
        ['core', 0, 0],
        ['fsize', 64 * 1024 ** 3, 64 * 1024 ** 3],
      ],
    ],
  ];
}

function mountDifferences(spec: SandboxSpec, facts: EngineFacts, details: ContainerDetails): Difference[] {
  const mounts = details.Mounts.filter(mount => mount.Type !== 'tmpfs').map(mount => ({
    type: mount.Type,
    source: mount.Source ?? '',
    target: mount.Destination,
    writable: mount.RW,
    propagation: mount.Propagation ?? '',
  }));
  const binds = spec.mounts
    .filter(({ overlay }) => !overlay)
    .map(mount => ({
      type: 'bind',
      source: mount.source,
      target: mount.target,
      writable: !mount.readOnly,
      propagation: 'rprivate',
    }));
  const wanted = [
    ...binds,
    ...wantedOverlays(spec, facts),
    ...wantedCaches(spec, facts),
    ...wantedDependencies(spec, facts),
    ...wantedStore(spec),
  ];
  const tmpfs = Object.keys(details.HostConfig['Tmpfs'] ?? {}).sort();
  const differences: Difference[] = [];
  // Engines list mounts in any order.
  if (!same(byTarget(mounts), byTarget(wanted)))
    differences.push({ ...mismatch('mounts', mounts, wanted), violation: 'MountMismatch' });
  if (!same(tmpfs, spec.tmpfs.map(({ target }) => target).sort()))
    differences.push(
      mismatch(
        'memory file systems',
        tmpfs,
        spec.tmpfs.map(({ target }) => target),
      ),
    );
  return differences;
}

// What stands in the container’s configuration can be read by everyone who may ask the engine, so only these may.
function environmentDifferences(spec: SandboxSpec, { Config }: ContainerDetails): Difference[] {
  const allowed = new Set([
    `HOME=${spec.home}`,
    'TINI_KILL_PROCESS_GROUP=1',
    ...spec.caches.flatMap(({ environment }) => Object.entries(environment).map(pair => pair.join('='))),
    ...spec.image.removed,
    ...spec.image.environment,
  ]);
  const has = Config.Env ?? [];
  // An image without a path gets the engine’s own.
  const hasPath = spec.image.environment.some(variable => variable.startsWith('PATH='));
  const unexpected = has.filter(variable => !allowed.has(variable) && (hasPath || !variable.startsWith('PATH=')));
  const missing = spec.image.removed.filter(name => !has.includes(name));
  return unexpected.length + missing.length === 0
    ? []
    : [
        mismatch(
          'environment',
          [...unexpected, ...missing].map(variable => variable.split('=')[0]),
          [],
        ),
      ];
}

// Mounts the runtime makes for every container. Anything else in the table was not asked for.
const RUNTIME_MOUNTS =
  /^(?:\/|\/proc(?:\/.*)?|\/sys(?:\/.*)?|\/dev(?:\/(?:pts|mqueue|shm|console))?|\/etc\/(?:resolv\.conf|hostname|hosts)|(?:\/usr)?\/sbin\/docker-init|\/dev\/init|\/run\/\.containerenv|\/run\/podman-init)$/;

// Below /proc and /sys only the kernel’s own file systems and the masks over them have any business.
const KERNEL_TYPES = new Set(['proc', 'sysfs', 'tmpfs', 'devtmpfs', 'cgroup', 'cgroup2']);

function isRuntimeMount({ target, type }: KernelMount): boolean {
  return RUNTIME_MOUNTS.test(target) && (!/^\/(?:proc|sys)/.test(target) || KERNEL_TYPES.has(type));
}

function kernelMountDifferences(spec: SandboxSpec, view: KernelView): Difference[] {
  const differences = spec.mounts.flatMap(mount => [
    ...plannedMountDifferences(mount, view),
    ...coveredDifferences(mount, spec, view),
  ]);
  const stores = spec.store ? [{ ...spec.store, mode: '0700' }] : [];
  const ours = [...spec.mounts, ...spec.caches, ...(spec.dependencies ?? []), ...spec.tmpfs, ...stores];
  const planned = new Set(ours.map(({ target }) => target));
  for (const mount of view.mounts) {
    if (!planned.has(mount.target) && !isRuntimeMount(mount))
      differences.push(mounted(`${mount.target} is mounted and was not asked for`));
  }
  differences.push(
    ...[...spec.tmpfs, ...stores].flatMap(tmpfs => tmpfsDifferences(tmpfs, last(view.mounts, tmpfs.target))),
  );
  if (!last(view.mounts, '/')?.options.includes('ro')) differences.push(mounted('the root file system is writable'));
  return differences;
}

function plannedMountDifferences(mount: MountSpec, view: KernelView): Difference[] {
  const found = last(view.mounts, mount.target);
  if (!found) return [mounted(`${mount.target} is not mounted`)];
  // What is mounted as an overlay has no identity of its source; its attachment compares the parts.
  if (mount.overlay) return [];
  const differences: Difference[] = [];
  const identity = view.identities.get(mount.target);
  const source = view.sources.get(mount.source);
  const swapped = identity
    ? !isSameNumber(identity, mount.identity)
    : found.device !== source?.device || found.root !== source.root;
  if (swapped) differences.push(mounted(`${mount.target} is not what was checked, but ${found.root}`));
  if (found.options.includes('ro') !== mount.readOnly)
    differences.push(mounted(`${mount.target} is ${mount.readOnly ? 'writable' : 'read-only'}`));
  if (found.shared) differences.push(mounted(`mounts of the host would appear below ${mount.target}`));
  return differences;
}

function byTarget<Mount extends { readonly target: string }>(mounts: readonly Mount[]): Mount[] {
  return [...mounts].sort((one, other) => (one.target < other.target ? -1 : 1));
}

function mismatch(what: string, actual: unknown, expected: unknown): Difference {
  return { violation: 'SpecMismatch', detail: `${what}: planned ${brief(expected)}, found ${brief(actual)}` };
}

function brief(value: unknown): string {
  const text = JSON.stringify(value) ?? 'nothing';
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}

function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(ordered(one)) === JSON.stringify(ordered(other));
}

function ordered(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(ordered);
  if (value === null || typeof value !== 'object') return value ?? null;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, item]) => [key, ordered(item)]),
  );
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? new Map(Object.entries(value)).get(name) : undefined;
}

// Those that were planned, and every other one that would say something about a sandbox: an engine adds the image’s own.
function ownLabels(found: Readonly<Record<string, string>>, planned: Readonly<Record<string, string>>): object {
  const counts = ([name]: [string, string]): boolean => name in planned || name.startsWith(RESERVED);
  return Object.fromEntries(Object.entries(found).filter(counts));
}

function hasAll(value: unknown, wanted: readonly string[]): boolean {
  const paths = list(value);
  return wanted.every(path => paths.includes(path));
}

// The network part of step 5: a sandbox is connected to the one network of its plan and to nothing else. Pure.
//
// The mode alone proves nothing: an engine takes a request whose mode is `none` and connects the container all the same
// to what stands in another field, and then still reports `none`.

/** What is wrong with the networks a container is connected to, by the engine’s account. */
export function connectionDifferences(facts: EngineFacts, details: ContainerDetails): Difference[] {
  const connected = Object.entries(details.NetworkSettings.Networks ?? {});
  // Its network is the other container’s: the engine connects it to nothing.
  if (facts.network.startsWith('container:') && connected.length === 0) return [];
  const asPlanned = connected.length === 1 && connected.every(connection => isPlanned(facts, connection, details));
  if (asPlanned) return [];
  const found = connected.map(([name]) => name).join(', ') || 'none at all';
  return [
    {
      violation: 'SpecMismatch',
      detail: `connected networks: planned ${facts.network} alone, found ${found}`.slice(0, 400),
    },
  ];
}

/** What is wrong with the addresses the kernel has given the sandbox. */
export function interfaceDifferences({ network }: SandboxSpec, { interfaces }: KernelView): Difference[] {
  if (interfaces === null) return [];
  const most = network.kind === 'none' || network.kind === 'allow' ? 0 : 1;
  if (interfaces.length <= most) return [];
  const detail = `it has addresses on ${interfaces.join(', ')} and was planned with ${most === 0 ? 'no network' : 'one network'}`;
  return [{ violation: 'KernelMismatch', detail }];
}

// Before its start an engine knows a container’s network by name alone; the id comes with the start.
function isPlanned(
  facts: EngineFacts,
  [name, endpoint]: [string, Record<string, unknown>],
  { State }: ContainerDetails,
) {
  if (facts.network === 'none') return name === 'none';
  const id = endpoint['NetworkID'];
  if (State.Running || (typeof id === 'string' && id !== '')) return id === facts.network;
  return name === facts.networkName || name === facts.network;
}

// Holds the caches of a sandbox against the plan: in each the one layer that was made for it, and nothing of another’s. Pure.

/** The caches as the engine’s account of a container must have them. */
export function wantedCaches(spec: SandboxSpec, { caches = [] }: Pick<EngineFacts, 'caches'>): EngineMount[] {
  return spec.caches.map(({ target }) => {
    const made = caches.find(one => one.target === target);
    return { type: 'volume', source: made?.mountpoint ?? '', target, writable: true, propagation: '' };
  });
}

function wantedOverlays({ mounts }: SandboxSpec, { overlays = [] }: EngineFacts): EngineMount[] {
  return mounts
    .filter(({ overlay }) => overlay)
    .map(({ target }) => {
      const made = overlays.find(one => one.target === target);
      return { type: 'volume', source: made?.mountpoint ?? '', target, writable: true, propagation: '' };
    });
}

function wantedDependencies(spec: SandboxSpec, { dependencies = [] }: EngineFacts): EngineMount[] {
  return (spec.dependencies ?? []).map(({ target }) => {
    const made = dependencies.find(one => one.target === target);
    return { type: 'volume', source: made?.mountpoint ?? '', target, writable: true, propagation: '' };
  });
}

function wantedStore({ store }: SandboxSpec): EngineMount[] {
  if (!store) return [];
  return [{ type: 'volume', source: store.mountpoint, target: store.target, writable: true, propagation: '' }];
}

interface EngineMount {
  readonly type: string;
  readonly source: string;
  readonly target: string;
  readonly writable: boolean;
  readonly propagation: string;
}

/** What of the caches is not as planned in the kernel’s account. */
export function cacheDifferences(spec: SandboxSpec, view: KernelView, caches: readonly MountedCache[]): Difference[] {
  return spec.caches.flatMap(cache => {
    const made = caches.find(({ target }) => target === cache.target);
    const found = last(view.mounts, cache.target);
    if (!found) return [mounted(`${cache.target} is not mounted`)];
    const isIt = made !== undefined && made.volume === mountedName(spec, cache) && isMade(cache, made, found);
    const differences = isIt ? [] : [mounted(`${cache.target} is not the volume that was made for it`)];
    // Engines let volumes receive what is mounted below them on the host, where nobody but root can; never the other way.
    if (found.shared && !found.receives) differences.push(mounted(`mounts made in ${cache.target} would leave it`));
    return differences;
  });
}

// A layer names its parts. Of a plain volume the kernel shows the directory, from the top of its device.
function isMade({ fill }: CacheSpec, { layer, mountpoint, volume }: MountedCache, found: KernelMount): boolean {
  if (fill !== (layer === null)) return false;
  if (layer === null)
    return found.type !== 'overlay' && found.root.includes(`/${volume}/`) && mountpoint.endsWith(found.root);
  return isLayer(layer, found);
}

function isLayer({ lower, upper, work }: CacheLayer, found: KernelMount): boolean {
  const parts = [`lowerdir=${lower}`, `upperdir=${upper}`, `workdir=${work}`];
  const isFlagged = LAYER_FLAGS.every(flag => found.options.includes(flag));
  return found.type === 'overlay' && isFlagged && parts.every(part => found.superOptions.includes(part));
}

/** What in the kernel’s account is not the one layer that was made for a target. */
export function layerDifferences(target: string, layer: CacheLayer | null, view: KernelView): Difference[] {
  const found = last(view.mounts, target);
  if (!found) return [mounted(`${target} is not mounted`)];
  const isIt = layer !== null && isLayer(layer, found);
  return [
    ...(isIt ? [] : [mounted(`${target} is not the volume that was made for it`)]),
    ...(found.shared && !found.receives ? [mounted(`mounts made in ${target} would leave it`)] : []),
  ];
}
