// User and group files of a sandbox: copies of the image’s passwd and group files with an entry for the sandbox’s user.
// Created once per image, stored in the state directory, and mounted read-only.

import { X509Certificate, createHash, randomBytes } from 'node:crypto';
import { lstatSync, readFileSync, readdirSync } from 'node:fs';
import { chmod, lstat, mkdir, readdir, realpath, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { basename, dirname, join, posix } from 'node:path';
import {
  ensurePrivateDirectory,
  createPrivateFile,
  readBoundedFile,
  writePrivateFile,
} from '../lifecycle/directories.ts';
import { AcodeError } from '../contract/errors.ts';
import { usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { ImageFacts, MountSpec, SandboxIdentity, SandboxSpec } from '../contract/spec.ts';
import { ByteReader, MalformedTar, readTar } from '../workspace/archive/tar-read.ts';
import type { Host } from './host.ts';
import type { ImageKinds, ImageReader } from '../isolation/backend.ts';
import { HOME, planSandbox } from '../isolation/plan.ts';
import { MAX_LIST_BYTES, PLAIN_NAME, safeName, withGroup, withUser } from '../isolation/user-entry.ts';
import type { ImageList, ListInside, UserInside } from '../isolation/user-entry.ts';
import { CA_TARGET } from '../policy/environment.ts';
import { identityOf, isWithin } from '../workspace/file-identity.ts';
import { setBy } from '../policy/layers.ts';

/** The sandbox for which the files are created. */
interface ListsFor {
  readonly level: Level;
  readonly image: ImageFacts;
  readonly policy: EffectivePolicy;
  readonly correlationId: string;
  /**
   * Whether an image that was not read before may be read now: that takes a container, which a mere explanation must
   * not create.
   */
  readonly mayRead: boolean;
}

/** The mounts of the files, and notes for the user about them. */
interface PlannedLists {
  readonly mounts: readonly MountSpec[];
  readonly notes: readonly string[];
  /** Why the CA certificates cannot be mounted at their path; null if they can. */
  readonly withoutCa: string | null;
}

const LISTS = ['passwd', 'group'] as const;
type ListName = (typeof LISTS)[number];

const NONE: PlannedLists = { mounts: [], notes: [], withoutCa: null };
const WITHOUT_CA = 'without-ca';
const NOT_YET =
  'acode has not read the user lists of this image yet: its first sandbox adds an entry for your user to /etc/passwd and /etc/group.';
const NOT_SEEN =
  'The user inside has no entry in /etc/passwd: the engine cannot see acode’s state directory, from which the file would be mounted.';
// Increased when the format changes, so that files of an older format are created again.
const FORM = 2;
const MAX_HEADERS = 8;
const DAY_MS = 24 * 3600 * 1000;
// Longer than the lifetime of any sandbox that may have one of them mounted.
const UNUSED_MS = 60 * DAY_MS;
const PROBE = 'probe';
const PROBE_TARGET = '/.acode-probe';

/** Plans the user and group files of a sandbox. */
export async function planUserFiles(host: Host, of: ListsFor, signal: AbortSignal): Promise<PlannedLists> {
  const { level, image } = of;
  if (!usesEngine(level) || image.id === '') return NONE;
  // If the image declares a volume there, an in-memory file system covers the path.
  if (image.volumes.some(volume => isWithin('/etc/passwd', posix.resolve('/', volume)))) return NONE;
  const user = userInside(host, of.policy);
  const engine = await (await host.engine()).images.engineId(signal);
  const parts = JSON.stringify([FORM, engine, image.id, user]);
  const key = createHash('sha256').update(parts).digest('hex').slice(0, 40);
  const directory = join(host.directories.state, 'users', key);
  const known = remembered(directory, host.uid);
  if (!of.mayRead) return known ?? { ...NONE, notes: [NOT_YET] };
  if (known) {
    markUsed(host, directory);
    return known;
  }
  return (await make(host, { ...of, user, directory }, signal)) ?? NONE;
}

function userInside({ uid }: Pick<Host, 'uid'>, { user }: Pick<EffectivePolicy, 'user'>): UserInside {
  return { ...user.value, name: user.value.uid === uid ? safeName(login()) : PLAIN_NAME, home: HOME };
}

function login(): string | null {
  try {
    return userInfo().username;
  } catch {
    // This machine has no passwd entry for the user.
    return null;
  }
}

// Read for each plan: the plan contains the file’s identity, and verification compares it with the mounted file.
function remembered(directory: string, uid: number): PlannedLists | null {
  let names: readonly string[];
  try {
    names = readdirSync(directory);
  } catch {
    return null;
  }
  const mounts: MountSpec[] = [];
  for (const name of LISTS.filter(list => names.includes(list))) {
    const source = join(directory, name);
    const found = lstatSync(source, { throwIfNoEntry: false });
    // Another user who can write the file could choose the user names in a sandbox.
    if (!found?.isFile() || found.uid !== uid || (found.mode & 0o022) !== 0) return null;
    mounts.push({ purpose: 'identity', source, target: `/etc/${name}`, readOnly: true, identity: identityOf(found) });
  }
  const notes = names.includes('note') ? [readFileSync(join(directory, 'note'), 'utf8')] : [];
  const withoutCa = names.includes(WITHOUT_CA) ? readFileSync(join(directory, WITHOUT_CA), 'utf8') : null;
  return { mounts, notes, withoutCa };
}

async function make(
  host: Host,
  of: ListsFor & { readonly user: UserInside; readonly directory: string },
  signal: AbortSignal,
): Promise<PlannedLists | null> {
  const all = join(of.directory, '..');
  await ensurePrivateDirectory(host.directories.state, host.uid);
  await ensurePrivateDirectory(all, host.uid);
  const draft = join(all, `.${randomBytes(8).toString('hex')}`);
  try {
    await mkdir(draft, { mode: 0o700 });
    const { lists, withoutCa } = await readImage(host, of, draft, signal);
    await write(draft, lists);
    if (withoutCa !== null) await writeFile(join(draft, WITHOUT_CA), withoutCa, { mode: 0o600 });
    await intoPlace(draft, of.directory);
    host.keep(forgetUnused(all, host.telemetry.clock.now()));
    return remembered(of.directory, host.uid);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

type Lists = Readonly<Record<ListName, ListInside>> | 'not seen';

interface ImageReading {
  readonly lists: Lists;
  readonly withoutCa: string | null;
}

async function write(draft: string, lists: Lists): Promise<void> {
  if (lists === 'not seen') return writeFile(join(draft, 'note'), NOT_SEEN, { mode: 0o600 });
  const notes: string[] = [];
  for (const name of LISTS) {
    const list = lists[name];
    if (list === 'as it is') continue;
    if ('unusable' in list) {
      notes.push(`The user inside has no entry in /etc/${name}: the image’s own ${list.unusable}.`);
      continue;
    }
    // Readable by every user of the sandbox, as in any image; on this machine, the parent directory excludes other
    // users.
    await writeFile(join(draft, name), list.content, { flag: 'wx' });
    await chmod(join(draft, name), 0o444);
  }
  if (notes.length > 0) await writeFile(join(draft, 'note'), notes.join(' '), { mode: 0o600 });
}

// If another process was faster, its files are used: a sandbox may already have them mounted.
async function intoPlace(draft: string, directory: string): Promise<void> {
  await rename(draft, directory).catch((error: unknown) => {
    if (!(error instanceof Error && 'code' in error && ['ENOTEMPTY', 'EEXIST'].includes(String(error.code))))
      throw error;
  });
}

async function forgetUnused(all: string, now: number): Promise<void> {
  for (const name of await readdir(all)) {
    const path = join(all, name);
    const { mtimeMs } = await stat(path);
    if (now - mtimeMs > UNUSED_MS) await rm(path, { recursive: true, force: true });
  }
}

// With a precision of one day, so that not every run writes.
function markUsed({ keep, telemetry }: Pick<Host, 'keep' | 'telemetry'>, directory: string): void {
  const now = telemetry.clock.now();
  const found = lstatSync(directory, { throwIfNoEntry: false });
  if (found && now - found.mtimeMs > DAY_MS) keep(utimes(directory, new Date(now), new Date(now)));
}

/** The identity of a container that is never started: acode reads files of its image there. */
export function asImageReader(
  { session }: Pick<Host, 'session'>,
  { level, policy, correlationId }: Pick<ListsFor, 'level' | 'policy' | 'correlationId'>,
): (specHash: string) => SandboxIdentity {
  const profile = policy.profile.value;
  const about = { task: 'image-files', session: undefined, profile, level, correlationId, preview: false };
  return specHash => session.identify({ ...about, specHash });
}

// The container is never started, but is as hardened as any sandbox. Its only mount is the draft directory: whether the
// engine shows its content tells whether the engine sees the same directory as this process.
async function readImage(
  host: Host,
  { level, image, policy, correlationId, user }: ListsFor & { readonly user: UserInside },
  draft: string,
  signal: AbortSignal,
): Promise<ImageReading> {
  const proof = randomBytes(16);
  await writeFile(join(draft, PROBE), proof);
  const source = { source: draft, identity: identityOf(lstatSync(draft)) };
  const mount: MountSpec = { purpose: 'identity', ...source, target: PROBE_TARGET, readOnly: true };
  const alone = {
    ...policy,
    network: { ...policy.network, value: { kind: 'none' as const } },
    ports: { ...policy.ports, value: [] },
    dns: { ...policy.dns, value: [] },
  };
  const identify = asImageReader(host, { level, policy, correlationId });
  const spec = planSandbox(alone, { level, image, mounts: [mount] }, identify);
  await host.claim();
  const engine = await host.engine();
  try {
    return await engine.readImage(
      spec,
      async (read, kindAt) => {
        const [seen, passwd, group, ca] = await Promise.all([
          listAt(read, `${PROBE_TARGET}/${PROBE}`),
          listFor(read, kindAt, '/etc/passwd'),
          listFor(read, kindAt, '/etc/group'),
          inTheWay(kindAt, CA_TARGET),
        ]);
        const withoutCa = ca && `The CA certificates of sandbox.network.ca_file are not mounted: the image’s ${ca}.`;
        if (!Buffer.isBuffer(seen) || !seen.equals(proof)) return { lists: 'not seen', withoutCa };
        return { lists: { passwd: withUser(passwd, user), group: withGroup(group, user) }, withoutCa };
      },
      signal,
    );
  } catch (error) {
    if (error instanceof AcodeError && error.is('ACODE-SBX-001') && error.context.reason.includes(draft))
      return { lists: 'not seen', withoutCa: null };
    throw error;
  } finally {
    await rm(join(draft, PROBE), { force: true });
  }
}

// A runtime creates missing parents of a mount target, as root, and follows the image’s links: a link into the
// workspace leads to this machine. acode therefore mounts only below real directories.
async function inTheWay(kindAt: ImageKinds, target: string): Promise<string | null> {
  const names = target.split('/').slice(1);
  for (const index of names.keys()) {
    const path = `/${names.slice(0, index + 1).join('/')}`;
    const kind = await kindAt(path);
    if (kind === 'absent') return null;
    const isLast = index === names.length - 1;
    if (kind !== (isLast ? 'file' : 'directory'))
      return `${path} is ${kind === 'symbolic link' ? 'a symbolic link' : `not a ${isLast ? 'file' : 'directory'}`}`;
  }
  return null;
}

/** The user lists of an image, as its maker wrote them. */
export async function readUsers(
  host: Pick<Host, 'claim' | 'engine'>,
  spec: SandboxSpec,
  signal: AbortSignal,
): Promise<Readonly<Record<ListName, ImageList>>> {
  await host.claim();
  return (await host.engine()).readImage(
    spec,
    async (read, kindAt) => {
      const [passwd, group] = await Promise.all(LISTS.map(name => listFor(read, kindAt, `/etc/${name}`)));
      return { passwd: passwd ?? null, group: group ?? null };
    },
    signal,
  );
}

async function listFor(read: ImageReader, kindAt: ImageKinds, path: string): Promise<ImageList> {
  const above = await kindAt('/etc');
  if (above !== 'absent' && above !== 'directory')
    return { unusable: `is in /etc, which is ${above === 'other' ? 'not a directory' : `a ${above}`}` };
  // Podman follows a link when it reads the file.
  if ((await kindAt(path)) === 'symbolic link') return { unusable: 'is a symbolic link' };
  return listAt(read, path);
}

// The image’s author controls these bytes. Only a single regular file of limited size is accepted; otherwise the
// image’s own file remains. A mount over a link would end up at the target of the link.
async function listAt(read: ImageReader, path: string): Promise<ImageList> {
  const found = await read(path);
  if (found === null) return null;
  if ('refused' in found) return { unusable: 'cannot be read' };
  try {
    for await (const item of readTar(new ByteReader(found.tar), MAX_HEADERS)) {
      if (item.kind !== 'file') return { unusable: `is a ${item.kind}` };
      if (item.size > MAX_LIST_BYTES) return { unusable: `is larger than ${MAX_LIST_BYTES / 1024} KiB` };
      const pieces: Buffer[] = [];
      for await (const piece of item.content()) pieces.push(piece);
      return Buffer.concat(pieces);
    }
    return { unusable: 'cannot be read' };
  } catch (error) {
    if (error instanceof MalformedTar) return { unusable: 'cannot be read' };
    throw error;
  } finally {
    found.tar.destroy();
  }
}

// The CA bundles of operating systems are less than a tenth of this.
const MAX_BYTES = 4 * 1024 ** 2;
const READ_ONLY = 0o444;

/**
 * The mount of the policy’s CA bundle, for a sandbox that has a network.
 */
export async function planCaBundle(
  { directories, uid }: Pick<Host, 'directories' | 'uid'>,
  level: Level,
  { caFile, network }: Pick<EffectivePolicy, 'caFile' | 'network'>,
  mounts: readonly Pick<MountSpec, 'purpose' | 'source' | 'readOnly'>[],
): Promise<readonly MountSpec[]> {
  if (caFile.value === null) return [];
  // Checked even without a network: a command without one could change the file, and the next sandbox with one would
  // trust it.
  await assertOutOfReach(caFile.value, caFile, mounts);
  // Without an engine, the host’s own certificates are there, and an allow-list is the only network.
  if (network.value.kind === 'none' || !(usesEngine(level) || network.value.kind === 'allow')) return [];
  const blocks = certificatesIn(await readBundle(caFile.value, caFile, uid), caFile);
  // Only the certificates: any other text in the file is a comment or a mistake.
  const text = `${blocks.join('\n')}\n`;
  const source = await keepBundle(join(directories.state, 'ca'), uid, text, () => assertCertificates(blocks, caFile));
  const found = await lstat(source);
  return [{ purpose: 'ca', source, target: CA_TARGET, readOnly: true, identity: identityOf(found) }];
}

type CaFile = EffectivePolicy['caFile'];

// Checks the path as named, its real path, and the links on the way: a command that can write any of them decides which
// certificates sandboxes trust. A read-only workspace counts too, since another command may write to it.
async function assertOutOfReach(
  path: string,
  caFile: CaFile,
  mounts: readonly Pick<MountSpec, 'purpose' | 'source' | 'readOnly'>[],
): Promise<void> {
  const above = await realpath(dirname(path)).catch(() => dirname(path));
  const places = [path, join(above, basename(path)), await realpath(path).catch(() => path)];
  const reach = mounts.find(
    ({ purpose, source, readOnly }) =>
      (purpose === 'workspace' || !readOnly) && places.some(place => isWithin(place, source)),
  );
  if (!reach) return;
  const reason = `names ${path}, which lies in ${reach.source}: a command could replace it, and every later sandbox with a network would trust what it put there`;
  throw refused(
    caFile,
    reason,
    undefined,
    'Move the file to a place that no sandbox can write, such as ~/.config/acode.',
  );
}

async function readBundle(path: string, caFile: CaFile, uid: number): Promise<string> {
  const file = await readBoundedFile(path, MAX_BYTES).catch((cause: unknown) => {
    throw refused(caFile, `names ${path}, which cannot be read (${reasonOf(cause)})`, cause);
  });
  if (file.size > MAX_BYTES) throw refused(caFile, `names ${path}, which is larger than ${MAX_BYTES / 1024 ** 2} MiB`);
  if (file.uid !== uid && file.uid !== 0)
    throw refused(caFile, `names ${path}, which belongs to the user with uid ${file.uid} and not to you or root`);
  if ((file.mode & 0o022) !== 0)
    throw refused(caFile, `names ${path}, which others may write`, undefined, `Type \`chmod go-w ${path}\`.`);
  return file.text;
}

const BLOCK = /-----BEGIN ([^-\n]*)-----[^-]*(?:-----END \1-----)?/g;

// Only certificates may enter a sandbox: a file that contains a private key is a mistake.
function certificatesIn(text: string, caFile: CaFile): readonly string[] {
  const found = [...text.matchAll(BLOCK)];
  const other = found.find(([, label]) => label !== 'CERTIFICATE');
  if (other)
    throw refused(
      caFile,
      `names ${caFile.value}, which holds ${kindOf(other[1] ?? '')} and may hold certificates only`,
    );
  if (found.length === 0) throw refused(caFile, `names ${caFile.value}, which holds no certificate in PEM form`);
  return found.map(([block]) => block);
}

// The label comes from a file whose content is untrusted.
function kindOf(label: string): string {
  if (label.includes('PRIVATE KEY')) return 'a private key';
  return /^[A-Z0-9 ]{1,40}$/.test(label) ? `a block ${label}` : 'a block of another kind';
}

function assertCertificates(blocks: readonly string[], caFile: CaFile): void {
  for (const [index, block] of blocks.entries()) {
    try {
      void new X509Certificate(block);
    } catch (cause) {
      throw refused(caFile, `names ${caFile.value}, whose certificate ${index + 1} is damaged`, cause);
    }
  }
}

// The file name is a hash of the content, so that a changed bundle gives another file and another plan, and an existing
// file is known to be checked.
async function keepBundle(directory: string, uid: number, text: string, check: () => void): Promise<string> {
  const path = join(directory, `${createHash('sha256').update(text).digest('hex')}.pem`);
  const found = await lstat(path).catch(() => null);
  if (found?.isFile() === true && found.uid === uid && found.size === Buffer.byteLength(text)) return path;
  check();
  await ensurePrivateDirectory(directory, uid);
  // Readable regardless of the umask: a sandbox may run as another user.
  // Another process may have mounted the file just now: one that is as it should be is never replaced.
  if (found === null) createPrivateFile(path, text, { mode: READ_ONLY });
  else writePrivateFile(path, text, { mode: READ_ONLY });
  return path;
}

const ANOTHER_FILE =
  'Name a file with the CA certificates in PEM form, such as `sandbox: { network: { ca_file: /etc/ssl/certs/ca-certificates.crt } }`; docs/corporate.md says more.';

function refused(
  caFile: CaFile,
  reason: string,
  cause?: unknown,
  remedy: string = ANOTHER_FILE,
): AcodeError<'ACODE-SBX-013'> {
  return new AcodeError(
    'ACODE-SBX-013',
    {
      source: setBy(caFile),
      key: 'sandbox.network.ca_file',
      reason,
      remedy,
    },
    { cause },
  );
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error && 'code' in cause ? String(cause.code) : 'it is not an ordinary file';
}
