// Arguments and helpers that several tools share.

import * as z from 'zod';
import { AcodeError } from '@acode/sandbox';
import type { InsideSandbox } from '../host.ts';
import type { Session } from '../session.ts';
import { quoted } from '../../arguments/command-arguments.ts';
import { oneLine } from '../../terminal/text.ts';

const MAX_PATH = 4096;
const MAX_VARIABLES = 256;

const withoutNul = (text: string): boolean => !text.includes('\0');

/** A command. */
export const command = z
  .union([z.string().min(1), z.array(z.string()).min(1)], 'expected a line of text, or a list of arguments')
  .describe(
    'A line for the shell of the sandbox (“npm test | tail -5”), or a program and its arguments as an array, which no shell sees.',
  );

/** A path inside a sandbox. */
export const path = z
  .string()
  .min(1)
  .max(MAX_PATH)
  .refine(withoutNul, 'holds a NUL character')
  .describe('A path inside the sandbox. A relative one begins in the workspace, which is /workspace there.');

/** Which sandbox. */
export const sandboxId = z
  .string()
  .min(1)
  .max(128)
  .optional()
  .describe(
    'The id that open_sandbox gave. Without it, the default sandbox of this session is used, and opened at first use.',
  );

/** Everything about a command besides it. */
export const surroundings = {
  cwd: path.optional().describe('Working directory inside the workspace, relative to it.'),
  env: z
    .record(z.string().max(1024), z.string())
    .refine(variables => Object.keys(variables).length <= MAX_VARIABLES, `has more than ${MAX_VARIABLES} variables`)
    .optional()
    .describe('Environment variables. Nothing is inherited from the user’s machine.'),
  stdin: z.string().optional().describe('What the command reads from standard input.'),
};

/** The id of a background command. */
export const commandId = z.string().min(1).max(128).describe('The command_id that run_in_sandbox gave.');

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

/** The name as a line may hold it. */
export function nameText(name: string): string {
  return quoted(oneLine(name));
}
