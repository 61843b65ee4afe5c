// Missing dependencies: detects that a project’s dependencies are not installed, a common cause of status 127.

import { lstat, opendir, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import type { Command } from '@acode/sandbox';
import { quoted } from '../arguments/command-arguments.ts';
import { isDirectory, memberOf, smallFile, smallJson, upwards } from '../project/reading.ts';
import { plural } from '../terminal/text.ts';
import type { Place } from '../workspace.ts';

const NODE = [
  { lock: 'pnpm-lock.yaml', tool: 'pnpm', install: 'pnpm install --frozen-lockfile' },
  { lock: 'yarn.lock', tool: 'yarn', install: 'yarn install' },
  { lock: 'package-lock.json', tool: 'npm', install: 'npm ci' },
  { lock: '', tool: 'npm', install: 'npm install' },
] as const;
const PYTHON = [
  { file: 'requirements.txt', install: '.venv/bin/pip install -r requirements.txt' },
  { file: 'pyproject.toml', install: '.venv/bin/pip install -e .' },
] as const;

// Where each tool gets packages from unless it is told otherwise.
const HOSTS = {
  npm: 'npm:install',
  pnpm: 'npm:install',
  yarn: 'npm:install,registry.yarnpkg.com',
  pip: 'pypi',
} as const;

/** Dependencies that are not installed. */
export interface MissingDependencies {
  /** What is missing, as the beginning of a sentence. */
  readonly what: string;
  /** The tool that installs them. */
  readonly tool: keyof typeof HOSTS;
  /** What installs them, as it is typed after the options of acode. */
  readonly install: string;
}

/** A command that ended because a program or a module was not found. */
export interface NotFound {
  readonly command: Command;
  /** What the command printed: a shell names the program in it. */
  readonly stderr: string;
  /** Whether a module was not found, which is a dependency whatever the command was. */
  readonly isModule?: true;
  /** The image that the user named, if any. */
  readonly chosenImage?: string | undefined;
}

/** A sentence about dependencies that are not installed; null where nothing points to that. */
export async function missingDependencies(
  place: Pick<Place, 'root' | 'here'>,
  ended?: NotFound,
): Promise<string | null> {
  const found = await findMissingDependencies(place, ended);
  if (!found) return null;
  return `${found.what}. To install them: \`${installLine(found, ended?.chosenImage)}\`. Then run this again.`;
}

/** What a user types to install them. */
export function installLine({ tool, install }: MissingDependencies, image?: string): string {
  const chosen = image === undefined ? '' : `--image ${quoted(image)} `;
  return `acode run ${chosen}--network allow=${HOSTS[tool]} ${install}`;
}

/**
 * The dependencies that are not installed; null where nothing points to that.
 *
 * @param ended a command that did not find a program: one that no dependency would bring is the image’s matter
 */
export async function findMissingDependencies(
  { root, here }: Pick<Place, 'root' | 'here'>,
  ended?: NotFound,
): Promise<MissingDependencies | null> {
  // A link that a command made must not tell a model what is on this machine.
  if ((await realpath(here).catch(() => '')) !== here) return null;
  for (const directory of upwards(root, here)) {
    const found = (await missingModules(directory, root, ended)) ?? (await missingEnvironment(directory, ended));
    if (found !== null) return found;
  }
  return null;
}

async function missingModules(directory: string, root: string, ended?: NotFound): Promise<MissingDependencies | null> {
  const project = await smallJson(join(directory, 'package.json'));
  if (!GROUPS.some(key => hasEntries(memberOf(project, key))) || !mayBeOf(ended, RUNS_PACKAGES, wordsOf(project)))
    return null;
  const what = await whatIsMissing(project, upwards(root, directory), ended?.stderr ?? '');
  if (what === null) return null;
  for (const { lock, tool, install } of NODE)
    if (lock === '' || (await exists(join(directory, lock)))) return { what, tool, install: `-- ${install}` };
  return null;
}

// A package may be in the node_modules of any directory above it: workspaces have most of theirs at the top.
async function whatIsMissing(project: unknown, above: readonly string[], printed: string): Promise<string | null> {
  const filled: string[] = [];
  for (const directory of above) {
    const modules = join(directory, 'node_modules');
    if (!(await hasFiles(modules))) continue;
    // A link is not followed, and Yarn’s Plug’n’Play keeps the packages elsewhere.
    if (!(await isDirectory(modules)) || (await exists(join(directory, '.pnp.cjs')))) return null;
    filled.push(modules);
  }
  if (filled.length === 0) return `${MAY_LACK} there is no node_modules beside package.json`;
  const absent: string[] = [];
  for (const name of packagesOf(project)) if (await isInNone(filled, name)) absent.push(name);
  return absent.length === 0 ? null : incompleteText(absent, printed.slice(-MAX_READ));
}

// The one that the command wanted stands first.
function incompleteText(absent: readonly string[], printed: string): string {
  const named = absent.find(name => printed.includes(unscoped(name))) ?? absent[0];
  const others = absent.length - 1;
  const names = others === 0 ? `${named} is` : `${named} and ${plural(others, 'other package')} are`;
  return `node_modules is incomplete: ${names} not installed`;
}

// The names become part of a path and of a message, and the repository chose them.
const PACKAGE = /^(?:@[a-z0-9~-][\w.~-]*\/)?[a-z0-9~-][\w.~-]*$/i;
const MAX_NAME = 100;
const MAX_PACKAGES = 1000;
const MAX_READ = 4096;

// An optional one may be left out on purpose, and counts as optional though it is named as another kind as well.
function packagesOf(project: unknown): string[] {
  const optional = memberOf(project, 'optionalDependencies');
  const names = GROUPS.flatMap(key => Object.keys(memberOf(project, key) ?? {})).slice(0, MAX_PACKAGES);
  return [...new Set(names)].filter(
    name => name.length <= MAX_NAME && PACKAGE.test(name) && memberOf(optional, name) === undefined,
  );
}

async function isInNone(modules: readonly string[], name: string): Promise<boolean> {
  for (const directory of modules) {
    const [first = '', second] = name.split('/');
    const scope = join(directory, first);
    if (!(await exists(scope))) continue;
    // The directory of a scope that is a link may have the package: nothing is looked up through it.
    if (second === undefined || !(await isDirectory(scope)) || (await exists(join(scope, second)))) return false;
  }
  return true;
}

const MAY_LACK = 'the dependencies of this project may not be installed:';
const GROUPS = ['dependencies', 'devDependencies'];
const RUNS_PACKAGES = /(?:^|[\s;&|(])(?:p?npm|p?npx|yarn|bunx?|corepack)(?=\s|$)|node_modules\/\.bin/;
const RUNS_PYTHON = /(?:^|[\s;&|(])(?:python3?|pip3?|pytest|poetry|uv|tox)(?=\s|$)|venv\/bin/;

// The names of packages, without their scope, and everything that scripts name. TypeScript is the one known by another name.
function wordsOf(project: unknown): string {
  const packages = GROUPS.flatMap(key => Object.keys(memberOf(project, key) ?? {})).map(unscoped);
  const scripts = JSON.stringify(memberOf(project, 'scripts') ?? {});
  return [...packages, packages.includes('typescript') ? 'tsc' : '', scripts].join(' ');
}

function unscoped(name: string): string {
  return name.replace(/^@.*\//, '');
}

/** Whether the program that was not found may be one of the project’s: by what the line runs, or by its name. */
function mayBeOf(ended: NotFound | undefined, runs: RegExp, words: string): boolean {
  if (!ended || ended.isModule) return true;
  const line = typeof ended.command === 'string' ? ended.command : ended.command.join(' ');
  if (runs.test(line)) return true;
  const named = [...ended.stderr.slice(-MAX_READ).matchAll(/([^\s:]{1,100}): (?:command )?not found/g)].map(
    ([, name = '']) => name,
  );
  const known = words.toLowerCase().split(/[^\w.-]+/);
  return (named.length > 0 ? named : line.trim().split(/\s+/, 1)).some(name => known.includes(name.toLowerCase()));
}

async function missingEnvironment(directory: string, ended?: NotFound): Promise<MissingDependencies | null> {
  for (const { file, install } of PYTHON) {
    if (!(await exists(join(directory, file)))) continue;
    if (!mayBeOf(ended, RUNS_PYTHON, (await smallFile(join(directory, file))) ?? '')) return null;
    for (const name of ['.venv', 'venv']) if (await hasFiles(join(directory, name))) return null;
    return {
      what: `${MAY_LACK} there is no .venv beside ${file}`,
      tool: 'pip',
      install: `"python3 -m venv .venv && ${install}"`,
    };
  }
  return null;
}

function hasEntries(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.keys(value).length > 0;
}

// An empty one is what `--deps` mounts on.
async function hasFiles(path: string): Promise<boolean> {
  try {
    if (!(await lstat(path)).isDirectory()) return true;
    for await (const _ of await opendir(path)) return true;
    return false;
  } catch {
    return exists(path);
  }
}

// Whatever a link leads to is not asked for.
function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}
