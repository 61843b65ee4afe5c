// What the file system inside a sandbox answers, in words that a model can act on.

import { AcodeError } from '@acode/sandbox';

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  EACCES: 'access is denied',
  EPERM: 'is not permitted',
  EISDIR: 'is a directory',
  ENOTDIR: 'a part of it is no directory',
  EEXIST: 'exists already',
  EROFS: 'is read-only in the sandbox',
  ENOSPC: 'there is no space left in the sandbox',
  ELOOP: 'leads in a circle of links',
  ENAMETOOLONG: 'has a name that is too long',
};

const REMEDIES: Readonly<Record<string, string>> = {
  EROFS:
    'What the user’s tools execute or follow (.git, .agent, editor and agent settings) and everything outside the workspace, /tmp and the home directory cannot be changed from a sandbox. Ask the user to make that change, or write elsewhere.',
  EACCES: 'The sandbox runs as an ordinary user and cannot change that. Work in the workspace or in /tmp.',
  EPERM: 'The sandbox runs as an ordinary user and cannot change that. Work in the workspace or in /tmp.',
  EISDIR: 'Use list_directory for a directory.',
};

/** Does something with a file; what the file system refuses becomes ACODE-MCP-009. */
export async function withFile<Value>(operation: string, path: string, work: () => Promise<Value>): Promise<Value> {
  try {
    return await work();
  } catch (error) {
    const code = error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
    if (error instanceof AcodeError || !/^E[A-Z]+$/.test(code)) throw error;
    const remedy = REMEDIES[code];
    const context = { operation, path: path.slice(0, 300), reason: REASONS[code] ?? `failed with ${code}` };
    throw new AcodeError('ACODE-MCP-009', remedy === undefined ? context : { ...context, remedy }, { cause: error });
  }
}
