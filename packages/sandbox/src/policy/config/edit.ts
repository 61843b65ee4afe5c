// Changes to the text of a configuration file that preserve its comments and order.

import { isCollection, isMap, isScalar, parse, parseDocument } from 'yaml';
import type { Document } from 'yaml';
import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';
import { ALIASES } from './check.ts';
import { SCHEMA_FILE } from './json-schema.ts';
import { isSection, keysOf, nearestKey } from './keys.ts';
import { configSchema } from './schema.ts';

const NEW_FILE = `# yaml-language-server: $schema=./${SCHEMA_FILE}
# acode's configuration: \`acode config check\` checks it, docs/configuration.md lists every key.
`;

/** The text that a new file begins with: editors find the schema by it. */
export function newFileText(): string {
  return NEW_FILE;
}

/** A key of the configuration, as it is changed. */
export interface EditedKey {
  /** The path in the file: names in maps of the user’s own may have dots. */
  readonly path: readonly string[];
  readonly isList: boolean;
}

/** The key for what was typed; throws for one that does not exist. */
export function editedKey(typed: string): EditedKey {
  const known = keysOf(configSchema);
  if (known.includes(typed)) {
    const schema = schemaAt(typed);
    if (!(schema instanceof z.ZodRecord)) return { path: typed.split('.'), isList: isList(schema) };
    throw unknown(typed, 'holds names of your own', `Write ${typed}.<name>.`);
  }
  const map = known.find(key => typed.startsWith(`${key}.`) && schemaAt(key) instanceof z.ZodRecord);
  if (map !== undefined) return { path: [...map.split('.'), typed.slice(map.length + 1)], isList: false };
  if (isSection(typed, known)) {
    const keys = known.filter(key => key.startsWith(`${typed}.`));
    const some = `${keys.slice(0, 8).join(', ')}${keys.length > 8 ? ', …' : ''}`;
    throw unknown(typed, 'is a section and not a key', `Name one of its keys: ${some}.`);
  }
  const near = nearestKey(typed, known);
  const remedy =
    near === null
      ? '`acode config get` shows what is set; docs/configuration.md lists every key.'
      : `Write ${near}; docs/configuration.md lists every key.`;
  throw unknown(typed, `is not a known key${near === null ? '' : ` (did you mean ${near}?)`}`, remedy);
}

function unknown(key: string, why: string, remedy: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', { field: key.slice(0, 120), reason: `this ${why}`, remedy });
}

function schemaAt(key: string): unknown {
  let here: unknown = configSchema;
  for (const step of key.split('.')) {
    here = bare(here);
    if (!(here instanceof z.ZodObject)) return undefined;
    const shape: Readonly<Record<string, unknown>> = here.shape;
    here = shape[step];
  }
  return bare(here);
}

function bare(schema: unknown): unknown {
  return schema instanceof z.ZodOptional ? bare(schema.unwrap()) : schema;
}

function isList(schema: unknown): boolean {
  return schema instanceof z.ZodArray || schema instanceof z.ZodTuple;
}

/** The values that typed text may mean, likeliest first: `true` is a boolean, and text where only text is taken. */
export function meantValues({ isList: list }: EditedKey, typed: readonly string[]): unknown[] {
  if (!list) {
    const [only = ''] = typed;
    return [scalarOf(only), only];
  }
  const entries = typed.flatMap(one => (one.trimStart().startsWith('{') ? [one] : one.split(',')));
  const trimmed = entries.map(entry => entry.trim()).filter(entry => entry !== '');
  return [trimmed.map(scalarOf), trimmed];
}

// As the file would be read. Text that is not YAML is text.
function scalarOf(text: string): unknown {
  try {
    const value: unknown = parse(text, { schema: 'core', version: '1.2' });
    return value === null || value === undefined ? text : value;
  } catch {
    return text;
  }
}

/** The text with a key set to a value; for `add`, with the entries that the list lacks. */
export function withValue(text: string | null, { path }: EditedKey, value: unknown, add: boolean): string {
  const document = documentOf(text ?? NEW_FILE);
  const before = add ? entriesAt(document, path) : [];
  takeOut(document, path);
  const entries: readonly unknown[] = Array.isArray(value) ? value : [];
  const next = add ? [...before, ...entries.filter(one => !isIn(before, one))] : value;
  makeSections(document, path.slice(0, -1));
  const node = document.getIn(path, true);
  // Comments at the end of the line remain.
  if (isScalar(node) && !Array.isArray(next)) node.value = next;
  else document.setIn(path, document.createNode(next));
  return textOf(document);
}

/** The text without a key; sections that hold nothing else go with it. */
export function withoutKey(text: string, { path }: EditedKey): string {
  const document = documentOf(text);
  takeOut(document, path);
  document.deleteIn(path);
  for (let length = path.length - 1; length > 0; length -= 1) {
    const section = document.getIn(path.slice(0, length), true);
    if (!isCollection(section) || section.items.length > 0) break;
    document.deleteIn(path.slice(0, length));
  }
  return textOf(document);
}

function documentOf(text: string): Document {
  const document: Document = parseDocument(text, { version: '1.2', schema: 'core', logLevel: 'error' });
  if (!isMap(document.contents)) document.contents = document.createNode({});
  return document;
}

// An emptied map would be printed as `{}`.
function textOf(document: Document): string {
  if (isMap(document.contents) && document.contents.items.length === 0) {
    const comments = [document.commentBefore, document.comment].filter(Boolean).join('\n');
    return comments === '' ? '' : `${comments.replaceAll(/^/gm, '#')}\n`;
  }
  return document.toString({ lineWidth: 0 });
}

function entriesAt(document: Document, path: readonly string[]): unknown[] {
  for (const written of [path, ...otherForms(path)]) {
    const found: unknown = document.getIn(written);
    const value: unknown = isCollection(found) ? found.toJSON() : found;
    if (Array.isArray(value)) return value;
  }
  return [];
}

function isIn(list: readonly unknown[], value: unknown): boolean {
  return list.some(one => JSON.stringify(one) === JSON.stringify(value));
}

// The same key with dots, or under an old name, would contradict the new value.
function takeOut(document: Document, path: readonly string[]): void {
  for (const form of otherForms(path)) if (document.hasIn(form)) document.deleteIn(form);
}

function otherForms(path: readonly string[]): (readonly string[])[] {
  const key = path.join('.');
  const old = ALIASES.filter(alias => alias.key === key).map(alias => alias.old.split('.'));
  return [...joined(path).slice(1), ...old.flatMap(joined)];
}

/** Every way to write a path with dots between some of its parts, the one without dots first. */
function joined(path: readonly string[]): string[][] {
  const [first, ...rest] = path;
  if (first === undefined) return [[]];
  return joined(rest).flatMap(tail => {
    const [next, ...others] = tail;
    return next === undefined
      ? [[first]]
      : [
          [first, ...tail],
          [`${first}.${next}`, ...others],
        ];
  });
}

// `sandbox:` with nothing below it is null in YAML.
function makeSections(document: Document, path: readonly string[]): void {
  for (let length = 1; length <= path.length; length += 1) {
    const at = path.slice(0, length);
    if (!isCollection(document.getIn(at, true))) document.setIn(at, document.createNode({}));
  }
}
