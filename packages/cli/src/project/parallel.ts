// One sandbox per package of a workspace, several at a time: the output of what failed, and one table at the end.

import { availableParallelism, totalmem } from 'node:os';
import { AcodeError } from '@acode/sandbox';
import type { Acode, RiskyChange, RunRequest, RunResult } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { closingLines, riskyNotices } from '../execution/closing-lines.ts';
import { sayNotices } from '../execution/execute.ts';
import { missingDependencies } from '../execution/missing-dependencies.ts';
import { renderFailure, reportOn } from '../failure/report.ts';
import type { Look } from '../terminal/look.ts';
import { OutputTail } from '../terminal/output-tail.ts';
import { table } from '../terminal/table.ts';
import { harmless, oneLine } from '../terminal/text.ts';
import { hasJob, manifestProblem } from './detect.ts';
import type { Project } from './detect.ts';
import type { Member } from './members.ts';
import type { Job } from './names.ts';
import type { ProjectCommand } from './tools.ts';

const FAILED = 1;
const REFUSED = 125;
const MAX_OUTPUT = 256 * 1024;
const MAX_JOBS = 8;
const GIB = 1024 ** 3;

/** How the command of a package ended. */
export type Outcome = 'passed' | 'failed' | 'timed out' | 'refused' | 'skipped' | 'not run';

/** The command of one package, and what came of it. */
export interface PackageResult {
  /** The package’s directory, relative to the workspace’s manifest. */
  readonly package: string;
  readonly outcome: Outcome;
  /** Null if the command has none, or did not run. */
  readonly exitCode: number | null;
  readonly durationMs: number;
  /** The end of what it printed, both streams together. */
  readonly output: string;
  /** How many bytes before that are left out. */
  readonly omittedBytes: number;
  /** What acode reports about the run, one line each. */
  readonly messages: readonly string[];
  readonly riskyChanges: readonly RiskyChange[];
  readonly error?: { readonly code: string; readonly message: string; readonly hint: string };
}

/** What to run, and where. */
export interface ParallelRun {
  readonly job: Job;
  readonly project: Project;
  readonly members: readonly Member[];
  readonly command: ProjectCommand;
  /** The request of every run, without its directory. */
  readonly request: RunRequest;
  /** A package’s directory, relative to the workspace. */
  readonly inside: (member: Member) => string;
  readonly jobs: number;
}

/**
 * The number of sandboxes at a time: as many as the CPUs and the memory that sandboxes may use together allow, so that
 * none waits for another one’s memory.
 */
export function jobsFor(
  asked: number | undefined,
  memoryBytes: number | undefined,
  machine = { cpus: availableParallelism(), memoryBytes: totalmem() },
): number {
  if (asked !== undefined) return asked;
  const each = memoryBytes ?? Math.min(4 * GIB, Math.max(GIB, machine.memoryBytes / 4));
  const fitting = Math.floor((machine.memoryBytes * 3) / 4 / each);
  return Math.max(1, Math.min(MAX_JOBS, machine.cpus, fitting));
}

/** Runs the command of every package, and returns the exit status of acode. */
export async function runParallel(call: Call, run: ParallelRun): Promise<number> {
  const began = call.io.now();
  const results = await call.withHost(acode => new Runs(call, acode, run).all());
  const { signal } = call.interruption;
  if (signal.aborted) throw new AcodeError('ACODE-SBX-014', {});
  const { job, project, command } = run;
  const failed = results.filter(({ outcome }) => outcome !== 'passed' && outcome !== 'skipped');
  const summary = {
    tool: project.tool.name,
    command: command.shown,
    jobs: run.jobs,
    durationMs: call.io.now() - began,
  };
  if (!call.options.json) for (const one of failed) await showOutput(call, one);
  await call.print(`acode.${job}/1`, { ...summary, packages: results }, look => renderResults(results, look));
  if (!call.options.json) await showLines(call, run, results);
  if (failed.length === 0) return 0;
  return failed.some(({ outcome }) => outcome === 'refused') ? REFUSED : FAILED;
}

class Runs {
  readonly #call: Call;
  readonly #acode: Acode;
  readonly #run: ParallelRun;
  readonly #running = new Set<string>();
  #done = 0;
  #stopped = false;

  constructor(call: Call, acode: Acode, run: ParallelRun) {
    this.#call = call;
    this.#acode = acode;
    this.#run = run;
  }

  /** One result for each package, in the order of the packages. */
  async all(): Promise<PackageResult[]> {
    const { members, jobs } = this.#run;
    const results = new Map<string, PackageResult>();
    const waiting = [...members];
    const work = async (): Promise<void> => {
      for (let next = waiting.shift(); next; next = waiting.shift()) results.set(next.name, await this.#one(next));
    };
    const workers = Array.from({ length: Math.min(jobs, members.length) }, work);
    await this.#call.progress.during(() => this.#doing(), Promise.all(workers));
    return members.map(({ name }) => results.get(name) ?? notRun(name));
  }

  #doing(): string {
    const { members, job } = this.#run;
    return `${job}: ${this.#done} of ${members.length} done; running ${[...this.#running].map(oneLine).join(', ')}`;
  }

  async #one(member: Member): Promise<PackageResult> {
    const { job, project, command } = this.#run;
    if (this.#stopped || this.#call.interruption.signal.aborted) return notRun(member.name);
    const own = { ...project, directory: member.directory };
    const problem = await manifestProblem(own);
    if (problem !== null) {
      this.#done += 1;
      return { ...notRun(member.name), outcome: 'failed', messages: [`package.json ${problem}`] };
    }
    if (!(await hasJob(own, job))) {
      this.#done += 1;
      return { ...notRun(member.name), outcome: 'skipped', messages: [`package.json has no script named ${job}`] };
    }
    this.#running.add(member.name);
    const output = new OutputTail(MAX_OUTPUT);
    const began = this.#call.io.now();
    const result = await this.#acode
      .run(command.argv, {
        ...this.#run.request,
        cwd: this.#run.inside(member),
        signal: this.#call.interruption.signal,
        onStdout: chunk => output.push(chunk),
        onStderr: chunk => output.push(chunk),
      })
      .then(
        ended => ofResult(member, ended, command, output),
        (error: unknown) => this.#refused(member, error, output, this.#call.io.now() - began),
      );
    this.#running.delete(member.name);
    this.#done += 1;
    await this.#sayEnded(result);
    return result;
  }

  // The same would happen to every other package, so none is started any more.
  #refused(member: Member, error: unknown, output: OutputTail, durationMs: number): PackageResult {
    this.#stopped = true;
    const { code, message, hint } = reportOn(error);
    const riskyChanges = error instanceof AcodeError ? error.riskyChanges : [];
    const outcome = this.#call.interruption.signal.aborted ? 'not run' : 'refused';
    return {
      ...notRun(member.name),
      outcome,
      durationMs,
      ...output.end(),
      riskyChanges,
      error: { code, message, hint },
    };
  }

  async #sayEnded({ package: name, outcome, durationMs }: PackageResult): Promise<void> {
    if (this.#call.options.json || outcome === 'not run') return;
    const { cyan } = this.#call.errorLook.colours;
    await this.#call.say(`${cyan('acode:')} ${oneLine(name)}: ${outcome}, ${seconds(durationMs)}\n`);
  }
}

function ofResult(member: Member, result: RunResult, command: ProjectCommand, output: OutputTail): PackageResult {
  const { exitCode, timedOut, durationMs, riskyChanges } = result;
  return {
    package: member.name,
    outcome: timedOut ? 'timed out' : exitCode === 0 ? 'passed' : 'failed',
    exitCode,
    durationMs,
    ...output.end(),
    messages: closingLines({ ...result, riskyChanges: [] }, command.argv),
    riskyChanges,
  };
}

function notRun(name: string): PackageResult {
  return {
    package: name,
    outcome: 'not run',
    exitCode: null,
    durationMs: 0,
    output: '',
    omittedBytes: 0,
    messages: [],
    riskyChanges: [],
  };
}

async function showOutput(
  call: Call,
  { package: name, outcome, output, omittedBytes, messages, error }: PackageResult,
): Promise<void> {
  const { bold, red } = call.look.colours;
  if (outcome === 'not run') return;
  const omitted = omittedBytes > 0 ? `… ${omittedBytes} bytes before this are left out\n` : '';
  const text = call.stdout.isTerminal ? harmless(output) : output;
  const ending = text === '' || text.endsWith('\n') ? '' : '\n';
  const { signal } = call.interruption;
  await call.stdout.write(`${red(bold(`── ${oneLine(name)}: ${outcome}`))}\n${omitted}${text}${ending}`, signal);
  await sayNotices(
    call,
    messages.map(message => ({ text: message })),
  );
  if (error)
    await call.say(
      renderFailure({ ...error, context: {}, correlationId: null, exitStatus: 0, causes: [] }, call.errorLook, false),
    );
}

/** The table at the end. */
export function renderResults(results: readonly PackageResult[], look: Look): string {
  const { green, red, dim } = look.colours;
  const colour = { passed: green, skipped: dim, 'not run': dim } as const;
  const rows = results.map(result => {
    const { package: name, outcome, exitCode, durationMs, messages } = result;
    return wasStarted(result)
      ? [name, outcome === 'failed' ? `failed (${exitCode ?? 'killed'})` : outcome, seconds(durationMs), '']
      : [name, outcome, '-', messages[0] ?? ''];
  });
  const notes = rows.some(row => row[3] !== '');
  const shown = table(
    ['PACKAGE', 'RESULT', 'TIME', ...(notes ? ['NOTE'] : [])],
    rows.map(row => (notes ? row : row.slice(0, 3))),
    look,
    ['NOTE'],
  );
  const count = (outcome: Outcome): number => results.filter(one => one.outcome === outcome).length;
  const counts = (['passed', 'failed', 'timed out', 'refused', 'skipped', 'not run'] as const)
    .filter(outcome => count(outcome) > 0)
    .map(outcome => (outcome in colour ? String : red)(`${count(outcome)} ${outcome}`));
  return `${shown}${counts.join(', ')}\n`;
}

// A package whose manifest is broken has failed without a command.
function wasStarted({ outcome, exitCode, durationMs }: PackageResult): boolean {
  if (outcome === 'failed') return exitCode !== null || durationMs > 0;
  return outcome !== 'skipped' && outcome !== 'not run';
}

async function showLines(
  call: Call,
  { project, members }: ParallelRun,
  results: readonly PackageResult[],
): Promise<void> {
  const ended = results.filter(one => one.outcome === 'failed' && wasStarted(one));
  if (ended.length > 0) {
    const { root } = await call.place();
    const failed = members.filter(({ name }) => ended.some(one => one.package === name));
    for (const { directory } of failed.slice(0, 1)) {
      const hint =
        (await missingDependencies({ root, here: directory })) ??
        (await missingDependencies({ root, here: project.directory }));
      if (hint !== null) await sayNotices(call, [{ text: `hint: ${hint}` }]);
    }
  }
  await sayNotices(call, riskyNotices(unique(results.flatMap(({ riskyChanges }) => riskyChanges))));
}

// Runs at the same time see each other’s changes.
function unique(changes: readonly RiskyChange[]): RiskyChange[] {
  return [...new Map(changes.map(change => [`${change.kind} ${change.path}`, change])).values()];
}

function seconds(milliseconds: number): string {
  return `${(milliseconds / 1000).toFixed(1)} s`;
}
