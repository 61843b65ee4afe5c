// Small files that a sandbox sees in place of the host’s: who there is, and what names stand for. Pure.

import type { SandboxSpec } from '../../contract/spec.ts';

/** A file and what is in it. */
export interface MadeFile {
  readonly path: string;
  readonly content: string;
}

const NOBODY = 65_534;

/** The files of a sandbox. The host’s would tell the names of its users and of the machines it knows. */
export function madeFiles({ user: { uid, gid }, home }: Pick<SandboxSpec, 'user' | 'home'>): readonly MadeFile[] {
  return [
    {
      path: '/etc/passwd',
      content: lines([
        'root:x:0:0:root:/root:/bin/sh',
        `sandbox:x:${uid}:${gid}:sandbox:${home}:/bin/sh`,
        // Whoever else owns a file of the host appears as this one.
        `nobody:x:${NOBODY}:${NOBODY}:nobody:/:/bin/sh`,
      ]),
    },
    { path: '/etc/group', content: lines(['root:x:0:', `sandbox:x:${gid}:`, `nogroup:x:${NOBODY}:`]) },
    { path: '/etc/nsswitch.conf', content: lines(['passwd: files', 'group: files', 'shadow: files', 'hosts: files']) },
    { path: '/etc/hosts', content: lines(['127.0.0.1 localhost sandbox', '::1 localhost sandbox']) },
  ];
}

function lines(all: readonly string[]): string {
  return `${all.join('\n')}\n`;
}
