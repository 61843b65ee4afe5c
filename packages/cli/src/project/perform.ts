// Performs `acode build` and `acode test`: finds the project, prints the command, and runs it once or once per package.

import { join, relative, resolve, sep } from 'node:path';
import { quoted } from '../arguments/command-arguments.ts';
import { requestOf } from '../arguments/request.ts';
import type { RequestOptions } from '../arguments/request.ts';
import type { Call } from '../call.ts';
import { executeArgv, sayNotices } from '../execution/execute.ts';
import { missingDependencies } from '../execution/missing-dependencies.ts';
import { terminalVariables } from '../execution/terminal-variables.ts';
import { UsageError } from '../failure/usage.ts';
import { oneLine } from '../terminal/text.ts';
import { findProject, hasJob, manifestProblem } from './detect.ts';
import type { Project } from './detect.ts';
import { isWorkspaceRoot, membersOf } from './members.ts';
import { jobsFor, runParallel } from './parallel.ts';
import { upwards } from './reading.ts';
import { projectCommand } from './tools.ts';
import type { Job, ToolName } from './names.ts';

/** The options of `build` and `test`. */
export interface JobOptions extends RequestOptions {
  readonly with?: ToolName | undefined;
  readonly parallel?: true | undefined;
  readonly jobs?: number | undefined;
}

// Ended by acode or by a signal, or not found: those have messages of their own.
const OWN_FAILURES = 124;

/** Builds or tests the project of a call, and returns the exit status. */
export async function performJob(call: Call, job: Job, options: JobOptions, flags: readonly string[]): Promise<number> {
  const place = await call.place();
  const { root } = place;
  const here = options.workdir === undefined ? place.here : resolve(root, options.workdir);
  const project = await findProject({ ...place, here }, job, options.with);
  const command = projectCommand(project.tool, job, call.argv ?? []);
  if (options.parallel) return inParallel(call, job, options, { ...project, directory: await topOf(root, project) });
  await refuseBroken(project);
  if (!(await hasJob(project, job))) throw noScript(project, job);
  const cwd = insideOf(root, project.directory);
  await sayRunning(call, command.shown, cwd === '.' || project.directory === here ? '' : ` (in ${cwd})`);
  const request = { ...options, workdir: cwd };
  const status = await executeArgv(call, command.argv, request, flags);
  if (status > 0 && status < OWN_FAILURES && !options.deps) await hintAtDependencies(call, root, project);
  return status;
}

async function hintAtDependencies(call: Call, root: string, { directory }: Project): Promise<void> {
  const hint = await missingDependencies({ root, here: directory });
  if (hint !== null) await sayNotices(call, [{ text: `hint: ${hint}` }]);
}

async function inParallel(call: Call, job: Job, options: JobOptions, project: Project): Promise<number> {
  const place = await call.place();
  const { root } = place;
  const command = projectCommand(project.tool, job, call.argv ?? []);
  await refuseBroken(project);
  const members = await membersOf(project.directory, project.tool);
  const jobs = jobsFor(options.jobs, options.memory);
  await sayRunning(call, command.shown, ` in ${members.length} packages, ${Math.min(jobs, members.length)} at a time`);
  return runParallel(call, {
    job,
    project,
    members,
    command,
    request: { ...(await requestOf(options, place, call.io.env)), envDefaults: { ...terminalVariables(call) } },
    inside: ({ directory }) => insideOf(root, directory),
    jobs,
  });
}

// The nearest directory upwards that says which packages there are.
async function topOf(root: string, { directory, tool }: Project): Promise<string> {
  for (const at of upwards(root, directory)) if (await isWorkspaceRoot(at, tool)) return at;
  return directory;
}

function insideOf(root: string, directory: string): string {
  return relative(root, directory).split(sep).join('/') || '.';
}

async function sayRunning(call: Call, argv: readonly string[], where: string): Promise<void> {
  const { cyan } = call.errorLook.colours;
  await call.say(`${cyan('acode:')} running: ${oneLine(argv.map(quoted).join(' '))}${oneLine(where)}\n`);
}

async function refuseBroken(project: Project): Promise<void> {
  const problem = await manifestProblem(project);
  if (problem === null) return;
  throw new UsageError(
    `${oneLine(join(project.directory, 'package.json'))} ${problem.replace(/\.$/, '')}.`,
    `Correct the file, and try again: ${project.tool.name} cannot read it either.`,
  );
}

function noScript({ directory, tool }: Project, job: Job): UsageError {
  return new UsageError(
    `package.json in ${oneLine(directory)} has no script named ${job}, so there is nothing for \`${tool[job].join(' ')}\` to run.`,
    `Add one, or run another command: \`acode run -- ${tool.name} run <script>\`. With --parallel, packages without it are skipped.`,
  );
}
