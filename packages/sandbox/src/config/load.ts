// Reads configuration: strictly, with the place of every mistake, and never code.

import { join } from 'node:path';
import { LineCounter, isMap, parseDocument } from 'yaml';
import type { Document } from 'yaml';
import type { z } from 'zod';
import { AcodeError } from '../contract/errors.ts';
import { readBoundedFile } from './bounded-file.ts';
import { configSchema, isPlanned } from './schema.ts';
import type { Config } from './schema.ts';

const LARGEST = 256 * 1024;
const MOST_ALIASES = 20;

/** A configuration and where it came from. */
export interface LoadedConfig {
  readonly config: Config;
  /** A path, or `AcodeOptions.config`. */
  readonly source: string;
}

/** The user’s own file; an absent one is an empty configuration. */
export async function loadUserConfig(directory: string, file?: string): Promise<LoadedConfig> {
  const source = file ?? join(directory, 'config.yml');
  const text = await readBounded(source, file !== undefined);
  return { config: text === null ? {} : parseConfig(text, source), source };
}

/**
 * The one key that is read before the root guard. Only root’s own file counts: one that somebody else owns or can write
 * allows nothing, and neither does one that cannot be understood.
 */
export async function readAllowRoot(directory: string, uid: number): Promise<boolean> {
  try {
    const file = await readBoundedFile(join(directory, 'config.yml'), LARGEST);
    if (file.uid !== uid || (file.mode & 0o022) !== 0) return false;
    const value: unknown = parseDocument(file.text).toJS({ maxAliasCount: MOST_ALIASES });
    return typeof value === 'object' && value !== null && 'allow_root' in value && value.allow_root === true;
  } catch {
    return false;
  }
}

/** Parses the text of a configuration file. */
export function parseConfig(text: string, source: string): Config {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: true, version: '1.2', schema: 'core' });
  const syntax = document.errors[0];
  if (syntax) {
    const at = syntax.linePos?.[0];
    throw invalid(
      at ? `${source}:${at.line}:${at.col}` : source,
      '',
      `is not valid YAML: ${firstLine(syntax.message)}`,
    );
  }
  return checkConfig(plainValue(document, source), source, path => place(document, lines, path, source));
}

/** Checks a configuration that was given as an object. */
export function checkConfig(
  value: unknown,
  source: string,
  where: (path: readonly PropertyKey[]) => string = () => source,
): Config {
  const parsed = configSchema.safeParse(value ?? {});
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  if (!issue) throw invalid(source, '', 'is not valid');
  throw issueError(issue, where);
}

function issueError(issue: z.core.$ZodIssue, where: (path: readonly PropertyKey[]) => string): AcodeError {
  if (issue.code !== 'unrecognized_keys') return invalid(where(issue.path), issue.path.join('.'), lower(issue.message));
  const path = [...issue.path, issue.keys[0] ?? ''];
  const key = path.join('.');
  if (isPlanned(key)) {
    return new AcodeError('ACODE-SBX-016', {
      what: `The key ${key} (${where(path)})`,
      instead: 'Take the line out for now.',
    });
  }
  return invalid(where(path), key, 'is not a known key');
}

function plainValue(document: Document.Parsed, source: string): unknown {
  try {
    return document.toJS({ maxAliasCount: MOST_ALIASES });
  } catch (cause) {
    throw new AcodeError('ACODE-SBX-013', { source, key: '', reason: 'uses too many YAML aliases' }, { cause });
  }
}

// An unknown key is reported at the key itself, a bad value at the value.
function place(document: Document.Parsed, lines: LineCounter, path: readonly PropertyKey[], source: string): string {
  const parent: unknown = path.length > 1 ? document.getIn(path.slice(0, -1), true) : document.contents;
  const pair = isMap(parent) ? parent.items.find(item => String(item.key) === String(path.at(-1))) : undefined;
  const offset = rangeStart(pair?.key);
  if (offset === undefined) return source;
  const at = lines.linePos(offset);
  return `${source}:${at.line}:${at.col}`;
}

function rangeStart(node: unknown): number | undefined {
  if (typeof node !== 'object' || node === null || !('range' in node) || !Array.isArray(node.range)) return undefined;
  const start: unknown = node.range[0];
  return typeof start === 'number' ? start : undefined;
}

async function readBounded(path: string, required: boolean): Promise<string | null> {
  const file = await readBoundedFile(path, LARGEST).catch((cause: unknown) => {
    if (!required && cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return null;
    throw new AcodeError('ACODE-SBX-013', { source: path, key: '', reason: 'cannot be read' }, { cause });
  });
  if (file && file.size > LARGEST) throw invalid(path, '', `is larger than ${LARGEST / 1024} KiB`);
  return file?.text ?? null;
}

function invalid(source: string, key: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-013', { source, key, reason });
}

function firstLine(text: string): string {
  return text.split('\n')[0]?.replace(/ at line .*$/, '') ?? text;
}

function lower(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}
