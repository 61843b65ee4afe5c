// The user’s own configuration of an agent: what is copied into a sandbox, key by key, from the list of its preset. Values of
// variables, headers, tokens and keys never are; they are named.

import { readFile, readdir, stat } from 'node:fs/promises';
import { basename, join, sep } from 'node:path';
import { parse as parseToml } from 'smol-toml';
import type { AgentPreset } from './preset.ts';
import { carriesSecret, holdsSecret } from './secrets.ts';

type Environment = Readonly<Record<string, string | undefined>>;
/** Fields of a settings file. */
export type Fields = Readonly<Record<string, unknown>>;

/** Something of the user’s configuration that stays outside, and why. */
export interface LeftOut {
  /** The file, as the user knows it. */
  readonly file: string;
  /** The key in it; absent for the whole file. */
  readonly key?: string;
  /** `secret`: it may be a secret. `size`: it is too large. `kind`: acode copies no such key or file. `unreadable`: it cannot be read. */
  readonly why: 'secret' | 'size' | 'kind' | 'unreadable';
}

/** What is copied. */
export interface CopiedConfiguration {
  /** Texts by where they go. */
  readonly texts: readonly { readonly to: string; readonly text: string }[];
  /** Fields for settings files, by where those are. */
  readonly fields: readonly { readonly to: string; readonly values: Fields }[];
  readonly leftOut: readonly LeftOut[];
}

/** As much as is copied in all: it goes to the sandbox with the command. */
const MAX_COPIED = 256 * 1024;
const MAX_FILE = 64 * 1024;
const MAX_FILES = 200;
const MAX_SETTINGS = 4 * 1024 * 1024;
const NOTHING: CopiedConfiguration = { texts: [], fields: [], leftOut: [] };

/** Reads what a preset copies. What cannot be read is named, and never stops a start. */
export async function copiedConfiguration(
  { copies }: Pick<AgentPreset, 'copies'>,
  env: Environment,
): Promise<CopiedConfiguration> {
  const home = env['HOME'] ?? '';
  if (copies === undefined || !home.startsWith('/')) return NOTHING;
  const own: Own = { home, directory: directoryOf(copies.home, env, home), leftOut: [], room: MAX_COPIED };
  const texts = await textsOf(copies.texts ?? [], own);
  const fields: { to: string; values: Fields }[] = [];
  for (const one of copies.keys ?? []) {
    const values = await keysOf(one, own);
    if (values !== null) fields.push({ to: one.to, values });
  }
  return { texts, fields, leftOut: own.leftOut };
}

type Copies = NonNullable<AgentPreset['copies']>;

function directoryOf({ path, variable }: Copies['home'], env: Environment, home: string): string {
  const named = variable === undefined ? undefined : env[variable];
  return named?.startsWith('/') ? named : atHome(path, home);
}

// The user’s own directories, and what is left to copy.
interface Own {
  readonly home: string;
  readonly directory: string;
  readonly leftOut: LeftOut[];
  room: number;
}

function atHome(path: string, home: string): string {
  return path.startsWith('~/') ? join(home, path.slice(2)) : path;
}

function placeOf(path: string, { directory, home }: Own): string {
  return path.startsWith('~/') ? atHome(path, home) : join(directory, path);
}

function shown(path: string, { home }: Own): string {
  return path.startsWith(home + sep) ? `~${path.slice(home.length)}` : path;
}

async function textsOf(
  wanted: readonly { readonly from: string; readonly to: string }[],
  own: Own,
): Promise<{ to: string; text: string }[]> {
  const found: { to: string; text: string }[] = [];
  for (const { from, to } of wanted)
    for (const [path, below] of await filesAt(placeOf(from, own), own)) {
      const text = await textAt(path, own);
      if (text !== null) found.push({ to: `${to}${below}`, text });
    }
  return found;
}

// A file, or all files below a directory. The first link is followed, as people link their configuration from elsewhere; none below it.
async function filesAt(path: string, own: Own): Promise<readonly (readonly [path: string, below: string])[]> {
  const found = await stat(path).catch(() => null);
  if (found?.isFile()) return [[path, '']];
  if (!found?.isDirectory()) return [];
  const entries = await readdir(path, { recursive: true, withFileTypes: true }).catch(() => []);
  const files = entries.filter(entry => entry.isFile()).map(entry => join(entry.parentPath, entry.name));
  if (files.length > MAX_FILES) {
    own.leftOut.push({ file: shown(path, own), why: 'size' });
    return [];
  }
  return files.sort().map(file => [file, file.slice(path.length)] as const);
}

async function textAt(path: string, own: Own): Promise<string | null> {
  // Settings that run programs, and files that hold what a login left, are no texts for a model.
  const text = /^(?:\.|auth|credentials)/i.test(basename(path)) ? { why: 'kind' as const } : await readText(path, own);
  if (typeof text === 'string') {
    own.room -= Buffer.byteLength(text);
    return text;
  }
  own.leftOut.push({ file: shown(path, own), why: text.why });
  return null;
}

async function readText(path: string, { room }: Own): Promise<string | Pick<LeftOut, 'why'>> {
  const found = await stat(path).catch(() => null);
  if (!found?.isFile()) return { why: 'unreadable' };
  if (found.size > Math.min(MAX_FILE, room)) return { why: 'size' };
  const text = await readFile(path, 'utf8').catch(() => null);
  if (text === null) return { why: 'unreadable' };
  if (/[\0\uFFFD]/.test(text)) return { why: 'kind' };
  return holdsSecret(text) ? { why: 'secret' } : text;
}

type KeyCopy = NonNullable<Copies['keys']>[number];

async function keysOf({ from, format, keys = [], servers }: KeyCopy, own: Own): Promise<Fields | null> {
  for (const candidate of from) {
    const path = placeOf(candidate, own);
    const fields = await fieldsAt(path, format, own);
    if (fields === null) continue;
    const file = shown(path, own);
    const values = pick(fields, keys, file, own);
    const known = new Set([...keys.map(key => key.split('.')[0]), servers?.key]);
    for (const key of Object.keys(fields)) if (!known.has(key)) own.leftOut.push({ file, key, why: 'kind' });
    if (servers === undefined) return values;
    const copied = serversIn(fields[servers.key], servers, file, own);
    return Object.keys(copied).length === 0 ? values : { ...values, [servers.key]: copied };
  }
  return null;
}

async function fieldsAt(path: string, format: KeyCopy['format'], own: Own): Promise<Fields | null> {
  const found = await stat(path).catch(() => null);
  if (!found?.isFile()) return null;
  const leave = (why: LeftOut['why']): Fields => {
    own.leftOut.push({ file: shown(path, own), why });
    return {};
  };
  if (found.size > MAX_SETTINGS) return leave('size');
  try {
    const text = await readFile(path, 'utf8');
    const parsed: unknown = format === 'json' ? JSON.parse(text) : parseToml(text);
    return isFields(parsed) ? parsed : leave('unreadable');
  } catch {
    return leave('unreadable');
  }
}

// Keys with a dot are those of a table in the settings.
function pick(fields: Fields, keys: readonly string[], file: string, own: Own): Fields {
  let values: Fields = {};
  for (const key of keys) {
    const value = key.split('.').reduce<unknown>((at, name) => (isFields(at) ? at[name] : undefined), fields);
    if (value === undefined) continue;
    if (carriesSecret(value) || JSON.stringify(value).length > MAX_FILE) {
      own.leftOut.push({ file, key, why: 'secret' });
      continue;
    }
    values = merged(
      values,
      key.split('.').reduceRight<unknown>((inner, name) => ({ [name]: inner }), value),
    );
  }
  return values;
}

// A server is copied by its fields; one whose arguments or address may hold a secret is left out as a whole.
function serversIn(
  value: unknown,
  { key, fields }: { readonly key: string; readonly fields: readonly string[] },
  file: string,
  own: Own,
): Fields {
  if (!isFields(value)) return {};
  const copied: Record<string, Fields> = {};
  for (const [name, server] of Object.entries(value)) {
    if (!isFields(server)) continue;
    const kept = Object.fromEntries(Object.entries(server).filter(([field]) => fields.includes(field)));
    if (carriesSecret(name) || Object.values(kept).some(carriesSecret)) {
      own.leftOut.push({ file, key: `${key}.${name}`, why: 'secret' });
      continue;
    }
    for (const [field, left] of Object.entries(server))
      if (!fields.includes(field)) own.leftOut.push(...withheld({ file, key: `${key}.${name}.${field}` }, left));
    copied[name] = kept;
  }
  return copied;
}

// Variables and headers by their names, which say what is missing.
function withheld(at: { readonly file: string; readonly key: string }, value: unknown): LeftOut[] {
  if (!isFields(value)) return [{ ...at, why: 'kind' }];
  return Object.keys(value).map(name => ({ file: at.file, key: `${at.key}.${name}`, why: 'secret' }));
}

/** Whether a value has fields. */
function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);
}

/** Two values as one: where both have a field that is not a table, the second one’s counts. */
export function merged(one: unknown, other: unknown): Fields {
  const [first, second] = [isFields(one) ? one : {}, isFields(other) ? other : {}];
  const both = Object.entries(second).map(([name, value]): [string, unknown] => [
    name,
    isFields(value) && isFields(first[name]) ? merged(first[name], value) : value,
  ]);
  return { ...first, ...Object.fromEntries(both) };
}
