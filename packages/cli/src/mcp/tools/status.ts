// status: whether commands can be run here, and within which limits.

import * as z from 'zod';
import { networkName } from '@acode/sandbox';
import type { Explanation, Status } from '@acode/sandbox';
import { oneLine } from '../../terminal/text.ts';
import { plainPolicy } from '../tighten.ts';
import { INSIDE } from '../paths.ts';
import type { Session } from '../session.ts';
import { READS, tool } from '../tool.ts';
import { nameText } from './arguments.ts';

const MIB = 1024 ** 2;
const DEADLINE_MS = 15_000;

interface Limits {
  readonly timeout_seconds: number;
  readonly memory_mb: number;
  readonly cpus: number;
  readonly network: string;
  readonly workspace: 'writable' | 'read-only' | 'forked';
}

/** The tool. */
export const status = tool({
  name: 'status',
  title: 'Show whether sandboxes can be had',
  description:
    'Shows whether commands can run here, and the image, network, limits and paths of the workspace. Call it when another tool says that no sandbox can be had.',
  annotations: READS,
  lane: 'short',
  input: z.strictObject({}),
  perform: async (_, { session, signal }) => {
    const found = await session.host.status();
    const enough = AbortSignal.any([signal, AbortSignal.timeout(DEADLINE_MS)]);
    // Without a plan there is still a status; it says itself why there is none.
    const plan = await session.host.explain(['true'], { policy: plainPolicy({}), signal: enough }).catch(() => null);
    const structured = described(found, plan, session);
    return { text: textOf(structured), structured };
  },
});

interface Described {
  readonly available: boolean;
  readonly reason?: string | undefined;
  readonly remedy?: string | undefined;
  readonly level: string | null;
  readonly image: string;
  readonly engine?: string | undefined;
  /** The workspace, as the user’s machine and as the sandbox names it. */
  readonly workspace: { readonly host: string; readonly sandbox: string };
  readonly openSandboxes?: number | undefined;
  readonly limits?: Limits | undefined;
}

function described(found: Status, plan: Explanation | null, { workspace, sandboxes }: Session): Described {
  return {
    available: found.available,
    reason: found.unavailableReason,
    remedy: found.hint,
    level: found.level,
    image: plan?.policy.image.value ?? found.defaultImage,
    engine: found.engine?.version,
    workspace: { host: workspace.root, sandbox: INSIDE },
    openSandboxes: sandboxes.length || undefined,
    limits: plan === null ? undefined : limitsOf(plan),
  };
}

const WORKSPACES = { direct: 'writable', readonly: 'read-only', fork: 'forked' } as const;

function limitsOf({ policy }: Explanation): Limits {
  return {
    timeout_seconds: policy.timeoutMs.value / 1000,
    memory_mb: Math.floor(policy.limits.memoryBytes.value / MIB),
    cpus: policy.limits.cpus.value,
    network: networkName(policy.network.value),
    workspace: WORKSPACES[policy.workspace.value],
  };
}

function textOf({ available, reason, remedy, level, image, workspace, limits }: Described): string {
  if (!available)
    return [`No command can be run here: ${oneLine(reason ?? 'unknown reason')}`, oneLine(remedy ?? '')]
      .join('\n')
      .trim();
  const bounds = limits
    ? ` Limits: ${limits.timeout_seconds} s, ${limits.memory_mb} MiB, ${limits.cpus} CPUs, network ${limits.network}, workspace ${limits.workspace}.`
    : '';
  return `Commands can be run at level ${level ?? 'unknown'} in ${nameText(image)}. The workspace ${nameText(workspace.host)} is ${workspace.sandbox} inside.${bounds}`;
}
