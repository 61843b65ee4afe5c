// Why a host forbids user namespaces to ordinary users, and what its administrator would change.

import { readFile } from 'node:fs/promises';

interface Rule {
  readonly file: string;
  readonly forbids: (value: string) => boolean;
  readonly remedy: string;
}

const RULES: readonly Rule[] = [
  {
    file: '/proc/sys/kernel/unprivileged_userns_clone',
    forbids: value => value === '0',
    remedy:
      'kernel.unprivileged_userns_clone is 0, which forbids user namespaces to ordinary users; `sudo sysctl -w kernel.unprivileged_userns_clone=1` allows them (and the same line in /etc/sysctl.d/ keeps it)',
  },
  {
    file: '/proc/sys/user/max_user_namespaces',
    forbids: value => value === '0',
    remedy:
      'user.max_user_namespaces is 0, so nobody can make a user namespace; `sudo sysctl -w user.max_user_namespaces=15000` allows them (and the same line in /etc/sysctl.d/ keeps it)',
  },
  {
    file: '/proc/sys/kernel/apparmor_restrict_unprivileged_userns',
    forbids: value => value === '1',
    remedy:
      'kernel.apparmor_restrict_unprivileged_userns is 1, so a program needs an AppArmor profile that allows user namespaces; give /usr/bin/bwrap one (Ubuntu’s package apparmor-profiles has it as bwrap-userns-restrict), or set that to 0 with `sudo sysctl -w`',
  },
];

/** The files that say whether it does. */
export const DECIDING_FILES: readonly string[] = RULES.map(({ file }) => file);

/** The settings that forbid user namespaces here, in words; empty where none does. */
export async function whyForbidden(
  read: (file: string) => Promise<string | null> = contentOf,
): Promise<readonly string[]> {
  const values = await Promise.all(RULES.map(({ file }) => read(file)));
  return RULES.filter(({ forbids }, index) => forbids((values[index] ?? '').trim())).map(({ remedy }) => remedy);
}

async function contentOf(file: string): Promise<string | null> {
  try {
    return await readFile(file, 'utf8');
  } catch {
    return null;
  }
}
