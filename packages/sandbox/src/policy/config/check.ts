// Holds a configuration to its schema, whoever wrote it: a mistake is an error with its place, and nothing is ignored.

import type { z } from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import { renameOldKeys } from './aliases.ts';
import type { Path } from './document.ts';
import { insteadOf, withoutGiven } from './given.ts';
import { issueText, kindOf } from './issue-text.ts';
import { isPlanned, isSection, keysOf, nearestKey } from './keys.ts';
import { configSchema } from './schema.ts';
import type { Config } from './schema.ts';
import { shapeFault } from './shape.ts';

/** A configuration and where it came from. */
export interface Loaded<Value> {
  readonly config: Value;
  /** A path, or `AcodeOptions.config`. */
  readonly source: string;
  /** The place of a key, given with dots: file, line and column where there is a file. */
  readonly where: (key: string) => string;
  /** Old names that were understood, in sentences. */
  readonly warnings: readonly string[];
}

/** A user’s or a repository’s configuration. */
export type LoadedConfig = Loaded<Config>;

/** What a file or an object holds, before any schema. */
export interface RawConfig {
  readonly value: unknown;
  readonly source: string;
  readonly where: (path: Path) => string;
}

/** Refuses keys that the writer of this configuration may not set; sees the value before any schema. */
export type KeyGuard = (value: unknown, where: (key: string) => string) => void;

/** Checks a configuration that was given as an object. */
export function checkConfig(value: unknown, source: string): LoadedConfig {
  return holdTo(configSchema, { value, source, where: () => source });
}

/** Holds a raw configuration to a schema. */
export function holdTo<Value>(
  schema: z.ZodType<Value>,
  { value: raw, source, where: placeOf }: RawConfig,
  guard?: KeyGuard,
): Loaded<Value> {
  if (raw !== null && raw !== undefined && (typeof raw !== 'object' || Array.isArray(raw)))
    throw invalid(placeOf([]), '', `holds ${kindOf(raw)} at its top; expected keys such as \`sandbox:\``);
  const fault = shapeFault(raw);
  if (fault) throw invalid(placeOf(fault.path), fault.path.join('.'), fault.reason);
  const { value: renamed, written, warnings } = renameOldKeys(raw ?? {}, placeOf);
  const value = withoutGiven(renamed);
  const whereOf = (path: Path): string => placeOf(written.get(path.join('.')) ?? path);
  const where = (key: string): string => whereOf(key.split('.'));
  guard?.(value, where);
  const parsed = schema.safeParse(value, { error: issueText });
  if (parsed.success) return { config: parsed.data, source, where, warnings };
  const issue = parsed.error.issues[0];
  throw issue ? issueError(schema, issue, { value, where: whereOf }) : invalid(source, '', 'is not valid');
}

/** The value of a key, given with dots, in a value of any shape. */
export function valueAt(value: unknown, key: string): unknown {
  let here: unknown = value;
  for (const step of key.split('.')) {
    if (typeof here !== 'object' || here === null || !Object.hasOwn(here, step)) return undefined;
    here = Object.getOwnPropertyDescriptor(here, step)?.value;
  }
  return here;
}

/** A value that did not pass its schema. */
interface Checked {
  readonly value: unknown;
  readonly where: (path: Path) => string;
}

function issueError(schema: z.ZodType, issue: z.core.$ZodIssue, { value, where }: Checked): AcodeError {
  if (issue.code !== 'unrecognized_keys') return invalid(where(issue.path), issue.path.join('.'), issue.message);
  const written = issue.keys[0] ?? '';
  const path = [...issue.path, written];
  const key = path.join('.');
  const known = keysOf(schema);
  if (written.includes('.') && (known.includes(key) || isSection(key, known)))
    return dotted(key, where(path), memberOf(valueOf(value, issue.path), written));
  if (isPlanned(key)) return later(key, where(path));
  const near = nearestKey(key, known);
  return invalid(where(path), shortened(key), `is not a known key${near === null ? '' : ` (did you mean ${near}?)`}`);
}

// The key is right and its form is not: messages and docs name keys with dots, and YAML nests them.
function dotted(key: string, where: string, value: unknown): AcodeError {
  const parts = key.split('.');
  const shown = typeof value === 'boolean' || typeof value === 'number' ? String(value) : '…';
  const lines = parts.map((part, index) => `\`${part}:${index === parts.length - 1 ? ` ${shown}` : ''}\``);
  const flow = `${parts
    .slice(0, -1)
    .map(part => `${part}: { `)
    .join('')}${parts.at(-1) ?? ''}: ${shown}${' }'.repeat(parts.length - 1)}`;
  return new AcodeError('ACODE-SBX-013', {
    source: where,
    key: shortened(key),
    reason: 'is written with dots; in a file, its parts are nested',
    remedy: `Write \`${flow}\`, or put ${lines.join(', ')} on separate lines, each indented below the one before.`,
  });
}

function valueOf(value: unknown, path: Path): unknown {
  return path.reduce<unknown>((here, step) => memberOf(here, step), value);
}

function memberOf(value: unknown, step: PropertyKey): unknown {
  return typeof value === 'object' && value !== null ? Object.getOwnPropertyDescriptor(value, step)?.value : undefined;
}

function later(key: string, where: string): AcodeError {
  const instead = insteadOf(key);
  const what = instead === undefined ? `The key ${key} (${where})` : `This value of ${key} (${where})`;
  return new AcodeError('ACODE-SBX-016', { what, instead: instead ?? 'Take the line out for now.' });
}

function shortened(key: string): string {
  return key.length > 120 ? `${key.slice(0, 120)}…` : key;
}

function invalid(source: string, key: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-013', { source, key, reason });
}
