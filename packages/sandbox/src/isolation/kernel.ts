// What the kernel says about a sandbox’s process: read from /proc, because what an engine reports is only what it was asked for.

import { readFileSync, readlinkSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SecurityViolation } from '../contract/error-table.ts';
import type { FileIdentity, MountSpec, SandboxSpec, TmpfsSpec } from '../contract/spec.ts';
import { codeOf } from '../contract/system-error.ts';
import { identityOf, isCoveredInPlace, isWithin } from '../workspace/file-identity.ts';

/** One line of mountinfo. */
export interface KernelMount {
  readonly id: string;
  /** The mount it is made on. */
  readonly parent: string;
  readonly device: string;
  /** The directory of that device which is mounted. */
  readonly root: string;
  readonly target: string;
  readonly options: readonly string[];
  /** Whether mounts made elsewhere would appear here. */
  readonly shared: boolean;
  /** Whether they appear here and nothing goes back: bubblewrap’s own choice where the host’s mounts are shared. */
  readonly receives: boolean;
  readonly type: string;
  /** Options of the file system itself, such as its size. */
  readonly superOptions: readonly string[];
}

/** The kernel’s view of a sandbox. */
export interface KernelView {
  readonly uids: readonly number[];
  readonly gids: readonly number[];
  /** Supplementary groups. An image could name one of the host’s for the user. */
  readonly groups: readonly number[];
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
  /** Network interfaces with an address, the loopback left out. Null where they cannot be read. */
  readonly interfaces: readonly string[] | null;
}

const NAMESPACES = ['mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup'];

/**
 * Reads the kernel’s view, or null where it cannot be had: the engine is in a virtual machine, on another host, or in
 * another pid namespace, so that the number it gives is no process of ours to look at. `containerId` is what its control
 * group must name; empty where the process is known to be the sandbox’s.
 */
export async function readKernelView(
  pid: number,
  containerId: string,
  spec: Pick<SandboxSpec, 'mounts' | 'store'>,
): Promise<KernelView | null> {
  const directory = `/proc/${pid}`;
  if (spec.mounts.length > 0 || spec.store) await untilVisible(directory);
  const groups = text(`${directory}/cgroup`);
  const status = text(`${directory}/status`);
  const mountinfo = text(`${directory}/mountinfo`);
  const own = text('/proc/self/mountinfo');
  if (groups === null || status === null || mountinfo === null || own === null || !groups.includes(containerId))
    return null;
  const ours = parseMountinfo(own);
  return {
    ...parseStatus(status),
    mounts: parseMountinfo(mountinfo),
    identities: await readIdentities(directory, spec),
    sources: new Map(spec.mounts.map(({ source }) => [source, locate(source, ours)])),
    sharedNamespaces: readSharedNamespaces(directory),
    interfaces: readInterfaces(directory),
  };
}

/** Reads the text of a mountinfo file. */
export function parseMountinfo(content: string): KernelMount[] {
  return content
    .split('\n')
    .filter(line => line !== '')
    .map(line => {
      const [before = '', after = ''] = line.split(' - ');
      const [type, , superOptions] = after.split(' ');
      const [id, parent, device, root, target, options, ...optional] = before.split(' ');
      return {
        id: field(id),
        parent: field(parent),
        device: field(device),
        root: unescape(field(root)),
        target: unescape(field(target)),
        options: field(options).split(','),
        shared: optional.some(name => /^(?:shared|master):/.test(name)),
        receives:
          optional.some(name => name.startsWith('master:')) && !optional.some(name => name.startsWith('shared:')),
        type: field(type),
        superOptions: field(superOptions).split(',').map(unescape),
      };
    });
}

function field(value: string | undefined): string {
  return value ?? '';
}

/** Reads the fields of a status file that say what a process may do. */
export function parseStatus(
  content: string,
): Pick<KernelView, 'uids' | 'gids' | 'groups' | 'capabilities' | 'noNewPrivileges' | 'seccompFilter'> {
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
    groups: (fields.get('Groups') ?? '').split(/\s+/).filter(Boolean).map(Number),
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

// Between an engine’s answer that a container has started and the first instruction of its program, the process is still the
// runtime’s, which hides itself. A program that may not be read stays hidden, and so does every process of another uid.
const HIDDEN_MS = 300;
// As long as it has the runtime’s name it cannot be anything else, and on a busy machine that takes its time.
const RUNTIME_NAME = /^Name:\s+runc:\[/m;
const RUNTIME_MS = 10_000;

async function untilVisible(directory: string): Promise<void> {
  const began = performance.now();
  for (;;) {
    const maxMs = hiddenFor(directory);
    if (performance.now() - began >= maxMs) return;
    await sleep(1);
  }
}

// How long a process that hides itself is waited for; 0 for one that does not, or is another user’s.
function hiddenFor(directory: string): number {
  try {
    readlinkSync(`${directory}/root`);
    return 0;
  } catch (error) {
    if (codeOf(error) !== 'EACCES') return 0;
    const status = text(`${directory}/status`) ?? '';
    if (parseStatus(status).uids[1] !== process.geteuid?.()) return 0;
    return RUNTIME_NAME.test(status) ? RUNTIME_MS : HIDDEN_MS;
  }
}

// The file systems of a sandbox may be slow ones, or of somebody who does not answer: they are waited for, and hold nobody up.
async function readIdentities(
  directory: string,
  spec: Pick<SandboxSpec, 'mounts'>,
): Promise<Map<string, FileIdentity>> {
  const identities = new Map<string, FileIdentity>();
  for (const { target } of spec.mounts) {
    try {
      // Not followed: a mount point is never a link, and a link would be resolved from our root instead of the sandbox’s.
      const found = await lstat(`${directory}/root${target}`);
      identities.set(target, identityOf(found));
    } catch {
      // Another uid, or a process that may not be looked into: the mount table alone decides then.
    }
  }
  return identities;
}

function readSharedNamespaces(directory: string): string[] | null {
  try {
    return NAMESPACES.filter(name => readlinkSync(`${directory}/ns/${name}`) === readlinkSync(`/proc/self/ns/${name}`));
  } catch {
    return null;
  }
}

// A kernel makes tunnel devices in every network namespace; they reach nothing without an address, and so without a route.
function readInterfaces(directory: string): string[] | null {
  const routes = text(`${directory}/net/route`);
  // Absent where the kernel has no IPv6.
  const addresses = text(`${directory}/net/if_inet6`);
  return routes === null ? null : parseInterfaces(routes, addresses ?? '');
}

/** The interfaces, other than the loopback, that have a route of IPv4 or an address of IPv6. */
export function parseInterfaces(routes: string, addresses: string): string[] {
  const rows = (content: string): string[][] =>
    content
      .split('\n')
      .map(line => line.trim().split(/\s+/))
      .filter(([first]) => first !== undefined && first !== '');
  const names = [
    ...rows(routes)
      .slice(1)
      .map(row => row[0] ?? ''),
    ...rows(addresses).map(row => row.at(-1) ?? ''),
  ];
  return [...new Set(names)].filter(name => name !== 'lo').sort();
}

// Only of /proc, where the kernel itself answers from memory: a thread of its own for each of a dozen files takes longer.
function text(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    return unlessHidden(error);
  }
}

/** Whether an error is what the kernel says of a process that is gone, or is about to be and has no mounts any more. */
export function isEnding(error: unknown): boolean {
  return ['ENOENT', 'ESRCH', 'EINVAL'].includes(codeOf(error));
}

/** Null where an error says that a process ends, or is not ours to look at; throws any other, such as no more descriptors. */
export function unlessHidden(error: unknown): null {
  if (isEnding(error) || ['EACCES', 'EPERM'].includes(codeOf(error))) return null;
  throw error;
}

// mountinfo writes space, tab, newline and backslash as octal, and a comma in the value of an option.
function unescape(value: string): string {
  return value.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

// How the kernel’s table of mounts differs from a plan, as far as every level holds it to the same. Pure.

/** One difference between plan and reality. */
export interface Difference {
  readonly violation: SecurityViolation;
  readonly detail: string;
}

/** A difference in the mounts. */
export function mounted(detail: string): Difference {
  return { violation: 'MountMismatch', detail };
}

/** The mount that counts at a target: a later one covers an earlier one. */
export function last(mounts: readonly KernelMount[], target: string): KernelMount | undefined {
  return mounts.findLast(mount => mount.target === target);
}

/** What is wrong with a file system in memory. */
export function tmpfsDifferences({ target, bytes }: TmpfsSpec, found: KernelMount | undefined): Difference[] {
  if (found?.type !== 'tmpfs') return [mounted(`${target} is not a file system in memory`)];
  const differences: Difference[] = [];
  if (!['nosuid', 'nodev'].every(option => found.options.includes(option)))
    differences.push(mounted(`${target} allows setuid programs or devices`));
  // The kernel counts in pages and reports in KiB.
  const size = `size=${Math.ceil(bytes / 4096) * 4}k`;
  if (!found.superOptions.includes(size)) differences.push(mounted(`${target} is not limited to ${size}`));
  return differences;
}

/**
 * Whether a mount that lies over another protects nothing: it counts only if it was made on that one. Made before it, it is
 * covered, although the table still shows it.
 */
export function coveredDifferences({ target }: MountSpec, spec: SandboxSpec, view: KernelView): Difference[] {
  // Nothing lies in a mask, and there may be hundreds.
  const around = spec.mounts.filter(
    other => other.purpose !== 'masked' && other.target !== target && isWithin(target, other.target),
  );
  const innermost = around.sort((one, other) => other.target.length - one.target.length)[0];
  if (!innermost) return [];
  const below = last(view.mounts, innermost.target);
  const found = last(view.mounts, target);
  return found && found.parent !== below?.id ? [mounted(`${target} is covered by another mount`)] : [];
}

/**
 * The masks that may hide something else than was found: between the search and the mount, somebody could have renamed a directory above
 * the file. The table of mounts shows that the mask is at its path; this, that the file is there too.
 */
export function uncoveredDifferences({ mounts }: Pick<SandboxSpec, 'mounts'>): Difference[] {
  return mounts.flatMap(({ covers }) =>
    covers && !isCoveredInPlace(covers)
      ? [mounted(`${covers.path}, which is to be masked, was replaced or moved meanwhile`)]
      : [],
  );
}

// Which mounts of one sandbox another could exchange: below a directory that somebody can write, checking proves nothing. Pure.

/** What a sandbox has of the host. */
export interface Reach {
  /** Directories of the host that it can write. */
  readonly writableSources: readonly string[];
  /** Files and directories of the host that it has and cannot write. */
  readonly readOnlySources: readonly string[];
}

/** A mount source that lies below what another sandbox can write. */
interface Exposed {
  readonly source: string;
  readonly above: string;
}

/** What a sandbox of a plan has of the host. */
export function reachOf({ mounts }: Pick<SandboxSpec, 'mounts'>): Reach {
  // What lies below an overlay cannot be written through it.
  const sources = (readOnly: boolean): string[] =>
    mounts.filter(mount => (mount.readOnly || mount.overlay !== undefined) === readOnly).map(({ source }) => source);
  return { writableSources: sources(false), readOnlySources: sources(true) };
}

/** The mount sources of a plan that others could exchange. */
export function exposedTo(others: readonly Reach[], spec: Pick<SandboxSpec, 'mounts'>): Exposed[] {
  const exposing = spec.mounts.filter(mount => !isDeepCover(mount, spec));
  return exposing.flatMap(({ source }) => {
    const above = others.flatMap(other => swappableFrom(source, other))[0];
    return above === undefined ? [] : [{ source, above }];
  });
}

// What only makes a part of another mount read-only shows nothing that the other one does not; at the top of it that part
// is held to be what was checked, and deeper it is compared when it is mounted.
function isDeepCover({ purpose, source }: MountSpec, { mounts }: Pick<SandboxSpec, 'mounts'>): boolean {
  return purpose === 'protected' && !mounts.some(other => other.source === dirname(source));
}

// A mount point cannot be renamed by those who have it. What lies deeper could be, by renaming a directory between the two.
function swappableFrom(source: string, { writableSources, readOnlySources }: Reach): string[] {
  const above = writableSources.filter(directory => directory !== source && isWithin(source, directory));
  return above.filter(directory => !(readOnlySources.includes(source) && dirname(source) === directory));
}
