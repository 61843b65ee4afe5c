// The files of a sandbox that stays.

import type { Files } from '../contract/sandbox.ts';
import type { Inside } from '../isolation/inside.ts';

/** The files of a sandbox. */
export function filesOf(_inside: Inside, _about: { readonly workdir: string }): Files {
  return Object.create(null);
}
