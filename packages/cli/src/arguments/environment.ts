// Variables of a command, read from the caller’s environment and from files. Loaded only where there are some.

import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import { fileCode, fileReason } from '../failure/file-reasons.ts';
import { UsageError } from '../failure/usage.ts';

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const MAX_BYTES = 1024 * 1024;
const MAX_MS = 10_000;

/** Variables as they were asked for; null takes the value from the caller’s environment. */
export type AskedVariables = Readonly<Record<string, string | null>>;

/** The values of the options. */
export interface EnvironmentOptions {
  readonly env?: AskedVariables | undefined;
  readonly envFile?: readonly string[] | undefined;
}

/** What variables are taken from. */
export interface VariableSource {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The directory that a relative file begins in. */
  readonly here: string;
}

/**
 * The variables of a command: those of files first, then those of --env, the last one counting. Values are only ever in the
 * caller’s environment or in a file, and then in the request: they stand on no command line of acode’s.
 */
export async function readVariables(
  { env: asked = {}, envFile = [] }: EnvironmentOptions,
  source: VariableSource,
): Promise<Record<string, string>> {
  const found = new Map<string, string>();
  for (const path of envFile)
    for (const [name, value] of parseVariables(await textOf(path, source.here), path, source.env))
      found.set(name, value);
  for (const [name, value] of Object.entries(asked)) found.set(name, value ?? inherited(name, source.env, '--env'));
  return Object.fromEntries(found);
}

/**
 * The variables of a file in docker’s format: a line is NAME=value, the value taken as it stands, or NAME, which takes the
 * caller’s value; empty lines and those that begin with # are left out.
 */
export function parseVariables(text: string, path: string, env: VariableSource['env']): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const [index, raw] of text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .entries()) {
    const line = raw.replace(/\r$/, '').trimStart();
    if (line === '' || line.startsWith('#')) continue;
    const equals = line.indexOf('=');
    const name = equals < 0 ? line.trimEnd() : line.slice(0, equals);
    const where = `${path}:${index + 1}`;
    // The line itself is not repeated: it may be a secret.
    if (!NAME.test(name))
      throw new UsageError(
        `${where}: the line does not begin with the name of a variable.`,
        'Write NAME=value, without spaces around the = and without `export`; a comment begins with #.',
      );
    if (line.includes('\0')) throw new UsageError(`${where}: ${name} holds a NUL character.`, 'Take it out.');
    found.set(name, equals < 0 ? inherited(name, env, where) : line.slice(equals + 1));
  }
  return found;
}

function inherited(name: string, env: VariableSource['env'], where: string): string {
  const value = env[name];
  if (value !== undefined) return value;
  throw new UsageError(
    `${where}: ${name} is not set in your environment.`,
    `Export it first (\`export ${name}=…\`), or give a value: \`--env ${name}=value\`.`,
  );
}

async function textOf(path: string, here: string): Promise<string> {
  const late = new Promise<never>((_, reject) => {
    const error = new UsageError(`${path} cannot be read: nothing comes.`, 'Check the path after --env-file.');
    setTimeout(() => reject(error), MAX_MS).unref();
  });
  return Promise.race([read(path, here), late]);
}

// It may be a pipe, as of `<(…)`: its size is only known when it has been read, and nobody may write to it.
async function read(path: string, here: string): Promise<string> {
  try {
    await using file = await open(resolve(here, path));
    const buffer = Buffer.alloc(MAX_BYTES + 1);
    let length = 0;
    while (length < buffer.length) {
      const { bytesRead } = await file.read(buffer, length, buffer.length - length, null);
      if (bytesRead === 0) break;
      length += bytesRead;
    }
    if (length > MAX_BYTES)
      throw new UsageError(`${path} is larger than 1 MiB.`, '--env-file takes a file of NAME=value lines.');
    return buffer.toString('utf8', 0, length);
  } catch (error) {
    const code = fileCode(error);
    if (code === null) throw error;
    throw new UsageError(`${path}: ${fileReason(code)}.`, 'Check the path after --env-file.');
  }
}
