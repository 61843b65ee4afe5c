// Missing dependencies: detects that a project’s dependencies are not installed, a common cause of status 127.

import { access, opendir } from 'node:fs/promises';
import { join } from 'node:path';
import { memberOf, smallJson, upwards } from '../project/reading.ts';
import type { Place } from '../workspace.ts';

const NODE = [
  { lock: 'pnpm-lock.yaml', cache: 'pnpm', install: 'pnpm install --frozen-lockfile' },
  { lock: 'yarn.lock', cache: 'yarn', install: 'yarn install' },
  { lock: 'package-lock.json', cache: 'npm', install: 'npm ci' },
  { lock: '', cache: 'npm', install: 'npm install' },
] as const;
const PYTHON = [
  { file: 'requirements.txt', install: '.venv/bin/pip install -r requirements.txt' },
  { file: 'pyproject.toml', install: '.venv/bin/pip install -e .' },
] as const;

/** Dependencies that are not installed. */
export interface MissingDependencies {
  /** What points to that, as a part of a sentence. */
  readonly why: string;
  /** The cache that is filled. */
  readonly cache: string;
  /** What installs them, as it is typed after the options of acode. */
  readonly install: string;
}

/** A sentence about dependencies that are not installed; null where nothing points to that. */
export async function missingDependencies(place: Pick<Place, 'root' | 'here'>): Promise<string | null> {
  const found = await findMissingDependencies(place);
  return (
    found &&
    `the dependencies of this project may not be installed: ${found.why}. To install them with a network (which needs your consent once: \`acode config set sandbox.network.allow_bridge true\`): \`${installLine(found)}\`. If a project image has them, add --deps.`
  );
}

/** What a user types to install them. */
export function installLine({ cache, install }: MissingDependencies): string {
  return `acode sandbox exec --fill-cache ${cache} --network bridge ${install}`;
}

/** The dependencies that are not installed; null where nothing points to that. */
export async function findMissingDependencies({
  root,
  here,
}: Pick<Place, 'root' | 'here'>): Promise<MissingDependencies | null> {
  for (const directory of upwards(root, here)) {
    const found = (await missingModules(directory, root)) ?? (await missingEnvironment(directory));
    if (found !== null) return found;
  }
  return null;
}

async function missingModules(directory: string, root: string): Promise<MissingDependencies | null> {
  if (!(await dependsOnPackages(join(directory, 'package.json')))) return null;
  for (const above of upwards(root, directory)) if (await hasFiles(join(above, 'node_modules'))) return null;
  for (const { lock, cache, install } of NODE)
    if (lock === '' || (await exists(join(directory, lock))))
      return { why: 'there is no node_modules beside package.json', cache, install: `-- ${install}` };
  return null;
}

async function dependsOnPackages(file: string): Promise<boolean> {
  const project = await smallJson(file);
  return ['dependencies', 'devDependencies'].some(key => hasEntries(memberOf(project, key)));
}

async function missingEnvironment(directory: string): Promise<MissingDependencies | null> {
  for (const { file, install } of PYTHON) {
    if (!(await exists(join(directory, file)))) continue;
    for (const name of ['.venv', 'venv']) if (await hasFiles(join(directory, name))) return null;
    return {
      why: `there is no .venv beside ${file}`,
      cache: 'pip',
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
    for await (const _ of await opendir(path)) return true;
    return false;
  } catch {
    return exists(path);
  }
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
