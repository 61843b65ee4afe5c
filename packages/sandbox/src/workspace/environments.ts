// Virtual environments of Python that a run has made: what every one of them has is expected there, and nothing else.

import { readlinkSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { bytes, lstat } from './directory-look.ts';
import { isProgram } from './risky-names.ts';
import type { Risk } from './risky-names.ts';

const INTERPRETER = /^python\d*(?:\.\d+)?$/;
const EXPECTED = /^(?:pip\d*(?:\.\d+)?|[Aa]ctivate(?:\.\w+)?)$/;
// `python` leads to `python3`, which leads to the interpreter.
const MAX_LINKS = 8;
// Where everybody can write.
const ANYBODYS = ['/tmp', '/var/tmp', '/dev/shm'];
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
  return isProgram(name) || SYSTEM.some(directory => lstat(`${directory}/${name}`)) ? shadowing(name) : null;
}

// Whether it is a link to an interpreter where the run could not write, directly or by way of another in the same place.
function isInterpreter(root: string, path: string, stats: Stats, writable: readonly string[]): boolean {
  if (!stats.isSymbolicLink()) return false;
  const target = finalTarget(root, path);
  if (target === null || !INTERPRETER.test(target.slice(target.lastIndexOf('/') + 1))) return false;
  return ![root, ...writable, ...ANYBODYS].some(place => target === place || target.startsWith(`${place}/`));
}

// The first absolute target; null for one that stays inside, or leads up and out.
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
