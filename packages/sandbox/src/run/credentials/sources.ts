// Sources of credentials: the environment of this process, files, programs, the secret service and acode’s own logins. A value is read here, goes to the
// proxy, and is in nothing that is printed or stored.

import { realpath } from 'node:fs/promises';
import type { CredentialSource, EgressCredential } from '../../contract/credentials.ts';
import type { EgressRule, UpstreamProxy } from '../../contract/egress.ts';
import type { Clock } from '../../contract/ports.ts';
import { codeOf } from '../../contract/system-error.ts';
import { endpointOf } from '../../egress/credentials/login.ts';
import { CredentialUnavailable, valueFault } from '../../egress/credentials/provider.ts';
import type { CredentialProvider } from '../../egress/credentials/provider.ts';
import { hostRoots } from '../../egress/proxy/trust.ts';
import type { Locks } from '../../lifecycle/lock.ts';
import { readBoundedFile } from '../../lifecycle/directories.ts';
import { isWithin } from '../../workspace/file-identity.ts';
import { findProgram, runProgram } from '../../workspace/trusted-program.ts';
import { Logins } from './logins.ts';
import type { LoginWay } from './logins.ts';

/** What sources are read with. */
export interface SourceSurroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly uid: number;
  /** The workspace: no program and no file is taken from there. */
  readonly workspace: string;
  /** Directories that the sandbox sees. */
  readonly visible: readonly string[];
  readonly clock: Clock;
  /** The user’s state directory, which has the logins, and the locks between processes that use them. */
  readonly state: string;
  readonly locks: Locks;
  /** The rules of the sandbox’s network: a login’s server with a private address is not reached through the company’s proxy. */
  readonly rules: readonly EgressRule[];
  readonly upstream?: UpstreamProxy | undefined;
  /** Certificate authorities besides those of this host, as PEM. */
  readonly extraRoots?: string;
}

const MAX_BYTES = 64 * 1024;
const OTHERS_WRITE = 0o022;

/** The provider of a credential. It reads the source anew each time that it is asked. */
export function providerOf(credential: EgressCredential, around: SourceSurroundings): CredentialProvider {
  const { from, login } = credential;
  if ('login' in from) {
    if (!login)
      throw new CredentialUnavailable(`the login ${from.login} has no server`, 'Name it in your configuration.');
    return new Logins(around).provider(from.login, login, async () => wayTo(login.tokenUrl, around));
  }
  return {
    async current({ signal }) {
      const read = await valueFrom(from, around, signal);
      const value = read.replace(/\s+$/, '');
      const fault = valueFault(value);
      if (fault !== null) throw new CredentialUnavailable(`${sourceText(from)} ${fault}`, `Check ${sourceText(from)}.`);
      return { value };
    },
  };
}

function wayTo(tokenUrl: string, { rules, upstream, extraRoots = '' }: SourceSurroundings): LoginWay {
  const { host, port } = endpointOf(tokenUrl);
  const isPrivate = rules.some(rule => rule.host === host && rule.port === port && rule.private === true);
  return { ca: `${hostRoots().trimEnd()}\n${extraRoots}`, proxy: isPrivate ? undefined : upstream };
}

type ReadSource = Exclude<CredentialSource, { readonly login: string }>;

// As people read it, without its value.
function sourceText(from: ReadSource): string {
  if ('env' in from) return `the variable ${from.env}`;
  if ('file' in from) return `the file ${from.file}`;
  // Arguments may hold what is none of a reader’s business.
  if ('command' in from) return `the program ${from.command[0] ?? ''}`;
  return 'the entry of the secret service';
}

function valueFrom(from: ReadSource, around: SourceSurroundings, signal: AbortSignal): Promise<string> {
  if ('env' in from) return fromEnvironment(from.env, around);
  if ('file' in from) return fromFile(from.file, around);
  if ('command' in from) return fromProgram(from.command, around, signal);
  const words = Object.entries(from.secretService).flat();
  return fromProgram(['secret-tool', 'lookup', ...words], around, signal);
}

async function fromEnvironment(variable: string, { env }: SourceSurroundings): Promise<string> {
  const value = env[variable];
  if (value === undefined || value === '')
    throw new CredentialUnavailable(
      `the variable ${variable} is not set`,
      `Set it where acode is started, such as \`export ${variable}=…\`, or name another source.`,
    );
  return value;
}

async function fromFile(path: string, { uid, visible, workspace }: SourceSurroundings): Promise<string> {
  const unavailable = (reason: string, remedy: string): CredentialUnavailable =>
    new CredentialUnavailable(`the file ${path} ${reason}`, remedy);
  const real = await realpath(path).catch(() => path);
  if ([workspace, ...visible].some(root => isWithin(real, root)))
    throw unavailable('is in a directory that the sandbox sees', 'Move it to a place outside, such as ~/.config.');
  const found = await readBoundedFile(real, MAX_BYTES).catch((error: unknown) => {
    throw unavailable(
      codeOf(error) === 'ENOENT' ? 'does not exist' : 'cannot be read',
      'Check its path and its permissions.',
    );
  });
  if ((found.uid !== uid && found.uid !== 0) || (found.mode & OTHERS_WRITE) !== 0)
    throw unavailable('can be written by other users', `Take that from them: \`chmod go-w ${path}\`.`);
  return found.text;
}

async function fromProgram(
  [name = '', ...words]: readonly string[],
  around: SourceSurroundings,
  signal: AbortSignal,
): Promise<string> {
  const program = await findProgram(name, around);
  if (!program)
    throw new CredentialUnavailable(
      `the program ${name} is in no directory of PATH that only you and root can write`,
      'Install it, or write its absolute path. Programs in the workspace are not used.',
    );
  const env = { ...around.env, PATH: program.searched };
  const output = await runProgram(program.path, words, { env, clock: around.clock }, signal);
  const remedy = 'Try it in a terminal. acode starts it without a terminal, for at most ten seconds.';
  if ('failed' in output) throw new CredentialUnavailable(output.failed, remedy);
  if (output.code !== 0)
    throw new CredentialUnavailable(`the program ${name} ended with ${output.code ?? 'a signal'}`, remedy);
  return output.text;
}
