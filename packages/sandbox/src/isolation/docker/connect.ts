// Finds the engine once per session, and never replaces the user’s choice with another engine.

import { lstatSync, statSync } from 'node:fs';
import { accessRemedy, socketGroup } from '../socket-group.ts';
import { absent, unavailable, reasonOf } from './failure.ts';
import type { EngineFault } from '../../contract/error-table.ts';
import { EngineError } from './engine/protocol.ts';
import { Engine } from './engine/index.ts';
import {
  type EngineCandidate,
  type EngineRefusal,
  type EngineSource,
  locateEngine,
  type LocateHost,
  thisHost,
} from './engine/locate.ts';

/** An engine and how it was found. */
export interface FoundEngine {
  readonly engine: Engine;
  readonly source: string;
}

const FIRST_CONTACT_MS = 4000;

const REFUSALS: Readonly<Record<EngineRefusal['reason'], string>> = {
  'not-a-unix-socket': 'acode uses only engines on a local Unix socket',
  'no-scheme': 'a socket is named with unix:// before its path',
  'not-absolute': 'the path of the socket must be absolute',
  'context-missing': 'there is no docker context of that name',
  unreadable: 'the docker configuration cannot be read',
};

const CHOICES: Readonly<Record<EngineSource, string>> = {
  option: '--socket or sandbox.docker.host',
  DOCKER_HOST: 'DOCKER_HOST',
  context: 'the docker context (DOCKER_CONTEXT, `docker context use default`)',
  system: 'the socket',
  rootless: 'the socket',
  desktop: 'the socket',
  podman: 'the socket',
};

// DOCKER_HOST would not help: a socket that was named explicitly takes precedence.
const NAMED_REMEDY = `Start Docker, or correct the socket that was named (${CHOICES.option}); check with \`acode sandbox status\`.`;
const BUSY_REMEDY = 'Something is there and does not answer as an engine does: look at its own log, and restart it.';

/** The remedy for a choice that cannot be used. Starting an engine would not help: acode tries no other. */
export function refusalRemedy({ source, reason, subject }: EngineRefusal): string {
  const chosen = CHOICES[source];
  if (reason === 'context-missing') return `Name a context that \`docker context ls\` lists, or change ${chosen}.`;
  if (reason === 'unreadable') return 'Mend that file or its permissions, or name the socket with --socket.';
  if (reason === 'no-scheme') return `Write it so in ${chosen}: unix://${subject}.`;
  const form = 'unix:///path/to/docker.sock';
  return reason === 'not-absolute'
    ? `Write the whole path in ${chosen}: ${form}.`
    : `Unset ${chosen}, or set it to a local socket: ${form}. An engine on another machine (tcp, ssh) cannot mount the files of this one.`;
}

/** The remedy for a socket that did not work; undefined if the user only has to start the engine. */
export async function failureRemedy(
  socket: string,
  error: unknown,
  source: EngineSource = 'system',
): Promise<string | undefined> {
  if (isOtherThanSocket(socket))
    return `Name the socket of an engine, such as /var/run/docker.sock, in ${CHOICES[source]}; or leave it out, and acode finds one.`;
  if (!(error instanceof EngineError) || error.kind === 'unreachable')
    return source === 'option' ? NAMED_REMEDY : undefined;
  return error.kind === 'refused' ? accessRemedy(socket, await socketGroup(socket)) : BUSY_REMEDY;
}

/** Connects to the engine; throws ACODE-SBX-008 if there is none. */
export async function connectEngine(socket: string | undefined, signal: AbortSignal): Promise<FoundEngine> {
  const search = locateEngine(thisHost(), socket);
  if (search.kind === 'refused') {
    const { subject, reason, source } = search.refusal;
    const remedy = refusalRemedy(search.refusal);
    throw unavailable(subject, `${REFUSALS[reason]} (${source})`, { remedy, fault: 'unusable' });
  }
  if (search.candidates.length === 0) {
    const searched = search.kind === 'known-places' ? search.searched : [];
    throw isAbsent(thisHost(), searched)
      ? absent(searched.join(', '))
      : unavailable(searched.join(', '), 'no engine socket exists', { fault: 'no-socket' });
  }
  return firstThatAnswers(search.candidates, signal);
}

/**
 * Whether this machine certainly has no engine. Not finding one is not enough: a variable may have hidden the user’s
 * own, and a directory may not be readable. acode must be certain, since it may choose a weaker level as a result.
 */
export function isAbsent(
  { env, uid }: Pick<LocateHost, 'env' | 'uid'>,
  searched: readonly string[],
  look: (path: string) => 'there' | 'absent' | 'unknown' = whatIsAt,
): boolean {
  if (env['DOCKER_CONTEXT'] || env['DOCKER_CONFIG']) return false;
  const own = uid === undefined ? [] : [`/run/user/${uid}/docker.sock`, `/run/user/${uid}/podman/podman.sock`];
  return [...searched, ...own].every(socket => look(socket) === 'absent');
}

// A file or a directory: the kernel reports missing permissions first, but fixing them would not help.
function isOtherThanSocket(path: string): boolean {
  try {
    return !statSync(path).isSocket();
  } catch {
    return false;
  }
}

function faultAt(socket: string, error: unknown): EngineFault | undefined {
  if (isOtherThanSocket(socket)) return 'not-a-socket';
  if (!(error instanceof EngineError)) return undefined;
  if (error.kind === 'refused') return 'no-permission';
  return error.kind === 'unreachable' && whatIsAt(socket) === 'absent' ? 'no-socket' : undefined;
}

function whatIsAt(path: string): 'there' | 'absent' | 'unknown' {
  try {
    lstatSync(path);
    return 'there';
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : '';
    return code === 'ENOENT' || code === 'ENOTDIR' ? 'absent' : 'unknown';
  }
}

async function firstThatAnswers(candidates: readonly EngineCandidate[], signal: AbortSignal): Promise<FoundEngine> {
  let failure: unknown;
  for (const { socket, source } of candidates) {
    try {
      return { engine: await Engine.open({ socketPath: socket, signal, deadlineMs: FIRST_CONTACT_MS }), source };
    } catch (error) {
      signal.throwIfAborted();
      const fault = faultAt(socket, error);
      const remedy = await failureRemedy(socket, error, source);
      const reason = fault === 'not-a-socket' ? 'that is not a socket' : reasonOf(error);
      failure ??= unavailable(socket, reason, {
        ...(remedy === undefined ? {} : { remedy }),
        ...(fault && { fault }),
        cause: error,
      });
      // A socket exists but does not answer: trying another engine would be a choice that the user did not make.
      if (!(error instanceof Error && 'kind' in error && error.kind === 'unreachable')) throw failure;
    }
  }
  throw failure;
}
