// Policy requests of a model: never looser than the user’s own configuration.

import { LEVELS, isAtLeast, policyFrom } from '@acode/sandbox';
import type { Explanation, PolicyInput, RunRequest } from '@acode/sandbox';
import * as z from 'zod';
import type { ToolHost } from './host.ts';
import { mcpError } from './errors.ts';
import { INSIDE } from './paths.ts';

const MIB = 1024 ** 2;

/** The arguments by which a tool call can make its sandbox stricter. */
export const tighteningArguments = {
  timeout_seconds: z.number().positive().optional(),
  memory_mb: z.int().min(6).optional(),
  cpus: z.number().min(0.01).optional(),
  level: z.enum(LEVELS).optional().describe('Isolation level.'),
  network: z
    .string()
    .regex(/^(?:none|allow=[^,\s]+(?:,[^,\s]+)*)$/)
    .max(2000)
    .optional()
    .describe('none, or allow=npm:install,host.example: some of what the user’s configuration lists.'),
  read_only: z.literal(true).optional().describe('The workspace cannot be changed.'),
  risk: z.enum(['low', 'medium', 'high', 'critical']).optional().describe('How dangerous you believe it to be.'),
  image: z.string().min(1).max(512).optional().describe('Container image, one that the user trusts.'),
};

/** What a tool call said about its policy. */
export type Tightening = z.output<z.ZodObject<typeof tighteningArguments>>;

/** A policy for the library, and what a model should know of how it came about. */
export interface Tightened {
  readonly policy: PolicyInput;
  readonly notes: readonly string[];
}

/**
 * The policy for a call. The library’s ceilings bound what any request can have; this bounds it by what the same request
 * would have had without the model’s wishes, which may be less.
 */
export async function tightened(host: ToolHost, asked: Tightening, signal: AbortSignal): Promise<Tightened> {
  const plain = plainPolicy(asked);
  if (!isCompared(asked)) return { policy: plain, notes: [] };
  const request: RunRequest = { policy: plain, signal, ...(asked.risk === undefined ? {} : { risk: asked.risk }) };
  return boundedBy(asked, plain, await host.explain(['true'], request));
}

/** The same, for an explanation that is at hand. Pure. */
export function boundedBy(
  asked: Tightening,
  plain: PolicyInput,
  { policy, level }: Pick<Explanation, 'policy' | 'level'>,
): Tightened {
  if (asked.level !== undefined && !isAtLeast(asked.level, level))
    throw mcpError('ACODE-MCP-006', { field: 'level', asked: asked.level, allowed: level });
  const notes: string[] = [];
  const least = (field: string, wanted: number | undefined, allowed: number, unit: number): number | undefined => {
    if (wanted === undefined || wanted <= allowed) return wanted;
    notes.push(`${field} was lowered from ${wanted / unit} to ${allowed / unit}, the limit of the user’s policy.`);
    return undefined;
  };
  const timeoutMs = least('timeout_seconds', inMilliseconds(asked.timeout_seconds), policy.timeoutMs.value, 1000);
  const memoryBytes = least('memory_mb', inBytes(asked.memory_mb), policy.limits.memoryBytes.value, MIB);
  const cpus = least('cpus', asked.cpus, policy.limits.cpus.value, 1);
  const limits = { ...(memoryBytes === undefined ? {} : { memoryBytes }), ...(cpus === undefined ? {} : { cpus }) };
  return {
    policy: policyFrom({
      ...plain,
      ...(asked.level === undefined ? {} : { level: asked.level }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      ...(Object.keys(limits).length === 0 ? {} : { limits }),
    }),
    notes,
  };
}

/** The part that cannot loosen anything, or that the user’s own lists decide about. */
export function plainPolicy({ network, read_only: readOnly, image }: Tightening): PolicyInput {
  return {
    // The library then lets the image be one that the user trusts, and pulls nothing that a model chose.
    askedBy: 'model',
    // Tools tell the model this path, and translate paths of the host to it.
    workspacePath: INSIDE,
    ...(network === undefined ? {} : { network: asNetwork(network) }),
    ...(readOnly === undefined ? {} : { workspace: 'readonly' as const }),
    ...(image === undefined ? {} : { image }),
  };
}

// The library lets a model have what the user’s own list allows, and refuses the rest.
function asNetwork(asked: string): NonNullable<PolicyInput['network']> {
  return asked === 'none' ? 'none' : { allow: asked.replace(/^allow=/, '').split(',') };
}

function isCompared({ timeout_seconds: timeout, memory_mb: memory, cpus, level }: Tightening): boolean {
  return [timeout, memory, cpus, level].some(value => value !== undefined);
}

function inMilliseconds(seconds: number | undefined): number | undefined {
  return seconds === undefined ? undefined : Math.max(1, Math.round(seconds * 1000));
}

function inBytes(megabytes: number | undefined): number | undefined {
  return megabytes === undefined ? undefined : megabytes * MIB;
}
