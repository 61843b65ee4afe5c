// Doctor checks of this machine and its workspace: kernel, user, socket, disks, directories, dependencies.

import { access, constants, lstat, readFile, stat, statfs } from 'node:fs/promises';
import { release } from 'node:os';
import { dirname, join } from 'node:path';
import type { Directories } from '../../../lifecycle/directories.ts';
import { formatBytes } from '../../../contract/units.ts';
import { accessRemedy, socketGroup } from '../../../isolation/socket-group.ts';
import type { Check } from '../report.ts';
import { readBoundedFile } from '../../../lifecycle/directories.ts';
import { AcodeError } from '../../../contract/errors.ts';
import { validateWorkspace } from '../../../workspace/locate.ts';
import { planMounts } from '../../../workspace/mounts.ts';

const LITTLE_DISK = 2 * 1024 ** 3;
const NO_DISK = 256 * 1024 ** 2;

/** Whether this is root. */
export function userCheck(uid: number): Check {
  const title = 'User';
  if (uid !== 0) return ok('user', title, `uid ${uid}, not root`);
  return fail(
    'user',
    title,
    'root: acode refuses to run anything',
    'Run it as an ordinary user in the engine’s group (`usermod -aG docker <user>`).',
  );
}

/** Variables that lead acode to another engine or configuration. */
export function environmentCheck(env: Readonly<Record<string, string | undefined>>): Check {
  const told = ['DOCKER_HOST', 'DOCKER_CONTEXT', 'DOCKER_CONFIG', 'XDG_CONFIG_HOME', 'XDG_STATE_HOME'].flatMap(name =>
    env[name] ? [`${name}=${env[name]}`] : [],
  );
  if (told.length === 0) return ok('environment', 'Environment', 'no variable points anywhere else');
  const elsewhere = told.some(variable => variable.startsWith('DOCKER_'));
  return elsewhere
    ? warn(
        'environment',
        'Environment',
        told.join(', '),
        'Unset it if you do not mean this engine: acode uses the one that it names.',
      )
    : ok('environment', 'Environment', told.join(', '));
}

/** The kernel, and what it lets ordinary users do. */
export async function kernelCheck(): Promise<Check> {
  const settings = await Promise.all(
    [
      '/proc/sys/user/max_user_namespaces',
      '/proc/sys/kernel/unprivileged_userns_clone',
      '/proc/sys/kernel/apparmor_restrict_unprivileged_userns',
      '/proc/sys/kernel/io_uring_disabled',
    ].map(async path => [path.split('/').at(-1) ?? '', await text(path)] as const),
  );
  const told = settings.flatMap(([name, value]) => (value === null ? [] : [`${name}=${value}`]));
  return ok('kernel', 'Kernel', [`${process.platform} ${release()}`, ...told].join(', '));
}

/** Whether the kernel has AppArmor; null where that cannot be seen. */
export async function kernelHasAppArmor(): Promise<boolean | null> {
  const [modules, enabled] = await Promise.all([
    text('/sys/kernel/security/lsm'),
    text('/sys/module/apparmor/parameters/enabled'),
  ]);
  if (modules !== null) return modules.split(',').includes('apparmor');
  return enabled === null ? null : enabled === 'Y';
}

/** Who may use the engine’s socket. */
export async function socketCheck(socket: string, uid: number): Promise<Check> {
  const title = 'Socket permissions';
  const found = await stat(socket).catch((error: unknown) => {
    const code = error instanceof Error && 'code' in error ? error.code : '';
    return code === 'EACCES' ? ('closed' as const) : null;
  });
  if (found === 'closed') return fail('socket', title, `you may not look at ${socket}`, accessRemedy(socket, null));
  if (!found)
    return fail('socket', title, `${socket} does not exist`, 'Start the engine, or name its socket with DOCKER_HOST.');
  const mode = (found.mode & 0o777).toString(8);
  if ((found.mode & 0o002) !== 0)
    return fail('socket', title, `everyone may use it (mode ${mode}): everyone is root here`, `chmod o-rw ${socket}`);
  const usable = await access(socket, constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  );
  if (!usable)
    return fail('socket', title, `you may not use it (mode ${mode})`, accessRemedy(socket, await socketGroup(socket)));
  if (uid !== 0 && found.uid === uid) return ok('socket', title, `yours alone (mode ${mode})`);
  return warn(
    'socket',
    title,
    `mode ${mode}, group ${found.gid}: whoever is in that group is root on this machine`,
    'Keep the group small, or use a rootless engine.',
  );
}

/** Free space where something is kept. */
export async function diskCheck(id: string, title: string, directory: string): Promise<Check> {
  const space = await freeBytes(directory);
  if (space === null) return ok(id, title, `${directory || 'it'} cannot be seen from here`);
  const seen = `${formatBytes(space)} free in ${directory}`;
  const remedy = 'Free some space: a full disk ends commands in the middle.';
  if (space < NO_DISK) return fail(id, title, seen, remedy);
  return space < LITTLE_DISK ? warn(id, title, seen, remedy) : ok(id, title, seen);
}

/** acode’s own directories: whose they are, and who else may write them. */
export async function directoriesCheck(own: Directories, uid: number): Promise<Check> {
  const faults = await Promise.all(
    [own.config, own.state, own.runtime].map(directory => directoryFault(directory, uid)),
  );
  const wrong = faults.filter(one => one !== null);
  const title = 'acode’s directories';
  if (wrong.length === 0) return ok('directories', title, `${own.config}, ${own.state}, ${own.runtime}`);
  return fail(
    'directories',
    title,
    wrong.join('; '),
    'Make them yours alone: chown and chmod 700, after a look at what is in them.',
  );
}

async function directoryFault(directory: string, uid: number): Promise<string | null> {
  const found = await lstat(directory).catch(() => null);
  if (!found) return null;
  if (!found.isDirectory()) return `${directory} is not a directory`;
  if (found.uid !== uid) return `${directory} belongs to uid ${found.uid}`;
  const mode = found.mode & 0o777;
  return (mode & 0o022) === 0 ? null : `${directory} can be written by others (mode ${mode.toString(8)})`;
}

async function freeBytes(directory: string): Promise<number | null> {
  if (directory === '') return null;
  try {
    const { bavail, bsize } = await statfs(directory);
    return bavail * bsize;
  } catch {
    const parent = dirname(directory);
    return parent === directory ? null : freeBytes(parent);
  }
}

async function text(path: string): Promise<string | null> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch {
    return null;
  }
}

/** Nothing to do. */
export function ok(id: string, title: string, seen: string): Check {
  return { id, title, status: 'ok', seen };
}

/** It works, and something should be done. */
export function warn(id: string, title: string, seen: string, remedy: string): Check {
  return { id, title, status: 'warn', seen, remedy };
}

/** Commands cannot be run, or not safely. */
export function fail(id: string, title: string, seen: string, remedy: string): Check {
  return { id, title, status: 'fail', seen, remedy };
}

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
