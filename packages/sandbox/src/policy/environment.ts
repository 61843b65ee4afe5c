// Which environment variables may enter a sandbox.

import { AcodeError } from '../contract/errors.ts';

// Variables that make programs load or run other code, or that the shell which hands the command over needs for itself. Handing one over would let a caller’s mistake, or an image’s
// author, change what every program in the sandbox is.
const DANGEROUS =
  /^(?:PATH|IFS|ENV|BASH_ENV|SHELLOPTS|NODE_OPTIONS|NODE_PATH|LD_.*|DYLD_.*|PYTHON(?:STARTUP|PATH|HOME|INSPECT)|PERL5.*|RUBYOPT|JAVA_TOOL_OPTIONS|GIT_(?:SSH.*|EXEC_PATH|PAGER|EDITOR|EXTERNAL_DIFF|PROXY_COMMAND|CONFIG.*|TEMPLATE_DIR)|DOCKER_.*|TINI_.*|_acode_.*|_|OPTIND|PPID|UID|EUID|BASHOPTS)$/;

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Whether a variable changes how programs load code. */
export function isDangerous(name: string): boolean {
  return DANGEROUS.test(name);
}

/** Checks the environment of a request; throws at the first variable that may not enter. */
export function checkEnvironment(env: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(env)) {
    if (!NAME.test(name))
      throw new AcodeError('ACODE-SBX-017', { field: 'env', reason: `${JSON.stringify(name)} is not a variable name` });
    if (value.includes('\0'))
      throw new AcodeError('ACODE-SBX-017', { field: `env.${name}`, reason: 'holds a NUL character' });
    if (isDangerous(name)) {
      throw new AcodeError('ACODE-SBX-010', {
        violation: 'DangerousEnvironment',
        detail: `${name} changes how programs load code`,
      });
    }
  }
}
