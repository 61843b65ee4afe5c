// Tool definition: its description for the model, its input and output schema, and its implementation.

import { AcodeError } from '@acode/sandbox';
import * as z from 'zod';
import { failureSchema } from './failure.ts';
import type { Progress } from './progress.ts';
import type { Session } from './session.ts';

const HIDDEN = '__proto__';

/** The surroundings of one call of a tool. */
export interface ToolCall {
  readonly session: Session;
  /** Fires when the client cancels the call or disconnects. */
  readonly signal: AbortSignal;
  readonly progress: Progress;
}

/** What a tool answers: for a model to read, and for a program. */
export interface Answer<Structured> {
  readonly text: string;
  readonly structured: Structured;
  /** Addresses of outputs that the text is an excerpt of. */
  readonly outputs?: readonly string[];
}

/** The tool annotations of the protocol: what a tool does to its surroundings. */
export interface Annotations {
  readonly readOnlyHint: boolean;
  readonly destructiveHint: boolean;
  readonly idempotentHint: boolean;
  readonly openWorldHint: boolean;
}

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
  readonly outputSchema: JsonObject;
  /** Throws where the arguments are not what it takes. */
  check(given: unknown): void;
  /** Checks the arguments, and does it. */
  call(given: unknown, call: ToolCall): Promise<Answer<Readonly<Record<string, unknown>>>>;
}

/** A JSON Schema of an object, or a part of one. */
export interface JsonObject {
  readonly type: 'object';
  readonly [key: string]: unknown;
}

interface Definition<Input extends z.ZodObject, Output extends z.ZodObject> extends Pick<
  Tool,
  'name' | 'title' | 'description' | 'annotations' | 'lane'
> {
  readonly input: Input;
  readonly output: Output;
  readonly perform: (given: z.output<Input>, call: ToolCall) => Promise<Answer<z.input<Output>>>;
}

/** Makes a tool of its definition. */
export function tool<Input extends z.ZodObject, Output extends z.ZodObject>(of: Definition<Input, Output>): Tool {
  const { name, title, description, annotations, lane, input, output, perform } = of;
  const read = (given: unknown): z.output<Input> => {
    const hidden = hiddenName(given);
    if (hidden !== null) throw unknownArgument(name, hidden);
    const parsed = input.safeParse(given);
    if (!parsed.success) throw wrongArguments(name, parsed.error.issues);
    return parsed.data;
  };
  return {
    name,
    title,
    description,
    annotations,
    lane,
    inputSchema: jsonObject(z.toJSONSchema(input, { target: 'draft-7', io: 'input' })),
    outputSchema: outputSchemaOf(output),
    check: given => void read(given),
    call: async (given, call) => {
      const { structured, ...answer } = await perform(read(given), call);
      return { ...answer, structured: { ...structured } };
    },
  };
}

// Clients hold failures to the schema too. So it is one flat object, and says which of its fields come together.
function outputSchemaOf(output: z.ZodObject): JsonObject {
  const [result, failure] = [output, failureSchema].map(schema =>
    jsonObject(z.toJSONSchema(schema, { target: 'draft-7', io: 'input' })),
  );
  return {
    type: 'object',
    properties: { ...propertiesOf(failure), ...propertiesOf(result) },
    anyOf: [{ required: result?.['required'] ?? [] }, { required: failure?.['required'] ?? [] }],
  };
}

function propertiesOf(schema: JsonObject | undefined): object {
  const properties = schema?.['properties'];
  return typeof properties === 'object' && properties !== null ? properties : {};
}

function jsonObject(schema: object): JsonObject {
  const { $schema: _, ...rest } = { $schema: null, ...schema };
  return { ...rest, type: 'object' };
}

function unknownArgument(called: string, field: string): AcodeError {
  return new AcodeError('ACODE-MCP-001', {
    tool: called,
    field: field.slice(0, 200),
    reason: 'is not an argument of this tool',
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

/** The error for arguments that a schema refuses. A misspelt name comes first: what is missing then is missing because of it. */
export function wrongArguments(called: string, issues: readonly z.core.$ZodIssue[]): AcodeError {
  const unknown = issues.find(issue => issue.code === 'unrecognized_keys');
  if (unknown) {
    return unknownArgument(called, [...unknown.path, unknown.keys.join(', ')].join('.'));
  }
  const [first] = issues;
  const text = (first?.message ?? '')
    .slice(0, 300)
    .replace(/^Invalid input(?:: )?/, '')
    .replace(/\.$/, '');
  const reason = text === '' ? 'is not valid' : `is not valid: ${text}`;
  return new AcodeError('ACODE-MCP-001', { tool: called, field: first?.path.join('.').slice(0, 200) ?? '', reason });
}
