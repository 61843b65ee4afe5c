// A session with an agent in a sandbox: on a fork, with a terminal or for one task, and what came of it.

import { agentTask } from '@acode/agents';
import type { AgentPreset, AgentTask, LeftOut, ProgramProgress } from '@acode/agents';
import { AcodeError, formatBytes, policyFrom } from '@acode/sandbox';
import type { Acode, ForkInfo, PolicyFields, RunResult, WorkspaceDiff } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { preparing } from '../execution/preparing.ts';
import { terminalVariables } from '../execution/terminal-variables.ts';
import { homeDirectory } from '../serve/identity.ts';
import { ask, canAsk } from '../terminal/ask.ts';
import { pump } from '../terminal/pump.ts';
import { oneLine, shortPath } from '../terminal/text.ts';

/** What a session may use. */
export interface AgentBudget {
  readonly minutes?: number;
  readonly requests?: number;
  readonly tokens?: number;
}

/** What the user asked for. */
export interface AgentForm {
  readonly prompt?: string | undefined;
  readonly image?: string | undefined;
  readonly direct?: true | undefined;
  readonly readonly?: true | undefined;
  readonly branch?: string | undefined;
  readonly resume?: true | undefined;
  readonly fresh?: true | undefined;
  readonly allow?: readonly string[] | undefined;
  readonly budget?: AgentBudget | undefined;
}

/** A session that has ended. */
export interface Ended {
  /** Null where the person ended it with the keys that leave. */
  readonly result: RunResult | null;
  /** The fork, where it has changes now. */
  readonly fork: ForkInfo | null;
  readonly diff: WorkspaceDiff | null;
  readonly leftOut: readonly LeftOut[];
  /** The state directory that it used. */
  readonly state: string;
}

// Longer than any session. The sandbox is removed when the session or this process ends.
const LIFE_MS = 24 * 3600 * 1000;
// Sessions that begin at the same moment all choose the same names; each time, one of them gets them.
const MAX_TRIES = 30;
const MAX_NAMED = 6;

/** What the session is of. */
export interface Session {
  readonly preset: AgentPreset;
  readonly form: AgentForm;
  readonly args: readonly string[];
}

/** Runs an agent until it ends, and finds out what it changed. */
export async function session(call: Call, acode: Acode, about: Session): Promise<Ended> {
  const { preset, form } = about;
  const chosen = form.direct || form.readonly ? null : await forkFor(call, acode, about);
  const task = await prepared(call, acode, about, chosen);
  await sayStart(call, about, task, chosen);
  const work: Work = { fork: chosen, state: preset.name, states: [preset.name] };
  const result = await inFreePlace(call, acode, about, { task, work }).catch(async (error: unknown) => {
    const { fork } = work;
    if (fork !== null && call.interruption.signal.aborted)
      await call.say(
        `acode: what ${preset.name} wrote until now is in the fork ${fork}.\n${nextSteps(preset.name, fork)}`,
      );
    throw error;
  });
  const { fork, state } = work;
  const left = fork === null ? undefined : (await acode.forks.list()).find(({ name }) => name === fork);
  const diff = left ? await call.progress.during('Comparing…', acode.forks.diff({ fork: left.id })) : null;
  return { result, fork: left ?? null, diff, leftOut: task.leftOut, state };
}

/** What can be done with a fork that is kept. */
export function nextSteps(agent: string, fork: string): string {
  return [`  acode fork diff ${fork}`, `  acode fork apply ${fork}`, `  acode agent ${agent} --resume`, ''].join('\n');
}

// An earlier session whose changes nobody applied is offered again: at a terminal it is asked about, otherwise it is named.
async function forkFor(call: Call, acode: Acode, { preset: { name }, form }: Session): Promise<string> {
  const forks = await acode.forks.list();
  // One whose session never began has nothing to go on with.
  const begun = forks.filter(one => one.commands > 0 || one.sandbox !== null);
  const latest = begun.find(one => one.name !== null && isOf(name, one.name) && one.sandbox === null);
  const free = freeName(name, new Set(begun.map(one => one.name)));
  if (latest?.name == null || form.fresh) return free;
  if (form.resume) return latest.name;
  const how = latest.interrupted ? 'that was interrupted' : 'whose changes are not applied';
  const what = `There is a session of ${name} ${how}, in the fork ${latest.name}.`;
  if (form.prompt === undefined && canAsk(call.io)) {
    await call.say(`acode: ${what}\n`);
    return (await ask(call.io, 'acode: Go on in its fork?', call.interruption.signal, true)) ? latest.name : free;
  }
  await call.say(`acode: ${what} This one begins without them; --resume goes on there.\n`);
  return free;
}

function isOf(agent: string, fork: string): boolean {
  return fork === agent || (fork.startsWith(`${agent}-`) && /^\d+$/.test(fork.slice(agent.length + 1)));
}

function freeName(agent: string, taken: ReadonlySet<string | null>): string {
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? agent : `${agent}-${number}`;
    if (!taken.has(name)) return name;
  }
}

async function prepared(
  call: Call,
  acode: Acode,
  { preset, form, args }: Session,
  fork: string | null,
): Promise<AgentTask> {
  const { config } = call.options;
  let progress: ProgramProgress | null = null;
  const text = (): string => (progress === null ? `Preparing ${preset.name}…` : fetchText(preset, progress));
  const task = agentTask(acode, preset, {
    workspace: (await call.place()).root,
    ...(config === undefined ? {} : { configFile: config }),
    ...(form.prompt === undefined ? {} : { prompt: form.prompt }),
    arguments: args,
    resume: form.resume === true,
    fresh: form.fresh === true,
    policy: policyOf(form, fork),
    allow: form.allow ?? [],
    env: call.io.env,
    progress: now => (progress = now),
    signal: call.interruption.signal,
  });
  return call.progress.during(text, task);
}

function fetchText({ name, version = '' }: AgentPreset, { bytes, totalBytes }: ProgramProgress): string {
  const of = totalBytes === undefined ? '' : ` of ${formatBytes(totalBytes)}`;
  return `Fetching ${name} ${version} from npm, once: ${formatBytes(bytes)}${of}…`;
}

function policyOf(form: AgentForm, fork: string | null): PolicyFields {
  return {
    ...(form.image === undefined ? {} : { image: form.image }),
    ...budgetOf(form.budget),
    ...(fork === null
      ? { workspace: form.readonly ? ('readonly' as const) : ('direct' as const) }
      : { workspace: 'fork' as const, fork }),
  };
}

function budgetOf({ minutes, requests, tokens }: AgentBudget = {}): PolicyFields {
  return {
    ...(minutes === undefined ? {} : { timeoutMs: Math.round(minutes * 60_000) }),
    ...((requests ?? tokens) === undefined ? {} : { networkLimits: { requests, tokens } }),
  };
}

async function sayStart(call: Call, { preset, form }: Session, task: AgentTask, fork: string | null): Promise<void> {
  const { title, version, ownSandbox } = preset;
  const place = oneLine(shortPath((await call.place()).root, homeDirectory(call.io.env)));
  const where =
    fork === null
      ? `${place}${form.readonly ? ', which it cannot write' : ' itself: what it writes is there at once'}`
      : `the fork ${fork} of ${place}`;
  const wall = ownSandbox === undefined ? '' : ' Its own sandbox is off, because acode is the wall.';
  await call.say(`acode: ${[title, version].filter(Boolean).join(' ')} runs in a sandbox, on ${where}.${wall}\n`);
  if (!task.image.git && fork !== null)
    await call.say('acode: the image has no git, so it cannot commit. Name one that has: --image <image>.\n');
  const secrets = task.leftOut.filter(({ why }) => why !== 'kind').map(leftOutText);
  if (secrets.length > 0) await call.say(`acode: left out of what is copied: ${listed(secrets)}.\n`);
}

function leftOutText({ file, key }: LeftOut): string {
  return oneLine(key === undefined ? file : `${key} (${file})`);
}

function listed(all: readonly string[]): string {
  const rest = all.length - MAX_NAMED;
  return `${all.slice(0, MAX_NAMED).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`;
}

/** What a session works on: its fork, where it has one, and its state directory. */
interface Work {
  fork: string | null;
  state: string;
  /** Every state directory that was tried. */
  readonly states: string[];
}

// Of two sessions in one project, the second has a fork and a state directory of its own, also where both begin at the same moment.
async function inFreePlace(
  call: Call,
  acode: Acode,
  { preset: { name }, form }: Session,
  { task, work }: { readonly task: AgentTask; readonly work: Work },
): Promise<RunResult | null> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await (form.prompt === undefined ? atScreen : toItsEnd)(call, acode, placed(task, work));
    } catch (error) {
      const isOfFork = isForkInUse(error);
      if (form.resume || tries === MAX_TRIES || !(isOfFork || isInUse(error))) throw error;
      if (isOfFork) await takeFork(call, acode, name, work);
      else await takeState(call, name, work);
    }
  }
}

function placed(task: AgentTask, { fork, state }: Work): AgentTask {
  const { policy } = task.request;
  const own = {
    ...policy,
    ...(policy.state ? { state: { ...policy.state, name: state } } : {}),
    ...(fork === null ? {} : { fork }),
  };
  return { ...task, request: { ...task.request, policy: own } };
}

async function takeFork(call: Call, acode: Acode, agent: string, work: Work): Promise<void> {
  const taken = (await acode.forks.list()).map(({ name }) => name);
  work.fork = freeName(agent, new Set([...taken, work.fork]));
  await call.say(`acode: another session began in that fork; this one is on the fork ${work.fork}.\n`);
}

async function takeState(call: Call, agent: string, work: Work): Promise<void> {
  work.state = freeName(agent, new Set(work.states));
  work.states.push(work.state);
  await call.say(`acode: another session of ${agent} uses its state here; this one begins with one of its own.\n`);
}

function isInUse(error: unknown): boolean {
  return error instanceof AcodeError && error.is('ACODE-SBX-027') && error.context.problem === 'in-use';
}

function isForkInUse(error: unknown): boolean {
  return error instanceof AcodeError && error.is('ACODE-FRK-003');
}

async function toItsEnd(call: Call, acode: Acode, { command, request }: AgentTask): Promise<RunResult> {
  const { signal } = call.interruption;
  const place = await call.place();
  const { policy, ...rest } = request;
  const started = acode.spawn(command, {
    ...rest,
    policy: policyFrom(policy),
    cwd: place.inside,
    envDefaults: terminalVariables(call),
    // Some agents wait for its end before they begin.
    stdin: '',
    signal,
  });
  await using running = await preparing(call, acode, started);
  if (call.options.json) return await running.result;
  const streams = [pump(running.stdout, call.stdout, signal), pump(running.stderr, call.stderr, signal)];
  const [result] = await Promise.all([running.result, ...streams]);
  return result;
}

async function atScreen(call: Call, acode: Acode, { command, request }: AgentTask): Promise<RunResult | null> {
  const { signal } = call.interruption;
  const { policy, env = {}, taskId = 'agent' } = request;
  const creating = acode.create({ policy: policyFrom(policy), taskId, expiresInMs: LIFE_MS, signal });
  await using sandbox = await preparing(call, acode, creating);
  const { size } = call.stdout;
  // Loaded before the agent runs: where acode is installed in the workspace, it may put something else in its place.
  const { atTerminal } = await import('../execution/at-terminal.ts');
  const handle = await sandbox.commands.terminal(command, {
    cwd: (await call.place()).inside,
    env: { ...terminalVariables(call), ...env },
    signal,
    limited: true,
    ...(size ? { size } : {}),
  });
  // Returned without waiting, the sandbox would be gone at once.
  return await atTerminal(call, handle, { mouse: true });
}
