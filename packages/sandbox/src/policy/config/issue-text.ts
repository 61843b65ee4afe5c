// Messages for invalid values: the one place for files, options and requests alike.

import type { z } from 'zod';

const NOUNS: Readonly<Record<string, string>> = {
  number: 'a number',
  int: 'a whole number',
  string: 'text',
  boolean: 'true or false',
  object: 'keys with values',
  record: 'keys with values',
  array: 'a list',
  tuple: 'a list',
};

const WRONG_FORM = 'does not have the form that is expected here';

/** The words for an issue that its schema has none for; given to every `safeParse`, so that a schema’s own message has precedence. */
export function issueText(issue: z.core.$ZodRawIssue): string {
  const { code } = issue;
  if (code === 'invalid_type') return typeText(issue);
  if (code === 'too_small')
    return bound(issue.origin, issue.inclusive === false ? 'more than' : 'at least', issue.minimum);
  if (code === 'too_big')
    return bound(issue.origin, issue.inclusive === false ? 'less than' : 'at most', issue.maximum);
  if (code === 'invalid_value') return `expected ${oneOf(issue.values.map(String))}`;
  if (code === 'invalid_union') return unionText(issue.errors);
  return code === 'unrecognized_keys' ? `has an unknown key, ${issue.keys.join(', ')}` : WRONG_FORM;
}

function typeText({ expected, input }: z.core.$ZodRawIssue<z.core.$ZodIssueInvalidType>): string {
  if (expected === 'never') return 'must not be set';
  if (input === undefined) return `is missing; expected ${NOUNS[expected] ?? expected}`;
  return `expected ${NOUNS[expected] ?? expected}, found ${meantBy(expected, input) ?? kindOf(input)}`;
}

// What other formats and YAML 1.1 read as true or false. These words are no secrets, so they may be shown.
const BOOLEANS: Readonly<Record<string, boolean>> = {
  yes: true,
  y: true,
  on: true,
  true: true,
  no: false,
  n: false,
  off: false,
  false: false,
};

// Text that is a value of another kind in quotes, or in the words of another format: what was found, and what to write.
function meantBy(expected: string, input: unknown): string | null {
  if (typeof input !== 'string' || input.length > 20) return null;
  const word = input.trim().toLowerCase();
  if (expected === 'boolean' && Object.hasOwn(BOOLEANS, word))
    return `\`${input}\` (text); write ${String(BOOLEANS[word])}`;
  if ((expected === 'number' || expected === 'int') && /^-?\d+(?:\.\d+)?$/.test(word))
    return `"${word}" (text); write ${word}`;
  return null;
}

/** What kind of value something is, for people. Never the value itself: it may be a secret. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return 'nothing';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'number') return Number.isInteger(value) ? 'a whole number' : 'a broken number';
  if (typeof value === 'boolean') return String(value);
  if (typeof value === 'string') return value === '' ? 'empty text' : 'text';
  return typeof value === 'object' ? 'keys with values' : `a ${typeof value}`;
}

function bound(origin: string, than: string, limit: number | bigint): string {
  if (origin === 'string') {
    if (than === 'at least' && Number(limit) === 1) return 'must not be empty';
    return `must have ${than} ${limit} ${Number(limit) === 1 ? 'character' : 'characters'}`;
  }
  if (origin === 'array' || origin === 'set')
    return Number(limit) === 0
      ? 'must be empty'
      : `must have ${than} ${limit} ${Number(limit) === 1 ? 'entry' : 'entries'}`;
  return `must be ${than} ${limit}`;
}

function oneOf(words: readonly string[]): string {
  const last = words.at(-1) ?? 'nothing';
  return words.length < 2 ? last : `${words.slice(0, -1).join(', ')} or ${last}`;
}

function expectedBy(issue: z.core.$ZodIssue): string[] {
  if (issue.code === 'invalid_value') return [oneOf(issue.values.map(String))];
  return issue.code === 'invalid_type' ? [NOUNS[issue.expected] ?? issue.expected] : [];
}

// An alternative that was meant, but for something inside it, has more to say than the list of all of them.
function unionText(alternatives: readonly (readonly z.core.$ZodIssue[])[]): string {
  const firsts = alternatives.flatMap(([first]) => (first ? [first] : []));
  const meant = firsts.find(
    ({ code, path }) => path.length > 0 || (code !== 'invalid_type' && code !== 'invalid_value'),
  );
  if (meant) return meant.path.length > 0 ? `${meant.path.join('.')} ${meant.message}` : meant.message;
  const all = [...new Set(firsts.flatMap(expectedBy))];
  return all.length === 0 ? WRONG_FORM : `expected ${all.join(', or ')}`;
}
