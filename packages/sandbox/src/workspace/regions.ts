// What a name means where it stands: in a risky directory, among what was installed, or elsewhere. Pure.

import { HOOKS } from './git-directory.ts';
import { riskOfDirectory, riskOfFile, riskOfHolder, riskOfInstalled, riskOfProgram } from './risky-names.ts';
import type { Risk, RiskyDirectory } from './risky-names.ts';
import type { Region, Visit } from './visits.ts';

// Of a repository: what only holds content, and may be huge.
const CONTENT = new Set(['objects', 'refs', 'logs', 'lfs']);
// Of a repository that the run could not change: where links may lead to hooks and attributes.
const LINKED_OF_GIT = new Set(['hooks', 'info']);
// Settings lie at the top of what no run can change; whole checkouts may lie deeper.
const MAX_SEALED_DEPTH = 3;
const PACKAGES = /^(?:site|dist)-packages$/;

/** The risk of a file by its name and where it is. */
export function riskAt({ name: parent, region, installed }: Visit, name: string): Risk | null {
  if (region) return isExpected(region, name) ? null : region;
  if (!installed) return riskOfFile(name, parent);
  return parent === '.bin' ? riskOfProgram(name) : riskOfInstalled(name, parent);
}

function isExpected({ fresh, hooks }: Region, name: string): boolean {
  return fresh === true || (hooks === 'named' && !HOOKS.has(name));
}

/** What a link counts as because of its name, where it leads to a directory. */
export function roleOf({ name: parent, region, installed }: Visit, name: string): RiskyDirectory | null {
  if (region) return region.fresh || region.hooks ? null : region;
  if (installed) return name === '.git' ? riskOfDirectory(name, '') : null;
  return riskOfDirectory(name, parent) ?? riskOfHolder(name);
}

/** Which directories matter: of what is only looked into because something leads there, those that it is used for. */
export function wantedBelow(visit: Visit, region: Region | null, names: readonly string[]): readonly string[] {
  if (visit.sealed) return wantedOfSealed(visit, region, names);
  if (region?.hooks) return [];
  if (region?.whole) return names.filter(name => !CONTENT.has(name));
  if (region || !visit.alias) return names;
  return names.filter(name => (visit.installed ? name === '.bin' : riskOfDirectory(name, visit.name)));
}

function wantedOfSealed({ depth }: Visit, region: Region | null, names: readonly string[]): readonly string[] {
  if (region?.hooks || depth >= MAX_SEALED_DEPTH) return [];
  return region?.whole ? names.filter(name => LINKED_OF_GIT.has(name)) : names;
}

/** Whether a package manager installs into a directory of this name. */
export function isInstalled(name: string, parent: string): boolean {
  return name === 'node_modules' || (PACKAGES.test(name) && /^python\d/.test(parent));
}
