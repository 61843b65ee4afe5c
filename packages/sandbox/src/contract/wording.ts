// Text with references: fields of a request and layers stay data inside a sentence, so that the library, the command line
// and the MCP server can each name them in their own terms without parsing the sentence.

import { settingText } from './setting.ts';
import type { Setting } from './setting.ts';
import type { Source } from './sourced.ts';

/** A field of the request inside a text, such as `policy.network`. */
export interface FieldReference {
  /** The name of the field. */
  readonly field: string;
  /** The value to give it, where the text suggests one. */
  readonly value?: string | number;
}

/** The layer that set something, inside a text. */
export interface SourceReference {
  /** The layer, and the place in it. */
  readonly source: Source;
}

/** A setting to change, inside a text. */
export interface SettingReference {
  /** The key, and the value to give it. */
  readonly setting: Setting;
}

/** A piece of a text. */
export type TextPart = string | FieldReference | SourceReference | SettingReference;

/** A text; plain where it refers to nothing. It is data and survives JSON. */
export type Text = string | readonly TextPart[];

/** The terms of one audience: how it names a field of the request, and who set a value. */
export interface Terms {
  /** The name of a field, with a value to give it. */
  readonly field: (name: string, value?: string | number) => string;
  /** The name of who set a value. */
  readonly source: (source: Source) => string;
  /** How a setting is changed; by default the command, and the YAML on one line. */
  readonly setting?: (setting: Setting) => string;
}

/** The variable that sets the mode; it counts as part of the request. */
export const ENVIRONMENT_MODE = 'ACODE_MODE';

/** The place of a rule that no layer can change. */
export const BUILT_IN_RULE: Source = { layer: 'built-in', where: 'rule' };

/** The terms of the library: fields by their names. */
export const LIBRARY_TERMS: Terms = {
  field: (name, value) => (value === undefined ? name : `${name}: ${inLibrary(value)}`),
  source: source =>
    source.layer === 'request' && source.where !== ENVIRONMENT_MODE
      ? `the request, ${source.where}`
      : layerText(source),
};

// An allow-list is one text on the command line and in a tool call, and an object here.
function inLibrary(value: string | number): string {
  const [, list] = typeof value === 'string' ? (/^allow=(.+)$/.exec(value) ?? []) : [];
  return list === undefined ? String(value) : `{ allow: ['${list.split(',').join("', '")}'] }`;
}

/** A layer other than the request, for a person. */
export function layerText({ layer, where }: Source): string {
  if (layer === 'built-in') return where === BUILT_IN_RULE.where ? 'the built-in rules' : 'the built-in default';
  if (where === ENVIRONMENT_MODE) return `the environment, ${where}`;
  if (layer === 'machine') return `the machine’s policy, ${where}`;
  if (layer === 'team') return `the team’s defaults, ${where}`;
  if (layer === 'user') return `your configuration, ${where}`;
  return layer === 'repository' ? `the repository, ${where}` : where;
}

/** A text made of a template whose values are references, other texts or plain values. */
export function text(strings: readonly string[], ...values: readonly (Text | TextPart | number)[]): Text {
  const parts: TextPart[] = [];
  const add = (part: TextPart): void => {
    const last = parts.at(-1);
    if (part === '') return;
    if (typeof part === 'string' && typeof last === 'string') parts[parts.length - 1] = last + part;
    else parts.push(part);
  };
  for (const [index, string] of strings.entries()) {
    add(string);
    const value = values[index];
    if (value === undefined) continue;
    if (typeof value === 'number') add(String(value));
    else if (typeof value === 'object' && !('field' in value) && !('source' in value) && !('setting' in value))
      value.forEach(add);
    else add(value);
  }
  return parts.every(part => typeof part === 'string') ? parts.join('') : parts;
}

/** The text as a sentence, in the terms of an audience. */
export function rendered(of: Text, terms: Terms = LIBRARY_TERMS): string {
  if (typeof of === 'string') return of;
  return of
    .map(part => {
      if (typeof part === 'string') return part;
      if ('setting' in part) return (terms.setting ?? settingText)(part.setting);
      return 'field' in part ? terms.field(part.field, part.value) : terms.source(part.source);
    })
    .join('');
}

/** The settings that a text asks to change. */
export function settingsIn(of: Text): Setting[] {
  return typeof of === 'string'
    ? []
    : of.flatMap(part => (typeof part === 'object' && 'setting' in part ? [part.setting] : []));
}
