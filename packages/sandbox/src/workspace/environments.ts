// Virtual environments of Python that a run has made: what every one of them has is expected there, and nothing else.

import { readFileSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { homedir } from 'node:os';
import { posix } from 'node:path';
import { bytes, fromText, lstat } from './directory-look.ts';
import { isProgram } from './risky-names.ts';
import type { Risk } from './risky-names.ts';

const INTERPRETER = /^python\d*(?:\.\d+)?$/;
const EXPECTED = /^(?:pip\d*(?:\.\d+)?|[Aa]ctivate(?:\.\w+)?)$/;
// `python` leads to `python3`, which leads to the interpreter.
const MAX_LINKS = 8;
/** Where people make virtual environments, at the top of a workspace. */
export const ENVIRONMENT_NAMES: readonly string[] = ['.venv', 'venv', 'env'];

// Where interpreters are installed for everybody; they may be those of the image, and not be on this host.
const INSTALLED_FOR_ALL = ['/usr', '/bin', '/opt', '/nix/store', '/home/linuxbrew/.linuxbrew', '/Library', '/System'];
// Where tools install interpreters for one user.
const INSTALLED_FOR_USER = [
  '.pyenv',
  '.asdf',
  '.rye',
  '.local/share/uv',
  '.local/share/mise',
  'miniconda3',
  'anaconda3',
];
// What pip, setuptools and distributions write for an entry point takes a few lines.
const MAX_ENTRY_POINT = 2048;
const ENTRY_POINT = /\bconsole_scripts\b|\bsys\.argv\[0\] = (?:re\.sub\(|sys\.argv\[0\])/;
const SYSTEM = ['/usr/local/bin', '/usr/bin', '/bin', '/usr/sbin', '/sbin'];

// What is said of a program in a new environment that is not one of its own.
function shadowing(name: string): Risk {
  return { kind: 'shadowed-program', reason: `wherever the environment is active, it is started in place of ${name}` };
}

/** Whether an interpreter is called so. */
export function isInterpreterName(name: string): boolean {
  return INTERPRETER.test(name);
}

/** The risk of a file in the `bin` of an environment that is new; null for what every environment has, and for what hides nothing. */
export function riskOfEnvironmentFile(
  root: string,
  path: string,
  stats: Stats,
  writable: readonly string[],
): Risk | null {
  const name = path.slice(path.lastIndexOf('/') + 1);
  if (INTERPRETER.test(name)) return isInterpreter(root, path, stats, writable) ? null : shadowing(name);
  if (EXPECTED.test(name) && stats.isFile()) return null;
  const hidden = SYSTEM.map(directory => `${directory}/${name}`).filter(place => lstat(place));
  return isProgram(name) || !hidden.every(isEntryPoint) ? shadowing(name) : null;
}

/**
 * Whether a program of the host is what an installer wrote for a package of Python, such as pytest: an environment is there to
 * have another version of it.
 */
export function isEntryPoint(program: string): boolean {
  try {
    const stats = statSync(bytes(program));
    if (!stats.isFile() || stats.size > MAX_ENTRY_POINT) return false;
    const text = readFileSync(bytes(program), 'latin1');
    return /^#!.*\bpython/.test(text) && /\bsys\.exit\(/.test(text) && ENTRY_POINT.test(text);
  } catch {
    return false;
  }
}

// Whether it is a link to an interpreter where the run could not write, directly or by way of another in the same place.
function isInterpreter(root: string, path: string, stats: Stats, writable: readonly string[]): boolean {
  if (!stats.isSymbolicLink()) return false;
  const target = finalTarget(root, path);
  if (target === null || !INTERPRETER.test(target.slice(target.lastIndexOf('/') + 1))) return false;
  // Spelled in another way, such as by `/proc/self/cwd` or `//`, it may be in the workspace all the same.
  if (posix.normalize(target) !== target) return false;
  return isTrustedPlace(target, [root, ...writable]);
}

// By its spelling, and by where that really is on this host: a directory on the way may be a link.
function isTrustedPlace(target: string, writable: readonly string[]): boolean {
  const home = fromText(homedir());
  const own = INSTALLED_FOR_USER.map(place => `${home}/${place}`);
  if (!isIn(target, [...INSTALLED_FOR_ALL, ...own]) || isIn(target, writable)) return false;
  const real = realPath(target);
  if (real !== null) return !isIn(real, writable) && lstat(real)?.isFile() === true;
  if (!isIn(target, INSTALLED_FOR_ALL)) return false;
  let around = posix.dirname(target);
  while (around !== '/' && realPath(around) === null) around = posix.dirname(around);
  return !isIn(realPath(around) ?? around, writable);
}

function isIn(path: string, places: readonly string[]): boolean {
  return places.some(place => path === place || path.startsWith(`${place}/`));
}

function realPath(path: string): string | null {
  try {
    return realpathSync.native(bytes(path), 'latin1');
  } catch {
    return null;
  }
}

// The first absolute target; null for a link that stays inside, or leads up and out.
function finalTarget(root: string, path: string): string | null {
  const directory = path.slice(0, path.lastIndexOf('/'));
  let name = path;
  for (let links = 0; links < MAX_LINKS; links += 1) {
    const target = readLink(`${root}/${name}`);
    if (target === null || target.split('/').includes('..')) return null;
    if (target.startsWith('/')) return target;
    if (target.includes('/')) return null;
    name = `${directory}/${target}`;
  }
  return null;
}

function readLink(path: string): string | null {
  try {
    return readlinkSync(bytes(path), 'latin1');
  } catch {
    return null;
  }
}
