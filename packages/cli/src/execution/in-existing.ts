// What is said of a command in a sandbox that exists already: what it is cannot be changed any more, so that what to do next is
// another sandbox.

import type { Denial } from '@acode/sandbox';
import { NEITHER_BRIDGE_NOR_CACHES } from '../arguments/staying.ts';

/** A sandbox that was there before, and what a command in it asked for. */
export interface Existing {
  /** The time limit that was asked for. */
  readonly timeoutMs?: number | undefined;
}

// The words of the library that stand around what an option says.
const LIMIT = /\bUse less, or ask for more: policy\.[\w.]+ \(on the command line ([^()]+)\)\./;
const IMAGE = /\bchoose one that has it with policy\.image \(on the command line --image\)/;
const MOUNT = /\bask for the mount with [^()]+ \(on the command line (--mount [^()]+)\)/;
const READONLY = /\bask for policy\.workspace: direct \(on the command line, leave --readonly out\)/;
// Set by the command itself, and not by what the sandbox was created with.
const OWN_TIME = 'the request, timeoutMs';
const TIME = /^time limit of ([\d.]+) s$/;

/** A denial as it is to be read in a sandbox that exists. */
export function inExisting(denial: Denial, { timeoutMs }: Existing): Denial {
  if (denial.rule === 'the sandbox has no network')
    return { ...denial, remedy: `Trying again cannot help. ${NEITHER_BRIDGE_NOR_CACHES}` };
  // A command may ask for more time than it did.
  if (denial.setBy === OWN_TIME) return { ...denial, setBy: 'the request, policy.timeoutMs' };
  const setBy = denial.setBy.replace(/^(the request, policy\..*)$/, '$1 when the sandbox was created');
  return { ...denial, setBy, remedy: lowered(denial.rule, timeoutMs) + elsewhere(denial.remedy) };
}

function elsewhere(remedy: string): string {
  return remedy
    .replace(LIMIT, 'Use less, or create another sandbox: `acode sandbox create $1`; limits are the sandbox’s own.')
    .replace(IMAGE, 'create a sandbox of one that has it with `acode sandbox create --image`')
    .replace(MOUNT, 'create another sandbox with `acode sandbox create $1`')
    .replace(READONLY, 'create another sandbox without --readonly');
}

// What was asked for and not given.
function lowered(rule: string, timeoutMs: number | undefined): string {
  const most = Number(TIME.exec(rule)?.[1] ?? NaN);
  if (timeoutMs === undefined || !(timeoutMs / 1000 > most)) return '';
  return `--timeout was lowered from ${timeoutMs / 1000} s to ${most} s, the most that this sandbox allows. `;
}
