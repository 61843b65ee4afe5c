// The npm of the user: fetches packages from the registry that it is configured for, with its proxies and logins.

import { spawn } from 'node:child_process';
import { accessSync, constants, realpathSync } from 'node:fs';
import { mkdir, readdir, stat } from 'node:fs/promises';
import { delimiter, isAbsolute, join, relative, sep } from 'node:path';

/** Where npm is looked for, and what it gets. */
export interface NpmSurroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** What lies in here is not run. */
  readonly workspace: string;
}

/** Why npm did not do what was asked. */
export class NpmFailure extends Error {}

const PROGRESS_MS = 500;
const MAX_PRINTED = 64 * 1024;
// Loads code into Node.js, or is another project’s.
const LEFT_OUT =
  /^(?:NODE_OPTIONS|NODE_PATH|LD_.*|npm_(?:package|lifecycle|command|execpath|node_execpath).*|INIT_CWD)$/;

/**
 * Fetches the archive of a package into a directory, without running anything of it; returns its path. `progress` is told how many
 * bytes there are so far.
 */
export async function fetchPackage(
  spec: string,
  directory: string,
  around: NpmSurroundings,
  options: { readonly signal: AbortSignal; readonly progress?: ((bytes: number) => void) | undefined },
): Promise<string> {
  // npm writes here while it downloads. Without a cache of its own, nobody could tell how far it is.
  const cache = join(directory, 'cache');
  await mkdir(cache, { recursive: true });
  const { progress } = options;
  const timer = progress && setInterval(() => void sizeOf(cache).then(progress, () => undefined), PROGRESS_MS);
  try {
    const pack = ['pack', spec, '--pack-destination', directory, '--cache', cache, '--ignore-scripts', '--silent'];
    await npm(pack, directory, around, options.signal);
  } finally {
    clearInterval(timer);
  }
  const found = (await readdir(directory)).find(name => name.endsWith('.tgz'));
  if (found === undefined) throw new NpmFailure('npm fetched nothing');
  return join(directory, found);
}

/** What the registry says of a package: the version that a tag or range means, and its integrity. */
export async function viewPackage(
  spec: string,
  directory: string,
  around: NpmSurroundings,
  signal: AbortSignal,
): Promise<unknown> {
  const printed = await npm(
    ['view', spec, 'version', 'dist.integrity', '--json', '--silent'],
    directory,
    around,
    signal,
  );
  try {
    return JSON.parse(printed) as unknown;
  } catch {
    throw new NpmFailure(`npm knows nothing of ${spec}`);
  }
}

function npm(
  argv: readonly string[],
  cwd: string,
  { env, workspace }: NpmSurroundings,
  signal: AbortSignal,
): Promise<string> {
  const path = directoriesOf(env['PATH'] ?? '', workspace);
  const program = path.map(directory => join(directory, 'npm')).find(isProgram);
  if (program === undefined) return Promise.reject(new NpmFailure('no directory of PATH has npm'));
  const kept = Object.entries(env).filter(([name, value]) => value !== undefined && !LEFT_OUT.test(name));
  return new Promise((done, reject) => {
    const child = spawn(program, argv, {
      cwd,
      env: { ...Object.fromEntries(kept), PATH: path.join(delimiter), npm_config_update_notifier: 'false' },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    let printed = '';
    let complaint = '';
    child.stdout.on('data', (chunk: Buffer) => (printed = (printed + chunk.toString()).slice(-MAX_PRINTED)));
    child.stderr.on('data', (chunk: Buffer) => (complaint = (complaint + chunk.toString()).slice(-MAX_PRINTED)));
    const stop = (): void => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It has ended already.
      }
    };
    signal.addEventListener('abort', stop, { once: true });
    child.on('error', error => reject(new NpmFailure(error.message)));
    child.on('close', code => {
      signal.removeEventListener('abort', stop);
      if (signal.aborted) reject(signal.reason instanceof Error ? signal.reason : new Error('stopped'));
      else if (code === 0) done(printed);
      else reject(new NpmFailure(reasonIn(`${complaint}\n${printed}`, code)));
    });
  });
}

// With --json, npm prints its errors on standard output.
function reasonIn(printed: string, code: number | null): string {
  const line = printed
    .split('\n')
    .map(one => /(?:npm (?:error|ERR!) |"summary": ")(?!code)(.*)/.exec(one)?.[1]?.replace(/",?$/, '').trim() ?? '')
    .find(one => one !== '' && !one.startsWith('A complete log'));
  return `npm ended with ${code ?? 'a signal'}${line === undefined ? '' : `: ${line.slice(0, 200)}`}`;
}

// Directories of PATH into which commands of the workspace cannot have put a program.
function directoriesOf(path: string, workspace: string): string[] {
  return path.split(delimiter).filter(one => isAbsolute(one) && !isWithin(real(one), workspace));
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function real(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

function isWithin(path: string, directory: string): boolean {
  const way = relative(directory, path);
  return way === '' || (way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way));
}

async function sizeOf(directory: string): Promise<number> {
  const names = await readdir(directory, { recursive: true });
  const sizes = await Promise.all(
    names.map(async name => {
      const found = await stat(join(directory, name)).catch(() => null);
      return found?.isFile() ? found.size : 0;
    }),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}
