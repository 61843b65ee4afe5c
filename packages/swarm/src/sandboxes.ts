// Sandboxes of a swarm: the requests to the library, for a task and for what is asked of its fork.

import { createHash } from 'node:crypto';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { policyFrom } from '@acode/sandbox';
import type { Acode, PolicyFields, RunResult, RunningCommand } from '@acode/sandbox';
import * as z from 'zod';
import { adapterProgram } from './adapter-program.ts';
import { readyAgent } from './agents.ts';
import type { AgentSurroundings, ReadyAgent } from './agents.ts';
import { isAcodeError } from './errors.ts';
import type { SwarmRecord, TaskRecord } from './record.ts';

const TARGET = '/opt/acode-swarm';
const ADAPTER = `${TARGET}/adapter.mjs`;
const MIB = 1024 ** 2;
const INQUIRY_MS = 120_000;
const SETUP_MS = 3_600_000;
// Agents unpack and cache there; it is a part of the memory.
const AGENT_TMP = 512 * MIB;
/** More than the messages of any task. What comes beyond ends it. */
export const MAX_MESSAGES_BYTES = 32 * MIB;

/** What inquiries answer, beyond their schema: an error. */
const failure = z.looseObject({ error: z.string() });

/** An inquiry that found something wrong. */
export class InquiryFailure extends Error {
  override readonly name = 'InquiryFailure';
  readonly fields: z.infer<typeof failure>;

  constructor(fields: z.infer<typeof failure>) {
    super(fields.error);
    this.fields = fields;
  }
}

/** The adapter on a task, and how the agent beside it is started; null for a command. */
export interface StartedTask {
  readonly running: RunningCommand;
  readonly agent: ReadyAgent | null;
}

/** What is started at a terminal, and in which sandbox. */
export interface AtTerminal {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly policy: PolicyFields;
  readonly taskId: string;
}

const SHELL = ['sh', '-c', 'command -v bash >/dev/null 2>&1 && exec bash; exec sh'];

/** The sandboxes of one swarm. */
export class SwarmSandboxes {
  readonly #acode: Acode;
  readonly #record: SwarmRecord;
  readonly #agents: AgentSurroundings;
  #program: Promise<string> | null = null;

  constructor(acode: Acode, record: SwarmRecord, agents: AgentSurroundings = { env: process.env }) {
    this.#acode = acode;
    this.#record = record;
    this.#agents = agents;
  }

  /** The image of every sandbox; null for that of the workspace. */
  get image(): string | null {
    return this.#record.image;
  }

  /** Starts the adapter on a task, in its fork. */
  async task(task: TaskRecord, remainingMs: number, signal: AbortSignal): Promise<StartedTask> {
    const agent = await this.agent(task, { signal });
    const running = await this.#acode.spawn(['node', ADAPTER, 'task'], {
      policy: policyFrom({ ...(await this.policy(task, agent)), timeoutMs: Math.max(1000, remainingMs) }),
      taskId: task.containerName,
      ...(agent ? { env: agent.env } : {}),
      signal,
    });
    return { running, agent };
  }

  /** What a person at a terminal gets: the agent in its session, or a shell, in the fork of a task and with its limits. */
  async atTerminal(task: TaskRecord, signal: AbortSignal): Promise<AtTerminal> {
    const agent = await this.agent(task, { signal });
    const { limits, ...policy } = await this.policy(task, agent);
    const { outputBytes: _, ...kept } = limits ?? {};
    return {
      command: agent?.atTerminal ?? SHELL,
      env: agent?.env ?? {},
      policy: { ...policy, limits: kept },
      taskId: task.containerName,
    };
  }

  /** The agent of a task, ready to be started; null for a command. */
  agent(task: TaskRecord, options: Parameters<typeof readyAgent>[4]): Promise<ReadyAgent | null> {
    return readyAgent(this.#acode, this.#record, task, this.#agents, options);
  }

  /** The policy of a task’s sandbox. */
  async policy({ fork, limits }: TaskRecord, agent: ReadyAgent | null): Promise<PolicyFields> {
    const { memoryBytes, swapBytes, cpus, pids, allow } = limits;
    const common = await this.#common(fork);
    const own = { memoryBytes, swapBytes, cpus, pids, outputBytes: 2 * MAX_MESSAGES_BYTES };
    const network = allow.length === 0 ? 'none' : { allow };
    if (agent === null) return { ...common, limits: own, network };
    const { policy } = agent;
    const tmpBytes = Math.min(policy.limits?.tmpBytes ?? AGENT_TMP, Math.floor(memoryBytes / 2));
    return {
      ...common,
      profile: 'agent',
      limits: { ...own, tmpBytes },
      network: withCredentials(policy.network, allow) ?? network,
      programs: [...(common.programs ?? []), ...(policy.programs ?? [])],
      ...(policy.state ? { state: policy.state } : {}),
    };
  }

  /** Asks the adapter something about a fork, without a network. */
  async ask<Answer>(
    mode: 'prepare' | 'report' | 'review' | 'merge' | 'refs',
    where: { readonly fork?: string; readonly timeoutMs?: number; readonly limits?: TaskRecord['limits'] },
    input: object,
    schema: z.ZodType<Answer>,
    options: { readonly signal: AbortSignal; readonly show?: (bytes: Uint8Array) => void },
  ): Promise<Answer> {
    const { allow = [], timeoutMs: _, ...limits } = where.limits ?? {};
    const result = await this.#acode.run(['node', ADAPTER, mode], {
      policy: policyFrom({
        ...(await this.#common(where.fork)),
        limits: { memoryBytes: 512 * MIB, cpus: 1, pids: 256, ...limits, outputBytes: 8 * MIB },
        timeoutMs: where.timeoutMs ?? (mode === 'prepare' ? SETUP_MS : INQUIRY_MS),
        network: allow.length === 0 ? 'none' : { allow: [...allow] },
      }),
      taskId: `acode-${this.#record.id.slice(0, 8)}-${mode}`,
      stdin: `${JSON.stringify(input)}\n`,
      signal: options.signal,
      ...(options.show ? { onStderr: options.show } : {}),
    });
    return answerOf(result, schema);
  }

  async #common(fork: string | undefined): Promise<PolicyFields> {
    this.#program ??= this.#addProgram();
    return {
      profile: 'swarm',
      // Without a fork nothing is written: the repository is only read.
      ...(fork === undefined ? { workspace: 'readonly' } : { fork }),
      ...(this.#record.image === null ? {} : { image: this.#record.image }),
      programs: [{ id: await this.#program, target: TARGET }],
      caches: false,
      deps: false,
      services: {},
    };
  }

  async #addProgram(): Promise<string> {
    const text = await adapterProgram();
    const id = `swarm-adapter-${createHash('sha256').update(text).digest('hex').slice(0, 16)}`;
    await this.#acode.programs.add(id, async directory => {
      await writeFile(join(directory, 'adapter.mjs'), text, { mode: 0o644 });
      await chmod(directory, 0o755);
    });
    return id;
  }
}

// The hosts that the plan shows, and the agent’s credential, which never enters the sandbox.
function withCredentials(network: PolicyFields['network'], allow: readonly string[]): PolicyFields['network'] {
  return typeof network === 'object' && 'allow' in network ? { ...network, allow } : undefined;
}

function answerOf<Answer>({ exitCode, stdout, stderr, timedOut, image }: RunResult, schema: z.ZodType<Answer>): Answer {
  const error = exitCode === 127 || exitCode === 126 ? 'no-node' : timedOut ? 'timeout' : 'adapter';
  let value: unknown;
  try {
    value = JSON.parse(stdout);
  } catch {
    throw new InquiryFailure({ error, output: stderr.slice(-1000), image: image?.reference });
  }
  const failed = failure.safeParse(value);
  if (failed.success) throw new InquiryFailure({ ...failed.data, image: image?.reference });
  return schema.parse(value);
}

// The request was fine, and the command did not begin, or its sandbox was lost: the same may work a moment later.
const PASSING = [
  'ACODE-SBX-001',
  'ACODE-SBX-006',
  'ACODE-SBX-008',
  'ACODE-SBX-018',
  'ACODE-SBX-025',
  'ACODE-FRK-003',
  'ACODE-FRK-004',
];

/** Whether an error is a fault of the engine or the machine, and not of the task. */
export function isInfrastructure(error: unknown): boolean {
  if (!isAcodeError(error)) return false;
  if (error.is('ACODE-SBX-027')) return error.context.problem === 'in-use';
  return PASSING.includes(error.code) || error.code.startsWith('ACODE-CTN-');
}
