// A directory of the host that a sandbox is given besides its workspace.

import type { MountRequest } from '@acode/sandbox';
import { InvalidArgumentError } from '@commander-js/extra-typings';

const EXPECTED =
  'Expected source:target or source:target:rw, the target an absolute path inside the sandbox, such as ./data:/data. Without :rw it is read-only.';

/** The mounts so far and one more, written `source:target[:rw]`. A `:` in the source is taken as part of it. */
export function mount(text: string, before: readonly MountRequest[] = []): MountRequest[] {
  const [, paths = text, mode] = /^(.*):(rw|ro)$/s.exec(text) ?? [];
  const at = paths.lastIndexOf(':');
  const source = paths.slice(0, Math.max(0, at));
  const target = paths.slice(at + 1);
  if (source === '' || !target.startsWith('/')) throw new InvalidArgumentError(EXPECTED);
  return [...before, { source, target, readOnly: mode !== 'rw' }];
}
