// MCP server of a call: its host, its transport and its token, until the client disconnects or the server is stopped.

import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import type { AcodeError } from '@acode/sandbox';
import type { RiskyChange, ScanJob, ScanReport } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { riskyLines } from '../execution/risky-lines.ts';
import { ScansHere } from '../scans/hand-over.ts';
import { storeUnused } from '../scans/unused.ts';
import { oneLine } from '../terminal/text.ts';
import { forkingHost } from './forking-host.ts';
import type { ToolHost } from './host.ts';
import { Listener } from './listener.ts';
import { workspacePaths } from './paths.ts';
import type { WorkspacePaths } from './paths.ts';
import { reportingHost } from './reporting-host.ts';
import type { Report } from './reporting-host.ts';
import { newLanes, serverFor } from './server.ts';
import { Session } from './session.ts';
import { StandardStreams } from './standard-streams.ts';
import { mcpError } from './errors.ts';

// What waits takes memory from whatever else the user does, so it is little.
const POOL = { min: 1, max: 2 };
// A scan takes half of the time: commands pass through the same thread.
const SCAN_REST_MS = 10;

/** Where the HTTP server listens, and whom it lets in. */
export interface HttpOptions {
  readonly port: number;
  readonly tokenFile?: string | undefined;
  readonly fork: Forking;
}

/** Whether commands write a fork: the current one of the workspace (true), or one by name. */
export type Forking = string | true | undefined;

/** What an HTTP server says of itself when it is ready. */
export interface HttpFacts {
  readonly url: string;
  readonly token: Token;
}

/** Serves the client at the other end of standard input and output, until it ends its side or the call is interrupted. */
export async function serveStandardStreams(call: Call, fork: Forking): Promise<void> {
  await withHost(call, fork, async host => {
    await using session = new Session(host, await pathsOf(call));
    const streams = new StandardStreams(call.io.stdin, call.stdout);
    const server = serverFor(session, newLanes());
    await server.connect(streams);
    await Promise.race([streams.ended, interrupted(call.interruption.signal)]);
    await server.close();
  });
}

/** Serves clients on the loopback until the call is interrupted. `ready` is called when they can come. */
export async function serveHttp(
  call: Call,
  { port, tokenFile, fork }: HttpOptions,
  ready: (facts: HttpFacts) => Promise<void>,
): Promise<void> {
  const token = await tokenFrom(tokenFile, call.io.env, process.getuid?.());
  await withHost(call, fork, async host => {
    await using listener = await Listener.listen({
      host,
      workspace: await pathsOf(call),
      lanes: newLanes(),
      port,
      token: token.value,
    });
    await ready({ url: listener.url, token });
    await interrupted(call.interruption.signal);
  });
}

async function pathsOf(call: Call): Promise<WorkspacePaths> {
  const { workspace: typed } = call.options;
  return workspacePaths(await call.place(), { cwd: call.io.cwd(), typed, shell: call.io.env['PWD'] });
}

async function withHost(call: Call, fork: Forking, use: (host: ToolHost) => Promise<void>): Promise<void> {
  const { Acode } = await import('@acode/sandbox');
  // An agent is there for long, and its next command should not wait for a sandbox to be made.
  const late: RiskyChange[] = [];
  const uid = process.getuid?.() ?? 0;
  await using scans = new ScansHere({
    uid,
    program: call.program,
    scan: (jobs, signal) => Acode.scan(jobs, { signal, restMs: SCAN_REST_MS }),
    found: ({ riskyChanges }) => {
      sayLeft(call, riskyChanges, undefined);
      late.push(...riskyChanges);
    },
  });
  const continueScan = (job: ScanJob): boolean => scans.take(job, null);
  const foundWhileWaiting = (report: ScanReport, image: string): void => {
    late.push(...report.riskyChanges);
    storeUnused(report, image);
  };
  const options = await call.serverOptions();
  // A warm sandbox has the workspace itself.
  const pool = fork === undefined ? POOL : false;
  const acode = await Acode.open({ ...options, pool, continueScan, foundWhileWaiting });
  try {
    const report: Report = (changes, record) => sayLeft(call, changes, record);
    const named = fork === true || fork === 'current' ? undefined : fork;
    const host = fork === undefined ? acode : forkingHost(acode, acode.forks, named);
    await use(reportingHost(host, report, () => late.splice(0)));
  } finally {
    await call.progress.during('Removing the sandboxes…', acode.close());
  }
}

// Clients keep what a server says on standard error as its log, where a person finds it, whatever the model makes of the answer.
function sayLeft(call: Call, changes: readonly RiskyChange[], record: number | undefined): void {
  const shown =
    record === undefined ? [] : [`the command is record ${record} of the audit log: \`acode audit show ${record}\``];
  const lines = [...riskyLines(changes, '`acode changes` lists them.'), ...shown];
  void call.say(lines.map(line => `acode: ${oneLine(line)}\n`).join(''));
}

function interrupted(signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

const VARIABLE = 'ACODE_MCP_TOKEN';
const MIN_LENGTH = 32;
const MAX_LENGTH = 512;
const OTHERS = 0o077;

/** A token, and whether it was generated for this run. */
export interface Token {
  readonly value: string;
  readonly isNew: boolean;
}

/** The token that counts: the file’s, the environment’s, or a new one. */
export async function tokenFrom(
  file: string | undefined,
  env: Readonly<Record<string, string | undefined>>,
  uid: number | undefined,
): Promise<Token> {
  if (file !== undefined) return { value: usable(await privateText(file, uid), file), isNew: false };
  const given = env[VARIABLE];
  if (given !== undefined && given !== '') return { value: usable(given, VARIABLE), isNew: false };
  return { value: randomBytes(32).toString('base64url'), isNew: true };
}

function usable(text: string, source: string): string {
  const token = text.trim();
  if (token.length < MIN_LENGTH) throw unusable(source, `it is shorter than ${MIN_LENGTH} characters`);
  if (token.length > MAX_LENGTH) throw unusable(source, `it is longer than ${MAX_LENGTH} characters`);
  if (!/^[\x21-\x7e]+$/.test(token)) throw unusable(source, 'it holds more than letters, digits and signs');
  return token;
}

// Looked at when it is open: another file in its place in between would not be this one.
async function privateText(path: string, uid: number | undefined): Promise<string> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(
    (error: unknown) => {
      throw unusable(path, error instanceof Error ? error.message : String(error));
    },
  );
  try {
    const stats = await file.stat();
    if (!stats.isFile()) throw unusable(path, 'it is not a file');
    if (uid !== undefined && stats.uid !== uid) throw unusable(path, 'it belongs to another user');
    if ((stats.mode & OTHERS) !== 0) throw unusable(path, 'others may read or write it: its mode must be 0600');
    if (stats.size > 2 * MAX_LENGTH) throw unusable(path, `it is longer than ${MAX_LENGTH} characters`);
    return await file.readFile('utf8');
  } finally {
    await file.close();
  }
}

function unusable(source: string, reason: string): AcodeError {
  return mcpError('ACODE-MCP-011', { source, reason });
}
