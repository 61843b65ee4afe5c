// Which group an engine’s socket belongs to: the way in for a user who may not use it.

import { readFile, stat } from 'node:fs/promises';

/** The group of a socket. */
export interface SocketGroup {
  readonly gid: number;
  /** Null where this machine has no name for it. */
  readonly name: string | null;
}

/** The group that owns a socket; null where nobody lets us look. */
export async function socketGroup(socket: string, groups = '/etc/group'): Promise<SocketGroup | null> {
  const found = await stat(socket).catch(() => null);
  if (!found) return null;
  const { gid } = found;
  return { gid, name: nameIn(await readFile(groups, 'utf8').catch(() => ''), gid) };
}

/** What a user does who may not use a socket. */
export function accessRemedy(socket: string, group: SocketGroup | null): string {
  if (group === null)
    return `Ask for access to ${socket}: a directory on the way to it is closed to you. Usually it takes the engine’s group (\`sudo usermod -aG docker $USER\`) and a new login.`;
  if (group.gid === 0)
    return `${socket} belongs to root alone. Let the engine give it to a group of its own (\`"group": "docker"\` in its daemon.json), join that group and log in again; or use a rootless engine.`;
  const name = group.name ?? String(group.gid);
  return `Add yourself to the group ${name}, which owns ${socket}, and log in again: \`sudo usermod -aG ${name} $USER\`. Members of ${name} can become root on this machine; a rootless engine avoids that.`;
}

function nameIn(groups: string, gid: number): string | null {
  for (const line of groups.split('\n')) {
    const [name, , number] = line.split(':');
    if (name && number === String(gid)) return name;
  }
  return null;
}
