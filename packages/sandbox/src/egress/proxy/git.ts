// Git over SSH: reads what a client inside asks for, and runs ssh outside for exactly that. The key stays with ssh.
//
// A request is its length (2 bytes, little endian) and then words, each ended by NUL: the value of GIT_PROTOCOL, and what Git gave its
// client for SSH. What follows is the client’s input. The answer is in frames: type (1 byte; O output, E errors, X exit status),
// zero (1), length (2, little endian), payload. `git_ssh` of forwarder.c is the other side.

import { spawn } from 'node:child_process';
import type { ChildProcessByStdio } from 'node:child_process';
import { existsSync } from 'node:fs';
import { Writable } from 'node:stream';
import type { Duplex, Readable } from 'node:stream';
import type { GitSsh } from '../../contract/egress.ts';
import type { AskedRepository } from '../repository.ts';
import { Refused } from './dial.ts';
import { lingering } from './http.ts';
import { copy } from './streams.ts';
import type { Direction, Take } from './streams.ts';

/** The longest request of a client. */
export const MAX_GIT_BYTES = 4096;

/** What a client inside asks for. */
export interface GitRequest extends AskedRepository {
  readonly host: string;
  readonly port: number;
  /** The version of Git’s protocol, as Git announces it; null for the oldest. */
  readonly protocol: string | null;
}

/** A request as it was read, and the bytes it took; `refused` if Git would not have sent it. */
export type ReadGitRequest =
  { readonly kind: 'request'; readonly request: GitRequest; readonly length: number } | { readonly kind: 'refused' };

const REFUSED = { kind: 'refused' } as const;
const HEADER = 2;

/** Reads a request; null if more of it has to come. */
export function readGitRequest(bytes: Buffer): ReadGitRequest | null {
  if (bytes.length < HEADER) return null;
  const length = HEADER + bytes.readUInt16LE(0);
  if (length > MAX_GIT_BYTES) return REFUSED;
  if (bytes.length < length) return null;
  const text = bytes.toString('latin1', HEADER, length);
  // Printable ASCII alone: a line break, or what a terminal obeys, is in no name of a repository.
  if (!/^(?:[ -~]*\0)+$/.test(text)) return REFUSED;
  const [announced = '', ...words] = text.slice(0, -1).split('\0');
  const asked = askedBy(words);
  if (asked === null || !/^(?:version=[0-9])?$/.test(announced)) return REFUSED;
  return { kind: 'request', request: { ...asked, protocol: announced === '' ? null : announced }, length };
}

// Joined by spaces, which none of these words has.
const OPTIONS = /^(?:-o SendEnv=GIT_PROTOCOL)?(?:(?:^| )-[46])?(?:(?:^| )-p (\d{1,5}))?$/;
const DESTINATION = /^(?:([A-Za-z0-9_][A-Za-z0-9._-]{0,63})@)?([A-Za-z0-9][A-Za-z0-9.-]{0,252})$/;
const COMMAND = /^([a-z][a-z-]*) '([^'\\]*)'$/;

// Exactly what Git writes for OpenSSH. Everything else, an option above all, is refused and not passed on.
function askedBy(words: readonly string[]): Omit<GitRequest, 'protocol'> | null {
  const [destination, command] = [words.at(-2) ?? '', words.at(-1) ?? ''];
  const [isKnown, port = '22'] = OPTIONS.exec(words.slice(0, -2).join(' ')) ?? [null];
  const [named, login = null, host = ''] = DESTINATION.exec(destination) ?? [];
  if (isKnown === null || named === undefined) return null;
  return { login, host, port: Number(port), ...commandOf(command) };
}

// A command that is not one of Git’s is refused with its reason, once it is known where it was to go.
function commandOf(command: string): Pick<GitRequest, 'service' | 'path'> {
  const [, service = '', path = ''] = COMMAND.exec(command) ?? [];
  return { service, path };
}

/** Where ssh is. The search path may lead into a directory that commands write. */
const PROGRAMS = ['/usr/bin/ssh', '/usr/local/bin/ssh', '/run/current-system/sw/bin/ssh', '/opt/homebrew/bin/ssh'];

/** A connection of ssh that was decided upon. */
export interface GitConnection {
  readonly host: string;
  readonly port: number;
  /** The address that was checked; ssh connects to it and to no other. */
  readonly address: string;
  readonly login: string;
  readonly command: string;
  readonly protocol: string | null;
}

/** What ssh is started with: nothing of the user’s configuration, and nothing that a server or a client could use besides. */
export function sshArguments(
  { host, port, address, login, command, protocol }: GitConnection,
  { knownHosts, identity }: GitSsh,
): readonly string[] {
  const options = [
    'BatchMode=yes',
    'StrictHostKeyChecking=yes',
    'UpdateHostKeys=no',
    'VerifyHostKeyDNS=no',
    'CheckHostIP=no',
    'CanonicalizeHostname=no',
    'ForwardAgent=no',
    'ForwardX11=no',
    'ClearAllForwardings=yes',
    'Tunnel=no',
    'PermitLocalCommand=no',
    'ControlMaster=no',
    'ControlPath=none',
    'RequestTTY=no',
    'EscapeChar=none',
    'LogLevel=QUIET',
    'ConnectTimeout=20',
    'ServerAliveInterval=15',
    'ServerAliveCountMax=4',
    // The name that the key is known by, since ssh is given an address.
    `HostName=${address}`,
    `HostKeyAlias=${port === 22 ? host : `[${host}]:${port}`}`,
    ...(knownHosts === undefined ? [] : [`UserKnownHostsFile=${knownHosts}`, 'GlobalKnownHostsFile=/dev/null']),
    ...(identity === undefined ? [] : [`IdentityFile=${identity}`, 'IdentitiesOnly=yes']),
    ...(protocol === null ? [] : [`SetEnv=GIT_PROTOCOL=${protocol}`]),
  ];
  const words = options.flatMap(option => ['-o', option]);
  return ['-F', 'none', '-T', ...words, '-p', String(port), '-l', login, '--', host, command];
}

/** Runs ssh for a client until one of them ends. Resolves when ssh has ended. */
export async function relayGit(
  client: Duplex,
  connection: GitConnection,
  ssh: GitSsh,
  take: (direction: Direction) => Take,
): Promise<void> {
  const program = PROGRAMS.find(path => existsSync(path));
  if (program === undefined) throw new Refused('unreachable', null, 'this machine has no ssh');
  const child = spawn(program, sshArguments(connection, ssh), {
    cwd: '/',
    // ssh finds the user’s directory by the user’s number.
    env: { PATH: '/usr/bin:/bin', LC_ALL: 'C', ...(ssh.agent === undefined ? {} : { SSH_AUTH_SOCK: ssh.agent }) },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const kill = (): void => void child.kill('SIGKILL');
  client.once('close', kill);
  try {
    const status = await relayed(client, child, take);
    if (status === SSH_FAILED) client.write(gitFrame('E', loginText(connection)));
    endGit(client, status);
  } finally {
    kill();
  }
}

/** What ssh ends with when the failure is its own. */
const SSH_FAILED = 255;
const KILLED = 137;
// What a server says about a failure fits; the rest is read and dropped.
const MAX_ERRORS = 64 * 1024;
const MAX_PAYLOAD = 32 * 1024;

async function relayed(
  client: Duplex,
  child: ChildProcessByStdio<Writable, Readable, Readable>,
  take: (direction: Direction) => Take,
): Promise<number> {
  const ended = new Promise<number>((resolve, reject) => {
    child.once('error', () => reject(new Refused('unreachable', null, 'ssh cannot be started')));
    child.once('close', code => resolve(code ?? KILLED));
  });
  // ssh may end before it has read everything.
  child.stdin.on('error', () => undefined);
  copy(client, child.stdin, take('out'));
  const output = framed(client, 'O', Infinity);
  const errors = framed(client, 'E', MAX_ERRORS);
  copy(child.stdout, output, take('in'));
  copy(child.stderr, errors, take('in'));
  const status = await ended;
  await Promise.all([finished(output, client), finished(errors, client)]);
  return status;
}

// A stream that becomes frames of one type, no faster than the client reads.
function framed(client: Duplex, type: 'O' | 'E', most: number): Writable {
  let left = most;
  return new Writable({
    highWaterMark: MAX_PAYLOAD,
    write(chunk: Buffer, _encoding, done) {
      const part = chunk.subarray(0, Math.min(chunk.length, left));
      left -= part.length;
      let isFull = false;
      for (let at = 0; at < part.length && !client.destroyed; at += MAX_PAYLOAD)
        isFull = !client.write(gitFrame(type, part.subarray(at, at + MAX_PAYLOAD)));
      if (!isFull || client.destroyed) return done();
      const go = (): void => {
        client.off('drain', go).off('close', go);
        done();
      };
      client.once('drain', go).once('close', go);
    },
  });
}

function finished(stream: Writable, client: Duplex): Promise<void> {
  return new Promise(resolve => {
    if (stream.writableFinished || client.destroyed) return resolve();
    stream.once('finish', resolve);
    client.once('close', resolve);
  });
}

/** A frame of an answer. */
export function gitFrame(type: 'O' | 'E' | 'X', payload: Buffer | string): Buffer {
  const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload;
  const header = Buffer.from([type.charCodeAt(0), 0, bytes.length & 0xff, bytes.length >> 8]);
  return Buffer.concat([header, bytes]);
}

/** Ends an answer with an exit status. */
export function endGit(client: Duplex, status: number): void {
  if (client.destroyed) return;
  client.end(gitFrame('X', Buffer.from([status & 0xff])));
  lingering(client);
}

function loginText({ login, host, port }: GitConnection): string {
  const at = port === 22 ? '' : ` -p ${port}`;
  return (
    `acode: ssh on this machine has no key that ${host} accepts, or does not know the key of ${host}, or cannot reach it. ` +
    `Ask the user to run: ssh -T${at} ${login}@${host}\n`
  );
}
