// Requests of the command line: what `acode fleet …` sends to the program of this package, and what comes back.

import * as z from 'zod';

const reach = { file: z.string().optional() };
const count = z.int().positive();

const commandField = z.union([z.string(), z.array(z.string()).min(1)]);

/** Where something runs, and within which limits. */
const placeFields = {
  id: z.string().optional(),
  pool: z.string().optional(),
  priority: z.enum(['high', 'normal', 'low']).optional(),
  image: z.string().optional(),
  level: z.enum(['docker', 'gvisor', 'microvm']).optional(),
  timeoutMs: count.optional(),
  memoryBytes: count.optional(),
  cpus: z.number().positive().optional(),
  pids: count.optional(),
  allow: z.array(z.string()).optional(),
  env: z.record(z.string(), z.string()).optional(),
  /** The directory that is packed; null for none. */
  workspace: z.string().nullable(),
};

const taskFields = {
  ...placeFields,
  command: commandField,
  cwd: z.string().optional(),
  attempts: count.optional(),
  /** Whether standard input is read. */
  stdin: z.boolean(),
  /** Where the workspace goes as the command left it. */
  files: z.string().optional(),
};

const createFields = {
  ...placeFields,
  expiresInMs: count.optional(),
  idleMs: count.optional(),
};

const execFields = {
  sandbox: z.string(),
  command: commandField,
  env: z.record(z.string(), z.string()).optional(),
  timeoutMs: count.optional(),
  /** Whether standard input is passed on. */
  stdin: z.boolean(),
};

const serverFields = {
  fleet: z.string().optional(),
  natsServer: z.string().optional(),
  postgres: z.string().optional(),
  listen: z.string().optional(),
  tlsCert: z.string().optional(),
  tlsKey: z.string().optional(),
  tlsCa: z.string().optional(),
};

const workerFields = {
  images: z.array(z.string()).optional(),
  slots: count.optional(),
  level: z.enum(['docker', 'gvisor', 'microvm']).optional(),
  socket: z.string().optional(),
};

const tenantFields = {
  action: z.enum(['add', 'list', 'remove']),
  name: z.string().optional(),
  /** Where the files of all tenants are. */
  directory: z.string().optional(),
  fleet: z.string().optional(),
  servers: z.array(z.string()).optional(),
  monitors: z.array(z.string()).optional(),
  postgres: z.string().optional(),
  gates: z.array(z.string()).optional(),
  caFile: z.string().optional(),
  /** The tenant’s own public key; by default a pair is made. */
  key: z.string().optional(),
  weight: z.number().positive().optional(),
  quota: count.optional(),
  queue: count.optional(),
  replace: z.boolean().optional(),
};

const serveFields = {
  images: z.array(z.string()).optional(),
  host: z.string().optional(),
  port: z.int().min(0).max(65_535).optional(),
  tlsCert: z.string().optional(),
  tlsKey: z.string().optional(),
  keys: z.string().optional(),
  sandboxes: z.int().min(1).max(128).optional(),
  level: z.enum(['docker', 'gvisor', 'microvm']).optional(),
  memoryBytes: count.optional(),
  cpus: z.number().positive().optional(),
  pids: count.optional(),
  allow: z.array(z.string()).optional(),
  socket: z.string().optional(),
};

/** Every request. */
export const requestSchema = z.discriminatedUnion('verb', [
  z.strictObject({ verb: z.literal('submit'), ...reach, ...taskFields }),
  z.strictObject({ verb: z.literal('run'), ...reach, ...taskFields }),
  z.strictObject({ verb: z.literal('logs'), ...reach, id: z.string() }),
  z.strictObject({ verb: z.literal('cancel'), ...reach, id: z.string() }),
  z.strictObject({ verb: z.literal('create'), ...reach, ...createFields }),
  z.strictObject({ verb: z.literal('exec'), ...reach, ...execFields }),
  z.strictObject({ verb: z.literal('list'), ...reach }),
  z.strictObject({ verb: z.literal('kill'), ...reach, sandboxes: z.array(z.string()).min(1) }),
  z.strictObject({ verb: z.literal('status'), ...reach, id: z.string().optional() }),
  z.strictObject({ verb: z.literal('hosts'), ...reach }),
  z.strictObject({ verb: z.literal('drain'), ...reach, host: z.string(), wait: z.boolean() }),
  z.strictObject({ verb: z.literal('doctor'), ...reach }),
  z.strictObject({ verb: z.literal('tenant'), ...tenantFields }),
  z.strictObject({ verb: z.literal('up'), ...serverFields, ...workerFields }),
  z.strictObject({ verb: z.literal('serve'), ...serveFields }),
  z.strictObject({ verb: z.literal('join'), from: z.string(), replace: z.boolean(), socket: z.string().optional() }),
]);

/** One request. */
export type FleetRequest = z.infer<typeof requestSchema>;

/** The request of one verb. */
export type RequestOf<Verb extends FleetRequest['verb']> = Extract<FleetRequest, { verb: Verb }>;

/** From the command line to the program. */
export type ToProgram =
  | { readonly is: 'request'; readonly request: unknown }
  /** The last piece of output has been written. */
  | { readonly is: 'more' }
  /** A signal came. */
  | { readonly is: 'stop' };

/** From the program to the command line. */
export type FromProgram =
  | { readonly is: 'output'; readonly stream: 1 | 2; readonly bytes: Uint8Array }
  | { readonly is: 'say'; readonly text: string }
  | { readonly is: 'value'; readonly schema: string; readonly value: object }
  | { readonly is: 'failed'; readonly error: object }
  | { readonly is: 'ended'; readonly status: number };

/** The command line, as a verb sees it. */
export interface Terminal {
  /** Aborted by the first signal. */
  readonly signal: AbortSignal;
  /** Passes on what a task printed; resolves when there is room for more. */
  output(stream: 1 | 2, bytes: Uint8Array): Promise<void>;
  /** Tells a person something. */
  say(text: string): void;
  /** The one result of the command. */
  value(schema: string, value: object): void;
}
