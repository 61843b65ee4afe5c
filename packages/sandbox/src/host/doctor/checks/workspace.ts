// What the doctor makes of the workspace: whether it would be accepted, and what in it the host’s own tools might run.

import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { readBoundedFile } from '../../../lifecycle/private-file.ts';
import type { Directories } from '../../../lifecycle/directories.ts';
import { AcodeError } from '../../../contract/errors.ts';
import { validateWorkspace } from '../../../workspace/locate.ts';
import { planMounts } from '../../../workspace/mounts.ts';
import type { Check } from '../report.ts';
import { fail, ok, warn } from './check.ts';

/** The workspace and what it is judged by. */
export interface WorkspaceFacts {
  readonly path: string;
  readonly directories: Directories;
  readonly socket: string;
  readonly uid: number;
}

const SHADOWED = ['docker', 'git', 'node', 'npm', 'npx', 'sh', 'bash', 'python', 'python3', 'ssh', 'sudo', 'acode'];
const MAX_BYTES = 64 * 1024;

/** Every check of the workspace. */
export async function workspaceChecks(facts: WorkspaceFacts): Promise<Check[]> {
  return Promise.all([accepted(facts), npmSettings(facts.path), shadows(facts.path)]);
}

async function accepted({ path, directories, socket, uid }: WorkspaceFacts): Promise<Check> {
  const title = 'Workspace';
  try {
    const workspace = await validateWorkspace(path, directories, { engineSocket: socket, environment: process.env });
    const { notes } = await planMounts({
      workspace,
      target: '/workspace',
      readOnly: false,
      additional: [],
      hostRoots: [],
      uid,
    });
    if (notes.length === 0) return ok('workspace', title, workspace.root);
    return warn(
      'workspace',
      title,
      `${workspace.root}: ${notes.join(' ')}`,
      '`acode explain -- true` shows what a command gets.',
    );
  } catch (error) {
    if (!(error instanceof AcodeError)) throw error;
    return fail('workspace', title, error.message, error.hint);
  }
}

// npm on the host takes these from the directory it stands in: whoever can write the file runs code on the host.
async function npmSettings(path: string): Promise<Check> {
  const title = '.npmrc';
  const file = await readBoundedFile(join(path, '.npmrc'), MAX_BYTES).catch(() => null);
  const found = [...(file?.text ?? '').matchAll(/^\s*(node-options|script-shell|git|shell)\s*=/gm)].map(
    ([, key]) => key,
  );
  if (found.length === 0) return ok('npmrc', title, 'sets nothing that npm would run');
  return warn(
    'npmrc',
    title,
    `sets ${found.join(', ')}: npm on this host runs what it names`,
    'Look at it before you call npm or npx here yourself; inside a sandbox it harms nobody.',
  );
}

async function shadows(path: string): Promise<Check> {
  const title = 'Shadowed programs';
  const there = await Promise.all(
    SHADOWED.map(async name => ((await lstat(join(path, 'node_modules/.bin', name)).catch(() => null)) ? [name] : [])),
  );
  const found = there.flat();
  if (found.length === 0) return ok('shadows', title, 'none in node_modules/.bin');
  return warn(
    'shadows',
    title,
    `node_modules/.bin has ${found.join(', ')}`,
    'npm scripts and shells with that folder on their PATH run these in place of the system’s; acode itself never does.',
  );
}
