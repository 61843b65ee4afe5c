// The kinds of values that configuration keys have.

import * as z from 'zod';
import { LANGUAGES } from '../../contract/languages.ts';
import { PRESET_NAMES } from '../../egress/presets.ts';
import { entryFault } from '../../egress/rules.ts';
import type { EntryFault } from '../../egress/rules.ts';
import { nearestWord } from './keys.ts';
import { formatBytes, parseBytes, parseSeconds } from '../../contract/units.ts';

const MIB = 1024 ** 2;
/** Below this the engine refuses to start anything. */
export const LEAST_MEMORY = 6 * MIB;
/** Above this a size is a slip of the pen and not a wish. */
export const NONSENSE_BYTES = 1024 ** 4;

const TIME = 'expected seconds such as 600, or a time with its unit such as 10m or 1h30m';
const timeText = z.string().regex(/^\s*(?:\d+(?:\.\d+)?[sSmMhHdD])+\s*$/, TIME);

/** A number of seconds, or text with units such as `10m`; more than 0 (or from 0 on), and at most `most`. */
export function time(most: number, fromZero = false): z.ZodType<number, number | string> {
  return z.union([z.number(), timeText], { error: TIME }).transform((value, context) => {
    const found = typeof value === 'number' ? value : parseSeconds(value);
    if (found === null || Number.isNaN(found)) context.addIssue({ code: 'custom', message: TIME });
    else if (fromZero ? found < 0 : found <= 0)
      context.addIssue({ code: 'custom', message: `must be ${fromZero ? 'at least' : 'more than'} 0` });
    else if (found > most) context.addIssue({ code: 'custom', message: `must be at most ${most} seconds` });
    else return found;
    return z.NEVER;
  });
}

/** A number of seconds, or a time with units; at most a day. */
export const seconds = time(86_400);

const SIZE = 'expected a size such as 512 (MB), 512m or 1.5g';
// Both cases are written out: the published JSON Schema knows no flags.
const sizeText = z.string().regex(/^\s*\d+(?:\.\d+)?\s*(?:[kKmMgGtT][iI]?[bB]?|[bB])?\s*$/, SIZE);

/** A number of megabytes, or text with a unit such as `512m` or `1.5g`; between two bounds. */
export function size(least: number): z.ZodType<number, number | string> {
  return z.union([z.number(), sizeText], { error: SIZE }).transform((value, context) => {
    const bytes = typeof value === 'number' ? Math.round(value * MIB) : parseBytes(value);
    if (bytes === null) context.addIssue({ code: 'custom', message: SIZE });
    else if (bytes < least) context.addIssue({ code: 'custom', message: `expected at least ${formatBytes(least)}` });
    else if (bytes > NONSENSE_BYTES)
      context.addIssue({ code: 'custom', message: `expected at most ${formatBytes(NONSENSE_BYTES)}` });
    else return bytes;
    return z.NEVER;
  });
}

/** A whole number of megabytes, as bytes. */
export const megabytes = z
  .int()
  .nonnegative()
  .max(NONSENSE_BYTES / MIB)
  .transform(value => value * MIB);

/** CPUs: the least an engine can hold anybody to is a hundredth; less would round to no limit at all. */
export const cpus = z.number().min(0.01).max(4096);
/** Processes: init, the shell that waits for the command, and the command with a few of its own. */
export const processes = z.int().min(8);

/** Open files: the engine itself needs some to start a container. */
export const openFiles = z.int().min(32);

/** The name of a network, as engines take them. */
export const networkName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/, 'expected the name of a network');

/** Why an entry of an allow-list is not one, with the preset that was probably meant; null where it is one. */
export function listFault(entry: string, verdict: 'allow' | 'deny' = 'allow'): EntryFault | null {
  const fault = entryFault(entry, verdict);
  const meant = fault && nearestWord(entry, PRESET_NAMES);
  return fault && meant ? { ...fault, remedy: `You probably mean ${meant}` } : fault;
}

/** An entry of a list that allows, or of one that denies: a preset, or a host. */
export function egressEntry(verdict: 'allow' | 'deny'): z.ZodString {
  return z.string().superRefine((entry, context) => {
    const fault = listFault(entry, verdict);
    if (fault) context.addIssue({ code: 'custom', message: `${fault.reason}. ${fault.remedy}` });
  });
}

/** A host, or every host below a suffix. */
export const hostPattern = z
  .string()
  .regex(
    /^(?:\*\.)?(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]*$/,
    'expected the name of a host, or *.suffix',
  );

/** The name of a runtime, as engines take them. */
export const runtimeName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/, 'expected the name of a runtime');

/** An absolute path without steps back. */
export const absolutePath = z
  .string()
  .regex(/^\/(?!.*(?:^|\/)\.\.(?:\/|$))[^\0]*$/, 'expected an absolute path without ..');

/** A repository of images with its registry; a trailing `*` stands for everything below. */
export const imagePattern = z
  .string()
  .max(255)
  .regex(
    /^(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+|[a-z0-9.-]+:[0-9]{1,5}|localhost:[0-9]{1,5})(?:\/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*(?:\/\*)?$/,
    'expected a repository with its registry, such as docker.io/library/node or ghcr.io/me/*',
  );

/** The reference of an image; what it may be is decided where it is used. */
export const image = z.string().min(1).max(400);

/** Why a key of `sandbox.images.combined`, one of several, names no set of languages of its own; null where it does. */
export function combinationFault(key: string, keys: readonly string[] = [key]): string | null {
  const parts = key.split('+');
  const known = new Set<string>(LANGUAGES);
  const isSet = parts.length >= 2 && parts.every(part => known.has(part)) && new Set(parts).size === parts.length;
  if (!isSet) return `expected two or more of ${LANGUAGES.join(', ')}, each once, with + between them`;
  const other = keys.find(one => one !== key && sorted(one) === sorted(key));
  return other === undefined ? null : `names the same languages as ${other}`;
}

function sorted(key: string): string {
  return key.split('+').sort().join('+');
}

/** The volume of a cache: a name of its own, or none. */
export const cacheVolume = z.union([z.literal(false), z.string().regex(/^acode-cache-[a-z0-9][a-z0-9_.-]{0,63}$/)], {
  error: 'expected false, or a name such as acode-cache-mine',
});

/** A port to be published on the loopback of the host. */
export const port = z.strictObject({
  container: z.int().min(1).max(65_535).describe('Port inside the sandbox.'),
  host: z.int().min(1).max(65_535).optional().describe('Port on 127.0.0.1; a free one unless named.'),
  protocol: z.enum(['tcp', 'udp']).optional().describe('tcp unless named.'),
});

/** A further directory of the host. */
export const mount = z.strictObject({
  source: z.string().min(1).describe('Directory of the host; a relative one is below the workspace.'),
  target: z.string().min(1).describe('Absolute path inside the sandbox.'),
  readonly: z.boolean().optional().describe('True by default.'),
});

// Only `*`, `?` and `**` are wildcards: other signs of patterns (`[`, `{`, `!`, `\\`) mean different things to different tools.
const MASK =
  'expected a path relative to the workspace, with * and ? in names and ** for directories, such as secrets/** or *.secret';

/** A pattern of paths below the workspace. */
export const maskPattern = z
  .string()
  .max(400)
  .regex(/^(?!\/)(?!(?:\.\/)*(?:\*\*\/?)+$)(?!\.?\/?$)(?!(?:.*\/)?\.\.(?:\/|$))(?!.*\/\/)[^\0\n\r\\[\]{}!]+$/, MASK);

/** The address of a name server. */
export const address = z.union([z.ipv4(), z.ipv6()], { error: 'expected an IP address' });
