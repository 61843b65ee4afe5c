// The lists of users and groups that a sandbox has in place of its image’s: the same, with an entry for the user inside. Made
// once per image, kept in the state directory, and mounted read-only.

import { createHash, randomBytes } from 'node:crypto';
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { chmod, mkdir, readdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join, posix } from 'node:path';
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
import { identityOf } from '../workspace/file-identity.ts';
import { isWithin } from '../workspace/within.ts';

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
