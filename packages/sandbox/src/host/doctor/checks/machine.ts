// What the doctor sees of this machine itself: kernel, user, socket, disks, directories.

import { access, constants, lstat, readFile, stat, statfs } from 'node:fs/promises';
import { release } from 'node:os';
import { dirname } from 'node:path';
import type { Directories } from '../../../lifecycle/directories.ts';
import { formatBytes } from '../../../policy/config/units.ts';
import { accessRemedy, socketGroup } from '../../../isolation/socket-group.ts';
import type { Check } from '../report.ts';
import { fail, ok, warn } from './check.ts';

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
        'Unset what you did not mean: the engine it names is the one that is used.',
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
