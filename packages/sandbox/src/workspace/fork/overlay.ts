// Mount options of a fork’s overlay: one string, of which the kernel reads at most a page. A longer one would be cut without an
// error, and could mount another directory.

import { AcodeError } from '../../contract/errors.ts';
import type { OverlaySpec } from '../../contract/spec.ts';

// The kernel takes one page, with the byte that ends it.
const MAX_OPTION_BYTES = 4095;
/** Flags of every overlay over a workspace. With `userxattr`, an ordinary user can read the kernel’s marks in a layer. */
export const OVERLAY_FLAGS = ['userxattr'] as const;
const MOUNT_FLAGS = ['nosuid', 'nodev'] as const;

/** The three values, each escaped as the kernel reads them; `below` stands before each path. */
export function overlayValues(
  { lowers, upper, work }: OverlaySpec,
  source: string,
  below = '',
): { readonly lowerdir: string; readonly upperdir: string; readonly workdir: string } {
  return {
    lowerdir: [...lowers.map(({ path }) => path), source].map(path => below + escaped(path)).join(':'),
    upperdir: below + escaped(upper.path),
    workdir: below + escaped(work.path),
  };
}

/** The options of one mount. */
export function overlayOptions(spec: OverlaySpec, source: string, below = ''): string {
  const values = Object.entries(overlayValues(spec, source, below)).map(([name, value]) => `${name}=${value}`);
  return [...values, ...OVERLAY_FLAGS, ...MOUNT_FLAGS].join(',');
}

/** Refuses options that the kernel would cut. */
export function assertOptions(options: string, fork: string): void {
  const bytes = Buffer.byteLength(options);
  if (bytes <= MAX_OPTION_BYTES) return;
  throw new AcodeError('ACODE-FRK-004', {
    fork,
    reason: `the paths of its layers and of the workspace take ${bytes} bytes, and the kernel takes ${MAX_OPTION_BYTES}`,
  });
}

// The kernel splits at commas and colons, and takes a backslash before one as part of the name.
function escaped(path: string): string {
  return path.replaceAll(/[\\,:]/g, String.raw`\$&`);
}
