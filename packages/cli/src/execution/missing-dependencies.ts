// Missing dependencies: detects that a project’s dependencies are not installed, a common cause of status 127.

import { access } from 'node:fs/promises';
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

/** A sentence about dependencies that are not installed; null where nothing points to that. */
export async function missingDependencies({ root, here }: Pick<Place, 'root' | 'here'>): Promise<string | null> {
  for (const directory of upwards(root, here)) {
    const found = (await missingModules(directory, root)) ?? (await missingEnvironment(directory));
    if (found !== null) return found;
  }
  return null;
}

async function missingModules(directory: string, root: string): Promise<string | null> {
  if (!(await dependsOnPackages(join(directory, 'package.json')))) return null;
  for (const above of upwards(root, directory)) if (await exists(join(above, 'node_modules'))) return null;
  for (const { lock, cache, install } of NODE)
    if (lock === '' || (await exists(join(directory, lock))))
      return sentence('there is no node_modules beside package.json', cache, `-- ${install}`);
  return null;
}

async function dependsOnPackages(file: string): Promise<boolean> {
  const project = await smallJson(file);
  return ['dependencies', 'devDependencies'].some(key => hasEntries(memberOf(project, key)));
}

async function missingEnvironment(directory: string): Promise<string | null> {
  for (const { file, install } of PYTHON) {
    if (!(await exists(join(directory, file)))) continue;
    for (const name of ['.venv', 'venv']) if (await exists(join(directory, name))) return null;
    return sentence(`there is no .venv beside ${file}`, 'pip', `"python3 -m venv .venv && ${install}"`);
  }
  return null;
}

function sentence(why: string, cache: string, install: string): string {
  return `the dependencies of this project may not be installed: ${why}. To install them with a network (which needs \`sandbox: { network: { allow_bridge: true } }\` in your configuration): \`acode sandbox exec --fill-cache ${cache} --network bridge ${install}\`.`;
}

function hasEntries(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.keys(value).length > 0;
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
