// Schema of a policy as a caller writes it. `PolicyFields` in policy.ts is the same by hand; a type test compares the two.

import * as z from 'zod';
import { CACHE_TOOLS } from './caches.ts';
import { LEVELS } from './levels.ts';
import { PROFILE_NAMES } from './profiles.ts';

const bytes = z.int().positive();
// Less is reached between two looks.
const MIN_DISK = 1024 ** 2;

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

// By name, so that what is no cache is an error and never ignored.
const cacheTool = z.enum(CACHE_TOOLS);

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
      z.strictObject({ allow: z.array(z.string()).readonly() }),
    ])
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
  user: z.union([z.literal('caller'), z.templateLiteral([z.int(), ':', z.int()])]).optional(),
  fork: z.string().min(1).optional(),
  services: z.record(z.string().min(1), z.string().min(1)).optional(),
  disk: z.strictObject({ bytes: z.int().min(MIN_DISK), hard: z.boolean().optional() }).optional(),
});
