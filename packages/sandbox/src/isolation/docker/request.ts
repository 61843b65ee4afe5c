// The engine request for a sandbox, written field by field from nothing: no object of a caller is ever merged into it.

import type { PortRequest } from '../../contract/policy.ts';
import type { MountSpec, SandboxSpec, TmpfsSpec } from '../../contract/spec.ts';
import { WAITING_COMMAND } from '../handover/script.ts';
import { cacheMount, type MountedCache } from './resources/cache-rules.ts';
import type { PodmanFacts } from './podman/podman.ts';

const SHM_BYTES = 64 * 1024 ** 2;
const BYTES_PER_INODE = 1024;
// A file with holes costs nothing to make and everything to whoever copies or backs up the workspace.
const FILE_BYTES = 64 * 1024 ** 3;

// The name every sandbox has for itself: it says nothing about the host or the task.
const HOSTNAME = 'sandbox';

/** What a request needs to know besides the plan: what only the engine at hand decides. */
export interface EngineFacts {
  /** `none`, or the id of the network: names are not unique. */
  readonly network: string;
  /** Its name, by which an engine knows it before a container starts. */
  readonly networkName?: string;
  /** The runtime by name: the one that was asked for, else the engine’s default. */
  readonly runtime: string;
  /** Threads of the runtime itself that the engine counts with those of the command. */
  readonly ownTasks?: number;
  /** The system call filter as JSON text; null where the runtime has a kernel of its own and does not apply one. */
  readonly seccomp: string | null;
  /** The caches as they were made for this sandbox. */
  readonly caches?: readonly MountedCache[];
  /** Set where the engine is Podman. */
  readonly podman?: PodmanFacts;
}

/** The body of `POST /containers/create` for a sandbox that waits. */
export function createRequest(spec: SandboxSpec, facts: EngineFacts): Record<string, unknown> {
  return {
    Image: spec.image.id,
    Hostname: HOSTNAME,
    User: `${spec.user.uid}:${spec.user.gid}`,
    WorkingDir: spec.workdir,
    // Set, so that neither the entrypoint nor the command of the image is inherited.
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

/** The variables of the container: a bare name removes the image’s variable. The command’s own never stand here. */
export function containerEnvironment(spec: SandboxSpec): string[] {
  // With this, signals reach every process of the command and not only the shell that waits for it.
  return [`HOME=${spec.home}`, 'TINI_KILL_PROCESS_GROUP=1', ...cacheVariables(spec), ...spec.image.removed];
}

function cacheVariables({ caches }: SandboxSpec): string[] {
  return caches.flatMap(({ environment }) => Object.entries(environment).map(([name, value]) => `${name}=${value}`));
}

// The options that stand for the system call filter and against gaining privileges.
function securityOptions({ seccomp }: EngineFacts): string[] {
  return ['no-new-privileges', ...(seccomp === null ? [] : [`seccomp=${seccomp}`])];
}

/** A port as the engine writes it: `80/tcp`. */
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
    Mounts: [...spec.mounts.map(mountRequest), ...spec.caches.map(cache => cacheMount(spec, cache, facts.caches))],
    Tmpfs: Object.fromEntries(spec.tmpfs.map(tmpfs => [tmpfs.target, tmpfsOptions(tmpfs, spec.user)])),
    ShmSize: Math.min(SHM_BYTES, limits.memoryBytes),
    Memory: limits.memoryBytes,
    // The engine reads an absent or zero value as “as much swap again as memory”.
    MemorySwap: limits.memoryBytes + limits.swapBytes,
    NanoCpus: Math.round(limits.cpus * 1e9),
    PidsLimit: limits.pids + (facts.ownTasks ?? 0),
    OomKillDisable: false,
    // If the host itself runs out of memory, a sandbox goes before anything else does.
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
    // On the loopback alone: any other address would offer the sandbox to the whole network of the host.
    PortBindings: Object.fromEntries(
      spec.ports.map(port => [portKey(port), [{ HostIp: '127.0.0.1', HostPort: String(port.host ?? '') }]]),
    ),
    Devices: [],
    DeviceRequests: [],
    DeviceCgroupRules: [],
    GroupAdd: [],
    Dns: [...spec.dns],
    ExtraHosts: [],
    Sysctls: {},
  };
}

// Structured, never a `Binds` string: those split at colons and make missing directories on the host, as root.
function mountRequest(mount: MountSpec): Record<string, unknown> {
  return {
    Type: 'bind',
    Source: mount.source,
    Target: mount.target,
    ReadOnly: mount.readOnly,
    // A mount below a read-only one would stay writable on older engines, so what is mounted below is left out.
    BindOptions: { Propagation: 'rprivate', NonRecursive: true },
  };
}

// uid and gid, because the engine ignores the mode where the image already has the directory; exec, because the engine adds noexec.
function tmpfsOptions({ bytes, mode }: TmpfsSpec, user: SandboxSpec['user']): string {
  const inodes = Math.max(1024, Math.floor(bytes / BYTES_PER_INODE));
  return `rw,exec,nosuid,nodev,size=${bytes},nr_inodes=${inodes},mode=${mode},uid=${user.uid},gid=${user.gid}`;
}
