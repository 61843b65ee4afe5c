// The words that bubblewrap is started with, written one by one from the plan of a sandbox. Pure.

import type { MountSpec, SandboxSpec, TmpfsSpec } from '../../contract/spec.ts';
import type { HostPath, HostView } from './host-view.ts';
import { madeFiles } from './made-files.ts';
import { limitVariables } from './resource-limits.ts';
import type { ResourceLimits } from './resource-limits.ts';

/** What only the host at hand decides. */
export interface HostFacts {
  readonly view: HostView;
  readonly limits: ResourceLimits;
  /** Further variables; only a control of the doctor’s has any. */
  readonly variables?: Readonly<Record<string, string>>;
  /** Whether the network is the host’s own; only in a control of the doctor’s. */
  readonly hostNetwork?: boolean;
  /** Whether what is not a mount of the plan can be written; only in a control of the doctor’s. */
  readonly writableRoot?: boolean;
  /** The size of /dev/shm, where it is not as planned; only in a control of the doctor’s. */
  readonly sharedBytes?: number;
}

/** The descriptors a sandbox is made from: what is written by bubblewrap and by the inside, then what bubblewrap reads. */
export const DESCRIPTORS = { status: 8, ready: 9, words: 10, seccomp: 11, files: 12 } as const;

// The name every sandbox has for itself: it says nothing about the host or the task.
const HOSTNAME = 'sandbox';
const SHM_BYTES = 64 * 1024 ** 2;

/**
 * Everything bubblewrap is told, but for the program. Handed over through a descriptor: words of a command line can be read
 * by every user of the host, and inside by the command.
 */
export function bubblewrapArguments(spec: SandboxSpec, ground: HostFacts): string[] {
  return [
    ...namespaces(ground),
    ...identity(spec),
    ...environment(spec, ground),
    ...ground.view.system.flatMap(shown),
    ...kernelFiles(ground.view),
    ...devices(spec, ground),
    ...madeFiles(spec).flatMap(({ path }, index) => [
      '--perms',
      '0644',
      '--file',
      String(DESCRIPTORS.files + index),
      path,
    ]),
    ...spec.tmpfs.flatMap(memoryFileSystem),
    ...spec.mounts.flatMap(mounted),
    '--chdir',
    spec.workdir,
    // Last: until here, places to mount on were made in it.
    ...(ground.writableRoot ? [] : ['--remount-ro', '/']),
    '--seccomp',
    String(DESCRIPTORS.seccomp),
    '--json-status-fd',
    String(DESCRIPTORS.status),
  ];
}

function namespaces({ hostNetwork = false }: HostFacts): string[] {
  return [
    '--unshare-user',
    '--unshare-pid',
    ...(hostNetwork ? [] : ['--unshare-net']),
    '--unshare-ipc',
    '--unshare-uts',
    '--unshare-cgroup',
    // In a user namespace of its own a sandbox would have capabilities again.
    '--disable-userns',
    '--assert-userns-disabled',
    // Without a terminal nothing can be typed into one.
    '--new-session',
    '--die-with-parent',
    '--cap-drop',
    'ALL',
  ];
}

function identity({ user }: SandboxSpec): string[] {
  return ['--uid', String(user.uid), '--gid', String(user.gid), '--hostname', HOSTNAME];
}

function environment(spec: SandboxSpec, { limits, variables = {} }: HostFacts): string[] {
  const own = spec.image.environment.map(variable => {
    const at = variable.indexOf('=');
    return [variable.slice(0, at), variable.slice(at + 1)] as const;
  });
  const all = [...own, ['HOME', spec.home] as const, ...Object.entries({ ...limitVariables(limits), ...variables })];
  return ['--clearenv', ...all.flatMap(([name, value]) => ['--setenv', name, value])];
}

function shown(place: HostPath): string[] {
  return place.kind === 'link' ? ['--symlink', place.to, place.path] : ['--ro-bind', place.source, place.path];
}

// What is masked is covered: a file by a device that cannot be opened there, a directory by an empty one.
function kernelFiles({ masked }: HostView): string[] {
  const covers = masked.flatMap(({ kind, path }) =>
    kind === 'directory' ? ['--size', '4096', '--tmpfs', path, '--remount-ro', path] : ['--ro-bind', '/dev/null', path],
  );
  return ['--proc', '/proc', ...covers];
}

// The directory itself would be memory without a limit.
function devices({ limits }: SandboxSpec, { writableRoot = false, sharedBytes }: HostFacts): string[] {
  const shm = sharedBytes ?? Math.min(SHM_BYTES, limits.memoryBytes);
  return [
    '--dev',
    '/dev',
    ...memoryFileSystem({ target: '/dev/shm', bytes: shm, mode: '1777' }),
    ...(writableRoot ? [] : ['--remount-ro', '/dev']),
  ];
}

function memoryFileSystem({ target, bytes, mode }: TmpfsSpec): string[] {
  return ['--size', String(bytes), '--perms', mode, '--tmpfs', target];
}

function mounted({ source, target, readOnly }: MountSpec): string[] {
  return [readOnly ? '--ro-bind' : '--bind', source, target];
}
