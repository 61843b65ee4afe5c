// An SSH server of a test’s own with Git repositories: a real sshd on this machine’s loopback that keeps what it was asked to run.

import { execFileSync, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { until } from '../support/waiting.ts';
import { ONE } from './servers.ts';

/** Where sshd is: `.ci/engines/up` unpacks it, because the package of it starts a service. */
const PROGRAMS = ['/var/lib/acode-engines/sshd/root/usr/sbin/sshd', '/usr/sbin/sshd'];
const sshd = PROGRAMS.find(path => existsSync(path));

/** Whether there is no sshd. */
export const withoutSshd = sshd === undefined;

/** A server with one login, that of this user, and one key. */
export class SshServer implements AsyncDisposable {
  readonly login = userInfo().username;
  readonly port: number;
  /** Where its repositories and keys are. */
  readonly directory: string;
  readonly #process: ChildProcess;

  private constructor(directory: string, port: number, process: ChildProcess) {
    this.directory = directory;
    this.port = port;
    this.#process = process;
  }

  static async start(): Promise<SshServer> {
    const directory = mkdtempSync('/var/tmp/acode-ssh-');
    const at = (name: string): string => join(directory, name);
    for (const key of ['host', 'key', 'other'])
      execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-C', key, '-f', at(key)]);
    const port = await freePort();
    writeFileSync(at('authorized'), readFileSync(at('key.pub')));
    const hostKey = (name: string): string => `[${ONE}]:${port} ${readFileSync(at(name), 'utf8')}`;
    writeFileSync(at('known'), hostKey('host.pub'));
    writeFileSync(at('wrong'), hostKey('other.pub'));
    // Runs what it is asked for, as a server without this line does, and keeps it. It holds on where a test wants to see it end.
    const run = [
      '#!/bin/sh',
      `printf '%s|%s\\n' "$SSH_ORIGINAL_COMMAND" "$GIT_PROTOCOL" >>'${at('asked')}'`,
      `[ ! -e '${at('hold')}' ] || { trap '' PIPE; while echo held 2>/dev/null; do sleep 0.05; done; echo >'${at('released')}'; exit 1; }`,
      'exec sh -c "$SSH_ORIGINAL_COMMAND"',
      '',
    ];
    writeFileSync(at('run'), run.join('\n'));
    writeFileSync(at('asked'), '');
    chmodSync(at('run'), 0o755);
    const settings = [
      ...[`Port ${port}`, 'ListenAddress 127.0.0.1', `HostKey ${at('host')}`, 'PidFile none', 'UsePAM no'],
      ...[`AuthorizedKeysFile ${at('authorized')}`, 'StrictModes no', 'PasswordAuthentication no'],
      ...['KbdInteractiveAuthentication no', 'AcceptEnv GIT_PROTOCOL', `ForceCommand ${at('run')}`, ''],
    ];
    writeFileSync(at('config'), settings.join('\n'));
    const server = spawn(sshd ?? '', ['-D', '-e', '-f', at('config')], { stdio: 'ignore' });
    await until(() => isListening(port));
    return new SshServer(directory, port, server);
  }

  /** A file of the server’s directory. */
  path(name: string): string {
    return join(this.directory, name);
  }

  /** Its repositories as an allow-list names them. */
  entry(name: string, push = false): string {
    return `ssh:${this.login}@${ONE}:${this.port}/${this.path(name)}${push ? ':push' : ''}`;
  }

  /** What it was asked to run since it was asked this last, one line for each. */
  asked(): string[] {
    const lines = readFileSync(this.path('asked'), 'utf8').split('\n').filter(Boolean);
    writeFileSync(this.path('asked'), '');
    return lines;
  }

  /** Runs ssh on this machine, with the key: what a sandbox with the key could do. */
  ssh(command: string): string {
    const options = ['-F', 'none', '-o', 'BatchMode=yes', '-o', `UserKnownHostsFile=${this.path('known')}`];
    const words = [...options, '-i', this.path('key'), '-p', String(this.port), `${this.login}@${ONE}`, command];
    return execFileSync('ssh', words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = new Promise(resolve => this.#process.once('exit', resolve));
    this.#process.kill('SIGKILL');
    await ended;
    rmSync(this.directory, { recursive: true, force: true });
  }
}

function isListening(port: number): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect(port, '127.0.0.1', () => resolve(true)).on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise(resolve => void server.close(resolve));
  return port;
}
