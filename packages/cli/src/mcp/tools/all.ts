// Every tool there is, in the order a client lists them.

import type { Tool } from '../tool.ts';
import { readOutput, stopCommand, writeInput } from './background.ts';
import { listDirectory, readFile, writeFile } from './files.ts';
import { runCommand } from './run-command.ts';
import { runInSandbox } from './run-in-sandbox.ts';
import { closeSandbox, listSandboxes, openSandbox } from './sandboxes.ts';
import { searchFiles } from './search-files.ts';
import { status } from './status.ts';

/** The tools. */
export const TOOLS: readonly Tool[] = [
  runCommand,
  openSandbox,
  listSandboxes,
  runInSandbox,
  readOutput,
  writeInput,
  stopCommand,
  readFile,
  writeFile,
  listDirectory,
  searchFiles,
  closeSandbox,
  status,
];
