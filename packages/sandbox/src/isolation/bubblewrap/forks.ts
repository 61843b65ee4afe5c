// Forks at level bubblewrap: bubblewrap 0.11 mounts an overlay itself; before an older one, `unshare` and `mount` do.

import { chmodSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { AcodeError } from '../../contract/errors.ts';
import type { MountSpec, SandboxSpec } from '../../contract/spec.ts';
import { identityOf } from '../../workspace/file-identity.ts';
import { assertMountable, assertOptions, overlayOptions } from '../../workspace/fork/overlay.ts';
import { partAt } from '../../workspace/fork/overlay.ts';
import type { WaitingSandbox } from '../backend.ts';
import { type Difference, type KernelView, mounted } from '../kernel.ts';
import { type ForkedMount, forkedMounts, overlayDifferences, swappedParts } from '../overlays.ts';
import { probeSpec, reasonOf, tryInside } from './probe.ts';

/** What mounts the overlays of forks. */
export type ForkTools =
  { readonly way: 'bubblewrap' } | { readonly way: 'unshare'; readonly unshare: string; readonly mount: string };

/** What is shown where nothing was tried yet. */
export const ASSUMED_TOOLS: ForkTools = { way: 'unshare', unshare: '/usr/bin/unshare', mount: '/usr/bin/mount' };

// Bubblewrap mounts while the host is below this directory, and the kernel shows the paths as they were then.
const OLD_ROOT = '/oldroot';

function rootOf({ way }: ForkTools): string {
  return way === 'bubblewrap' ? OLD_ROOT : '';
}

/** The arguments of bubblewrap for one fork. */
export function forkArguments({ way }: ForkTools, { overlay, source, target }: ForkedMount): string[] {
  const { lowers, upper, work } = overlay;
  // It was mounted over its own upper directory, in a mount namespace that ends with bubblewrap.
  if (way === 'unshare') return ['--bind', upper.path, target];
  const below = [source, ...lowers.map(({ path }) => path).toReversed()];
  return [...below.flatMap(path => ['--overlay-src', path]), '--overlay', upper.path, work.path, target];
}

// Mounts each overlay over its own upper directory, and becomes the program after --. An overlay is mounted by one call of mount(2):
// the newer one takes no more than 256 bytes for each value.
const MOUNT = `unset PWD OLDPWD SHLVL _
mount=$1
shift
while [ "$1" != -- ]; do
LIBMOUNT_FORCE_MOUNT2=always "$mount" -t overlay -o "$1" overlay "$2" </dev/null || exit 125
shift 2
done
shift
unset mount
exec "$@"`;

/** What is started in place of bubblewrap and becomes it, where bubblewrap does not mount the forks of a plan itself. */
export function beforeBubblewrap(tools: ForkTools, spec: SandboxSpec): string[] {
  const forked = forkedMounts(spec);
  if (tools.way === 'bubblewrap' || forked.length === 0) return [];
  const overlays = forked.flatMap(({ mount: { overlay, source } }) => [
    overlayOptions(overlay, source),
    overlay.upper.path,
  ]);
  return [tools.unshare, '-U', '-r', '-m', '/bin/sh', '-c', MOUNT, 'sh', tools.mount, ...overlays, '--'];
}

/** Refuses forks that would be mounted other than planned. */
export function assertForks(tools: ForkTools, spec: SandboxSpec): void {
  for (const { mount } of forkedMounts(spec)) {
    const { overlay, source } = mount;
    const options = overlayOptions(overlay, source, rootOf(tools));
    assertOptions(options, overlay.fork);
    if (tools.way === 'unshare') assertMountable(options, overlay, source, 'bubblewrap 0.11');
    const [swapped] = swappedParts(overlay);
    if (swapped) throw new AcodeError('ACODE-SBX-010', swapped);
  }
}

/** What of the forks of a sandbox is not as planned. */
export function forkDifferences(
  tools: ForkTools | null,
  spec: SandboxSpec,
  view: KernelView,
  pid: number,
): Difference[] {
  return forkedMounts(spec).flatMap(({ mount }) =>
    tools
      ? overlayDifferences(mount, view, pid, rootOf(tools))
      : [mounted(`${mount.target} is a fork, and nothing was found to mount it`)],
  );
}

const TRIAL_MS = 5000;
const SEEN = 'lower';
const CHECK = 'cat /workspace/seen && rm /workspace/removed && echo new >/workspace/written && echo " done"';
const UNSHARE = ['/usr/bin/unshare', '/bin/unshare'];
const MOUNT_PROGRAM = ['/usr/bin/mount', '/bin/mount'];

/** A way to mount forks that was tried and worked, or why there is none. */
type FoundTools = { readonly tools: ForkTools } | { readonly reason: string };

/**
 * Tries each way: a sandbox reads a file of the directory below, removes one and writes one. `make` makes a sandbox with a way;
 * `directory` is where forks are kept.
 */
export async function findForkTools(
  make: (spec: SandboxSpec, tools: ForkTools, signal: AbortSignal) => Promise<WaitingSandbox>,
  {
    directory,
    whyUnsafe,
  }: { readonly directory: string; readonly whyUnsafe: (path: string) => Promise<string | null> },
  signal: AbortSignal,
): Promise<FoundTools> {
  const own: ForkTools = { way: 'bubblewrap' };
  const first = await whyNot((spec, soon) => make(spec, own, soon), directory, signal);
  if (first === null) return { tools: own };
  const [unshare, mount] = await Promise.all([UNSHARE, MOUNT_PROGRAM].map(paths => safeProgram(paths, whyUnsafe)));
  const reason = `this bubblewrap does not mount overlays (${first})`;
  if (!unshare || !mount) return { reason: `${reason}, and unshare and mount of util-linux are not installed` };
  const tools: ForkTools = { way: 'unshare', unshare, mount };
  const second = await whyNot((spec, soon) => make(spec, tools, soon), directory, signal);
  return second === null ? { tools } : { reason: `${reason}, and unshare with mount does not either (${second})` };
}

// By the name it was found under: one program may stand for many, and asks for its own name.
async function safeProgram(
  paths: readonly string[],
  whyUnsafe: (path: string) => Promise<string | null>,
): Promise<string | null> {
  for (const path of paths) {
    const real = await realpath(path).catch(() => null);
    if (real !== null) return (await whyUnsafe(real)) === null ? path : null;
  }
  return null;
}

async function whyNot(
  make: (spec: SandboxSpec, signal: AbortSignal) => Promise<WaitingSandbox>,
  directory: string,
  signal: AbortSignal,
): Promise<string | null> {
  const patience = AbortSignal.any([signal, AbortSignal.timeout(TRIAL_MS)]);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const trial = mkdtempSync(join(directory, '.trial-'));
  try {
    const mount = trialMount(trial);
    const sandbox = await make({ ...probeSpec(), mounts: [mount] }, patience);
    const output = await tryInside(sandbox, CHECK, patience);
    return output === `${SEEN} done\n` && isRight(trial) ? null : 'a fork was mounted and is not what it should be';
  } catch (error) {
    if (signal.aborted) throw error;
    // Not remembered: a host that was busy for a moment is asked again.
    if (patience.aborted)
      throw new AcodeError('ACODE-SBX-018', {
        operation: 'trying a fork at level bubblewrap',
        reason: `a trial sandbox was not ready within ${TRIAL_MS / 1000} s; this machine is busy, or bubblewrap hangs`,
      });
    return reasonOf(error);
  } finally {
    removeTrial(trial);
  }
}

function trialMount(trial: string): MountSpec {
  const lower = join(trial, 'l');
  const upper = join(trial, 'u');
  const work = join(trial, 'w');
  for (const path of [lower, upper, work]) mkdirSync(path, { mode: 0o700 });
  writeFileSync(join(lower, 'seen'), SEEN);
  writeFileSync(join(lower, 'removed'), '');
  return {
    purpose: 'workspace',
    source: lower,
    target: '/workspace',
    readOnly: false,
    identity: identityOf(lstatSync(lower)),
    overlay: { fork: 'trial', upper: partAt(upper), work: partAt(work), lowers: [] },
  };
}

// The removed file is still below, and above it stands the kernel’s mark.
function isRight(trial: string): boolean {
  const mark = lstatSync(join(trial, 'u', 'removed'));
  return (
    mark.isCharacterDevice() &&
    mark.rdev === 0 &&
    lstatSync(join(trial, 'l', 'removed')).isFile() &&
    readFileSync(join(trial, 'u', 'written'), 'utf8') === 'new\n'
  );
}

function removeTrial(trial: string): void {
  try {
    // The kernel made it without any permission.
    chmodSync(join(trial, 'w', 'work'), 0o700);
  } catch {
    // Nothing was mounted.
  }
  rmSync(trial, { recursive: true, force: true });
}
