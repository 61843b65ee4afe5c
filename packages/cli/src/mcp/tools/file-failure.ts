// What the file system inside a sandbox answers, in words that a model can act on.

import { AcodeError } from '@acode/sandbox';
import { fileCode, fileReason } from '../../failure/file-reasons.ts';

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
    const code = fileCode(error);
    if (error instanceof AcodeError || code === null) throw error;
    const remedy = REMEDIES[code];
    const context = { operation, path: path.slice(0, 300), reason: fileReason(code) };
    throw new AcodeError('ACODE-MCP-009', remedy === undefined ? context : { ...context, remedy }, { cause: error });
  }
}
