// Detection of a project: the nearest directory with a file that a tool is known by, and the one tool that it means.

import { join } from 'node:path';
import { UsageError } from '../failure/usage.ts';
import type { Place } from '../workspace.ts';
import { oneLine } from '../terminal/text.ts';
import { BoundedReader, memberOf, smallFile, smallJson, upwards } from './reading.ts';
import { TOOLS, markerIn, toolNamed } from './tools.ts';
import type { Job, ToolName } from './names.ts';
import type { Tool } from './tools.ts';

/** A project: where it is, and what builds and tests it. */
export interface Project {
  /** Its directory, as an absolute path in the workspace. */
  readonly directory: string;
  readonly tool: Tool;
}

/**
 * Finds the project of a directory: the nearest one upwards that any tool fits.
 *
 * @param named the tool that the user chose
 */
export async function findProject({ root, here }: Place, job: Job, named?: ToolName): Promise<Project> {
  const reader = new BoundedReader();
  const directories = upwards(root, here);
  for (const directory of directories) {
    const { files } = await reader.list(directory);
    const fitting = TOOLS.flatMap(tool => {
      const marker = markerIn(tool, files);
      return marker === null ? [] : [{ tool, marker }];
    });
    if (named !== undefined) {
      if (fitting.some(({ tool }) => tool.name === named)) return { directory, tool: toolNamed(named) };
      continue;
    }
    const first = fitting.filter(({ tool }) => tool.last !== true);
    const meant = first.length > 0 ? first : fitting;
    if (meant.length > 0) return { directory, tool: await onlyOne(meant, { root, directory, job }) };
  }
  throw new UsageError(notFound(directories, job, named), lookedFor(job, named));
}

interface Fitting {
  readonly tool: Tool;
  readonly marker: string;
}

async function onlyOne(
  fitting: readonly Fitting[],
  { root, directory, job }: { readonly root: string; readonly directory: string; readonly job: Job },
): Promise<Tool> {
  const scripted = fitting.filter(({ tool }) => tool.scripts);
  const managers =
    scripted.length > 0
      ? await managerOf(
          root,
          directory,
          scripted.map(({ tool }) => tool),
        )
      : [];
  const meant = [
    ...managers.map(([tool, why]): Fitting => ({ tool, marker: why })),
    ...fitting.filter(({ tool }) => !tool.scripts),
  ];
  const [only] = meant;
  if (only && meant.length === 1) return only.tool;
  const evidence = meant.map(({ tool, marker }) => `${oneLine(marker)} means ${tool.name}`).join(', ');
  const choices = meant.map(({ tool }) => `\`acode ${job} --with ${tool.name}\``).join(' or ');
  throw new UsageError(
    `acode cannot tell which command ${job}s this project: ${evidence}.`,
    `Choose one: ${choices}. In another directory the files there decide.`,
  );
}

// `packageManager` counts first, as it does for corepack; then the nearest lockfile; then npm.
async function managerOf(
  root: string,
  directory: string,
  tools: readonly Tool[],
): Promise<(readonly [tool: Tool, why: string])[]> {
  const reader = new BoundedReader();
  for (const at of upwards(root, directory)) {
    const declared = memberOf(await smallJson(join(at, 'package.json')), 'packageManager');
    const named = tools.find(({ name }) => typeof declared === 'string' && declared.startsWith(`${name}@`));
    if (named) return [[named, 'packageManager in package.json']];
    const { files } = await reader.list(at);
    const locked = tools.flatMap(tool => {
      const lockfile = tool.lockfiles.find(name => files.includes(name));
      return lockfile === undefined ? [] : [[tool, lockfile] as const];
    });
    if (locked.length > 0) return locked;
  }
  return [[toolNamed('npm'), 'package.json']];
}

function notFound(directories: readonly string[], job: Job, named: ToolName | undefined): string {
  const [from = '', ...above] = directories;
  const where = above.length > 0 ? `${from} and the directories above it in the workspace` : from;
  const what = named === undefined ? `no project to ${job}` : `no project of ${named}`;
  return `There is ${what} in ${oneLine(where)}.`;
}

function lookedFor(job: Job, named: ToolName | undefined): string {
  const tools = named === undefined ? TOOLS : [toolNamed(named)];
  const markers = [...new Set(tools.flatMap(tool => tool.markers))].join(', ');
  return `Looked for: ${markers}. To run any other command: \`acode run -- <program> [arguments…]\`. \`acode ${job} --help\` says more.`;
}

/** Why the package.json of a project cannot be read as JSON; null if it can, if it is missing, and for tools without one. */
export async function manifestProblem({ directory, tool }: Project): Promise<string | null> {
  const text = tool.scripts ? await smallFile(join(directory, 'package.json')) : null;
  if (text === null) return null;
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return `is not valid JSON: ${oneLine(error instanceof Error ? error.message : String(error))}`;
  }
}

/** Whether a project has what a tool runs for a job: scripts of package.json must be there, any other command is tried. */
export async function hasJob({ directory, tool }: Project, job: Job): Promise<boolean> {
  if (!tool.scripts) return true;
  const script = memberOf(memberOf(await smallJson(join(directory, 'package.json')), 'scripts'), job);
  return typeof script === 'string' && script !== '';
}
