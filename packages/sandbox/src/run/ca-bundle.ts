// The user’s bundle of CA certificates as a mount: checked, and copied to where nobody changes it while sandboxes use it.

import { X509Certificate, createHash } from 'node:crypto';
import { lstat, realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { readBoundedFile, writePrivateFile } from '../lifecycle/private-file.ts';
import { ensurePrivateDirectory } from '../lifecycle/directories.ts';
import { AcodeError } from '../contract/errors.ts';
import { usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { MountSpec } from '../contract/spec.ts';
import type { Host } from './host.ts';
import { CA_TARGET } from '../policy/environment.ts';
import { setBy } from '../policy/layers.ts';
import { identityOf } from '../workspace/file-identity.ts';
import { isWithin } from '../workspace/within.ts';

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
  const blocks = certificatesIn(await read(caFile.value, caFile, uid), caFile);
  // The certificates alone: what else stands in the file is for people, or is there by mistake.
  const text = `${blocks.join('\n')}\n`;
  const source = await keep(join(directories.state, 'ca'), uid, text, () => assertCertificates(blocks, caFile));
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

async function read(path: string, caFile: CaFile, uid: number): Promise<string> {
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
async function keep(directory: string, uid: number, text: string, check: () => void): Promise<string> {
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
