// Checks a command and its request before anything is done with them: strictly, so that nothing is ever ignored.

import { posix } from 'node:path';
import { Readable } from 'node:stream';
import * as z from 'zod';
import { issueText } from '../policy/config/issue-text.ts';
import { AcodeError } from '../contract/errors.ts';
import type { ArtifactRequest, Command, RunRequest } from '../contract/command.ts';
import { RISKS } from '../contract/levels.ts';
import type { CommandRequest, CreateRequest } from '../contract/sandbox.ts';
import { WORKSPACE_TARGET } from '../isolation/plan.ts';
import { checkEnvironment } from '../policy/environment.ts';
import { workdirFor } from '../workspace/locate.ts';
import { protectedPaths } from '../workspace/protected-paths.ts';

// The kernel’s own limit on one word; what is longer could never be started.
const MAX_WORD = 128 * 1024 - 1;
const MAX_COMMAND = 1024 ** 2;

const word = z.string().max(MAX_WORD, `is longer than the kernel’s ${MAX_WORD} bytes`);
const commandSchema = z.union([word, z.array(word)]);

export const requestSchema = z.strictObject({
  policy: z.unknown().optional(),
  cwd: z.string().optional(),
  env: z.record(z.string(), word).optional(),
  envDefaults: z.record(z.string(), word).optional(),
  stdin: z
    .custom(
      value => typeof value === 'string' || value instanceof Uint8Array || value instanceof Readable,
      'is not text, bytes or a stream',
    )
    .optional(),
  risk: z.enum(RISKS).optional(),
  sessionId: z.string().optional(),
  taskId: z.string().optional(),
  artifacts: z
    .array(z.strictObject({ from: word.min(1, 'is empty'), to: word.min(1, 'is empty') }))
    .max(64, 'are more than 64')
    .optional(),
  signal: z.instanceof(AbortSignal).optional(),
  onStdout: z.custom(value => typeof value === 'function', 'is not a function').optional(),
  onStderr: z.custom(value => typeof value === 'function', 'is not a function').optional(),
});

export const createSchema = z.strictObject({
  ...requestSchema.pick({ policy: true, env: true, risk: true, sessionId: true, taskId: true, signal: true }).shape,
  expiresInMs: z.number().positive('must be more than 0 milliseconds').optional(),
  keep: z.boolean().optional(),
});

export const commandRequestSchema = z.strictObject({
  ...requestSchema.pick({ cwd: true, env: true, stdin: true, signal: true, onStdout: true, onStderr: true }).shape,
  timeoutMs: z.number().positive('must be more than 0 milliseconds').optional(),
});

/** Throws at the first thing that is wrong with what a sandbox is to be. */
export function checkCreateRequest(request: CreateRequest): void {
  hold(createSchema.safeParse(request, { error: issueText }), '');
  checkEnvironment(request.env ?? {});
}

/** Throws at the first thing that is wrong with a command for a sandbox that stays. */
export function checkCommandRequest(command: Command, request: CommandRequest): void {
  hold(commandRequestSchema.safeParse(request, { error: issueText }), '');
  checkCommand(command);
  checkEnvironment(request.env ?? {});
  workdirFor(request.cwd, WORKSPACE_TARGET);
}

/** Throws at the first thing that is wrong with a request. */
export function checkRequest(command: Command, request: RunRequest): void {
  hold(requestSchema.safeParse(request, { error: issueText }), '');
  checkCommand(command);
  request.artifacts?.forEach(checkArtifact);
  checkEnvironment(request.env ?? {});
  checkEnvironment(request.envDefaults ?? {});
  workdirFor(request.cwd, WORKSPACE_TARGET);
}

// What a sandbox made must not come to stand where programs of the host take it for the user’s own word.
function checkArtifact({ from, to }: ArtifactRequest, index: number): void {
  const field = `artifacts.${index}.to`;
  if (`${from}${to}`.includes('\0')) throw invalid(`artifacts.${index}`, 'holds a NUL character');
  const inside = posix.normalize(to);
  if (posix.isAbsolute(to) || inside === '.' || inside === '..' || inside.startsWith('../'))
    throw invalid(field, 'must name something below the workspace');
  const [top = ''] = inside.split('/');
  if (protectedPaths('/').includes(`/${top}`)) throw invalid(field, `is in ${top}, which no sandbox writes to`);
}

function checkCommand(command: Command): void {
  hold(commandSchema.safeParse(command, { error: issueText }), 'command');
  const words = typeof command === 'string' ? [command] : command;
  if (words.length === 0 || words[0] === '') throw invalid('command', 'is empty');
  if (words.some(text => text.includes('\0'))) throw invalid('command', 'holds a NUL character');
  if (words.reduce((sum, text) => sum + text.length, 0) > MAX_COMMAND)
    throw invalid('command', 'is larger than 1 MiB; pass large input on standard input');
}

function hold(parsed: z.ZodSafeParseResult<unknown>, field: string): void {
  const issue = parsed.error?.issues[0];
  if (!issue) return;
  if (issue.code === 'unrecognized_keys') throw invalid(issue.keys[0] ?? '', 'is not a known field of a request');
  throw invalid([field, ...issue.path].filter(part => part !== '').join('.'), issue.message);
}

function invalid(field: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', { field, reason });
}
