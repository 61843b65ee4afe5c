// The part of the WebContainer SDK that acode uses, and how it is found. Its package is the caller’s to install.

import * as z from 'zod';
import { AcodeError } from '../../contract/errors.ts';

/** Files as the SDK takes them. */
export interface FileTree {
  [name: string]: { directory: FileTree } | { file: { contents: string | Uint8Array } };
}

/** A process inside an instance. Its two streams come as one. */
export interface WebProcess {
  readonly exit: Promise<number>;
  readonly output: { getReader(): { read(): Promise<{ done: boolean; value?: string | undefined }> } };
  kill(): void;
}

/** A running instance. */
export interface WebInstance {
  mount(tree: FileTree): Promise<void>;
  spawn(program: string, words: string[], options: { cwd?: string; env: Record<string, string> }): Promise<WebProcess>;
  teardown(): void;
}

/** What makes instances: one at a time in each page. */
export interface WebSdk {
  boot(): Promise<WebInstance>;
}

const REMEDY =
  'Install the optional peer dependency yourself (`npm install @webcontainer/api`; its vendor has terms of its own), or run the command with Acode on a host.';

const moduleSchema = z.object({
  WebContainer: z.custom<WebSdk>(
    value => typeof value === 'function' && 'boot' in value && typeof value.boot === 'function',
    'makes no instances',
  ),
});

/** The SDK of the page. Where it is not there, nothing takes its place. */
export async function sdkFrom(load: () => Promise<unknown>): Promise<WebSdk> {
  const refused = (available: string, cause: unknown): AcodeError =>
    new AcodeError('ACODE-SBX-012', { required: 'web', available, remedy: REMEDY }, { cause });
  const loaded = await load().catch((error: unknown) => {
    throw refused('a page without @webcontainer/api', error);
  });
  const parsed = moduleSchema.safeParse(loaded);
  if (!parsed.success) throw refused('another version of @webcontainer/api', parsed.error);
  return parsed.data.WebContainer;
}

/** The installed SDK. */
export async function installedSdk(): Promise<unknown> {
  return import('@webcontainer/api');
}

/** Files by their paths, relative to the working directory, as the SDK takes them. */
export function treeOf(files: Readonly<Record<string, string | Uint8Array>>): FileTree {
  const tree: FileTree = {};
  for (const [path, contents] of Object.entries(files)) {
    const names = namesIn(path, 'files');
    const last = names.pop() ?? '';
    const directory = names.reduce((inside, name) => {
      const found = (inside[name] ??= { directory: {} });
      if ('file' in found) throw invalid('files', `${path} lies below a file`);
      return found.directory;
    }, tree);
    if (last in directory) throw invalid('files', `${path} is a directory too`);
    directory[last] = { file: { contents } };
  }
  return tree;
}

/** The names of a path that stays where it begins; throws for any other. */
export function namesIn(path: string, field: string): string[] {
  const names = path.split('/');
  if (names.some(name => ['', '.', '..', '__proto__'].includes(name) || name.includes('\0')))
    throw invalid(field, `${JSON.stringify(path)} is no relative path that stays in the working directory`);
  return names;
}

function invalid(field: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', { field, reason, remedy: `Correct ${field}.` });
}
