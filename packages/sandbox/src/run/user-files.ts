// The lists of users and groups that a sandbox has in place of its image’s: the same, with an entry for the user inside. Made
// once per image, kept in the state directory, and mounted read-only.

import { X509Certificate, createHash, randomBytes } from 'node:crypto';
import { lstatSync, readFileSync, readdirSync } from 'node:fs';
import { chmod, lstat, mkdir, readdir, realpath, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { basename, dirname, join, posix } from 'node:path';
import { ensurePrivateDirectory } from '../lifecycle/directories.ts';
import { AcodeError } from '../contract/errors.ts';
import { usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { ImageFacts, MountSpec } from '../contract/spec.ts';
import { ByteReader } from '../workspace/archive/bytes.ts';
import { MalformedTar, readTar } from '../workspace/archive/tar-read.ts';
import type { Host } from './host.ts';
import type { ImageKinds, ImageReader } from '../isolation/backend.ts';
import { HOME, planSandbox } from '../isolation/plan.ts';
import { MAX_LIST_BYTES, PLAIN_NAME, safeName, withGroup, withUser } from '../isolation/user-entry.ts';
import type { ImageList, ListInside, UserInside } from '../isolation/user-entry.ts';
import { CA_TARGET } from '../policy/environment.ts';
import { identityOf, isWithin } from '../workspace/file-identity.ts';
import { readBoundedFile, writePrivateFile } from '../lifecycle/private-file.ts';
import { setBy } from '../policy/layers.ts';

/** What the lists are made for. */
interface ListsFor {
  readonly level: Level;
  readonly image: ImageFacts;
  readonly policy: EffectivePolicy;
  readonly correlationId: string;
  /** Whether an image that was not seen before may be read: that takes a container, which a mere explanation does not make. */
  readonly mayRead: boolean;
}

/** The mounts of the lists, and what a reader of the plan should know about them. */
interface PlannedLists {
  readonly mounts: readonly MountSpec[];
  readonly notes: readonly string[];
  /** Why nothing may be mounted where the CA certificates would be; null where it may. */
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
// Raised when what is written changes, so that lists of an older form are made anew.
const FORM = 2;
const MAX_HEADERS = 8;
const DAY_MS = 24 * 3600 * 1000;
// Longer than any sandbox lives that could have one of them mounted.
const UNUSED_MS = 60 * DAY_MS;
const PROBE = 'probe';
const PROBE_TARGET = '/.acode-probe';

/** Plans the lists of a sandbox. */
export async function planUserFiles(host: Host, of: ListsFor, signal: AbortSignal): Promise<PlannedLists> {
  const { level, image } = of;
  if (!usesEngine(level) || image.id === '') return NONE;
  // A file system in memory of the image’s own volume covers what the list would be.
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
    // The host itself has no entry for the user.
    return null;
  }
}

// Read with each plan: which file it is belongs to the plan, and is compared with what is mounted.
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
    // Whoever else could write it would say who is who in a sandbox.
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
    // To be read by every user of the sandbox, as in any image; on the host the directory above keeps others away.
    await writeFile(join(draft, name), list.content, { flag: 'wx' });
    await chmod(join(draft, name), 0o444);
  }
  if (notes.length > 0) await writeFile(join(draft, 'note'), notes.join(' '), { mode: 0o600 });
}

// Where another process was first, its lists count: a sandbox may have them mounted by now.
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

// To the day: not every run needs to write.
function markUsed({ keep, telemetry }: Pick<Host, 'keep' | 'telemetry'>, directory: string): void {
  const now = telemetry.clock.now();
  const found = lstatSync(directory, { throwIfNoEntry: false });
  if (found && now - found.mtimeMs > DAY_MS) keep(utimes(directory, new Date(now), new Date(now)));
}

// The container is as hardened as any sandbox, although it is never started, and has nothing of the host but the draft: what
// the engine shows of that tells whether it sees the same directory as we do.
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
  const spec = planSandbox(alone, { level, image, mounts: [mount] }, specHash =>
    host.session.identify({
      task: 'image-files',
      session: undefined,
      profile: policy.profile.value,
      level,
      specHash,
      correlationId,
      preview: false,
    }),
  );
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

// A runtime makes what is missing on the way to a mount, as root and through the links of the image: one to the workspace leads
// to the host. Nothing is mounted beyond anything but directories.
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

async function listFor(read: ImageReader, kindAt: ImageKinds, path: string): Promise<ImageList> {
  const above = await kindAt('/etc');
  if (above !== 'absent' && above !== 'directory')
    return { unusable: `is in /etc, which is ${above === 'other' ? 'not a directory' : `a ${above}`}` };
  // Podman follows a link when it is asked for the file.
  if ((await kindAt(path)) === 'symbolic link') return { unusable: 'is a symbolic link' };
  return listAt(read, path);
}

// The bytes are whatever the maker of the image wants: one plain file of a bounded size is taken, and anything else is a
// reason to leave the list alone. A mount over a link would be made wherever that leads.
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

// The bundles of systems have less than a tenth of it.
const MAX_BYTES = 4 * 1024 ** 2;
const READ_ONLY = 0o444;

/**
 * The mount of the bundle that the policy names, for a sandbox that has a network. Levels without an engine have the host’s own
 * certificates.
 */
export async function planCaBundle(
  { directories, uid }: Pick<Host, 'directories' | 'uid'>,
  level: Level,
  { caFile, network }: Pick<EffectivePolicy, 'caFile' | 'network'>,
  mounts: readonly Pick<MountSpec, 'purpose' | 'source' | 'readOnly'>[],
): Promise<readonly MountSpec[]> {
  if (caFile.value === null) return [];
  // Without a network too: what such a command leaves there, the next sandbox with a network would trust.
  await assertOutOfReach(caFile.value, caFile, mounts);
  if (network.value.kind === 'none' || !usesEngine(level)) return [];
  const blocks = certificatesIn(await readBundle(caFile.value, caFile, uid), caFile);
  // The certificates alone: what else stands in the file is for people, or is there by mistake.
  const text = `${blocks.join('\n')}\n`;
  const source = await keepBundle(join(directories.state, 'ca'), uid, text, () => assertCertificates(blocks, caFile));
  const found = await lstat(source);
  return [{ purpose: 'ca', source, target: CA_TARGET, readOnly: true, identity: identityOf(found) }];
}

type CaFile = EffectivePolicy['caFile'];

// As it is named, where it really is, and where the link is that leads there: a command that can write any of them says whom
// sandboxes trust. The workspace counts also where it is read-only, since another command may write it.
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

// Anything else than certificates must not enter a sandbox: whoever names a file with a key in it gave the wrong one.
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

// The label is text of a file that may be anything.
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

// By its content, so that a bundle which changes is another file and another plan, and one that is there was checked.
async function keepBundle(directory: string, uid: number, text: string, check: () => void): Promise<string> {
  const path = join(directory, `${createHash('sha256').update(text).digest('hex')}.pem`);
  const found = await lstat(path).catch(() => null);
  if (found?.isFile() === true && found.uid === uid && found.size === Buffer.byteLength(text)) return path;
  check();
  await ensurePrivateDirectory(directory, uid);
  // Read-only whatever the umask: a sandbox may run as another user than this one.
  writePrivateFile(path, text, { mode: READ_ONLY });
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
