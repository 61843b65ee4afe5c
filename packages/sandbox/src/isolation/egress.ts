// What a sandbox with an allow-list mounts, read-only: the forwarder, the directory of its socket, and the files that lead names to it.
//
// The forwarder is copied into the user’s state directory under the name of its hash, and mounted from there: the package’s own file
// may lie where a command can write. Its bytes are compared before each sandbox.

import { createHash } from 'node:crypto';
import { lstat, mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import type { MountSpec, SandboxSpec } from '../contract/spec.ts';
import { codeOf } from '../contract/system-error.ts';
import { javaTrustStore } from '../egress/java-trust-store.ts';
import type { SandboxTrust } from '../egress/proxy/proxy.ts';
import { SOCKET } from '../egress/relay/relay.ts';
import {
  ensurePrivateDirectory,
  createPrivateFile,
  readBoundedFile,
  writePrivateFile,
} from '../lifecycle/directories.ts';
import { socketState } from '../lifecycle/ownership.ts';
import { PROXY_CA, PROXY_CA_BUNDLE, PROXY_CA_JAVA, RELAY_TARGET } from '../policy/environment.ts';
import { identityOf } from '../workspace/file-identity.ts';

/** The forwarders that there are, by the architecture of this process. scripts/build-forwarder.mjs writes the hashes. */
const FORWARDERS: Readonly<Record<string, { readonly file: string; readonly sha256: string }>> = {
  x64: { file: 'forwarder-x86_64', sha256: 'c993b1e6acf2a667dd9aaa7a48b9bfeed6ed7e83fe108f6e892822310782e4b3' },
  arm64: { file: 'forwarder-aarch64', sha256: '738918d4ddca9b856541d43f9f28d68b29fb237861e9645a188c7d900279dbb5' },
};

const FORWARDER_TARGET = '/.acode/forwarder';

/** The process that starts the forwarder inside; it ends with status 0 once everything is bound. */
export const FORWARDER_COMMAND: readonly string[] = [FORWARDER_TARGET, 'socket', `${RELAY_TARGET}/${SOCKET}`];

/**
 * What is started before the program of a sandbox of level bubblewrap, and becomes it: in a network namespace in which an ordinary
 * user may listen on every port.
 */
export function enterCommand({ network, mounts }: Pick<SandboxSpec, 'network' | 'mounts'>): readonly string[] {
  const forwarder = network.kind === 'allow' && mounts.find(({ target }) => target === FORWARDER_TARGET);
  return forwarder ? [forwarder.source, 'enter'] : [];
}

/** The forwarder over its standard streams, where no socket of this machine reaches into a sandbox. */
export const FRAMES_COMMAND: readonly string[] = [FORWARDER_TARGET, 'frames'];

// A resolver that is asked once, and at the forwarder alone.
const FILES: readonly (readonly [name: string, target: string, text: string])[] = [
  ['resolv.conf', '/etc/resolv.conf', 'nameserver 127.0.0.1\noptions timeout:5 attempts:1\n'],
  ['hosts', '/etc/hosts', '127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n'],
];

// Services have their names on the loopback.
function filesFor({ services = [] }: Pick<SandboxSpec, 'services'>): typeof FILES {
  const names = services.map(({ name }) => `127.0.0.1\t${name}\n`).join('');
  return FILES.map(([name, target, text]) => [name, target, name === 'hosts' ? `${text}${names}` : text]);
}

const MAX_BYTES = 1024 * 1024;
const EXECUTABLE = 0o555;
const READABLE = 0o444;
// A warm sandbox has a directory and no socket yet; no sandbox waits that long.
const UNUSED_MS = 26 * 3600 * 1000;

/** The mounts of the sandboxes of one host that have an allow-list. */
export class EgressMounts {
  readonly #state: string;
  readonly #uid: number;
  #swept = false;

  constructor(state: string, uid: number) {
    this.#state = join(state, 'egress');
    this.#uid = uid;
  }

  /** The directory of a sandbox’s socket; made if it is not there. */
  async directory({ identity }: Pick<SandboxSpec, 'identity'>): Promise<string> {
    await ensurePrivateDirectory(this.#state, this.#uid);
    const directory = join(this.#state, identity.sandboxId);
    await mkdir(directory, { mode: 0o700 }).catch(ignoreExisting);
    return directory;
  }

  /** Puts the certificates that programs of a sandbox are to trust where the sandbox has its proxy. */
  async trust(spec: Pick<SandboxSpec, 'identity'>, { certificate, bundle }: SandboxTrust): Promise<void> {
    const directory = await this.directory(spec);
    const write = (name: string, text: string | Buffer): void =>
      writePrivateFile(join(directory, name), text, { mode: READABLE, durable: false });
    write(PROXY_CA, certificate);
    write(PROXY_CA_BUNDLE, bundle);
    write(PROXY_CA_JAVA, javaTrustStore(bundle));
  }

  /** The plan with what a sandbox with an allow-list mounts; any other as it is. */
  async planned(spec: SandboxSpec): Promise<SandboxSpec> {
    if (spec.network.kind !== 'allow') return spec;
    const directory = await this.directory(spec);
    await this.#sweep();
    const mounts = [
      await mountOf(await this.#forwarder(), FORWARDER_TARGET),
      await mountOf(directory, RELAY_TARGET),
      ...(await Promise.all(
        filesFor(spec).map(async ([name, target, text]) => mountOf(await this.#file(name, text), target)),
      )),
    ];
    return { ...spec, mounts: [...spec.mounts, ...mounts] };
  }

  /** A sandbox is gone: nothing of it is left. */
  async release({ network, identity }: Pick<SandboxSpec, 'network' | 'identity'>): Promise<void> {
    if (network.kind === 'allow') await rm(join(this.#state, identity.sandboxId), { recursive: true, force: true });
  }

  async #forwarder(): Promise<string> {
    const known = FORWARDERS[process.arch];
    if (!known)
      throw new AcodeError('ACODE-SBX-016', {
        what: `An allow-list on ${process.arch}, for which acode has no forwarder,`,
        instead: 'Use network none or bridge.',
      });
    const { forwarderFile } = await import('../egress/relay/forwarder-program.ts');
    return this.#kept('forwarder', known.sha256, EXECUTABLE, () => forwarderFile(known.file));
  }

  #file(name: string, text: string): Promise<string> {
    return this.#kept(name, sha256(text), READABLE, async () => Buffer.from(text));
  }

  // Under the name of its hash, and never replaced: other sandboxes may have it mounted.
  async #kept(name: string, hash: string, mode: number, read: () => Promise<Buffer>): Promise<string> {
    const path = join(this.#state, `${name}-${hash.slice(0, 16)}`);
    const found = await bytesOf(path);
    if (found !== null) {
      assertSame(found, hash, path);
      return path;
    }
    const bytes = await read();
    assertSame(bytes, hash, name);
    createPrivateFile(path, bytes, { mode });
    return path;
  }

  // Once: directories of processes that were killed.
  async #sweep(): Promise<void> {
    if (this.#swept) return;
    this.#swept = true;
    const entries = await readdir(this.#state, { withFileTypes: true });
    const directories = entries.filter(entry => entry.isDirectory()).map(({ name }) => join(this.#state, name));
    await Promise.all(directories.map(removeStale));
  }
}

// A directory of a process that was killed: nobody listens on its socket.
async function removeStale(directory: string): Promise<void> {
  const socket = join(directory, SOCKET);
  const [found, hasSocket] = await Promise.all([directory, socket].map(path => lstat(path).catch(() => null)));
  if (!found || (!hasSocket && Date.now() - found.mtimeMs < UNUSED_MS)) return;
  if ((await socketState(socket)) !== 'dead') return;
  await rm(directory, { recursive: true, force: true });
}

async function mountOf(source: string, target: string): Promise<MountSpec> {
  return { purpose: 'egress', source, target, readOnly: true, identity: identityOf(await lstat(source)) };
}

async function bytesOf(path: string): Promise<Buffer | null> {
  try {
    return (await readBoundedFile(path, MAX_BYTES)).bytes;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null;
    throw error;
  }
}

function sha256(bytes: Buffer | string): string {
  return createHash('sha256').update(bytes).digest('hex');
}

function assertSame(bytes: Buffer, hash: string, path: string): void {
  if (sha256(bytes) === hash) return;
  throw new AcodeError('ACODE-SBX-010', {
    violation: 'MountMismatch',
    detail: `${path} is not the file that this version of acode was released with`,
    remedy: 'Find out who changed it. Then remove it, or install acode again.',
  });
}

function ignoreExisting(error: unknown): void {
  if (codeOf(error) !== 'EEXIST') throw error;
}
