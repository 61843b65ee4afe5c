// Finds the engine once per session, in the order of the sockets it may be listening on, and never replaces the user’s choice with another
// engine.

import { lstatSync, statSync, existsSync, readFileSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { homedir, userInfo } from 'node:os';
import { isAbsolute, join } from 'node:path';
import * as z from 'zod';
import { accessRemedy, socketGroup } from '../socket-group.ts';
import { absent, unavailable, reasonOf } from './failure.ts';
import type { EngineFault } from '../../contract/error-table.ts';
import { EngineError } from './engine/protocol.ts';
import { Engine } from './engine/index.ts';

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
  const choice = CHOICES[source];
  if (reason === 'context-missing') return `Name a context that \`docker context ls\` lists, or change ${choice}.`;
  if (reason === 'unreadable') return 'Mend that file or its permissions, or name the socket with --socket.';
  if (reason === 'no-scheme') return `Write it so in ${choice}: unix://${subject}.`;
  const form = 'unix:///path/to/docker.sock';
  return reason === 'not-absolute'
    ? `Write the whole path in ${choice}: ${form}.`
    : `Unset ${choice}, or set it to a local socket: ${form}. An engine on another machine (tcp, ssh) cannot mount the files of this one.`;
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

/** Who named a socket. The first three are choices of the user; the others are places we know. */
export type EngineSource = 'option' | 'DOCKER_HOST' | 'context' | 'system' | 'rootless' | 'desktop' | 'podman';

/** A socket to try. */
export interface EngineCandidate {
  readonly socket: string;
  readonly source: EngineSource;
}

/**
 * Why a choice of the user cannot be followed.
 *
 * - `not-a-unix-socket`: it names another transport, such as `tcp:` or `ssh:`
 * - `no-scheme`: it names a path without `unix://` where Docker’s own command line wants that
 * - `not-absolute`: it names a relative path
 * - `context-missing`: there is no docker context of that name
 * - `unreadable`: the docker configuration that holds the choice cannot be read
 */
export type RefusalReason = 'not-a-unix-socket' | 'no-scheme' | 'not-absolute' | 'context-missing' | 'unreadable';

/** A choice that cannot be followed, and so nothing is tried in its place. */
export interface EngineRefusal {
  readonly source: EngineSource;
  readonly reason: RefusalReason;
  /** What was chosen, or which file cannot be read. */
  readonly subject: string;
}

/** Where to look for an engine. */
export type EngineSearch =
  | {
      readonly kind: 'chosen';
      /** The only one to try: a choice is never replaced by another engine because it does not work. */
      readonly candidates: readonly [EngineCandidate];
    }
  | {
      readonly kind: 'known-places';
      /** The places that exist, best first; may be empty. */
      readonly candidates: readonly EngineCandidate[];
      /** All places that were looked at, for the message when none exists. */
      readonly searched: readonly string[];
    }
  | { readonly kind: 'refused'; readonly refusal: EngineRefusal };

/** What locating needs to know of the machine. */
export interface LocateHost {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly homedir: string;
  /** Undefined where the system has no uids. */
  readonly uid: number | undefined;
  /** The text of a file, undefined if there is none; throws when it is there and cannot be read. */
  readFile(path: string): string | undefined;
  exists(path: string): boolean;
}

type Strategy = (host: LocateHost, option: string | undefined) => EngineSearch | undefined;

// The order of Docker's own command line: the environment's host comes before any context.
const choices: readonly Strategy[] = [
  (_, option) => (option === undefined ? undefined : chosen('option', option)),
  ({ env }) => (env['DOCKER_HOST'] ? chosen('DOCKER_HOST', env['DOCKER_HOST']) : undefined),
  host => fromContext(host),
];

/** Where to look for an engine; `option` is the socket the caller asked for. */
export function locateEngine(host: LocateHost, option?: string): EngineSearch {
  for (const choose of choices) {
    const search = choose(host, option);
    if (search) return search;
  }
  const places = knownPlaces(host);
  return {
    kind: 'known-places',
    candidates: places.filter(({ socket }) => host.exists(socket)),
    searched: places.map(({ socket }) => socket),
  };
}

function knownPlaces(host: LocateHost): EngineCandidate[] {
  const runtimeDirectory = runtimeDirectoryOf(host);
  const inRuntimeDirectory = (source: EngineSource, name: string): EngineCandidate[] =>
    runtimeDirectory === undefined ? [] : [{ source, socket: join(runtimeDirectory, name) }];
  return [
    { source: 'system', socket: '/var/run/docker.sock' },
    ...inRuntimeDirectory('rootless', 'docker.sock'),
    { source: 'desktop', socket: join(host.homedir, '.docker/run/docker.sock') },
    { source: 'desktop', socket: join(host.homedir, '.docker/desktop/docker.sock') },
    ...inRuntimeDirectory('podman', 'podman/podman.sock'),
  ];
}

/** A relative one is invalid by its specification, and would depend on where we were started. */
function runtimeDirectoryOf({ env, uid }: LocateHost): string | undefined {
  const configured = env['XDG_RUNTIME_DIR'];
  if (configured && isAbsolute(configured)) return configured;
  return uid === undefined ? undefined : `/run/user/${uid}`;
}

function chosen(source: EngineSource, address: string): EngineSearch {
  const socket = address.startsWith('unix://') ? address.slice('unix://'.length) : address;
  if (/^[a-z][a-z0-9+.-]*:/i.test(socket)) return refused(source, 'not-a-unix-socket', address);
  // Docker reads a bare "host:port" as tcp, so in DOCKER_HOST and in contexts only the scheme makes it a path.
  if (source !== 'option' && socket === address)
    return refused(source, isAbsolute(address) ? 'no-scheme' : 'not-a-unix-socket', address);
  if (!isAbsolute(socket)) return refused(source, 'not-absolute', address);
  return { kind: 'chosen', candidates: [{ source, socket }] };
}

function refused(source: EngineSource, reason: RefusalReason, subject: string): EngineSearch {
  return { kind: 'refused', refusal: { source, reason, subject } };
}

const configFile = z.lazy(() => z.looseObject({ currentContext: z.string().optional() }));
const contextFile = z.lazy(() =>
  z.looseObject({
    Endpoints: z.looseObject({ docker: z.looseObject({ Host: z.string().optional() }) }),
  }),
);

/** `default` is Docker's name for "no context". */
function fromContext(host: LocateHost): EngineSearch | undefined {
  const directory = host.env['DOCKER_CONFIG'] || join(host.homedir, '.docker');
  let name = host.env['DOCKER_CONTEXT'];
  if (!name) {
    const config = readDocument(host, join(directory, 'config.json'), configFile);
    if (config.state === 'unreadable') return refused('context', 'unreadable', config.file);
    name = config.value?.currentContext;
  }
  return !name || name === 'default' ? undefined : contextNamed(host, directory, name);
}

function contextNamed(host: LocateHost, directory: string, name: string): EngineSearch {
  // Docker stores a context under the digest of its name, so the name itself is never part of a path.
  const digest = createHash('sha256').update(name).digest('hex');
  const context = readDocument(host, join(directory, 'contexts/meta', digest, 'meta.json'), contextFile);
  if (context.state === 'unreadable') return refused('context', 'unreadable', context.file);
  if (context.value === undefined) return refused('context', 'context-missing', name);
  const address = context.value.Endpoints.docker.Host;
  return address ? chosen('context', address) : refused('context', 'not-a-unix-socket', name);
}

type Document<T> =
  { readonly state: 'read'; readonly value: T | undefined } | { readonly state: 'unreadable'; readonly file: string };

/** A choice that cannot be read is still a choice, so a broken file is not taken for an absent one. */
function readDocument<T>(host: LocateHost, file: string, schema: z.ZodType<T>): Document<T> {
  try {
    const text = host.readFile(file);
    if (text === undefined) return { state: 'read', value: undefined };
    const parsed = schema.safeParse(JSON.parse(text));
    return parsed.success ? { state: 'read', value: parsed.data } : { state: 'unreadable', file };
  } catch {
    return { state: 'unreadable', file };
  }
}

// This machine, as locating an engine sees it.

/** The machine and the user this process runs as. */
export function thisHost(): LocateHost {
  return {
    env: process.env,
    // An empty or relative HOME would make the current directory’s `.docker` say which engine is used.
    homedir: isAbsolute(homedir()) ? homedir() : userInfo().homedir,
    uid: process.getuid?.(),
    readFile: readIfPresent,
    exists: existsSync,
  };
}

function readIfPresent(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ENOTDIR'))
      return undefined;
    throw error;
  }
}
