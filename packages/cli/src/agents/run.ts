// `acode agent <agent>`: a session, its summary, and what becomes of its changes.

import { agentOrProgram } from '@acode/agents';
import type { AgentPreset } from '@acode/agents';
import type { EgressConnection, ForkInfo, RunResult } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { RISKY_HEAD, apply } from '../commands/fork-apply.ts';
import { denialLine } from '../execution/closing-lines.ts';
import { riskyLines } from '../execution/risky-lines.ts';
import { UsageError } from '../failure/usage.ts';
import { askLine, canAsk } from '../terminal/ask.ts';
import type { Look } from '../terminal/look.ts';
import { oneLine, plural } from '../terminal/text.ts';
import { nextSteps, session } from './session.ts';
import { agentStyle } from './style.ts';
import type { AgentForm, Ended } from './session.ts';

const TIMED_OUT = 124;
const NOT_CLEAN = 1;
const LEFT = 129;

/** Runs an agent, and returns acode’s own exit status: never that of the agent. */
export async function runAgent(call: Call, name: string, form: AgentForm): Promise<number> {
  const preset = await agentOrProgram(name, call.io.env);
  refuseMode(call, form);
  refuseBudget(preset, form);
  const ended = await call.withHost(acode => session(call, acode, { preset, form, args: call.argv ?? [] }));
  const status = statusOf(ended.result);
  if (call.options.json) {
    await call.printJson('acode.agent/1', reportOf(preset, ended, status));
    return status;
  }
  await call.say(`${summaryOf(preset, form, ended, call.errorLook).join('\n')}\n`);
  return ended.fork === null ? status : afterwards(call, preset, form, { fork: ended.fork, status });
}

function refuseMode(call: Call, { prompt }: AgentForm): void {
  if (prompt !== undefined) return;
  if (call.options.json)
    throw new UsageError('With --json there is no screen for the agent.', 'Give it a task: -p "Fix the failing test".');
  if (call.io.stdin.isTTY && call.stdout.isTerminal) return;
  throw new UsageError(
    'Without a task, an agent needs a terminal for input and output.',
    'Run it at a terminal, or give it a task: -p "Fix the failing test".',
  );
}

function refuseBudget({ name, network }: AgentPreset, { budget = {} }: AgentForm): void {
  if ((budget.requests ?? budget.tokens) === undefined || network?.credential !== undefined) return;
  throw new UsageError(
    `${name} has no key that acode adds to its requests, so that acode cannot count them.`,
    'Limit the time: --budget minutes=30.',
  );
}

// What an agent reports of itself is no evidence that its commands worked.
function statusOf(result: RunResult | null): number {
  if (result === null) return LEFT;
  if (result.timedOut) return TIMED_OUT;
  return result.exitCode === 0 && result.limitExceeded === undefined && !result.oomKilled ? 0 : NOT_CLEAN;
}

function requestsOf(network: readonly EgressConnection[] = []): number {
  return network.reduce((sum, { verdict, count }) => sum + (verdict === 'allowed' ? count : 0), 0);
}

function tokensOf(network: readonly EgressConnection[] = []): number {
  return network.reduce((sum, { tokens = 0 }) => sum + tokens, 0);
}

function reportOf(
  { name, version }: AgentPreset,
  { result, fork, diff, leftOut, state }: Ended,
  status: number,
): object {
  const { network, riskyChanges = [] } = result ?? {};
  return {
    agent: name,
    version: version ?? null,
    status,
    state,
    requests: requestsOf(network),
    tokens: tokensOf(network),
    fork: fork === null ? null : { id: fork.id, name: fork.name },
    changes: diff?.counts ?? null,
    riskyChanges: diff?.riskyChanges ?? riskyChanges,
    leftOut,
    result,
  };
}

function summaryOf(preset: AgentPreset, form: AgentForm, ended: Ended, look: Look): string[] {
  const { result, diff } = ended;
  const denials = result?.denials ?? [];
  const style = agentStyle(preset, form);
  return [
    endLine(preset, result),
    ...denials.map(denial => `acode: ${denialLine(denial, style)}`),
    ...maskedLine(result?.masked ?? []),
    changedLine(ended),
    ...riskyLines(diff?.riskyChanges ?? result?.riskyChanges ?? [], '`acode fork diff` lists all.', RISKY_HEAD, look),
  ];
}

const MAX_MASKED = 6;

function maskedLine(masked: readonly string[]): string[] {
  if (masked.length === 0) return [];
  const rest = masked.length - MAX_MASKED;
  const shown = masked.slice(0, MAX_MASKED).map(oneLine).join(', ');
  const more = rest > 0 ? ` and ${rest} more` : '';
  return [`acode: empty inside, because they may hold secrets: ${shown}${more}. \`acode masks list\` says why.`];
}

// Without a fork, what it changed is in the workspace already.
function changedLine({ result, fork, diff }: Ended): string {
  if (fork !== null && diff !== null) {
    const { added, changed, deleted } = diff.counts;
    return `acode: ${added} added, ${changed} changed, ${deleted} deleted, in the fork ${fork.name ?? fork.id}.`;
  }
  const counts = Object.values<number>({ ...result?.changed });
  const files = counts.reduce((sum, count) => sum + count, 0);
  return files === 0 ? 'acode: it changed no file.' : `acode: ${plural(files, 'file')} of the workspace changed.`;
}

function endLine({ name, title }: AgentPreset, result: RunResult | null): string {
  if (result === null) return `acode: you ended ${title} with Enter ~ .`;
  const seconds = Math.round(result.durationMs / 1000);
  const tokens = tokensOf(result.network);
  const used = [
    `${seconds} s`,
    plural(requestsOf(result.network), 'request'),
    ...(tokens > 0 ? [plural(tokens, 'token')] : []),
  ];
  return `acode: ${name} ${howEnded(result)} after ${used.slice(0, -1).join(', ')} and ${used.at(-1)}.`;
}

function howEnded({ timedOut, limitExceeded, exitCode }: RunResult): string {
  if (timedOut) return 'reached its time limit';
  if (limitExceeded === 'requests' || limitExceeded === 'tokens') return `used up its budget of ${limitExceeded}`;
  return `ended with status ${exitCode ?? 'none'}`;
}

interface Kept {
  readonly fork: ForkInfo;
  readonly status: number;
}

async function afterwards(
  call: Call,
  { name: agent }: AgentPreset,
  form: AgentForm,
  { fork, status }: Kept,
): Promise<number> {
  const name = fork.name ?? fork.id;
  const next = nextSteps(agent, name);
  if (!canAsk(call.io)) {
    const branch = form.branch === undefined ? '' : `  acode fork apply ${name} --branch ${form.branch}\n`;
    await call.say(`acode: nothing was applied. What it changed is in the fork ${name}:\n${branch}${next}`);
    return status;
  }
  if (form.branch !== undefined) return worse(status, await toBranch(call, name, form.branch));
  const question = 'acode: [a]pply, apply to a [b]ranch, [k]eep, [d]iscard? ';
  const answer = (await askLine(call.io, question, call.interruption.signal))?.trim().toLowerCase() ?? '';
  if (answer.startsWith('a')) return worse(status, await apply(call, { fork: name }, {}));
  if (answer.startsWith('b')) return worse(status, await toBranch(call, name, await branchName(call, agent, fork)));
  if (answer.startsWith('d'))
    return worse(status, await (await import('../commands/fork-view.ts')).discard(call, name));
  await call.say(`acode: kept in the fork ${name}:\n${next}`);
  return status;
}

function worse(status: number, other: number): number {
  return other === 0 ? status : other;
}

async function toBranch(call: Call, fork: string, name: string): Promise<number> {
  const { branch } = await import('../commands/fork-branch.ts');
  return branch(call, fork, name, {});
}

async function branchName(call: Call, agent: string, { id }: ForkInfo): Promise<string> {
  const proposed = `${agent}/${id}`;
  const typed = await askLine(call.io, `acode: name of the branch [${proposed}]: `, call.interruption.signal);
  return oneLine(typed?.trim() ?? '') || proposed;
}
