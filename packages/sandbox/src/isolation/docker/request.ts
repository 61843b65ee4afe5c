// The engine request for a sandbox, built field by field: no object from a caller is ever merged into it.

import type { PortRequest } from '../../contract/policy.ts';
import type { MountSpec, SandboxSpec, TmpfsSpec } from '../../contract/spec.ts';
import { WAITING_COMMAND } from '../handover/script.ts';
import {
  cacheMount,
  type MountedCache,
  dependencyMount,
  type MountedDependency,
  overlayMount,
  storeMount,
  type MountedOverlay,
} from './resources/volume-rules.ts';
import type { PodmanFacts } from './podman/podman.ts';

const SHM_BYTES = 64 * 1024 ** 2;
const BYTES_PER_INODE = 1024;
// A sparse file costs nothing to create, but its full size to any program that copies or backs up the workspace.
const FILE_BYTES = 64 * 1024 ** 3;

// Every sandbox has the same host name, which reveals nothing about the machine or the task.
const HOSTNAME = 'sandbox';

/** Inputs of a request besides the plan: what depends on the engine. */
export interface EngineFacts {
  /** `none`, the id of the network (names are not unique), or for a service the container whose namespace it joins. */
  readonly network: string;
  /** Its name, which an engine reports before a container starts. */
  readonly networkName?: string;
  /** The name of the runtime: the requested one, or the engine’s default. */
  readonly runtime: string;
  /** The number of threads of the runtime itself, which the engine counts with those of the command. */
  readonly ownTasks?: number;
  /** The system call filter as JSON text; null for a runtime that has its own kernel and does not apply one. */
  readonly seccomp: string | null;
  /** The caches that were created for this sandbox. */
  readonly caches?: readonly MountedCache[];
  /** The layers over dependencies of the project image that were created for this sandbox. */
  readonly dependencies?: readonly MountedDependency[];
  /** The overlays of forks that were created for this sandbox. */
  readonly overlays?: readonly MountedOverlay[];
  /** Set if the engine is Podman. */
  readonly podman?: PodmanFacts;
}

/** The body of `POST /containers/create` for a waiting sandbox. */
export function createRequest(spec: SandboxSpec, facts: EngineFacts): Record<string, unknown> {
  return {
    Image: spec.image.id,
    // Who joins the namespace of another container has its host name, and no engine takes one.
    ...(isJoining(facts) ? {} : { Hostname: HOSTNAME }),
    User: `${spec.user.uid}:${spec.user.gid}`,
    WorkingDir: spec.workdir,
    // Set explicitly, so that the container inherits neither the entrypoint nor the command of the image.
    Entrypoint: [...WAITING_COMMAND],
    Cmd: [],
    Env: containerEnvironment(spec),
    Labels: { ...spec.identity.labels },
    Healthcheck: { Test: ['NONE'] },
    StopSignal: 'SIGTERM',
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    OpenStdin: true,
    StdinOnce: true,
    Tty: false,
    ExposedPorts: Object.fromEntries(spec.ports.map(port => [portKey(port), {}])),
    HostConfig: hostConfig(spec, facts),
  };
}

/**
 * The container’s environment: a bare name removes the image’s variable. It never contains the command’s own variables.
 */
export function containerEnvironment(spec: SandboxSpec): string[] {
  // With this variable, signals reach every process of the command and not only the shell that waits for it.
  return [`HOME=${spec.home}`, 'TINI_KILL_PROCESS_GROUP=1', ...cacheVariables(spec), ...spec.image.removed];
}

function cacheVariables({ caches }: SandboxSpec): string[] {
  return caches.flatMap(({ environment }) => Object.entries(environment).map(([name, value]) => `${name}=${value}`));
}

// The options for the system call filter and for no-new-privileges.
function securityOptions({ seccomp }: EngineFacts): string[] {
  return ['no-new-privileges', ...(seccomp === null ? [] : [`seccomp=${seccomp}`])];
}

/** A port in the engine’s notation: `80/tcp`. */
export function portKey({ container, protocol }: PortRequest): string {
  return `${container}/${protocol ?? 'tcp'}`;
}

function hostConfig(spec: SandboxSpec, facts: EngineFacts): Record<string, unknown> {
  const { limits } = spec;
  return {
    Privileged: false,
    CapAdd: [],
    CapDrop: ['ALL'],
    SecurityOpt: securityOptions(facts),
    ReadonlyRootfs: true,
    NetworkMode: facts.network,
    IpcMode: 'private',
    CgroupnsMode: 'private',
    PidMode: '',
    UTSMode: '',
    UsernsMode: '',
    Init: true,
    ...(spec.runtime === null ? {} : { Runtime: spec.runtime }),
    Mounts: [
      ...spec.mounts.map((mount, at) => (mount.overlay ? overlayMount(spec, at, facts.overlays) : mountRequest(mount))),
      ...spec.caches.map(cache => cacheMount(spec, cache, facts.caches)),
      ...(spec.dependencies ?? []).map((_, at) => dependencyMount(spec, at, facts.dependencies)),
      ...(spec.store ? [storeMount(spec, spec.store)] : []),
    ],
    Tmpfs: Object.fromEntries(spec.tmpfs.map(tmpfs => [tmpfs.target, tmpfsOptions(tmpfs, spec.user)])),
    ShmSize: Math.min(SHM_BYTES, limits.memoryBytes),
    Memory: limits.memoryBytes,
    // The engine reads an absent or zero value as “as much swap again as memory”.
    MemorySwap: limits.memoryBytes + limits.swapBytes,
    NanoCpus: Math.round(limits.cpus * 1e9),
    ...throughputOf(spec),
    PidsLimit: limits.pids + (facts.ownTasks ?? 0),
    OomKillDisable: false,
    // If the machine itself runs out of memory, the kernel kills a sandbox first.
    OomScoreAdj: 500,
    Ulimits: [
      { Name: 'nofile', Soft: limits.openFiles, Hard: limits.openFiles },
      { Name: 'core', Soft: 0, Hard: 0 },
      { Name: 'fsize', Soft: FILE_BYTES, Hard: FILE_BYTES },
    ],
    LogConfig: { Type: 'none', Config: {} },
    RestartPolicy: { Name: 'no', MaximumRetryCount: 0 },
    AutoRemove: false,
    PublishAllPorts: false,
    // Only on loopback: any other address would expose the sandbox to the machine’s network.
    PortBindings: Object.fromEntries(
      spec.ports.map(port => [portKey(port), [{ HostIp: '127.0.0.1', HostPort: String(port.host ?? '') }]]),
    ),
    Devices: [],
    DeviceRequests: [],
    DeviceCgroupRules: [],
    GroupAdd: [],
    Dns: [...spec.dns],
    ExtraHosts: serviceHosts(spec),
    Sysctls: {},
  };
}

// Absent without a limit: the request of every other sandbox is what it was.
function throughputOf({ throughput }: Pick<SandboxSpec, 'throughput'>): Record<string, unknown> {
  if (!throughput) return {};
  const { devices, readBytes, writeBytes } = throughput;
  const rates = (rate: number | undefined): unknown[] =>
    rate === undefined ? [] : devices.map(device => ({ Path: device, Rate: rate }));
  return { BlkioDeviceReadBps: rates(readBytes), BlkioDeviceWriteBps: rates(writeBytes) };
}

/** The names of the services in a sandbox, as the engine takes them. */
function serviceHosts({ services = [] }: Pick<SandboxSpec, 'services'>): string[] {
  return services.map(({ name }) => `${name}:127.0.0.1`);
}

const JOINED = 'container:';

/** The network of a sandbox that joins the namespace of another container. */
export function joinedNetwork(containerId: string): string {
  return `${JOINED}${containerId}`;
}

/** Whether a sandbox joins the network namespace of another one. */
function isJoining({ network }: Pick<EngineFacts, 'network'>): boolean {
  return network.startsWith(JOINED);
}

// Structured mounts, never a `Binds` string: that splits at colons and creates missing directories on the host, as
// root.
function mountRequest(mount: MountSpec): Record<string, unknown> {
  return {
    Type: 'bind',
    Source: mount.source,
    Target: mount.target,
    ReadOnly: mount.readOnly,
    // On older engines, a mount below a read-only one would remain writable, so nested mounts are excluded.
    BindOptions: { Propagation: 'rprivate', NonRecursive: true },
  };
}

// uid and gid, because the engine ignores the mode where the image already has the directory; exec, because the engine adds noexec.
function tmpfsOptions({ bytes, mode }: TmpfsSpec, user: SandboxSpec['user']): string {
  const inodes = Math.max(1024, Math.floor(bytes / BYTES_PER_INODE));
  return `rw,exec,nosuid,nodev,size=${bytes},nr_inodes=${inodes},mode=${mode},uid=${user.uid},gid=${user.gid}`;
}
