// Arguments and helpers that several tools share.

import * as z from 'zod';
import { AcodeError } from '@acode/sandbox';
import { quoted } from '../../arguments/command-arguments.ts';
import { fileCode, fileReason } from '../../failure/file-reasons.ts';
import { oneLine } from '../../terminal/text.ts';
import type { InsideFiles, InsideSandbox } from '../host.ts';
import type { Session } from '../session.ts';
import { mcpError } from '../errors.ts';

const MAX_PATH = 4096;
const MAX_VARIABLES = 256;
/** The largest file that a tool holds in memory, in bytes. */
export const MAX_FILE = 8 * 1024 ** 2;
const DEADLINE_MS = 30_000;

const withoutNul = (text: string): boolean => !text.includes('\0');

/** A command. */
export const command = z
  .union([z.string().min(1), z.array(z.string()).min(1)], 'expected a line of text, or a list of arguments')
  .describe('A shell line, or a program and its arguments as an array, without a shell.');

/** A path inside a sandbox. */
export const path = z
  .string()
  .min(1)
  .max(MAX_PATH)
  .refine(withoutNul, 'holds a NUL character')
  .describe('Relative to the workspace, or absolute.');

/** Which sandbox. */
export const sandboxId = z.string().min(1).max(128).optional().describe('Default: the session’s own sandbox.');

/** Working directory, environment and standard input of a command. */
export const surroundings = {
  cwd: path.optional().describe('Directory in the workspace.'),
  env: z
    .record(z.string().max(1024), z.string())
    .refine(variables => Object.keys(variables).length <= MAX_VARIABLES, `has more than ${MAX_VARIABLES} variables`)
    .optional(),
  stdin: z.string().optional(),
};

/** The id of a background command. */
export const commandId = z.string().min(1).max(128);

/** An object without the fields that are undefined. */
export type Given<Fields> = { [Key in keyof Fields]?: Exclude<Fields[Key], undefined> };

/** Takes out the fields that are undefined. */
export function given<Fields extends object>(fields: Fields): Given<Fields> {
  const kept: Given<Fields> = { ...fields };
  for (const key in kept) if (kept[key] === undefined) delete kept[key];
  return kept;
}

/** Does something in a sandbox. One that no longer exists is forgotten, so that the next call without an id opens another. */
export async function inside<Value>(
  session: Session,
  id: string | undefined,
  work: (sandbox: InsideSandbox) => Promise<Value>,
): Promise<Value> {
  const sandbox = await session.sandbox(id);
  try {
    return await work(sandbox);
  } catch (error) {
    if (error instanceof AcodeError && error.is('ACODE-SBX-025')) session.forget(sandbox.id);
    throw error;
  }
}

/** Resolves a working directory, given by its path on the host or in the sandbox; throws if it is outside the workspace. */
export function workingDirectory(
  operation: string,
  { workspace }: Session,
  cwd: string | undefined,
): string | undefined {
  if (cwd === undefined || workspace.has(cwd)) return cwd === undefined ? undefined : workspace.inside(cwd);
  throw mcpError('ACODE-MCP-009', {
    operation,
    path: cwd.slice(0, 300),
    reason: 'is not in the workspace',
    remedy: workspace.outsideText(),
  });
}

/** The name, quoted for a message of one line. */
export function nameText(name: string): string {
  return quoted(oneLine(name));
}

/** The signal of a call on files: it also fires when the call takes too long. */
export function within(signal: AbortSignal): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(DEADLINE_MS)]);
}

/** Reads a file as a stream and not by its size: a command inside can make a file that never ends. */
export async function wholeFile(
  operation: string,
  files: InsideFiles,
  name: string,
  signal: AbortSignal,
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const stream: AsyncIterable<unknown> = files.createReadStream(name, { signal });
  for await (const bytes of stream) {
    if (!(bytes instanceof Uint8Array)) continue;
    size += bytes.length;
    if (size > MAX_FILE)
      throw mcpError('ACODE-MCP-009', {
        operation,
        path: name.slice(0, 300),
        reason: 'is larger than 8 MiB',
        remedy: 'Take a part of it with run_in_sandbox: head, tail, sed or grep.',
      });
    chunks.push(bytes);
  }
  return Buffer.concat(chunks);
}

/** The text of a file; null where it is not text. */
export function textOf(data: Uint8Array): string | null {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(data);
    return text.includes('\0') ? null : text;
  } catch {
    return null;
  }
}

const REMEDIES: Readonly<Record<string, string>> = {
  EROFS:
    'What the user’s tools execute or follow (.git, .agent, editor and agent settings) and everything outside the workspace, /tmp and the home directory cannot be changed from a sandbox. Ask the user to make that change, or write elsewhere.',
  EACCES: 'The sandbox runs as an ordinary user and cannot change that. Work in the workspace or in /tmp.',
  EPERM: 'The sandbox runs as an ordinary user and cannot change that. Work in the workspace or in /tmp.',
  EISDIR: 'Use list_directory for a directory.',
};

const ELSEWHERE = ' Write to the workspace or to /tmp.';
// Appended to `outsideText()`.
const OUTSIDE: Readonly<Record<string, string>> = { EROFS: ELSEWHERE, EACCES: ELSEWHERE, EPERM: ELSEWHERE };

/** Does something with a file; what the file system refuses becomes ACODE-MCP-009. */
export async function withFile<Value>(
  operation: string,
  { workspace }: Session,
  at: string,
  work: () => Promise<Value>,
): Promise<Value> {
  try {
    return await work();
  } catch (error) {
    const code = fileCode(error);
    if (error instanceof AcodeError || code === null) throw error;
    // Checked only after a failure: many paths outside the workspace do exist in the sandbox.
    const remedy = workspace.has(at) ? REMEDIES[code] : `${workspace.outsideText()}${OUTSIDE[code] ?? ''}`;
    const context = { operation, path: at.slice(0, 300), reason: fileReason(code) };
    throw mcpError('ACODE-MCP-009', remedy === undefined ? context : { ...context, remedy }, { cause: error });
  }
}
