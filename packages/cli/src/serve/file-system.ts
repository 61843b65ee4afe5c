// File system type of a workspace: no background process may keep a removable or network disk busy.

import { readFileSync, readdirSync, realpathSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** What a workspace is on. */
export type Disk = 'local' | 'network' | 'removable' | 'unknown';

/** Where this is read from. A test has directories of its own. */
export interface DiskSources {
  readonly mountinfo: string;
  /** Block devices by `major:minor`. */
  readonly devices: string;
}

const SYSTEM: DiskSources = { mountinfo: '/proc/self/mountinfo', devices: '/sys/dev/block' };

// What a machine reaches over a network, or through another program that may end. `9p` is also how WSL shows the disks of
// Windows.
const NETWORK =
  /^(?:nfs4?|cifs|smb3?|smbfs|ncpfs|afs|ceph|glusterfs|lustre|gpfs|beegfs|gfs2|ocfs2|orangefs|davfs2?|9p|fuse(?:\..+)?)$/;
const USB = /\/usb\d+\//;
// A file system on an encrypted volume on a partition is three devices deep.
const MAX_DEPTH = 8;

interface Mount {
  readonly device: string;
  readonly point: string;
  readonly type: string;
  readonly source: string;
}

/** The kind of disk that a directory, with all links followed, is on. */
export function diskOf(directory: string, sources: DiskSources = SYSTEM): Disk {
  try {
    const mount = mountOf(directory, readFileSync(sources.mountinfo, 'utf8'));
    if (!mount) return 'unknown';
    if (NETWORK.test(mount.type)) return 'network';
    const device = deviceOf(mount);
    return device !== null && isRemovable(join(sources.devices, device), 0) ? 'removable' : 'local';
  } catch {
    return 'unknown';
  }
}

// The longest mount point around it; of two at the same place the later one lies on top.
function mountOf(directory: string, mountinfo: string): Mount | null {
  let found: Mount | null = null;
  for (const line of mountinfo.split('\n')) {
    const mount = parse(line);
    if (!mount || !isAround(mount.point, directory)) continue;
    if (found === null || mount.point.length >= found.point.length) found = mount;
  }
  return found;
}

function parse(line: string): Mount | null {
  const [mounted = '', system = ''] = line.split(' - ');
  const [, , device, , point] = mounted.split(' ');
  const [type, source] = system.split(' ');
  if (!device || !point || !type) return null;
  return { device, point: unescaped(point), type, source: unescaped(source ?? '') };
}

// Blanks and the like are octal numbers there.
function unescaped(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

function isAround(point: string, directory: string): boolean {
  return point === '/' || directory === point || directory.startsWith(`${point}/`);
}

// Some file systems, such as btrfs, have a number of their own in place of their disk’s.
function deviceOf({ device, source }: Mount): string | null {
  if (!device.startsWith('0:')) return device;
  if (!source.startsWith('/dev/')) return null;
  const { rdev } = statSync(source, { bigint: true });
  const major = ((rdev >> 8n) & 0xfffn) | ((rdev >> 32n) & ~0xfffn);
  const minor = (rdev & 0xffn) | ((rdev >> 12n) & ~0xffn & 0xffffffffn);
  return `${major}:${minor}`;
}

function isRemovable(entry: string, depth: number): boolean {
  if (depth > MAX_DEPTH) return true;
  let device: string;
  try {
    device = realpathSync(entry);
  } catch {
    // A device that the kernel does not list, as in a container.
    return false;
  }
  if (USB.test(`${device}/`)) return true;
  // A partition has none of its own: its disk has.
  if ([device, dirname(device)].some(one => read(join(one, 'removable')) === '1')) return true;
  return below(device).some(name => isRemovable(join(device, 'slaves', name), depth + 1));
}

function below(device: string): string[] {
  try {
    return readdirSync(join(device, 'slaves'));
  } catch {
    return [];
  }
}

function read(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return null;
  }
}
