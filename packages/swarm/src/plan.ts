// Plan of a swarm: which tasks run with which limits, how many at once, and what is wrong before anything was started.

import { randomUUID } from 'node:crypto';
import { availableParallelism, totalmem } from 'node:os';
import { formatBytes, parseBytes } from '@acode/sandbox';
import type { AcodeError } from '@acode/sandbox';
import { NO_AGENTS, agentFor } from './agents.ts';
import type { SwarmAgents } from './agents.ts';
import { swarmError } from './errors.ts';
import { containerName } from './names.ts';
import type { SwarmRecord, TaskRecord } from './record.ts';
import type { Task } from './task.ts';

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
const MAX_PARALLEL = 64;
const MAX_CPUS = 64;
const DEFAULT_ATTEMPTS = 2;
/** Part of the memory that all sandboxes of a user may have together. */
const SHARE = 0.75;

/** What the user says about a swarm: the most that a task may have. */
export interface SwarmOptions {
  /** Image of every task; by default that of the workspace. It needs git and Node.js 18 or newer. */
  readonly image?: string | undefined;
  /** Command of tasks that have no command and no agent of their own. */
  readonly command?: readonly string[] | undefined;
  /** Agent of tasks that have no command and no agent of their own. */
  readonly agent?: string | undefined;
  /** Commands that run once, before the tasks. */
  readonly setup?: readonly string[] | undefined;
  /** Tasks at once; by default what memory and CPUs allow. */
  readonly parallel?: number | undefined;
  readonly memoryBytes?: number | undefined;
  readonly swapBytes?: number | undefined;
  readonly cpus?: number | undefined;
  readonly pids?: number | undefined;
  /** Time limit of each task, in milliseconds. */
  readonly timeoutMs?: number | undefined;
  readonly attempts?: number | undefined;
  /** Hosts and presets that tasks may reach; none by default. */
  readonly allow?: readonly string[] | undefined;
  /** Whether a machine that is too small is a refusal, and no warning. */
  readonly strictSizing?: boolean | undefined;
}

/** The machine that a swarm runs on. */
export interface SwarmMachine {
  readonly cpus: number;
  readonly memoryBytes: number;
}

/** A swarm before it begins. */
export interface SwarmPlan {
  readonly record: SwarmRecord;
  readonly warnings: readonly string[];
  /** What all tasks that run at once have together. */
  readonly total: { readonly cpus: number; readonly memoryBytes: number };
}

/** This machine. */
export function thisMachine(): SwarmMachine {
  return { cpus: availableParallelism(), memoryBytes: totalmem() };
}

/** Limits from the environment: ACODE_SANDBOX_CPUS, _MEMORY, _SWAP (memory and swap together) and _DISK, which is advice. */
export function limitsFrom(env: NodeJS.ProcessEnv): Pick<SwarmOptions, 'cpus' | 'memoryBytes' | 'swapBytes'> {
  const memoryBytes = bytesIn(env, 'ACODE_SANDBOX_MEMORY');
  const total = bytesIn(env, 'ACODE_SANDBOX_SWAP');
  bytesIn(env, 'ACODE_SANDBOX_DISK');
  const swapBytes = total === undefined ? undefined : total - (memoryBytes ?? 4 * GIB);
  if (swapBytes !== undefined && swapBytes < 0)
    throw notAllowed(env, 'ACODE_SANDBOX_SWAP', 'it is memory and swap together, and less than the memory');
  const cpus = env['ACODE_SANDBOX_CPUS'] ? Number(env['ACODE_SANDBOX_CPUS']) : undefined;
  if (cpus !== undefined && !(cpus > 0 && cpus <= MAX_CPUS))
    throw notAllowed(env, 'ACODE_SANDBOX_CPUS', 'it is not a number of CPUs');
  return { memoryBytes, swapBytes, cpus };
}

function bytesIn(env: NodeJS.ProcessEnv, name: string): number | undefined {
  const text = env[name];
  if (text === undefined || text === '') return undefined;
  const found = parseBytes(text);
  if (found !== null) return found;
  throw notAllowed(env, name, 'it is not a size such as 4g');
}

function notAllowed(env: NodeJS.ProcessEnv, name: string, reason: string): AcodeError {
  return swarmError('ACODE-SWM-004', { what: 'variable', value: `${name}=${env[name] ?? ''}`, reason });
}

interface Most {
  readonly memoryBytes: number;
  readonly swapBytes: number;
  readonly cpus: number;
  readonly pids: number;
  readonly timeoutMs: number;
  readonly allow: readonly string[];
}

/** Plans a swarm. Nothing is started, and nothing is asked of an engine. */
export function planSwarm(
  workspace: string,
  tasks: readonly Task[],
  options: SwarmOptions = {},
  {
    machine = thisMachine(),
    agents = NO_AGENTS,
  }: { readonly machine?: SwarmMachine; readonly agents?: SwarmAgents } = {},
): SwarmPlan {
  if (tasks.length === 0)
    throw swarmError('ACODE-SWM-001', {
      problems: [
        {
          what: 'there is no task',
          remedy:
            'Add one: `acode swarm add <name> -` reads it from standard input; docs/swarm.md describes task files.',
        },
      ],
    });
  const most = mostOf(options, machine);
  const id = randomUUID();
  const now = new Date().toISOString();
  checkDependencies(tasks);
  const records = tasks.map((task, at) => taskRecord(id, now, task, { at, most, options, agents }));
  checkBranches(records);
  const { parallel, warnings } = sized(records.length, most, machine, options);
  const record: SwarmRecord = {
    schema: 'acode.swarm/1',
    id,
    workspace,
    createdAt: now,
    updatedAt: now,
    state: 'preparing',
    base: null,
    baseBranch: null,
    image: options.image ?? null,
    setup: [...(options.setup ?? [])],
    parallel,
    copy: [],
    overlaps: [],
    tasks: records,
  };
  return { record, warnings, total: { cpus: parallel * most.cpus, memoryBytes: parallel * most.memoryBytes } };
}

function mostOf(options: SwarmOptions, machine: SwarmMachine): Most {
  const share = Math.floor(machine.memoryBytes / 8 / MIB) * MIB;
  const { memoryBytes = Math.min(4 * GIB, Math.max(512 * MIB, share)), cpus = Math.min(2, machine.cpus) } = options;
  const { swapBytes = 0, pids = 1000, timeoutMs = 4 * 3_600_000, allow = [] } = options;
  return { memoryBytes, swapBytes, cpus, pids, timeoutMs, allow };
}

/** The fork that a swarm is prepared in; those of its tasks have its name and a number. */
export function forkOf(swarm: string): string {
  return `sw-${swarm.slice(0, 8)}`;
}

function sized(
  count: number,
  most: Most,
  machine: SwarmMachine,
  options: SwarmOptions,
): { parallel: number; warnings: string[] } {
  const byMemory = Math.floor((machine.memoryBytes * SHARE) / most.memoryBytes);
  const byCpus = Math.floor(machine.cpus / most.cpus);
  const fitting = Math.max(1, Math.min(count, byMemory, byCpus, MAX_PARALLEL));
  const parallel = Math.min(options.parallel ?? fitting, count, MAX_PARALLEL);
  const needed = `${formatBytes(parallel * most.memoryBytes)} of memory and ${parallel * most.cpus} CPUs`;
  const available = `${formatBytes(machine.memoryBytes)} and ${machine.cpus} CPUs`;
  const isSmall = machine.memoryBytes < 2 * parallel * most.memoryBytes || machine.cpus < parallel * most.cpus;
  if (!isSmall) return { parallel, warnings: [] };
  if (options.strictSizing) throw swarmError('ACODE-SWM-010', { needed, available, slots: parallel });
  return {
    parallel,
    warnings: [
      `${parallel} tasks at once may use ${needed}; this machine has ${available}, and twice the memory is advised.`,
    ],
  };
}

function taskRecord(
  swarm: string,
  now: string,
  task: Task,
  {
    at,
    most,
    options,
    agents,
  }: { readonly at: number; readonly most: Most; readonly options: SwarmOptions; readonly agents: SwarmAgents },
): TaskRecord {
  const agent = agentFor(task, options, agents);
  return {
    id: task.id,
    file: task.file,
    title: task.title,
    description: task.description,
    branch: task.branch ?? `acode/${swarm.slice(0, 8)}/${task.id}`,
    fork: `${forkOf(swarm)}-${at + 1}`,
    containerName: containerName(swarm, task.id),
    agent: agent.name,
    command: [...agent.command],
    attempts: Math.min(task.attempts ?? DEFAULT_ATTEMPTS, options.attempts ?? 5),
    env: { ...task.env },
    dependsOn: [...task.dependsOn],
    touches: [...task.touches],
    limits: tightened(task, most, agent.allow),
    status: 'pending',
    reason: null,
    detail: '',
    attention: null,
    stories: task.stories.map(story => ({ ...story, status: 'pending', commit: null })),
    base: null,
    commit: null,
    branchCommit: null,
    riskyChanges: [],
    changes: [],
    faults: 0,
    createdAt: now,
    updatedAt: now,
    startedAt: null,
    endedAt: null,
    elapsedMs: 0,
    requests: 0,
    denials: [],
    waitsFor: [],
    keepChanges: false,
    lastLine: '',
  };
}

// A task file comes with the code: it may only ask for less than the user allows.
function tightened({ id, policy }: Task, most: Most, agentAllow: readonly string[]): TaskRecord['limits'] {
  const least = (name: 'memoryBytes' | 'cpus' | 'pids' | 'timeoutMs'): number => {
    const asked = policy[name];
    if (asked === undefined || asked <= most[name]) return asked ?? most[name];
    throw refused(id, `${name} ${asked}`, `the swarm allows ${most[name]}`);
  };
  const more = (policy.allow ?? []).find(host => !most.allow.includes(host));
  if (more !== undefined)
    throw refused(id, `network.allow ${more}`, 'the swarm does not allow it: --allow adds it for every task');
  return {
    memoryBytes: least('memoryBytes'),
    swapBytes: most.swapBytes,
    cpus: least('cpus'),
    pids: least('pids'),
    timeoutMs: least('timeoutMs'),
    // Without its model, an agent can do nothing.
    allow: [...new Set([...(policy.allow ?? most.allow), ...agentAllow])],
  };
}

function refused(task: string, value: string, reason: string): AcodeError {
  return swarmError('ACODE-SWM-004', { what: 'policy', value, reason, task });
}

function checkBranches(tasks: readonly TaskRecord[]): void {
  for (const [index, { id, branch }] of tasks.entries()) {
    const other = tasks
      .slice(0, index)
      .find(one => one.branch === branch || one.branch.startsWith(`${branch}/`) || branch.startsWith(`${one.branch}/`));
    if (other)
      throw swarmError('ACODE-SWM-004', {
        what: 'branch',
        value: branch,
        reason: `task ${other.id} has ${other.branch}`,
        task: id,
      });
    const twin = tasks.slice(0, index).find(one => one.containerName === tasks[index]?.containerName);
    if (twin)
      throw swarmError('ACODE-SWM-002', {
        name: id,
        reason: `task ${twin.id} has a name that differs in capital letters only`,
      });
  }
}

function checkDependencies(tasks: readonly Task[]): void {
  const byId = new Map(tasks.map(task => [task.id, task]));
  const done = new Set<string>();
  const visit = (task: Task, way: readonly string[]): void => {
    if (way.includes(task.id)) throw invalid(task, `its dependencies form a circle: ${[...way, task.id].join(' → ')}`);
    if (done.has(task.id)) return;
    for (const name of task.dependsOn) {
      const next = byId.get(name);
      if (!next) throw invalid(task, `there is no task ${JSON.stringify(name)} in this swarm`);
      visit(next, [...way, task.id]);
    }
    done.add(task.id);
  };
  for (const task of tasks) visit(task, []);
}

function invalid({ file }: Task, reason: string): AcodeError {
  return swarmError('ACODE-SWM-003', { file, at: 'depends_on', reason });
}
