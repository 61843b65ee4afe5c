// What a name means where it stands: in a risky directory, among what was installed, or elsewhere. Pure.

import { HOOKS } from './git-directory.ts';
import {
  BAZEL,
  ENVIRONMENT,
  PROGRAMS_OF_PACKAGES,
  PYTHON_PACKAGES,
  riskOfDirectory,
  riskOfFile,
  riskOfHolder,
  riskOfInstalled,
  riskOfProgram,
} from './risky-names.ts';
import type { Risk, RiskyDirectory } from './risky-names.ts';
import type { Region, Visit } from './visits.ts';

// Of a repository: what only holds content, and may be huge.
const CONTENT = new Set(['objects', 'refs', 'logs', 'lfs']);
// Of a repository that the run could not change: where links may lead to hooks and attributes.
const LINKED_OF_GIT = new Set(['hooks', 'info']);
// Settings lie at the top of what no run can change; whole checkouts may lie deeper.
const MAX_SEALED_DEPTH = 3;
const PACKAGES = /^(?:site|dist)-packages$/;
const PYTHON = /^python\d/;

// Programs of the packages that one installed package depends on: in the search path of that package’s own scripts only, and
// those are as new as the programs. A hidden directory is not a package: pnpm has programs for everybody in one.
const PROGRAMS_OF_DEPENDENCY = /(?:^|\/)node_modules\/(?:@[^/]+\/)?[^./@][^/]*\/node_modules\/\.bin$/;

/** The risk of a file by its name and where it is. */
export function riskAt(visit: Visit, name: string): Risk | null {
  const { name: parent, region, installed } = visit;
  if (region) return isExpected(region, name) ? null : region;
  if (!installed) return riskOfFile(name, parent);
  if (parent !== '.bin') return riskOfInstalled(name, parent);
  // Where a link leads to such a directory, it is used as what the link is called.
  return !visit.alias && PROGRAMS_OF_DEPENDENCY.test(visit.path) ? null : riskOfProgram(name);
}

function isExpected({ fresh, hooks }: Region, name: string): boolean {
  return fresh === true || (hooks === 'named' && !HOOKS.has(name));
}

/** What a link counts as because of its name, where it leads to a directory; `beside` says whether something else lies beside it. */
export function roleOf(
  { name: parent, region, installed }: Visit,
  name: string,
  beside: (name: string) => boolean,
): RiskyDirectory | null {
  if (region) return roleInRegion(region);
  if (name === 'bin' && beside('pyvenv.cfg')) return ENVIRONMENT;
  if (isPythonLink(name, parent)) return PYTHON_PACKAGES;
  if (installed) return roleAmongInstalled(name);
  if (name === 'tools') return beside('tools/bazel') ? BAZEL : null;
  return riskOfDirectory(name, parent) ?? riskOfHolder(name);
}

function roleInRegion(region: Region): RiskyDirectory | null {
  return region.fresh || region.hooks ? null : region;
}

function roleAmongInstalled(name: string): RiskyDirectory | null {
  if (name === '.bin') return PROGRAMS_OF_PACKAGES;
  return name.toLowerCase() === '.git' ? riskOfDirectory(name, '') : null;
}

// In place of the directory of packages, or of the one around it.
function isPythonLink(name: string, parent: string): boolean {
  if (PYTHON.test(name)) return parent === 'lib' || parent === 'lib64';
  return PACKAGES.test(name) && PYTHON.test(parent);
}

/** Whether what a link of this name leads to is a place that package managers install into, or put programs in. */
export function isInstalledLink(visit: Visit, name: string): boolean {
  return name.toLowerCase() === 'node_modules' || isInstalled(name, visit.name) || (visit.installed && name === '.bin');
}

/** Which directories matter: of what is only looked into because something leads there, those that it is used for. */
export function wantedBelow(visit: Visit, region: Region | null, names: readonly string[]): readonly string[] {
  if (visit.sealed) return wantedOfSealed(visit, region, names);
  if (region?.hooks) return [];
  if (region?.whole) return names.filter(name => !CONTENT.has(name));
  if (region || !visit.alias) return names;
  if (visit.installed) return names.filter(name => name === '.bin');
  return names.filter(name => riskOfDirectory(name, visit.name) ?? isInstalled(name, visit.name));
}

function wantedOfSealed({ depth }: Visit, region: Region | null, names: readonly string[]): readonly string[] {
  if (region?.hooks || depth >= MAX_SEALED_DEPTH) return [];
  return region?.whole ? names.filter(name => LINKED_OF_GIT.has(name)) : names;
}

/** Whether a package manager installs into a directory of this name. */
export function isInstalled(name: string, parent: string): boolean {
  return name === 'node_modules' || (PACKAGES.test(name) && PYTHON.test(parent));
}
