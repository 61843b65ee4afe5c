// What of this host a sandbox sees: a minimal view of the system that is read-only and holds nobody’s secrets.
//
// Never `/` as it is: a socket with a path (an engine’s, an agent’s, a database’s) ignores network namespaces, so what is not
// to be talked to must not be there. Nothing of /run, /var, /home, /root, /opt, /srv or /tmp is.

import { lstatSync, realpathSync } from 'node:fs';

/** One path of the host as it is there. */
export type HostPath =
  | { readonly kind: 'directory' | 'file'; readonly path: string; readonly source: string }
  | { readonly kind: 'link'; readonly path: string; readonly to: string };

/** What the host has of what a sandbox may see. */
export interface HostView {
  /** In the order they are made. */
  readonly system: readonly HostPath[];
  /** Of what the kernel shows of itself, that which is nobody’s business. */
  readonly masked: readonly HostPath[];
}

// Programs and libraries. Where a system has merged them into /usr, these are links.
const SYSTEM = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32'];

// What programs read to work at all: where libraries are, which program stands for a name, the time zone, who signs for
// whom. None of it is secret on any system: everybody may read it everywhere. Each costs a mount, so the list is short.
const SETTINGS = [
  'ld.so.cache',
  'ld.so.conf',
  'ld.so.conf.d',
  'alternatives',
  'localtime',
  'os-release',
  'ssl/certs',
  'ssl/cert.pem',
  'ssl/openssl.cnf',
  'pki/tls/certs',
  'pki/tls/openssl.cnf',
  'pki/ca-trust',
  'crypto-policies',
  'protocols',
  'services',
  'java-11-openjdk',
  'java-17-openjdk',
  'java-21-openjdk',
  'java-25-openjdk',
].map(name => `/etc/${name}`);

// The list that engines mask, as far as it is below /proc; /sys is not there at all.
const MASKED = 'acpi asound kcore keys key-users latency_stats timer_list timer_stats sched_debug scsi'
  .split(' ')
  .map(name => `/proc/${name}`);

/** Looks at the host. */
export function readHostView(): HostView {
  return { system: present([...SYSTEM, ...SETTINGS]), masked: present(MASKED) };
}

function present(paths: readonly string[]): HostPath[] {
  return paths.map(look).filter(path => path !== null);
}

// A link into what is there anyway stays a link. One that leads elsewhere is followed here, once, and what it leads to is
// shown in its place, so that the sandbox needs no more of the host.
function look(path: string): HostPath | null {
  const kind = kindOf(path);
  if (kind !== 'link') return kind && { kind, path, source: path };
  const source = resolved(path);
  if (source === null) return null;
  if (source.startsWith('/usr/')) return { kind: 'link', path, to: source };
  const behind = kindOf(source);
  return behind === 'directory' || behind === 'file' ? { kind: behind, path, source } : null;
}

function kindOf(path: string): HostPath['kind'] | null {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found?.isSymbolicLink()) return 'link';
  if (found?.isDirectory()) return 'directory';
  return found?.isFile() ? 'file' : null;
}

function resolved(path: string): string | null {
  try {
    return realpathSync(path);
  } catch {
    return null;
  }
}
