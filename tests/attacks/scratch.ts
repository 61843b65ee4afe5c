// Directories of the tests’ own that play the host: projects, secrets, sockets and a canary that must never change.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { lstatSync, mkdirSync, readFileSync, readdirSync, readlinkSync, realpathSync, writeFileSync } from 'node:fs';
import { createConnection, createServer } from 'node:net';
import type { Server } from 'node:net';
import { dirname, join } from 'node:path';
import { makeWorkspace } from '../support/engines.ts';

/** A tree of files that is removed at the end. */
export class Scratch implements Disposable {
  readonly root: string;

  constructor() {
    this.root = realpathSync(makeWorkspace());
  }

  /** A path in it. */
  path(...parts: readonly string[]): string {
    return join(this.root, ...parts);
  }

  /** Makes a directory. */
  directory(...parts: readonly string[]): string {
    const path = this.path(...parts);
    mkdirSync(path, { recursive: true });
    return path;
  }

  /** Writes a file, with the directories above it. */
  file(name: string, content: string, mode = 0o644): string {
    const path = this.path(name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content, { mode });
    return path;
  }

  /** Removes a part of it. By a program that goes in step by step: what a sandbox leaves may be deeper than a path is long. */
  remove(...parts: readonly string[]): void {
    execFileSync('/bin/rm', ['-rf', '--', this.path(...parts)], { timeout: 60_000 });
  }

  [Symbol.dispose](): void {
    this.remove();
  }
}

/** One hash of names, kinds, modes and contents of a tree: two that are equal say that nothing changed. */
export function treeHash(root: string): string {
  const hash = createHash('sha256');
  const visit = (path: string, name: string): void => {
    const found = lstatSync(path);
    hash.update(`${name}\0${found.mode}\0${found.uid}\0`);
    if (found.isSymbolicLink()) hash.update(readlinkSync(path));
    else if (found.isDirectory())
      for (const entry of readdirSync(path).sort()) visit(join(path, entry), `${name}/${entry}`);
    else if (found.isFile()) hash.update(readFileSync(path));
  };
  visit(root, '');
  return hash.digest('hex');
}

/** A unix socket that greets everybody: it plays an engine, an agent for keys, anything with power behind a socket. */
export class Greeter implements AsyncDisposable {
  readonly path: string;
  readonly #server: Server;

  private constructor(path: string, server: Server) {
    this.path = path;
    this.#server = server;
  }

  /** Listens at a path. */
  static async at(path: string): Promise<Greeter> {
    mkdirSync(dirname(path), { recursive: true });
    const server = createServer(client => {
      client.on('error', () => undefined);
      client.end('hello from the host\n');
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(path, resolve);
    });
    return new Greeter(path, server);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await new Promise(resolve => this.#server.close(resolve));
  }
}

/** What a socket of this machine says first. */
export function greeting(path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    const client = createConnection(path);
    client.setTimeout(5000, () => client.destroy(new Error('silent')));
    client.on('data', chunk => (text += String(chunk)));
    client.once('error', reject);
    client.once('close', () => resolve(text));
  });
}
