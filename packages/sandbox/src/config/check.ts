// Holds a configuration to its schema, whoever wrote it: a mistake is an error with its place, and nothing is ignored.

import type { z } from 'zod';
import { AcodeError } from '../contract/errors.ts';
import { renameOldKeys } from './aliases.ts';
import type { Path } from './document.ts';
import { issueText, kindOf } from './issue-text.ts';
import { isPlanned, keysOf, nearestKey } from './keys.ts';
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
  const { value, written, warnings } = renameOldKeys(raw ?? {}, placeOf);
  const whereOf = (path: Path): string => placeOf(written.get(path.join('.')) ?? path);
  const where = (key: string): string => whereOf(key.split('.'));
  guard?.(value, where);
  const parsed = schema.safeParse(value, { error: issueText });
  if (parsed.success) return { config: parsed.data, source, where, warnings };
  const issue = parsed.error.issues[0];
  throw issue ? issueError(schema, issue, whereOf) : invalid(source, '', 'is not valid');
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

function issueError(schema: z.ZodType, issue: z.core.$ZodIssue, where: (path: Path) => string): AcodeError {
  if (issue.code !== 'unrecognized_keys') return invalid(where(issue.path), issue.path.join('.'), issue.message);
  const path = [...issue.path, issue.keys[0] ?? ''];
  const key = path.join('.');
  if (isPlanned(key)) return later(key, where(path));
  const near = nearestKey(key, keysOf(schema));
  return invalid(where(path), shortened(key), `is not a known key${near === null ? '' : ` (did you mean ${near}?)`}`);
}

function later(key: string, where: string): AcodeError {
  return new AcodeError('ACODE-SBX-016', { what: `The key ${key} (${where})`, instead: 'Take the line out for now.' });
}

function shortened(key: string): string {
  return key.length > 120 ? `${key.slice(0, 120)}…` : key;
}

function invalid(source: string, key: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-013', { source, key, reason });
}
