// Tool definition: its description for the model, its arguments, and its implementation.

import type { AcodeError } from '@acode/sandbox';
import * as z from 'zod';
import { nearestArgument } from './nearest-argument.ts';
import type { Progress } from './progress.ts';
import type { Session } from './session.ts';
import { mcpError } from './errors.ts';

const HIDDEN = '__proto__';

/** The surroundings of one call of a tool. */
export interface ToolCall {
  readonly session: Session;
  /** Fires when the client cancels the call or disconnects. */
  readonly signal: AbortSignal;
  readonly progress: Progress;
}

/** What a tool answers: as text, and as an object. Some clients show the model the one, some the other. */
export interface Answer {
  readonly text: string;
  /** What is empty in it is not sent. */
  readonly structured: object;
  /** Addresses of outputs that the text is an excerpt of. */
  readonly outputs?: readonly string[];
}

/** The tool annotations of the protocol that differ from its defaults: what a tool does to its surroundings. */
export interface Annotations {
  readonly readOnlyHint?: true;
  readonly destructiveHint?: false;
  readonly idempotentHint?: true;
  readonly openWorldHint: false;
}

/** Of a tool that changes nothing. */
export const READS: Annotations = { readOnlyHint: true, openWorldHint: false };
/** Of a tool that adds something and changes nothing that was there. */
export const ADDS: Annotations = { destructiveHint: false, openWorldHint: false };
/** Of a tool that may change or remove what was there. */
export const CHANGES: Annotations = { openWorldHint: false };

/** How long a tool may take: a user’s command, or an operation of acode. */
export type Lane = 'commands' | 'short';

/** A tool, ready to be listed and called. */
export interface Tool {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly annotations: Annotations;
  readonly lane: Lane;
  readonly inputSchema: JsonObject;
  /** Whether clients that load tools on demand are asked to load it at once. */
  readonly isAlwaysLoaded: boolean;
  /** Throws where the arguments are not what it takes. */
  check(given: unknown): void;
  /** Checks the arguments, and does it. */
  call(given: unknown, call: ToolCall): Promise<Answer>;
}

/** A JSON Schema of an object, or a part of one. */
export interface JsonObject {
  readonly type: 'object';
  readonly [key: string]: unknown;
}

interface Definition<Input extends z.ZodObject> extends Pick<
  Tool,
  'name' | 'title' | 'description' | 'annotations' | 'lane'
> {
  readonly isAlwaysLoaded?: true;
  readonly input: Input;
  readonly perform: (given: z.output<Input>, call: ToolCall) => Promise<Answer>;
}

/** Makes a tool of its definition. */
export function tool<Input extends z.ZodObject>(of: Definition<Input>): Tool {
  const { name, title, description, annotations, lane, isAlwaysLoaded = false, input, perform } = of;
  const known = Object.keys(input.shape);
  const read = (given: unknown): z.output<Input> => {
    const hidden = hiddenName(given);
    if (hidden !== null) throw unknownArgument(name, hidden, known);
    const parsed = input.safeParse(given);
    if (!parsed.success) throw wrongArguments(name, parsed.error.issues, known);
    return parsed.data;
  };
  return {
    name,
    title,
    description,
    annotations,
    lane,
    isAlwaysLoaded,
    inputSchema: { ...lean(z.toJSONSchema(input, { target: 'draft-7', io: 'input' })), type: 'object' },
    check: given => void read(given),
    call: async (given, call) => perform(read(given), call),
  };
}

// A call is checked against these whatever its caller read, and every listed byte is in the context of every agent.
const UNLISTED = new Set([
  '$schema',
  'minLength',
  'maxLength',
  'minimum',
  'maximum',
  'exclusiveMinimum',
  'minItems',
  'propertyNames',
]);

function lean(schema: object): Record<string, unknown> {
  const kept = Object.entries(schema).filter(([key]) => !UNLISTED.has(key));
  return Object.fromEntries(
    kept.map(([key, value]) => [key, key === 'properties' ? leanEach(value) : leanPart(value)]),
  );
}

// The names of properties are arguments, and not words of the schema.
function leanEach(properties: unknown): unknown {
  if (!isObject(properties)) return properties;
  return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, leanPart(schema)]));
}

function leanPart(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(leanPart);
  return isObject(value) ? lean(value) : value;
}

function unknownArgument(called: string, field: string, known: readonly string[]): AcodeError {
  const nearest = nearestArgument(field, known);
  return mcpError('ACODE-MCP-001', {
    tool: called,
    field: field.slice(0, 200),
    reason: 'is not an argument of this tool',
    known,
    ...(nearest === null ? {} : { nearest }),
  });
}

// A schema passes over what is called `__proto__`, in arguments and in a list of variables alike, instead of refusing it.
function hiddenName(given: unknown): string | null {
  if (typeof given !== 'object' || given === null) return null;
  if (Object.hasOwn(given, HIDDEN)) return HIDDEN;
  const within = Object.entries(given).find(([, value]) => isObject(value) && Object.hasOwn(value, HIDDEN));
  return within ? `${within[0]}.${HIDDEN}` : null;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/**
 * The error for arguments that a schema refuses. A misspelt name comes first: what is missing then is missing because of it.
 *
 * @param known the arguments there are
 */
export function wrongArguments(
  called: string,
  issues: readonly z.core.$ZodIssue[],
  known: readonly string[] = [],
): AcodeError {
  const unknown = issues.find(issue => issue.code === 'unrecognized_keys' && issue.path.length === 0);
  if (unknown?.code === 'unrecognized_keys') return unknownArgument(called, unknown.keys.join(', '), known);
  const [first] = issues;
  const text = (first?.message ?? '')
    .slice(0, 300)
    .replace(/^Invalid input(?:: )?/, '')
    .replace(/\.$/, '');
  const reason = text === '' ? 'is not valid' : `is not valid: ${text}`;
  return mcpError('ACODE-MCP-001', { tool: called, field: first?.path.join('.').slice(0, 200) ?? '', reason });
}
