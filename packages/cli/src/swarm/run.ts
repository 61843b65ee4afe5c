// `acode swarm run` and `resume`: the plan, the question, the orchestrator, and what happens until it has ended.

import { statSync } from 'node:fs';
import { basename } from 'node:path';
import type { SwarmOptions, SwarmPlan, SwarmRecord, SwarmStore, TaskRecord } from '@acode/swarm';
import { formatBytes } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { NOBODY_TO_ASK } from '../consent.ts';
import { renderFailure, reportOn } from '../failure/report.ts';
import { UsageError } from '../failure/usage.ts';
import { ask, canAsk } from '../terminal/ask.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine, plural } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';
import { follow } from './follow.ts';
import { startOrchestrator } from './orchestrate.ts';
import { renderSwarm, shownState } from './render.ts';

/** The options of `run`. */
export interface RunForm {
  readonly image?: string | undefined;
  readonly agent?: string | undefined;
  readonly command?: string | undefined;
  readonly setup?: string[] | undefined;
  readonly parallel?: number | undefined;
  readonly memory?: number | undefined;
  readonly cpus?: number | undefined;
  readonly pids?: number | undefined;
  readonly timeout?: number | undefined;
  readonly attempts?: number | undefined;
  readonly allow?: string[] | undefined;
  readonly strictSizing?: true | undefined;
  readonly dryRun?: true | undefined;
  readonly detach?: true | undefined;
  readonly yes?: true | undefined;
}

const NOT_RUN = 1;
const GONE = 125;
// As after SIGINT.
const INTERRUPTED = 130;
// The orchestrator writes no more of its failure than what is said of it.
const NO_CIRCUMSTANCES = { context: {}, correlationId: null, causes: [], exitStatus: GONE };

/** Plans a swarm, and runs it. */
export async function runSwarm(call: Call, files: readonly string[], form: RunForm): Promise<number> {
  const { SwarmStore: Store, isListening, swarmError } = await import('@acode/swarm');
  if (form.agent !== undefined && form.command !== undefined)
    throw new UsageError('--agent and --command are given both.', 'Choose one: a command takes the place of an agent.');
  const { root } = await call.place();
  const plan = await planned(call, root, files, form);
  if (form.dryRun) {
    await call.print('acode.swarm-plan/1', { ...plan.record, warnings: plan.warnings, total: plan.total }, look =>
      renderPlan(plan, look),
    );
    return 0;
  }
  const store = await Store.open({ ...call.io.env });
  for (const { id } of store.list(root))
    if (await isListening(store.socketPath(id)))
      throw swarmError('ACODE-SWM-008', {
        what: '`acode swarm run`',
        reason: `swarm ${id.slice(0, 8)} of this workspace is running`,
        remedy: '`acode swarm status` shows it, `acode swarm stop` ends it.',
      });
  if (!(await agreed(call, plan, form.yes === true))) return NOT_RUN;
  for (const text of plan.warnings) await call.say(`acode: warning: ${text}\n`);
  await store.create(plan.record);
  return through(call, store, plan.record.id, form.detach === true);
}

async function planned(call: Call, root: string, files: readonly string[], form: RunForm): Promise<SwarmPlan> {
  const { findTaskFiles, planSwarm, readTasks, limitsFrom, swarmAgents, swarmError, TASK_DIRECTORY } =
    await import('@acode/swarm');
  const all = findTaskFiles(root);
  const paths = files.length === 0 ? all : files.map(file => pathOf(file, all, TASK_DIRECTORY));
  const { tasks, problems } = readTasks(root, paths);
  if (problems.length > 1)
    throw swarmError('ACODE-SWM-001', {
      problems: problems.map(({ message, hint }) => ({ what: message, remedy: hint })),
    });
  if (problems[0]) throw problems[0];
  const named = [...tasks.map(({ agent }) => agent), form.agent].filter(name => typeof name === 'string');
  const agents = await swarmAgents(named, call.io.env);
  return planSwarm(root, tasks, optionsOf(form, limitsFrom({ ...call.io.env })), { agents });
}

function optionsOf(
  form: RunForm,
  fromEnvironment: Pick<SwarmOptions, 'cpus' | 'memoryBytes' | 'swapBytes'>,
): SwarmOptions {
  const {
    image,
    agent,
    command,
    setup,
    parallel,
    memory,
    cpus,
    pids,
    timeout: timeoutMs,
    attempts,
    allow,
    strictSizing,
  } = form;
  return {
    image,
    agent,
    command: command === undefined ? undefined : ['sh', '-c', command],
    setup,
    parallel,
    pids,
    timeoutMs,
    attempts,
    allow,
    strictSizing,
    swapBytes: fromEnvironment.swapBytes,
    memoryBytes: memory ?? fromEnvironment.memoryBytes,
    cpus: cpus ?? fromEnvironment.cpus,
  };
}

// A path as the shell completes it, or the name of a task.
function pathOf(text: string, all: readonly string[], directory: string): string {
  const name = basename(text);
  const found = all.find(
    path => path === text || basename(path) === name || basename(path).replace(/\.(?:json|md)$/, '') === text,
  );
  return found ?? (text.includes('/') ? text : `${directory}/${text}`);
}

async function agreed(call: Call, plan: SwarmPlan, yes: boolean): Promise<boolean> {
  if (yes) return true;
  if (!canAsk(call.io) || call.options.json)
    throw new UsageError(
      'A swarm makes branches in your repository, and there is no terminal to ask at.',
      NOBODY_TO_ASK,
    );
  await call.say(renderPlan(plan, call.errorLook));
  return ask(call.io, `acode: Run ${plural(plan.record.tasks.length, 'task')}?`, call.interruption.signal, true);
}

/** Continues a swarm. */
export async function resumeSwarm(call: Call, reference: string | undefined, detach: boolean): Promise<number> {
  const { SwarmStore: Store, isListening, again, swarmError } = await import('@acode/swarm');
  const store = await Store.open({ ...call.io.env });
  const { id } = store.find((await call.place()).root, reference);
  if (!(await isListening(store.socketPath(id)))) {
    // What a person stopped, and what was no fault of the task, begins again.
    await store.update(id, record => {
      for (const task of record.tasks)
        if (task.status === 'stopped' || (task.status === 'failed' && isOfMachine(task))) {
          again(task);
          task.status = 'pending';
        }
    });
    if (store.read(id).tasks.every(({ status }) => status !== 'pending' && status !== 'running'))
      throw swarmError('ACODE-SWM-008', {
        what: `Resuming swarm ${id.slice(0, 8)}`,
        reason: 'all of its tasks have ended',
        remedy:
          'Begin one again with `acode swarm retry <task>`, or send it back with `acode swarm review <task> --comment <text>`.',
      });
  }
  return through(call, store, id, detach);
}

function isOfMachine({ reason }: TaskRecord): boolean {
  return reason === 'infrastructure' || reason === 'dependency' || reason === 'zombie' || reason === 'interrupted';
}

/** Starts the orchestrator unless there is one, and says what happens. */
export async function through(call: Call, store: SwarmStore, id: string, detach: boolean): Promise<number> {
  const { isListening, readSettings } = await import('@acode/swarm');
  // Before anything begins: in the background nobody would see what is wrong with it.
  readSettings(call.io.env, (await call.place()).root);
  const from = statSync(store.eventsFile(id), { throwIfNoEntry: false })?.size ?? 0;
  if (!(await isListening(store.socketPath(id)))) await startOrchestrator(call, store, id);
  const short = id.slice(0, 8);
  if (detach) {
    await call.print(
      'acode.swarm/1',
      shownState(store.read(id)),
      () => `Swarm ${short} runs in the background: \`acode swarm status\` shows it.\n`,
    );
    return 0;
  }
  const { canShowBoard, showBoard } = await import('./board.ts');
  const last = await (canShowBoard(call) ? showBoard : follow)(call, store, id, from).catch(async (error: unknown) => {
    if (call.interruption.exitStatus !== null) await sayGoesOn(call, short);
    throw error;
  });
  if (last === 'left' || last === 'interrupted') {
    await sayGoesOn(call, short);
    return last === 'left' ? 0 : INTERRUPTED;
  }
  return concluded(call, store.read(id), last);
}

async function sayGoesOn(call: Call, swarm: string): Promise<void> {
  await call.say(
    `acode: Swarm ${swarm} goes on: \`acode swarm status --follow\` shows it, \`acode swarm stop\` ends it.\n`,
  );
}

async function concluded(
  call: Call,
  record: SwarmRecord,
  last: Readonly<Record<string, unknown>> | null,
): Promise<number> {
  const short = record.id.slice(0, 8);
  if (last === null) {
    const { swarmError } = await import('@acode/swarm');
    throw swarmError('ACODE-SWM-009', { swarm: short, reason: 'it ended before its tasks' });
  }
  if (last['event'] === 'swarm-failed') {
    const said = (name: string): string => (typeof last[name] === 'string' ? oneLine(last[name]) : '');
    const known = { ...NO_CIRCUMSTANCES, code: said('code'), message: said('detail'), hint: said('hint') };
    const report = known.code === '' ? reportOn(new Error(known.message)) : known;
    await call.say(renderFailure(report, call.errorLook, false));
    return GONE;
  }
  if (!call.options.json) await call.stdout.write(renderSwarm(record, call.look), call.interruption.signal);
  return record.tasks.every(({ status }) => status === 'completed') ? 0 : NOT_RUN;
}

function renderPlan({ record, warnings, total }: SwarmPlan, look: Look): string {
  const rows = record.tasks.map(({ id, title, agent, stories, branch, limits, dependsOn }) => [
    id,
    title,
    agent ?? 'command',
    String(stories.length),
    branch,
    `${formatBytes(limits.memoryBytes)}, ${limits.cpus} CPU, ${Math.round(limits.timeoutMs / 60_000)} min`,
    limits.allow.length === 0 ? 'none' : limits.allow.join(' '),
    dependsOn.join(' '),
  ]);
  const titles = ['TASK', 'TITLE', 'AGENT', 'STORIES', 'BRANCH', 'LIMITS', 'NETWORK', 'AFTER'];
  const lines = [
    `${plural(record.tasks.length, 'task')}, ${record.parallel} at once: ${formatBytes(total.memoryBytes)} of memory and ${total.cpus} CPUs together.`,
    ...warnings.map(text => `warning: ${text}`),
  ];
  return `${table(titles, rows, look, ['AFTER', 'TITLE', 'NETWORK', 'LIMITS'])}${lines.map(line => fitted(`${line}\n`, look)).join('')}`;
}
