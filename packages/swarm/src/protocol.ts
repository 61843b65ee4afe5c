// Swarm protocol: the messages between the orchestrator and the adapter in a sandbox, one JSON object on each line.

import * as z from 'zod';
import type { ProtocolFault } from './errors.ts';
import { isContainerName, taskNameProblem } from './names.ts';

/** Version of the messages. */
export const PROTOCOL_VERSION = 1;
/** Longest line that an adapter may write, in bytes. */
export const MAX_LINE_BYTES = 64 * 1024;
/** Longest line that an adapter reads: it holds a whole task. */
export const MAX_REQUEST_BYTES = 1024 * 1024;
/** Longest text of a progress-update, and of an error. */
export const MAX_TEXT = 2000;
/** Most errors of a completion, and the length of each. */
export const MAX_ERRORS = 50;
export const MAX_ERROR_TEXT = 500;
/** Code of the error before the completion of a task whose agent asks a person something. */
export const NEEDS_INPUT = 'NEEDS_INPUT';
/** Most changed regions in one progress-update. */
export const MAX_REGIONS = 200;

const MAX_PATH = 1024;
const MAX_ARGUMENTS = 256;
const MAX_STORIES = 200;

const commit = z.string().regex(/^[0-9a-f]{40}$/);
const upTo = (most: number) => z.string().max(most);
const storyId = z.string().regex(/^US-\d{3}$/);

const envelope = {
  version: z.literal(PROTOCOL_VERSION),
  timestamp: z.iso.datetime(),
  swarmId: z.uuidv4(),
  containerId: z.string().refine(isContainerName),
};

const storySchema = z.strictObject({
  id: storyId,
  title: upTo(200).min(1),
  description: upTo(100_000),
  acceptance: z.array(upTo(4000)).max(50),
});

const workSchema = z.strictObject({
  id: z.string().refine(name => taskNameProblem(name) === null),
  title: upTo(200),
  description: upTo(100_000),
  /** The commit that the task begins at. */
  base: commit,
  /** Commits of other tasks that are merged first. */
  merge: z.array(commit).max(20),
  stories: z.array(storySchema).min(1).max(MAX_STORIES),
  /** The agent: `{prompt}` stands for the text of a story. */
  command: z.array(upTo(32_000)).min(1).max(MAX_ARGUMENTS),
  /** The agent when it goes on with its session; absent for one that begins anew with each story. */
  resume: z.array(upTo(32_000)).min(1).max(MAX_ARGUMENTS).optional(),
  attempts: z.int().min(1).max(5),
  /** Whether changes that are not committed stay: a person has worked in the fork. */
  keep: z.boolean().optional(),
});

const taskRequestSchema = z.strictObject({
  type: z.literal('task-request'),
  ...envelope,
  payload: z.strictObject({
    taskFilePath: upTo(MAX_PATH).min(1),
    branchName: upTo(200).min(1),
    repoUrl: z.url({ protocol: /^(?:https|ssh)$/ }).optional(),
    envVars: z.record(z.string().regex(/^[A-Z_][A-Z0-9_]*$/), upTo(32_768)).default({}),
    task: workSchema,
  }),
});

const regionSchema = z.strictObject({
  path: upTo(MAX_PATH).min(1),
  /** Lines of the commit that the task began at, from 1; both 0 for a file that is new. */
  from: z.int().min(0),
  to: z.int().min(0),
});

const progressSchema = z.strictObject({
  type: z.literal('progress-update'),
  ...envelope,
  payload: z.strictObject({
    storyId,
    status: z.enum(['pending', 'in_progress', 'completed', 'failed', 'skipped']),
    output: upTo(MAX_TEXT),
    attempt: z.int().min(1).max(5).optional(),
    commit: commit.optional(),
    changes: z.array(regionSchema).max(MAX_REGIONS).optional(),
  }),
});

const completionSchema = z.strictObject({
  type: z.literal('completion'),
  ...envelope,
  payload: z.strictObject({
    status: z.enum(['completed', 'failed', 'stopped']),
    prUrl: z.url({ protocol: /^https?$/ }).nullable(),
    errors: z.array(upTo(MAX_ERROR_TEXT)).max(MAX_ERRORS),
    commit: commit.nullable().optional(),
  }),
});

const errorSchema = z.strictObject({
  type: z.literal('error'),
  ...envelope,
  payload: z.strictObject({ code: z.string().regex(/^[A-Z][A-Z0-9_]{0,63}$/), message: upTo(MAX_TEXT) }),
});

/** What an orchestrator sends. */
const toAdapterSchema = taskRequestSchema;
/** What an adapter sends. */
export const fromAdapterSchema = z.discriminatedUnion('type', [progressSchema, completionSchema, errorSchema]);
/** Every message. */
export const messageSchema = z.discriminatedUnion('type', [
  taskRequestSchema,
  progressSchema,
  completionSchema,
  errorSchema,
]);

export type TaskRequest = z.infer<typeof taskRequestSchema>;
export type AdapterMessage = z.infer<typeof fromAdapterSchema>;
export type ProgressUpdate = z.infer<typeof progressSchema>;
export type Completion = z.infer<typeof completionSchema>;
export type Story = z.infer<typeof storySchema>;
export type Region = z.infer<typeof regionSchema>;
export type StoryStatus = ProgressUpdate['payload']['status'];

/** A message that is not one. */
export class ProtocolViolation extends Error {
  override readonly name = 'ProtocolViolation';
  readonly fault: ProtocolFault;

  constructor(fault: ProtocolFault, detail: string) {
    super(detail);
    this.fault = fault;
  }
}

/** Cuts bytes into lines, wherever they were split on their way. */
export class LineReader {
  readonly #most: number;
  #parts: Uint8Array[] = [];
  #length = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** The lines that are whole with these bytes. Throws where one is too long, or is not UTF-8. */
  *feed(bytes: Uint8Array): Generator<string, void, undefined> {
    let at = 0;
    for (let end = bytes.indexOf(10, at); end >= 0; end = bytes.indexOf(10, at)) {
      this.#add(bytes.subarray(at, end));
      at = end + 1;
      const line = this.#take();
      if (line !== '') yield line;
    }
    this.#add(bytes.subarray(at));
  }

  /** To be called at the end of the stream: a line without its end was cut off. */
  end(): void {
    if (this.#length > 0) throw new ProtocolViolation('cut', 'the stream ended within a message');
  }

  #add(part: Uint8Array): void {
    this.#length += part.byteLength;
    if (this.#length > this.#most)
      throw new ProtocolViolation('oversized', `a message is longer than ${this.#most} bytes`);
    // A copy: who reads a stream may use its buffer again.
    if (part.byteLength > 0) this.#parts.push(part.slice());
  }

  #take(): string {
    const whole = Buffer.concat(this.#parts);
    this.#parts = [];
    this.#length = 0;
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(whole).replace(/\r$/, '');
    } catch {
      throw new ProtocolViolation('encoding', 'a message is not UTF-8');
    }
  }
}

/** The message on a line that an adapter wrote. */
export function parseFromAdapter(line: string): AdapterMessage {
  return parsed(line, fromAdapterSchema, ['progress-update', 'completion', 'error']);
}

/** The message on a line that an orchestrator wrote. */
export function parseToAdapter(line: string): TaskRequest {
  return parsed(line, toAdapterSchema, ['task-request']);
}

const headSchema = z.looseObject({ type: z.unknown().optional(), version: z.unknown().optional() });
const TYPES = ['task-request', 'progress-update', 'completion', 'error'];

function parsed<Message>(line: string, schema: z.ZodType<Message>, allowed: readonly string[]): Message {
  const value = jsonOf(line);
  const { type, version } = headSchema.parse(value);
  if (typeof type !== 'string' || !TYPES.includes(type))
    throw new ProtocolViolation('schema', 'its type is none of the four');
  if (!allowed.includes(type)) throw new ProtocolViolation('direction', `${type} goes the other way`);
  if (version !== PROTOCOL_VERSION) throw new ProtocolViolation('version', `its version is not ${PROTOCOL_VERSION}`);
  const found = schema.safeParse(value);
  if (found.success) return found.data;
  const [issue] = found.error.issues;
  throw new ProtocolViolation(
    'schema',
    `${type} has an invalid ${issue?.path.map(String).join('.') || 'field'}`.slice(0, 200),
  );
}

function jsonOf(line: string): object {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw new ProtocolViolation('malformed', 'a line is not JSON');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new ProtocolViolation('malformed', 'a line is not a JSON object');
  return value;
}

/** Text as a message may hold it: its end, since that is where a program says what went wrong. */
export function ending(text: string, most: number): string {
  const cut = text.length <= most ? text : text.slice(text.length - most);
  // Half of a pair of surrogates at the cut would not survive UTF-8.
  return cut.replaceAll(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, '\ufffd');
}

const ORDER: Readonly<Record<StoryStatus, number>> = {
  pending: 0,
  in_progress: 1,
  completed: 2,
  failed: 2,
  skipped: 2,
};

/** The adapter’s side of one conversation: whose messages they are, and in which order they may come. */
export class Transcript {
  readonly #identity: { readonly swarmId: string; readonly containerId: string };
  readonly #stories: Map<string, StoryStatus>;
  #completion: Completion | null = null;

  constructor(identity: { readonly swarmId: string; readonly containerId: string }, stories: readonly string[]) {
    this.#identity = identity;
    this.#stories = new Map(stories.map(id => [id, 'pending']));
  }

  /** The last message; null while there is none. */
  get completion(): Completion | null {
    return this.#completion;
  }

  /** Accepts the next message, or throws a violation. */
  accept(message: AdapterMessage): AdapterMessage {
    const { swarmId, containerId } = this.#identity;
    if (message.swarmId !== swarmId || message.containerId !== containerId)
      throw new ProtocolViolation('identity', 'a message names another swarm or sandbox');
    if (this.#completion) throw new ProtocolViolation('order', `${message.type} after the completion`);
    if (message.type === 'completion') this.#completion = message;
    if (message.type === 'progress-update') this.#advance(message.payload);
    return message;
  }

  #advance({ storyId: id, status }: ProgressUpdate['payload']): void {
    const before = this.#stories.get(id);
    if (before === undefined) throw new ProtocolViolation('order', `there is no story ${id}`);
    const isBack = ORDER[status] < ORDER[before] || (ORDER[before] === 2 && status !== before);
    if (isBack) throw new ProtocolViolation('order', `story ${id} was ${before} and cannot become ${status}`);
    this.#stories.set(id, status);
  }
}
