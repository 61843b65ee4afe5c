// Schema of a policy as a caller writes it. `PolicyFields` in policy.ts is the same by hand; a type test compares the two.

import * as z from 'zod';
import { CACHE_TOOLS } from './caches.ts';
import { LEVELS } from './levels.ts';
import { STATE_NAME } from './policy.ts';
import { PROFILE_NAMES } from './profiles.ts';

const bytes = z.int().positive();
// Less is reached between two looks.
const MIN_DISK = 1024 ** 2;

// A database that restores a dump takes minutes.
const MAX_READY_MS = 15 * 60_000;

const portRequest = z.strictObject({
  container: z.int().min(1).max(65_535),
  host: z.int().min(1).max(65_535).optional(),
  protocol: z.enum(['tcp', 'udp']).optional(),
});

const mountRequest = z.strictObject({
  source: z.string().min(1),
  target: z.string().min(1),
  readOnly: z.boolean().optional(),
});

const service = z.strictObject({
  image: z.string().min(1),
  port: z.int().min(1).max(65_535).optional(),
  env: z.record(z.string(), z.string()).optional(),
  command: z.array(z.string()).min(1).readonly().optional(),
  user: z.templateLiteral([z.int(), ':', z.int()]).optional(),
  memoryBytes: bytes.optional(),
  writable: z.array(z.string().startsWith('/')).readonly().optional(),
  readyMs: z.int().positive().max(MAX_READY_MS).optional(),
});

// By name, so that what is no cache is an error and never ignored.
const cacheTool = z.enum(CACHE_TOOLS);

const loginDefinition = z
  .strictObject({
    authorizeUrl: z.string().optional(),
    tokenUrl: z.string(),
    clientId: z.string(),
    scopes: z.array(z.string()).readonly().optional(),
    redirectUri: z.string().optional(),
    tokenRequest: z.enum(['form', 'json']).optional(),
    revokeUrl: z.string().optional(),
    refusedUrls: z.array(z.string()).readonly().optional(),
  })
  .readonly();

// Values never stand in a request: a source names where they are.
const credentialRequest = z.strictObject({
  from: z.union([
    z.strictObject({ env: z.string().min(1) }).readonly(),
    z.strictObject({ file: z.string().startsWith('/') }).readonly(),
    z.strictObject({ command: z.array(z.string()).min(1).readonly() }).readonly(),
    z.strictObject({ secretService: z.record(z.string(), z.string()).readonly() }).readonly(),
    z.strictObject({ login: z.string().min(1) }).readonly(),
  ]),
  hosts: z.array(z.string()).min(1).readonly().optional(),
  as: z
    .union([
      z.literal('bearer'),
      z.strictObject({ header: z.string().min(1) }).readonly(),
      z.strictObject({ basic: z.string().min(1) }).readonly(),
      z.strictObject({ query: z.string().min(1) }).readonly(),
    ])
    .optional(),
  variable: z.string().min(1).optional(),
  placeholder: z.string().min(1).optional(),
  mode: z.enum(['inspect', 'base-url']).optional(),
  baseUrlVariable: z.string().min(1).optional(),
  login: loginDefinition.optional(),
  refreshVariable: z.string().min(1).optional(),
});

/** The schema of `PolicyFields`: strict, so that a misspelt key is an error and never ignored. */
export const policyInputSchema = z.strictObject({
  profile: z.enum(PROFILE_NAMES).optional(),
  level: z.enum([...LEVELS, 'auto']).optional(),
  runtime: z.string().min(1).optional(),
  image: z.string().min(1).optional(),
  askedBy: z.enum(['caller', 'model']).optional(),
  pull: z.enum(['missing', 'always', 'never']).optional(),
  limits: z
    .strictObject({
      memoryBytes: bytes.optional(),
      swapBytes: z.int().nonnegative().optional(),
      // The least the engine can hold anybody to; less would round to no limit at all.
      cpus: z.number().min(0.01).optional(),
      // Init, the shell that waits for the command, and the command with a few processes of its own.
      pids: z.int().min(8).optional(),
      // The engine itself needs some to start a container.
      openFiles: z.int().min(32).optional(),
      tmpBytes: z.int().min(65_536).optional(),
      outputBytes: z.int().nonnegative().optional(),
    })
    .optional(),
  timeoutMs: z.int().positive().optional(),
  onOutOfMemory: z.enum(['report', 'end']).optional(),
  network: z
    .union([
      z.enum(['none', 'bridge']),
      z.strictObject({ name: z.string().min(1) }),
      z.strictObject({
        allow: z.array(z.string()).readonly(),
        credentials: z.record(z.string().min(1), credentialRequest).readonly().optional(),
      }),
    ])
    .optional(),
  networkLimits: z
    .strictObject({
      bytesPerSecond: z.int().min(1024).optional(),
      bytes: z.int().positive().optional(),
      requests: z.int().positive().optional(),
      tokens: z.int().positive().optional(),
    })
    .optional(),
  ports: z.array(portRequest).optional(),
  dns: z.array(z.string()).optional(),
  workspace: z.enum(['direct', 'readonly', 'fork']).optional(),
  workspacePath: z.union([z.literal('same'), z.string().startsWith('/')]).optional(),
  mounts: z.array(mountRequest).optional(),
  caches: z
    .union([z.array(cacheTool).readonly(), z.literal(false), z.strictObject({ fill: z.array(cacheTool).readonly() })])
    .optional(),
  deps: z.boolean().optional(),
  forkCopy: z.boolean().optional(),
  user: z.union([z.literal('caller'), z.templateLiteral([z.int(), ':', z.int()])]).optional(),
  fork: z.string().min(1).optional(),
  services: z.record(z.string().min(1), z.union([z.string().min(1), service])).optional(),
  programs: z
    .array(z.strictObject({ id: z.string().min(1), target: z.string().regex(/^\/opt\/[a-z0-9][a-z0-9-]{0,62}$/) }))
    .optional(),
  state: z
    .strictObject({
      name: z.string().regex(STATE_NAME),
      bytes: z.int().min(MIN_DISK).optional(),
      fresh: z.boolean().optional(),
    })
    .optional(),
  disk: z.strictObject({ bytes: z.int().min(MIN_DISK), hard: z.boolean().optional() }).optional(),
});
