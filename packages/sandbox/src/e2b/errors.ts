// Errors by the names that users of E2B catch, each with the error of ours as its cause.

import { codeOf } from '../contract/system-error.ts';
import { AcodeError } from '../contract/errors.ts';
import type { ErrorCode } from '../contract/error-table.ts';

/** The base of all of them. */
export class SandboxError extends Error {
  constructor(message?: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** Something took longer than it may. */
export class TimeoutError extends SandboxError {}

/** What was asked for cannot be, or is refused. */
export class InvalidArgumentError extends SandboxError {}

/** There is no room left inside. */
export class NotEnoughSpaceError extends SandboxError {}

/** There is no such thing. */
export class NotFoundError extends SandboxError {}

/** There is no such file or directory inside. */
export class FileNotFoundError extends NotFoundError {}

/** There is no such sandbox, or not any more. */
export class SandboxNotFoundError extends NotFoundError {}

/** The template is not an image that could be used. */
export class TemplateError extends SandboxError {}

/** There are as many sandboxes as there may be. */
export class RateLimitError extends SandboxError {}

/** Permission denied. acode has no API keys: here it means the guard against root. */
export class AuthenticationError extends SandboxError {}

type Kind = new (message: string, options?: ErrorOptions) => SandboxError;

const KINDS: Readonly<Partial<Record<ErrorCode, Kind>>> = {
  'ACODE-SBX-002': TemplateError,
  'ACODE-SBX-003': InvalidArgumentError,
  'ACODE-SBX-005': InvalidArgumentError,
  'ACODE-SBX-007': TimeoutError,
  'ACODE-SBX-009': TemplateError,
  'ACODE-SBX-010': InvalidArgumentError,
  'ACODE-SBX-011': AuthenticationError,
  'ACODE-SBX-016': InvalidArgumentError,
  'ACODE-SBX-017': InvalidArgumentError,
  'ACODE-SBX-025': SandboxNotFoundError,
  'ACODE-SBX-026': SandboxNotFoundError,
  'ACODE-CTN-009': RateLimitError,
  'ACODE-CTN-011': TemplateError,
  'ACODE-CTN-012': SandboxNotFoundError,
};

const BY_CODE: ReadonlyMap<string, Kind> = new Map(Object.entries(KINDS));

const BY_ERRNO: Readonly<Partial<Record<string, Kind>>> = {
  ENOENT: FileNotFoundError,
  ENOSPC: NotEnoughSpaceError,
  EDQUOT: NotEnoughSpaceError,
  EISDIR: InvalidArgumentError,
  ENOTDIR: InvalidArgumentError,
  EEXIST: InvalidArgumentError,
  EINVAL: InvalidArgumentError,
};

/** Converts an error of acode to the one that E2B users catch; an E2B error is returned unchanged. */
export function translated(error: unknown): SandboxError {
  if (error instanceof SandboxError) return error;
  if (error instanceof AcodeError) {
    const kind = kindOf(error);
    return new kind(`${error.message} ${error.hint}`, { cause: error });
  }
  if (isTimeout(error)) return new TimeoutError('It took longer than it may.', { cause: error });
  const kind = BY_ERRNO[codeOf(error)] ?? SandboxError;
  return new kind(error instanceof Error ? error.message : String(error), { cause: error });
}

function kindOf(error: unknown): Kind {
  if (!(error instanceof AcodeError)) return SandboxError;
  if (isTimeout(error.cause)) return TimeoutError;
  if (error.is('ACODE-SBX-010') && error.context.violation.endsWith('Image')) return TemplateError;
  return BY_CODE.get(String(error.code)) ?? SandboxError;
}

/** Does something, and translates what it throws. */
export async function translating<Value>(work: () => Promise<Value>): Promise<Value> {
  try {
    return await work();
  } catch (error) {
    throw translated(error);
  }
}

// A deadline comes as itself, or as the cause of a cancellation.
function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.name === 'TimeoutError';
}
