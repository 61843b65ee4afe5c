// How the kernel’s table of mounts differs from a plan, as far as every level holds it to the same. Pure.

import type { SecurityViolation } from '../contract/errors.ts';
import type { MountSpec, SandboxSpec, TmpfsSpec } from '../contract/spec.ts';
import { isWithin } from '../workspace/file-identity.ts';
import type { KernelMount, KernelView } from './kernel.ts';

/** One difference between plan and reality. */
export interface Difference {
  readonly violation: SecurityViolation;
  readonly detail: string;
}

/** A difference in the mounts. */
export function mounted(detail: string): Difference {
  return { violation: 'MountMismatch', detail };
}

/** The mount that counts at a target: a later one covers an earlier one. */
export function last(mounts: readonly KernelMount[], target: string): KernelMount | undefined {
  return mounts.findLast(mount => mount.target === target);
}

/** What is wrong with a file system in memory. */
export function tmpfsDifferences({ target, bytes }: TmpfsSpec, found: KernelMount | undefined): Difference[] {
  if (found?.type !== 'tmpfs') return [mounted(`${target} is not a file system in memory`)];
  const differences: Difference[] = [];
  if (!['nosuid', 'nodev'].every(option => found.options.includes(option)))
    differences.push(mounted(`${target} allows setuid programs or devices`));
  // The kernel counts in pages and reports in KiB.
  const size = `size=${Math.ceil(bytes / 4096) * 4}k`;
  if (!found.superOptions.includes(size)) differences.push(mounted(`${target} is not limited to ${size}`));
  return differences;
}

/**
 * Whether a mount that lies over another protects nothing: it counts only if it was made on that one. Made before it, it is
 * covered, although the table still shows it.
 */
export function coveredDifferences({ target }: MountSpec, spec: SandboxSpec, view: KernelView): Difference[] {
  const around = spec.mounts.filter(other => other.target !== target && isWithin(target, other.target));
  const innermost = around.sort((one, other) => other.target.length - one.target.length)[0];
  if (!innermost) return [];
  const below = last(view.mounts, innermost.target);
  const found = last(view.mounts, target);
  return found && found.parent !== below?.id ? [mounted(`${target} is covered by another mount`)] : [];
}
