// What this host gives a sandbox on Podman: the system call filter as a file, and a number of processes it may ask for.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { access, mkdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { AcodeError } from '../../../contract/errors.ts';
import type { SandboxSpec } from '../../../contract/spec.ts';
import { writePrivateFile } from '../../../lifecycle/private-file.ts';
import { GUARDED_PATHS } from './podman.ts';
import type { PodmanFacts } from './podman.ts';

/** Refuses what Podman’s Docker-compatible API does not do, or does without saying whether it did. */
export function refuseOnPodman(spec: SandboxSpec): void {
  if (spec.network.kind !== 'none')
    throw new AcodeError('ACODE-SBX-016', {
      what: 'A network for a sandbox on Podman',
      instead: 'Leave the network out, or use Docker: on Podman nothing shows yet that the rules of a network hold.',
    });
}

/** Refuses an image without a shell: nothing waits in it, so the kernel cannot be asked for what Podman does not say. */
export function refuseDirectOnPodman({ image }: SandboxSpec): void {
  throw new AcodeError('ACODE-SBX-016', {
    what: `${image.reference} has no shell, and its sandbox could not be verified on Podman; such an image`,
    instead: 'Use an image with /bin/sh, or Docker.',
  });
}

/**
 * What a request to Podman refers to. The filter is named after its content; the directory must be its owner’s alone, and no
 * sandbox may see it.
 */
export function podmanFacts(directory: string, filter: string | null): PodmanFacts {
  const digest = createHash('sha256')
    .update(filter ?? '')
    .digest('hex');
  return { filterFile: join(directory, `seccomp-${digest.slice(0, 32)}.json`), mostProcesses: mostProcesses() };
}

/** Sees to it that the filter lies where the facts say, whole and unchanged. */
export async function writeFilter(path: string, filter: string | null, { identity }: SandboxSpec): Promise<void> {
  if (filter === null || (await readFile(path, 'utf8').catch(() => null)) === filter) return;
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    // Renamed into place: the engine may read it for another session at any moment.
    writePrivateFile(path, filter);
  } catch (error) {
    const reason = `Podman takes the system call filter as a file, and ${path} could not be written: ${String(error)}`;
    throw new AcodeError('ACODE-SBX-001', { name: identity.name, reason }, { cause: error });
  }
}

/** Which of the files that must be out of reach inside this kernel does not have at all. */
export async function absentPaths(): Promise<string[]> {
  const looks = GUARDED_PATHS.map(async path => ({ path, there: await access(path).then(yes, no) }));
  return (await Promise.all(looks)).flatMap(({ path, there }) => (there ? [] : [path]));
}

// What this process itself may have: a service of the same host may give that too. There are never more than the kernel has
// numbers for, and Podman lowers its own limit to that.
function mostProcesses(): number | null {
  const [limits, most] = ['/proc/self/limits', '/proc/sys/kernel/pid_max'].map(textOf);
  const hard = /^Max processes\s+\S+\s+(\d+|unlimited)/m.exec(limits ?? '')?.[1];
  const numbers = [hard, most].map(Number).filter(value => Number.isSafeInteger(value) && value > 0);
  return numbers.length === 0 ? null : Math.min(...numbers);
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    // Another kernel than Linux.
    return '';
  }
}

const yes = (): boolean => true;
const no = (error: unknown): boolean => !(error instanceof Error && 'code' in error && error.code === 'ENOENT');
