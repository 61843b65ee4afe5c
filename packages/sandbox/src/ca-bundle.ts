// The user’s bundle of CA certificates as a mount: checked, and copied to where nobody changes it while sandboxes use it.

import { X509Certificate, createHash, randomBytes } from 'node:crypto';
import { lstat, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { readBoundedFile } from './config/bounded-file.ts';
import { ensurePrivateDirectory } from './config/directories.ts';
import { AcodeError } from './contract/errors.ts';
import { usesEngine } from './contract/levels.ts';
import type { Level } from './contract/levels.ts';
import type { EffectivePolicy } from './contract/policy.ts';
import type { MountSpec } from './contract/spec.ts';
import type { Host } from './host.ts';
import { CA_TARGET } from './policy/environment.ts';
import { setBy } from './policy/layers.ts';
import { identityOf } from './workspace/file-identity.ts';

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
): Promise<readonly MountSpec[]> {
  if (caFile.value === null || network.value === 'none' || !usesEngine(level)) return [];
  const blocks = certificatesIn(await read(caFile.value, caFile), caFile);
  // The certificates alone: what else stands in the file is for people, or is there by mistake.
  const text = `${blocks.join('\n')}\n`;
  const source = await keep(join(directories.state, 'ca'), uid, text, () => assertCertificates(blocks, caFile));
  const found = await lstat(source);
  return [{ purpose: 'ca', source, target: CA_TARGET, readOnly: true, identity: identityOf(found) }];
}

type CaFile = EffectivePolicy['caFile'];

async function read(path: string, caFile: CaFile): Promise<string> {
  const file = await readBoundedFile(path, MAX_BYTES).catch((cause: unknown) => {
    throw refused(caFile, `names ${path}, which cannot be read (${reasonOf(cause)})`, cause);
  });
  if (file.size > MAX_BYTES) throw refused(caFile, `names ${path}, which is larger than ${MAX_BYTES / 1024 ** 2} MiB`);
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
  const draft = `${path}.${randomBytes(8).toString('hex')}`;
  try {
    const file = await open(draft, 'wx', READ_ONLY);
    try {
      await file.writeFile(text);
      // Whatever the umask: a sandbox may run as another user than this one.
      await file.chmod(READ_ONLY);
    } finally {
      await file.close();
    }
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
  return path;
}

function refused(caFile: CaFile, reason: string, cause?: unknown): AcodeError<'ACODE-SBX-013'> {
  return new AcodeError(
    'ACODE-SBX-013',
    {
      source: setBy(caFile),
      key: 'sandbox.network.ca_file',
      reason,
      remedy: `Name a file with the CA certificates in PEM form, such as \`sandbox: { network: { ca_file: /etc/ssl/certs/ca-certificates.crt } }\`. See docs/corporate.md.`,
    },
    { cause },
  );
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error && 'code' in cause ? String(cause.code) : 'it is not an ordinary file';
}
