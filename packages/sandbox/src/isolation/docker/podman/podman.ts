// Podman speaks Docker’s API, but not to the letter: says a request in its words, and reads its account back in Docker’s.
//
// Nothing is taken on trust here: where Podman says less than Docker, the kernel’s account stands in; where it says
// something else than was planned, that is passed on as it is, and the comparison that follows refuses it. Pure.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { access, mkdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { AcodeError } from '../../../contract/errors.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { writePrivateFile } from '../../../lifecycle/directories.ts';
import type { KernelView } from '../../kernel.ts';
import type { ContainerDetails } from '../engine/containers.ts';

/** What a sandbox on Podman needs to be told besides. */
export interface PodmanFacts {
  /** The system call filter as a file: Podman takes none in the request itself. */
  readonly filterFile: string;
  /** The most processes a user can have on this host; null where that is not known. */
  readonly mostProcesses: number | null;
}

/** What an account of Podman’s is read with. */
export interface PodmanReading {
  readonly spec: SandboxSpec;
  readonly facts: { readonly runtime: string; readonly seccomp: string | null; readonly podman: PodmanFacts };
  readonly view: KernelView | null;
  /** Those of the kernel’s files that are to be out of reach which this kernel does not have. */
  readonly absent: readonly string[];
}

type Fields = Readonly<Record<string, unknown>>;

/** What of the kernel’s own must be masked or read-only inside, and is not said by Podman. */
const GUARDED_PATHS: readonly string[] = [
  '/proc/kcore',
  '/proc/keys',
  '/sys/firmware',
  '/proc/sys',
  '/proc/sysrq-trigger',
];

// With a read-only root, Podman gives every container this one as well, without a size.
const EXTRA_TMPFS = '/var/tmp';

// Under version 1 only the kernel can tell, and it tells of the caller’s own processes alone.
const NOT_SHOWN = 'not shown by Podman; with control groups of version 2 it is';

// Podman sets these in every container, besides what it was given.
const OWN_VARIABLES: readonly string[] = ['TERM=xterm', 'container=podman', 'HOSTNAME=sandbox'];

// What a container would have had. Of these Podman names the ones that were dropped, and never says `ALL`.
const DEFAULT_CAPABILITIES = [
  'AUDIT_WRITE',
  'CHOWN',
  'DAC_OVERRIDE',
  'FOWNER',
  'FSETID',
  'KILL',
  'MKNOD',
  'NET_BIND_SERVICE',
  'NET_RAW',
  'SETFCAP',
  'SETGID',
  'SETPCAP',
  'SETUID',
  'SYS_CHROOT',
];

// On Podman, a user inside may not listen on ports below 1024, as a forwarder has to.
const LOW_PORTS: Fields = { 'net.ipv4.ip_unprivileged_port_start': '0' };

/** The plan as it comes out on Podman: what it mounts by itself is planned, and so has a size. */
export function planForPodman(spec: SandboxSpec): SandboxSpec {
  const taken = [...spec.mounts, ...spec.tmpfs].some(({ target }) => target === EXTRA_TMPFS);
  const bytes = spec.tmpfs.find(({ target }) => target === '/tmp')?.bytes ?? 0;
  return taken ? spec : { ...spec, tmpfs: [...spec.tmpfs, { target: EXTRA_TMPFS, bytes, mode: '1777' }] };
}

/** A create request for Docker, for Podman. */
export function podmanRequest(body: Fields, spec: SandboxSpec, podman: PodmanFacts): Record<string, unknown> {
  const host = fields(body['HostConfig']);
  const { mostProcesses } = podman;
  // Without one, Podman asks for more than a service without special rights may give.
  const processes = mostProcesses === null ? [] : [{ Name: 'nproc', Soft: mostProcesses, Hard: mostProcesses }];
  return {
    ...body,
    // To Podman a bare name means its own variable of that name, and leaves the image’s.
    Env: texts(body['Env']).map(variable => (spec.image.removed.includes(variable) ? `${variable}=` : variable)),
    HostConfig: {
      ...host,
      SecurityOpt: texts(host['SecurityOpt']).map(option =>
        option.startsWith('seccomp={') ? `seccomp=${podman.filterFile}` : option,
      ),
      Tmpfs: Object.fromEntries(
        Object.entries(fields(host['Tmpfs'])).map(([target, options]) => [target, tmpfsOptions(String(options))]),
      ),
      Ulimits: [...list(host['Ulimits']), ...processes],
      ...(spec.network.kind === 'allow' ? { Sysctls: LOW_PORTS } : {}),
    },
  };
}

/** The names of variables that a command must not see on Podman: they cannot be kept out of the container. */
export function podmanVariables({ image }: Pick<SandboxSpec, 'image'>): string[] {
  const kept = new Set(image.environment.map(nameOf));
  const own = ['TERM', 'container'].filter(name => !kept.has(name));
  // What is no name to a shell it does not take over either.
  return [...own, ...image.removed.filter(name => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name))];
}

/** Podman’s account of a container in Docker’s words. */
export function podmanAccount(details: ContainerDetails, reading: PodmanReading): ContainerDetails {
  const { HostConfig: host, Config: config, NetworkSettings: settings } = details;
  const networks = settings.Networks ?? {};
  const isolated = host['NetworkMode'] === 'none' && Object.keys(networks).length === 0;
  return {
    ...details,
    // Podman says of a volume what Docker says of a bind alone.
    Mounts: details.Mounts.map(mount =>
      mount.Type === 'volume' && mount.Propagation === 'rprivate' ? { ...mount, Propagation: '' } : mount,
    ),
    Config: {
      ...config,
      Env: variables(config.Env ?? [], reading.spec),
      // Podman never says so; that input ends with its connection is how it always is there.
      StdinOnce: config.OpenStdin ?? false,
    },
    HostConfig: {
      ...host,
      ...namespaces(host, reading),
      CapDrop: capabilities(host),
      SecurityOpt: texts(host['SecurityOpt']).map(option =>
        option === `seccomp=${reading.facts.podman.filterFile}` ? `seccomp=${reading.facts.seccomp ?? ''}` : option,
      ),
      // It cannot be asked for another than its default, nor says which one it was.
      Runtime: host['Runtime'] === 'oci' ? reading.facts.runtime : host['Runtime'],
      Binds: strangeBinds(host, details),
      Ulimits: limits(host, reading.facts.podman),
      Sysctls: kernelParameters(host, reading.spec),
      MaskedPaths: host['MaskedPaths'] ?? guarded(reading, false),
      ReadonlyPaths: host['ReadonlyPaths'] ?? guarded(reading, true),
    },
    NetworkSettings: { ...settings, Networks: isolated ? { none: {} } : networks },
  };
}

/** The kernel’s account without what Podman mounts for every container: its own list of users and groups, read-only. */
export function podmanKernelView(view: KernelView, containerId: string): KernelView {
  const own = `/overlay-containers/${containerId}/userdata/`;
  return {
    ...view,
    mounts: view.mounts.filter(
      ({ target, root, options }) =>
        !(/^\/etc\/(?:passwd|group)$/.test(target) && root.includes(own) && options.includes('ro')),
    ),
  };
}

// Podman knows no number of files for such a mount, and has a word of its own for “the user’s”; left to itself it would copy
// what the image has there into it.
function tmpfsOptions(options: string): string {
  const known = options.split(',').filter(option => !/^(?:nr_inodes|uid|gid)=/.test(option));
  return [...known, 'U', 'notmpcopyup'].join(',');
}

// An own one is `private` or `shareable` here: the latter could be joined by another container, if that asked the engine.
function namespaces(host: Fields, { view }: PodmanReading): Record<string, unknown> {
  const own = (value: unknown, word: string): unknown => (value === 'private' ? word : value);
  // Not said at all with control groups of version 1, where there is none unless the service has one of its own.
  const separate = view?.sharedNamespaces?.includes('cgroup') === false;
  return {
    IpcMode: host['IpcMode'] === 'shareable' ? 'private' : host['IpcMode'],
    PidMode: own(host['PidMode'], ''),
    UTSMode: own(host['UTSMode'], ''),
    CgroupnsMode: host['CgroupnsMode'] === '' ? (separate ? 'private' : NOT_SHOWN) : host['CgroupnsMode'],
  };
}

// The one that was added counts only if it was planned and is alone.
function kernelParameters(host: Fields, { network }: SandboxSpec): unknown {
  const isAdded = network.kind === 'allow' && JSON.stringify(host['Sysctls']) === JSON.stringify(LOW_PORTS);
  return isAdded ? {} : host['Sysctls'];
}

function capabilities(host: Fields): unknown {
  const dropped = new Set(texts(host['CapDrop']).map(name => name.replace(/^CAP_/, '')));
  return DEFAULT_CAPABILITIES.every(name => dropped.has(name)) ? ['ALL'] : host['CapDrop'];
}

function variables(found: readonly string[], spec: SandboxSpec): string[] {
  const removed = new Map(spec.image.removed.map(name => [`${name}=`, name]));
  return found
    .filter(variable => !OWN_VARIABLES.includes(variable) || spec.image.environment.includes(variable))
    .map(variable => removed.get(variable) ?? variable);
}

// Podman writes structured mounts as texts too; any other text is none of ours.
function strangeBinds(host: Fields, { Mounts: mounts }: ContainerDetails): string[] {
  const known = mounts.flatMap(({ Type, Name, Source, Destination }) =>
    [Source ?? '', ...(Type === 'volume' && Name ? [Name] : [])].map(source => `${source}:${Destination}:`),
  );
  return texts(host['Binds']).filter(bind => !known.some(start => bind.startsWith(start)));
}

// Podman writes RLIMIT_NOFILE. The one that was added for it counts only if it is as it was asked for.
function limits(host: Fields, { mostProcesses }: PodmanFacts): unknown[] {
  const all = list(host['Ulimits']).map(limit => {
    const { Name: name, ...rest } = fields(limit);
    return {
      Name: String(name)
        .replace(/^RLIMIT_/, '')
        .toLowerCase(),
      ...rest,
    };
  });
  const isAdded = (limit: Fields): boolean => limit['Name'] === 'nproc' && limit['Hard'] === mostProcesses;
  return all.filter(limit => !isAdded(limit));
}

// What lies under a mount of its own, masked or read-only; on Podman only the kernel tells.
function guarded({ view, absent }: PodmanReading, readOnly: boolean): readonly string[] {
  const mounts = (view?.mounts ?? []).filter(({ target }) => GUARDED_PATHS.includes(target));
  const covered = mounts.filter(({ type, options }) => (readOnly ? options.includes('ro') : type !== 'proc'));
  return view ? [...absent, ...covered.map(({ target }) => target)] : [];
}

function nameOf(variable: string): string {
  return variable.replace(/=.*$/s, '');
}

function fields(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? Object.fromEntries(Object.entries(value)) : {};
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function texts(value: unknown): string[] {
  return list(value).map(String);
}

// What this host gives a sandbox on Podman: the system call filter as a file, and a number of processes it may ask for.

/** Refuses what Podman’s Docker-compatible API does not do, or does without saying whether it did. */
export function refuseOnPodman(spec: SandboxSpec): void {
  if (spec.network.kind !== 'none' && spec.network.kind !== 'allow')
    throw new AcodeError('ACODE-SBX-016', {
      what: 'A network for a sandbox on Podman',
      instead: 'Leave the network out, or use Docker: on Podman nothing shows yet that the rules of a network hold.',
    });
  if (spec.dependencies)
    throw new AcodeError('ACODE-SBX-016', {
      what: 'Dependencies of a project image on Podman',
      instead: 'Leave them out, or use Docker: on Podman project images are not built.',
    });
}

/** Refuses an image without a shell: nothing waits in it, so the kernel cannot be asked for what Podman does not say. */
export function refuseDirectOnPodman({ image }: SandboxSpec): void {
  throw new AcodeError('ACODE-SBX-016', {
    what: `${image.reference} has no shell, and its sandbox could not be verified on Podman; such an image`,
    instead: 'Use an image with /bin/sh, or Docker.',
  });
}

/**
 * What a request to Podman refers to. The filter is named after its content; the directory must be its owner’s alone, and no
 * sandbox may see it.
 */
export function podmanFacts(directory: string, filter: string | null): PodmanFacts {
  const digest = createHash('sha256')
    .update(filter ?? '')
    .digest('hex');
  return { filterFile: join(directory, `seccomp-${digest.slice(0, 32)}.json`), mostProcesses: processLimit() };
}

/** Sees to it that the filter lies where the facts say, whole and unchanged. */
export async function writeFilter(path: string, filter: string | null, { identity }: SandboxSpec): Promise<void> {
  if (filter === null || (await readFile(path, 'utf8').catch(() => null)) === filter) return;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    // Renamed into place: the engine may read it for another session at any moment.
    writePrivateFile(path, filter);
  } catch (error) {
    const reason = `Podman takes the system call filter as a file, and ${path} could not be written: ${String(error)}`;
    throw new AcodeError('ACODE-SBX-001', { name: identity.name, reason }, { cause: error });
  }
}

/** Which of the files that must be out of reach inside this kernel does not have at all. */
export async function absentPaths(): Promise<string[]> {
  const looks = GUARDED_PATHS.map(async path => ({ path, there: await access(path).then(yes, no) }));
  return (await Promise.all(looks)).flatMap(({ path, there }) => (there ? [] : [path]));
}

// What this process itself may have: a service of the same host may give that too. There are never more than the kernel has
// numbers for, and Podman lowers its own limit to that.
function processLimit(): number | null {
  const [text, most] = ['/proc/self/limits', '/proc/sys/kernel/pid_max'].map(textOf);
  const hard = /^Max processes\s+\S+\s+(\d+|unlimited)/m.exec(text ?? '')?.[1];
  const numbers = [hard, most].map(Number).filter(value => Number.isSafeInteger(value) && value > 0);
  return numbers.length === 0 ? null : Math.min(...numbers);
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    // Another kernel than Linux.
    return '';
  }
}

const yes = (): boolean => true;
const no = (error: unknown): boolean => !(error instanceof Error && 'code' in error && error.code === 'ENOENT');
