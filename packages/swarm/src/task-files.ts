// Task files of a workspace: found in .agent/tasks, read without following links, and added from standard input.

import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { AcodeError } from '@acode/sandbox';
import { isAcodeError, swarmError } from './errors.ts';
import { MAX_TASK_BYTES, parseTask } from './task.ts';
import type { Task } from './task.ts';

/** Where task files are, relative to the workspace. */
export const TASK_DIRECTORY = '.agent/tasks';
const MAX_TASKS = 500;
const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;

/** Why a path is not that of a task file; null where it is. */
export function taskPathProblem(path: string): string | null {
  if (/[~$\0\\]/.test(path)) return 'it has a character that paths of tasks do not have: ~, $, \\ or a zero byte';
  if (path.startsWith('/')) return 'it is not relative to the workspace';
  const parts = path.split('/');
  if (parts.includes('..') || parts.includes('.') || parts.includes('')) return 'it has an empty part, . or ..';
  if (!path.startsWith(`${TASK_DIRECTORY}/`) || parts.length !== 3) return `it is not in ${TASK_DIRECTORY}`;
  return /\.(?:json|md)$/.test(path) ? null : 'it ends with something else than .json or .md';
}

/** The paths of all task files, relative to the workspace, in order. */
export function findTaskFiles(workspace: string): string[] {
  let names: string[];
  try {
    names = readdirSync(join(workspace, TASK_DIRECTORY));
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR')) return [];
    throw error;
  }
  const found = names.filter(name => /\.(?:json|md)$/.test(name) && !/^readme\.md$/i.test(name)).sort();
  return found.slice(0, MAX_TASKS).map(name => `${TASK_DIRECTORY}/${name}`);
}

/** The task in one file. Links are refused, also those on the way. */
export function readTask(workspace: string, path: string): Task {
  const problem = taskPathProblem(path);
  if (problem !== null) throw swarmError('ACODE-SWM-003', { file: path, reason: problem });
  return parseTask(path, readPlain(workspace, path));
}

/** Every task of a workspace, or those of some files; and what is wrong with the others. */
export function readTasks(workspace: string, paths: readonly string[]): { tasks: Task[]; problems: AcodeError[] } {
  const tasks: Task[] = [];
  const problems: AcodeError[] = [];
  for (const path of paths)
    try {
      tasks.push(readTask(workspace, path));
    } catch (error) {
      if (!isAcodeError(error)) throw error;
      problems.push(error);
    }
  const twice = tasks.find((task, index) => tasks.findIndex(other => other.id === task.id) !== index);
  if (twice)
    problems.push(swarmError('ACODE-SWM-003', { file: twice.file, reason: `another file is a task ${twice.id} too` }));
  return { tasks, problems };
}

/** Adds a task file. Nothing that exists is replaced. */
export function addTask(workspace: string, name: string, content: string): Task {
  const isJson = content.trimStart().startsWith('{');
  const path = `${TASK_DIRECTORY}/${name}${isJson ? '.json' : '.md'}`;
  const problem = taskPathProblem(path);
  if (problem !== null) throw refused(path, problem);
  const task = parseTask(path, content);
  for (const part of ['.agent', TASK_DIRECTORY]) makeDirectory(workspace, part);
  try {
    writeFileSync(join(workspace, path), content, { flag: 'wx', mode: 0o644 });
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'EEXIST')) throw error;
    throw swarmError('ACODE-SWM-003', { file: path, reason: 'there is a file of this name already' });
  }
  return task;
}

function makeDirectory(workspace: string, path: string): void {
  const found = lstatSync(join(workspace, path), { throwIfNoEntry: false });
  if (!found) mkdirSync(join(workspace, path));
  else if (!found.isDirectory()) throw swarmError('ACODE-SWM-003', { file: path, reason: 'it is not a directory' });
}

function readPlain(workspace: string, path: string): string {
  for (const part of ['.agent', TASK_DIRECTORY])
    if (lstatSync(join(workspace, part), { throwIfNoEntry: false })?.isDirectory() !== true)
      throw refused(path, `${part} is not a directory`);
  const file = openPlain(workspace, path);
  try {
    const found = fstatSync(file);
    if (!found.isFile()) throw refused(path, 'it is not an ordinary file');
    if (found.size > MAX_TASK_BYTES) throw refused(path, `it is longer than ${MAX_TASK_BYTES} bytes`);
    return new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(file));
  } catch (error) {
    throw error instanceof TypeError ? refused(path, 'it is not UTF-8') : error;
  } finally {
    closeSync(file);
  }
}

function openPlain(workspace: string, path: string): number {
  try {
    return openSync(join(workspace, path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  } catch (error) {
    const isMissing = error instanceof Error && 'code' in error && error.code === 'ENOENT';
    throw refused(path, isMissing ? 'it does not exist' : 'it is a link, or cannot be read');
  }
}

function refused(file: string, reason: string): AcodeError {
  return swarmError('ACODE-SWM-003', { file, reason });
}
