// A real registry on an engine’s own loopback, with a door in front of it that counts, slows down and breaks.

import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import * as z from 'zod';
import { tarOf } from '../engine-client/tar.ts';
import { images, withEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

const CACHE = '/var/lib/acode-engines';
const PROGRAM = `${CACHE}/packages/root/usr/bin/docker-registry`;
const MANIFEST = 'application/vnd.docker.distribution.manifest.v2+json';

/** Who may use a registry with a password. Not of a length that puts the password at a boundary of base64. */
export const USER = 'someone';
/** Their password; nothing of ours may ever write it anywhere. */
export const PASSWORD = 'correct-horse-battery-staple';
// bcrypt of it.
const HTPASSWD = '$2b$04$oGlHMf4oBPu6mBWObP15buSp3VGAenb2IMZCibai4BmcyuGDXnC/C';

const seenSchema = z.object({
  connections: z.number(),
  requests: z.array(
    z.object({
      method: z.string(),
      url: z.string(),
      range: z.string().nullable(),
      authorised: z.boolean(),
      bytes: z.number(),
    }),
  ),
});

/** What came to a registry’s door. */
export type Seen = z.infer<typeof seenSchema>;

/** What the door does; see relay-program.mjs. */
export interface DoorState {
  readonly rate?: number;
  readonly killAfter?: number;
  readonly awayMs?: number;
  readonly hang?: boolean;
  readonly damage?: boolean;
  readonly echo?: boolean;
}

/** An image that was put into a registry. */
export interface Pushed {
  /** With the registry’s address and the tag. */
  readonly reference: string;
  readonly digest: string;
  readonly id: string;
  /** The digests of the layers that no engine has yet. */
  readonly fresh: readonly string[];
  readonly freshBytes: number;
}

/** A registry of one test file’s own. */
export class TestRegistry implements AsyncDisposable {
  readonly address: string;
  readonly engine: TestEngine;
  readonly #scratch: string;
  readonly #container: string;
  readonly #locked: boolean;
  readonly #references = new Set<string>();

  private constructor(
    engine: TestEngine,
    parts: { port: number; scratch: string; container: string; locked: boolean },
  ) {
    this.engine = engine;
    this.address = `127.0.0.1:${parts.port}`;
    this.#scratch = parts.scratch;
    this.#container = parts.container;
    this.#locked = parts.locked;
  }

  /** Starts one beside an engine; with `locked`, one that wants a password. */
  static async on(engine: TestEngine, { locked = false } = {}): Promise<TestRegistry> {
    const port = 21_000 + 2 * Math.floor(Math.random() * 15_000);
    const scratch = mkdtempSync('/var/tmp/acode-registry-');
    const auth = locked ? { auth: { htpasswd: { realm: 'acode tests', path: '/scratch/htpasswd' } } } : {};
    writeFileSync(join(scratch, 'htpasswd'), `${USER}:${HTPASSWD}\n`);
    writeFileSync(
      join(scratch, 'registry.json'),
      JSON.stringify({
        version: 0.1,
        log: { level: 'error' },
        storage: { filesystem: { rootdirectory: '/scratch/data' } },
        http: { addr: `127.0.0.1:${port + 1}`, relativeurls: true },
        ...auth,
      }),
    );
    const program = readFileSync(fileURLToPath(new URL('relay-program.mjs', import.meta.url)));
    writeFileSync(join(scratch, 'relay.mjs'), program);
    const container = await startContainer(engine, port, scratch);
    const registry = new TestRegistry(engine, { port, scratch, container, locked });
    await registry.#ready();
    return registry;
  }

  /** What the door does from now on. */
  async set(state: DoorState): Promise<void> {
    await this.#call('POST', '/state', JSON.stringify(state));
  }

  /** What has come to the door since it was last forgotten. */
  async seen(): Promise<Seen> {
    return seenSchema.parse(JSON.parse((await this.#call('GET', '/seen')).body));
  }

  /** Forgets it. */
  async forget(): Promise<void> {
    await this.#call('DELETE', '/seen');
  }

  /** How often each of these layers was asked for. */
  async downloads(of: readonly string[]): Promise<number[]> {
    const { requests } = await this.seen();
    return of.map(
      digest => requests.filter(({ method, url }) => method === 'GET' && url.endsWith(`/blobs/${digest}`)).length,
    );
  }

  /** Puts an image in, past the door: a shell, and layers of so many bytes that no engine has. */
  async push(name: string, tag: string, sizes: readonly number[] = [50_000]): Promise<Pushed> {
    const shell = entryOf(readFileSync(`${CACHE}/images/busybox.tar`), 'layer.tar');
    const own = sizes.map((size, index) => tarOf(`data-${index}`, randomBytes(size)));
    const layers = [shell, ...own].map(tar => ({ diffId: digestOf(tar), packed: gzipSync(tar, { level: 1 }) }));
    const config = Buffer.from(
      JSON.stringify({
        architecture: 'amd64',
        os: 'linux',
        config: { Env: ['PATH=/bin'], Cmd: ['/bin/sh'] },
        rootfs: { type: 'layers', diff_ids: layers.map(({ diffId }) => diffId) },
      }),
    );
    for (const blob of [config, ...layers.map(({ packed }) => packed)]) await this.#upload(name, blob);
    const described = (mediaType: string, bytes: Buffer) => ({
      mediaType,
      size: bytes.length,
      digest: digestOf(bytes),
    });
    const manifest = JSON.stringify({
      schemaVersion: 2,
      mediaType: MANIFEST,
      config: described('application/vnd.docker.container.image.v1+json', config),
      layers: layers.map(({ packed }) => described('application/vnd.docker.image.rootfs.diff.tar.gzip', packed)),
    });
    await this.#call('PUT', `/v2/${name}/manifests/${tag}`, manifest, { 'Content-Type': MANIFEST }, 201);
    const reference = `${this.address}/${name}:${tag}`;
    this.#references.add(reference);
    const fresh = layers.slice(1).map(({ packed }) => packed);
    return {
      reference,
      digest: digestOf(Buffer.from(manifest)),
      id: digestOf(config),
      fresh: fresh.map(digestOf),
      freshBytes: fresh.reduce((sum, { length }) => sum + length, 0),
    };
  }

  /** Takes every image that was pulled from here off the engine. */
  async clear(): Promise<void> {
    await withEngine(this.engine, async direct => {
      const signal = AbortSignal.timeout(60_000);
      for (const { id, repoTags, repoDigests } of await direct.images.list({ signal })) {
        const here = [...repoTags, ...repoDigests].filter(name => name.startsWith(`${this.address}/`));
        for (const name of here) await direct.images.remove(name, { force: true, signal });
        if (here.length > 0 && here.length === repoTags.length + repoDigests.length)
          await direct.images.remove(id, { force: true, signal });
      }
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const signal = AbortSignal.timeout(60_000);
    await withEngine(this.engine, direct =>
      direct.containers.remove(this.#container, { force: true, volumes: true, signal }),
    );
    await this.clear();
    rmSync(this.#scratch, { recursive: true, force: true });
  }

  async #ready(): Promise<void> {
    for (const until = Date.now() + 40_000; Date.now() < until;) {
      const up = await this.seen().catch(() => null);
      if (up) return;
      await new Promise(resolve => void setTimeout(resolve, 100));
    }
    throw new Error('the registry did not come up');
  }

  async #upload(name: string, blob: Buffer): Promise<void> {
    const { location = '' } = await this.#call('POST', `/v2/${name}/blobs/uploads/`, '', {}, 202);
    const separator = location.includes('?') ? '&' : '?';
    const type = { 'Content-Type': 'application/octet-stream' };
    await this.#call('PUT', `${location}${separator}digest=${digestOf(blob)}`, blob, type, 201);
  }

  #call(
    method: string,
    path: string,
    body: string | Buffer = '',
    headers: Readonly<Record<string, string>> = {},
    expected = 200,
  ): Promise<{ body: string; location: string | undefined }> {
    const basic = `Basic ${Buffer.from(`${USER}:${PASSWORD}`).toString('base64')}`;
    const all = {
      ...headers,
      'Content-Length': Buffer.byteLength(body),
      ...(this.#locked ? { authorization: basic } : {}),
    };
    return new Promise((resolve, reject) => {
      const asked = request(
        { socketPath: join(this.#scratch, 'control.sock'), method, path, headers: all, timeout: 30_000, agent: false },
        reply => {
          const chunks: Buffer[] = [];
          reply.on('data', (chunk: Buffer) => chunks.push(chunk));
          reply.once('end', () => {
            const text = Buffer.concat(chunks).toString();
            if (reply.statusCode === expected) resolve({ body: text, location: reply.headers.location });
            else reject(new Error(`${method} ${path}: ${reply.statusCode} ${text}`));
          });
        },
      );
      asked.once('timeout', () => asked.destroy(new Error(`${method} ${path}: no answer`)));
      asked.once('error', reject);
      asked.end(body);
    });
  }
}

// One file of a tar.
function entryOf(tar: Buffer, name: string): Buffer {
  for (let at = 0; at + 512 <= tar.length;) {
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 135), 8) || 0;
    const begins = at + 512;
    if (tar.toString('latin1', at, at + 100).replace(/\0.*$/s, '') === name) return tar.subarray(begins, begins + size);
    at = begins + Math.ceil(size / 512) * 512;
  }
  throw new Error(`${name} is not in the archive`);
}

function digestOf(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

async function startContainer(engine: TestEngine, port: number, scratch: string): Promise<string> {
  return withEngine(engine, async direct => {
    const signal = AbortSignal.timeout(60_000);
    const { id } = await direct.containers.create(
      {
        Image: images.debian,
        Cmd: ['node', '/scratch/relay.mjs'],
        User: `${process.getuid?.() ?? 0}:${process.getgid?.() ?? 0}`,
        Env: [`PORT=${port}`],
        Labels: { 'acode.test': 'images' },
        HostConfig: {
          NetworkMode: 'host',
          LogConfig: { Type: 'none' },
          Mounts: [
            { Type: 'bind', Source: scratch, Target: '/scratch' },
            { Type: 'bind', Source: PROGRAM, Target: '/docker-registry', ReadOnly: true },
          ],
        },
      },
      { signal },
    );
    await direct.containers.start(id, { signal });
    return id;
  });
}
