// Paths of the workspace: under its names on the user’s machine, and under its name in every sandbox.

import { join, normalize, resolve } from 'node:path/posix';
import { realpathSync } from 'node:fs';
import type { Command } from '@acode/sandbox';
import { oneLine } from '../terminal/text.ts';
import type { Place } from '../workspace.ts';

/** Where the workspace is in every sandbox. */
export const INSIDE = '/workspace';

/**
 * The names of a workspace. Translating is a matter of text: a host path in the workspace becomes one below `/workspace`, which
 * the caller could have written itself, and the sandbox resolves it. No file of the host is asked, or a call could find out what
 * exists there.
 */
export class WorkspacePaths {
  /** Its path on the user’s machine. */
  readonly root: string;
  readonly #names: readonly string[];

  /** @param others further names of it, such as the link by which the user entered it */
  constructor(root: string, others: readonly string[] = []) {
    this.root = root;
    this.#names = [root, ...others].map(plain);
  }

  /** The path inside for a host path in the workspace; any other path as it is. A path inside is never taken for a host path. */
  inside(path: string): string {
    if (!path.startsWith('/') || isWithin(plain(path), INSIDE)) return path;
    // Without its `..`, as agents resolve paths: `/home/me/proj/../other` is outside, and so is `/home/me/proj2`.
    const name = this.#names.find(one => isWithin(plain(path), one));
    return name === undefined ? path : `${INSIDE}${plain(path).slice(name.length)}`;
  }

  /** Whether a path is in the workspace, by whichever name; a relative one begins there. */
  has(path: string): boolean {
    return isWithin(resolve(INSIDE, this.inside(path)), INSIDE);
  }

  /** The directory on the user’s machine for a path in the workspace; the workspace for any other. */
  onHost(path: string): string {
    const found = resolve(INSIDE, this.inside(path));
    return isWithin(found, INSIDE) ? join(this.root, found.slice(INSIDE.length)) : this.root;
  }

  /** What a model should know of a path that is not in the workspace. */
  outsideText(): string {
    return `If that is a path of the user’s machine, it cannot be reached: of that machine, a sandbox has only the workspace ${this.shown}, as ${INSIDE}.`;
  }

  /** Whether a command names the workspace by its path on the user’s machine, which does not exist inside. */
  isNamedIn(command: Command): boolean {
    const text = typeof command === 'string' ? command : command.join('\n');
    return this.#names.some(name => !isWithin(name, INSIDE) && text.split(name).slice(1).some(endsName));
  }

  /** The path on the user’s machine, as a line may hold it. */
  get shown(): string {
    return oneLine(this.root);
  }
}

/** The names of a call’s workspace: its real path, the one that was typed, and that of the shell, which may lead through links. */
export function workspacePaths(
  { root, inside }: Pick<Place, 'root' | 'inside'>,
  {
    cwd,
    typed,
    shell,
  }: { readonly cwd: string; readonly typed?: string | undefined; readonly shell?: string | undefined },
): WorkspacePaths {
  const entered = shell !== undefined && shell.startsWith('/') ? above(plain(shell), inside) : null;
  const candidates = [typed === undefined ? null : resolve(cwd, typed), entered];
  const others = candidates.filter(name => name !== null && name !== root && leadsTo(name, root));
  return new WorkspacePaths(
    root,
    others.filter(name => name !== null),
  );
}

// The directory from which a way leads here.
function above(here: string, way: string): string | null {
  if (way === '.') return here;
  return here.endsWith(`/${way}`) ? here.slice(0, -way.length - 1) : null;
}

function leadsTo(name: string, root: string): boolean {
  try {
    return realpathSync.native(name) === root;
  } catch {
    return false;
  }
}

function plain(path: string): string {
  const text = normalize(path);
  return text.length > 1 && text.endsWith('/') ? text.slice(0, -1) : text;
}

function isWithin(path: string, directory: string): boolean {
  return path === directory || path.startsWith(`${directory}/`);
}

// What follows a name in a command is not the rest of a longer one.
function endsName(rest: string): boolean {
  return !/^[\w.-]/.test(rest);
}
