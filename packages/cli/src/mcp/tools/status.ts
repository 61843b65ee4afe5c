// status: whether commands can be run here, and within which limits.

import * as z from 'zod';
import { networkName } from '@acode/sandbox';
import type { Explanation, Status } from '@acode/sandbox';
import { oneLine } from '../../terminal/text.ts';
import { plainPolicy } from '../tighten.ts';
import { tool } from '../tool.ts';
import { nameText } from './arguments.ts';

const MIB = 1024 ** 2;
const DEADLINE_MS = 15_000;

const limitsSchema = z.object({
  timeout_seconds: z.number(),
  memory_mb: z.number(),
  cpus: z.number(),
  network: z.string(),
  workspace: z.enum(['writable', 'read-only']),
});

/** The tool. */
export const status = tool({
  name: 'status',
  title: 'Show whether sandboxes can be had',
  description:
    'Shows whether commands can be run here, at which isolation level, in which image, and within which limits of the user’s policy. Call it when another tool says that no sandbox can be had.',
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  lane: 'short',
  input: z.strictObject({}),
  output: z.object({
    available: z.boolean(),
    reason: z.string().optional().describe('Why not.'),
    remedy: z.string().optional().describe('What to do about it.'),
    level: z.string().nullable(),
    image: z.string(),
    engine: z.string().optional(),
    openSandboxes: z.int(),
    limits: limitsSchema.optional(),
  }),
  perform: async (_, { session, signal }) => {
    const found = await session.host.status();
    const enough = AbortSignal.any([signal, AbortSignal.timeout(DEADLINE_MS)]);
    // Without a plan there is still a status; it says itself why there is none.
    const plan = await session.host.explain(['true'], { policy: plainPolicy({}), signal: enough }).catch(() => null);
    const structured = described(found, plan, session.sandboxes.length);
    return { text: textOf(structured), structured };
  },
});

interface Described {
  available: boolean;
  reason?: string;
  remedy?: string;
  level: string | null;
  image: string;
  engine?: string;
  openSandboxes: number;
  limits?: z.input<typeof limitsSchema>;
}

function described(found: Status, plan: Explanation | null, openSandboxes: number): Described {
  return {
    available: found.available,
    ...(found.unavailableReason === undefined ? {} : { reason: found.unavailableReason }),
    ...(found.hint === undefined ? {} : { remedy: found.hint }),
    level: found.level,
    image: plan?.policy.image.value ?? found.defaultImage,
    ...(found.engine === undefined ? {} : { engine: found.engine.version }),
    openSandboxes,
    ...(plan === null ? {} : { limits: limitsOf(plan) }),
  };
}

function limitsOf({ policy }: Explanation): z.input<typeof limitsSchema> {
  return {
    timeout_seconds: policy.timeoutMs.value / 1000,
    memory_mb: Math.floor(policy.limits.memoryBytes.value / MIB),
    cpus: policy.limits.cpus.value,
    network: networkName(policy.network.value),
    workspace: policy.workspace.value === 'readonly' ? 'read-only' : 'writable',
  };
}

function textOf({ available, reason, remedy, level, image, limits }: Described): string {
  if (!available)
    return [`No command can be run here: ${oneLine(reason ?? 'unknown reason')}`, oneLine(remedy ?? '')]
      .join('\n')
      .trim();
  const bounds = limits
    ? ` Limits: ${limits.timeout_seconds} s, ${limits.memory_mb} MiB, ${limits.cpus} CPUs, network ${limits.network}, workspace ${limits.workspace}.`
    : '';
  return `Commands can be run at level ${level ?? 'unknown'} in ${nameText(image)}.${bounds}`;
}
