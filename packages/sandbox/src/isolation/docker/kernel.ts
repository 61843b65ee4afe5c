// What the kernel says about a sandbox’s first process: read from /proc, because what an engine reports is only what it was asked for.

import { readFile, readlink, stat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import type { FileIdentity, SandboxSpec } from '../../contract/spec.ts';
import { isWithin } from '../../workspace/locate.ts';

/** One line of mountinfo. */
export interface KernelMount {
  readonly device: string;
  /** The directory of that device which is mounted. */
  readonly root: string;
  readonly target: string;
  readonly options: readonly string[];
  /** Whether mounts made elsewhere would appear here. */
  readonly shared: boolean;
  readonly type: string;
  /** Options of the file system itself, such as its size. */
  readonly superOptions: readonly string[];
}

/** The kernel’s view of a sandbox. */
export interface KernelView {
  readonly uids: readonly number[];
  readonly gids: readonly number[];
  readonly capabilities: Readonly<Record<string, string>>;
  readonly noNewPrivileges: boolean;
  readonly seccompFilter: boolean;
  readonly mounts: readonly KernelMount[];
  /** What each mount of the spec really is, by target; absent where the uid does not allow to look. */
  readonly identities: ReadonlyMap<string, FileIdentity>;
  /** Where each mount source lies on a device, by source, from our own side. */
  readonly sources: ReadonlyMap<string, { readonly device: string; readonly root: string }>;
  /** Namespaces that the sandbox shares with us; none, if it is one. Null where they cannot be read. */
  readonly sharedNamespaces: readonly string[] | null;
}

const NAMESPACES = ['mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup'];

/**
 * Reads the kernel’s view, or null where it cannot be had: the engine is in a virtual machine, on another host, or in
 * another pid namespace, so that the number it gives is no process of ours to look at.
 */
export async function readKernelView(pid: number, containerId: string, spec: SandboxSpec): Promise<KernelView | null> {
  const directory = `/proc/${pid}`;
  const [groups, status, mountinfo, own] = await Promise.all([
    text(`${directory}/cgroup`),
    text(`${directory}/status`),
    text(`${directory}/mountinfo`),
    text('/proc/self/mountinfo'),
  ]);
  if (groups === null || status === null || mountinfo === null || own === null || !groups.includes(containerId))
    return null;
  const [identities, sharedNamespaces] = await Promise.all([
    readIdentities(directory, spec),
    readSharedNamespaces(directory),
  ]);
  const ours = parseMountinfo(own);
  return {
    ...parseStatus(status),
    mounts: parseMountinfo(mountinfo),
    identities,
    sources: new Map(spec.mounts.map(({ source }) => [source, locate(source, ours)])),
    sharedNamespaces,
  };
}

/** Reads the text of a mountinfo file. */
export function parseMountinfo(content: string): KernelMount[] {
  return content
    .split('\n')
    .filter(line => line !== '')
    .map(line => {
      const [before = '', after = ''] = line.split(' - ');
      const [type, , superOptions = ''] = after.split(' ');
      const [, , device = '', root = '', target = '', options = '', ...optional] = before.split(' ');
      return {
        device,
        root: unescape(root),
        target: unescape(target),
        options: options.split(','),
        shared: optional.some(field => field.startsWith('shared:') || field.startsWith('master:')),
        type: type ?? '',
        superOptions: superOptions.split(','),
      };
    });
}

/** Reads the fields of a status file that say what a process may do. */
export function parseStatus(
  content: string,
): Pick<KernelView, 'uids' | 'gids' | 'capabilities' | 'noNewPrivileges' | 'seccompFilter'> {
  const fields = new Map(
    content.split('\n').map(line => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon), line.slice(colon + 1).trim()];
    }),
  );
  const numbers = (name: string): number[] => (fields.get(name) ?? '').split(/\s+/).map(Number);
  const capabilities = ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'].map(
    name => [name, fields.get(name) ?? 'unknown'] as const,
  );
  return {
    uids: numbers('Uid'),
    gids: numbers('Gid'),
    capabilities: Object.fromEntries(capabilities),
    noNewPrivileges: fields.get('NoNewPrivs') === '1',
    seccompFilter: fields.get('Seccomp') === '2',
  };
}

/** Which directory of which device a path is, by the mounts that lead to it. */
export function locate(path: string, mounts: readonly KernelMount[]): { device: string; root: string } {
  const longest = (best: KernelMount | null, mount: KernelMount): KernelMount | null =>
    // A later mount on the same target covers the earlier one.
    isWithin(path, mount.target) && mount.target.length >= (best?.target.length ?? 0) ? mount : best;
  const mount = mounts.reduce(longest, null);
  return mount
    ? { device: mount.device, root: join(mount.root, relative(mount.target, path)) }
    : { device: '', root: '' };
}

async function readIdentities(directory: string, spec: SandboxSpec): Promise<Map<string, FileIdentity>> {
  const identities = new Map<string, FileIdentity>();
  for (const { target } of spec.mounts) {
    try {
      const found = await stat(`${directory}/root${target}`);
      identities.set(target, { device: found.dev, inode: found.ino });
    } catch {
      // Another uid, or a process that may not be looked into: the mount table alone decides then.
    }
  }
  return identities;
}

async function readSharedNamespaces(directory: string): Promise<string[] | null> {
  try {
    const same = await Promise.all(
      NAMESPACES.map(
        async name => (await readlink(`${directory}/ns/${name}`)) === (await readlink(`/proc/self/ns/${name}`)),
      ),
    );
    return NAMESPACES.filter((_, index) => same[index]);
  } catch {
    return null;
  }
}

async function text(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch {
    return null;
  }
}

// mountinfo writes space, tab, newline and backslash as octal.
function unescape(field: string): string {
  return field.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
