// Agents of a swarm: what a task’s sandbox runs for each story, a command or the preset of a coding agent.

import { agentCalled, agentTask } from '@acode/agents';
import type { AgentPreset, AgentTask, ProgramProgress } from '@acode/agents';
import type { Acode, PolicyFields } from '@acode/sandbox';
import { swarmError } from './errors.ts';
import type { SwarmRecord, TaskRecord } from './record.ts';
import type { Task } from './task.ts';

/** What a story is given to. */
export interface StoryAgent {
  /** The name of its preset; null for a command. */
  readonly name: string | null;
  /** Its arguments; `{prompt}` stands for the text of the story. Empty for a preset, which says them when it starts. */
  readonly command: readonly string[];
  /** Hosts and presets of the allow-list that it needs. */
  readonly allow: readonly string[];
}

/** The presets that tasks of a swarm name. */
export type SwarmAgents = ReadonlyMap<string, AgentPreset>;

/** Without agents, every task names its command, or the swarm does. */
export const NO_AGENTS: SwarmAgents = new Map();

type Environment = Readonly<Record<string, string | undefined>>;

/** The presets of these agents, as acode ships them or as the user’s own file has them. Throws for one that is not known. */
export async function swarmAgents(names: Iterable<string>, env: Environment): Promise<SwarmAgents> {
  const found = new Map<string, AgentPreset>();
  for (const name of new Set(names)) found.set(name, (await agentCalled(name, env)).preset);
  return found;
}

/** What does the stories of a task: its own command or agent, else that of the swarm. */
export function agentFor(
  { command, agent, file }: Pick<Task, 'command' | 'agent' | 'file'>,
  swarm: { readonly command?: readonly string[] | undefined; readonly agent?: string | undefined },
  agents: SwarmAgents,
): StoryAgent {
  if (command) return { name: null, command, allow: [] };
  const name = agent ?? (swarm.command ? null : (swarm.agent ?? null));
  if (name !== null) {
    const preset = agents.get(name);
    if (preset) return { name, command: [], allow: preset.network?.allow ?? [] };
    throw swarmError('ACODE-SWM-003', { file, at: 'agent', reason: `there is no agent ${JSON.stringify(name)} here` });
  }
  if (swarm.command) return { name: null, command: swarm.command, allow: [] };
  throw swarmError('ACODE-SWM-003', {
    file,
    reason: 'it names no agent and no command: add `agent: claude` or a `command` to it, or use --agent or --command',
  });
}

// Before any fork is made: otherwise each task would find out by itself.
function refuseWithoutKey(agent: string, network: PolicyFields['network'], env: Environment): void {
  const credentials = typeof network === 'object' && 'allow' in network ? Object.values(network.credentials ?? {}) : [];
  const missing = credentials.flatMap(({ from }) =>
    from && 'env' in from && (env[from.env] ?? '') === '' ? [from.env] : [],
  );
  if (missing.length > 0)
    throw swarmError('ACODE-SWM-001', {
      problems: missing.map(name => ({
        what: `the key of ${agent} is missing: ${name} is not set`,
        remedy: `Set ${name} and try again. The key itself never enters a sandbox.`,
      })),
    });
}

/** Whose agents they are. */
export interface AgentSurroundings {
  /** The environment of the user: where keys are, and the user’s own settings of agents. */
  readonly env: Environment;
  /** The user’s configuration file, where it is not in its place. */
  readonly configFile?: string | undefined;
}

const STORY = '{prompt}';

/** An agent, ready for the sandbox of a task. */
export interface ReadyAgent {
  /** The start of a first story. */
  readonly command: readonly string[];
  /** The start of a further one, in the same session; null for an agent that cannot. */
  readonly resume: readonly string[] | null;
  /** The start at a terminal, in the same session; null for an agent that cannot. */
  readonly atTerminal: readonly string[] | null;
  readonly env: Readonly<Record<string, string>>;
  readonly policy: PolicyFields;
}

/** Gets the agent of a task ready: its program in the store, its key brokered, its settings and a state directory of the task’s own. */
export async function readyAgent(
  acode: Acode,
  record: Pick<SwarmRecord, 'workspace' | 'image'>,
  { agent, fork, limits }: Pick<TaskRecord, 'agent' | 'fork' | 'limits'>,
  { env, configFile }: AgentSurroundings,
  options: { readonly signal: AbortSignal; readonly progress?: (progress: ProgramProgress) => void },
): Promise<ReadyAgent | null> {
  if (agent === null) return null;
  const { preset } = await agentCalled(agent, env);
  const task: AgentTask = await agentTask(acode, preset, {
    workspace: record.workspace,
    ...(configFile === undefined ? {} : { configFile }),
    prompt: STORY,
    // One of the task’s own: tasks share nothing that one of them can write.
    state: fork,
    allow: limits.allow,
    env,
    policy: record.image === null ? {} : { image: record.image },
    ...options,
  });
  refuseWithoutKey(agent, task.request.policy.network, env);
  return {
    command: task.command,
    resume: task.startedFor({ prompt: STORY, resume: true }),
    atTerminal: task.startedFor({ resume: true }),
    env: task.request.env ?? {},
    policy: task.request.policy,
  };
}
