// The processes of a runtime that has a kernel of its own: the sandbox lives as long as they do.

import { readFileSync, readdirSync } from 'node:fs';
import { identify } from '../../process/identity.ts';
import type { ProcessIdentity } from '../../process/identity.ts';

// A runtime starts its processes one after another; who looks further asks thousands for nothing.
const NEAR = 64;

/**
 * The processes of one sandbox: the one that the engine names, and those beside it that name the container. Null where not
 * every name is there exactly once, so that nothing follows from their end.
 */
export function runtimeProcesses(
  pid: number,
  containerId: string,
  names: readonly string[],
): readonly ProcessIdentity[] | null {
  if (!names.includes(nameOf(pid, containerId) ?? '')) return null;
  // Listed rather than tried: a thread can be asked for by its number like a process, and is none.
  const around = readdirSync('/proc').flatMap(name => (Math.abs(Number(name) - pid) <= NEAR ? [Number(name)] : []));
  const found = names.map(name => around.filter(near => nameOf(near, containerId) === name));
  const lives = found.flatMap(([only, ...more]) => (only === undefined || more.length > 0 ? [] : [identify(only)]));
  const living = lives.filter(process => process !== null);
  return living.length === names.length ? living : null;
}

// What a process calls itself, where it was started for this container.
function nameOf(pid: number, containerId: string): string | null {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    return words.some(word => word.includes(containerId)) ? (words[0] ?? null) : null;
  } catch {
    return null;
  }
}
