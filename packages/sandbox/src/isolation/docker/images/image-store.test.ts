// What of an image reaches a plan, and what keeps it from one.

import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { ImageFacts } from '../../../contract/spec.ts';
import type { ImageDetails } from '../engine/images.ts';
import { Engine } from '../engine/index.ts';
import { DockerBuilds, imageFacts, KnownImages } from './image-store.ts';

const image = (labels: Record<string, string>): ImageDetails => ({
  id: 'sha256:1',
  repoTags: ['x:1'],
  repoDigests: ['x@sha256:2'],
  config: { Env: ['A=1'], Volumes: { '/data': {} }, Labels: labels },
  size: 1,
  architecture: 'amd64',
  os: 'linux',
  topLayer: null,
});

it('is what the engine says, whatever labels of others it has', () => {
  expect(imageFacts('x:1', image({ 'org.example': 'y', acode: 'z' }))).toEqual({
    reference: 'x:1',
    id: 'sha256:1',
    digest: 'sha256:2',
    environment: ['A=1'],
    volumes: ['/data'],
    repositoryDigests: ['x@sha256:2'],
    program: { user: '', entrypoint: [], command: [], workdir: '', ports: [] },
  });
});

it('says how its program is started', () => {
  const { config } = image({});
  const started = {
    ...image({}),
    config: {
      ...config,
      User: '999:999',
      Entrypoint: ['/start'],
      Cmd: ['serve'],
      WorkingDir: '/srv',
      ExposedPorts: { '5432/tcp': {}, '53/udp': {}, '80': {} },
    },
  };
  expect(imageFacts('x:1', started).program).toEqual({
    user: '999:999',
    entrypoint: ['/start'],
    command: ['serve'],
    workdir: '/srv',
    // Numbers come before names.
    ports: [80, 5432],
  });
});

it('is refused where it has labels by which acode knows its own', () => {
  expect(() => imageFacts('x:1', image({ 'acode.keep': 'true' }))).toThrow(
    expect.objectContaining({
      code: 'ACODE-SBX-010',
      context: expect.objectContaining({ violation: 'DangerousImage', detail: expect.stringContaining('acode.keep') }),
    }),
  );
});

it('knows what Podman calls local for local, and on Docker for a registry of that name', () => {
  const local = { ...image({}), repoDigests: ['localhost/x@sha256:2', 'docker.io/library/x@sha256:3'] };
  expect(imageFacts('x:1', local, true)).toMatchObject({
    digest: 'sha256:3',
    repositoryDigests: ['docker.io/library/x@sha256:3'],
    namedOnly: true,
  });
  expect(imageFacts('x:1', local)).toMatchObject({ digest: 'sha256:2', repositoryDigests: local.repoDigests });
});

it('takes the digests of Docker’s containerd image store for what they are: made of the image’s names', () => {
  const built = { ...image({}), repoDigests: ['x@sha256:1'] };
  expect(imageFacts('x:1', built)).toMatchObject({ namedOnly: true });
  expect(imageFacts('x:1', image({}))).not.toHaveProperty('namedOnly');
});

// What is remembered of images, with a stand-in for the engine’s events: when it says nothing, and when it cannot be heard.

const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
};

class TestImages {
  asked = 0;
  meaning: string | null = 'one';
  readonly known: KnownImages;
  #wake: (event: unknown) => void = () => undefined;
  #fail: (error: Error) => void = () => undefined;

  constructor(isPodman = false, remembers = true) {
    const events = async function* (this: TestImages): AsyncGenerator {
      for (;;)
        yield await new Promise((resolve, reject) => {
          this.#wake = resolve;
          this.#fail = reject;
        });
    }.call(this);
    const engine = { connection: { isPodman }, events: { subscribe: async () => events } };
    this.known = new KnownImages(engine as unknown as Engine, remembers);
  }

  async find(): Promise<string | undefined> {
    const found = await this.known.find('name', async () => {
      this.asked += 1;
      return this.meaning === null ? null : ({ id: this.meaning } as unknown as ImageFacts);
    });
    return found?.id;
  }

  async heard(): Promise<string | undefined> {
    const found = await this.find();
    await settled();
    return found;
  }

  async happens(): Promise<void> {
    this.#wake({ attributes: {} });
    await settled();
  }

  async ends(): Promise<void> {
    this.#fail(new Error('the engine went away'));
    await settled();
  }
}

describe('what a name means', () => {
  it('is asked for no more while no image changes, once the engine is heard', async () => {
    const images = new TestImages();
    for (let question = 0; question < 5; question += 1) expect(await images.heard()).toBe('one');
    expect(images.asked).toBe(3);
  });

  it('is asked for again when an image has changed', async () => {
    const images = new TestImages();
    for (let question = 0; question < 3; question += 1) await images.heard();
    images.meaning = 'other';
    expect(await images.find()).toBe('one');
    await images.happens();
    expect(await images.find()).toBe('other');
  });

  it('is asked for each time where the engine is not heard, is Podman, has no such image, or nothing waits', async () => {
    const images = new TestImages();
    for (let question = 0; question < 3; question += 1) await images.heard();
    await images.ends();
    images.meaning = 'other';
    expect(await images.find()).toBe('other');
    const podman = new TestImages(true);
    for (let question = 0; question < 3; question += 1) await podman.find();
    expect(podman.asked).toBe(3);
    const short = new TestImages(false, false);
    for (let question = 0; question < 3; question += 1) await short.find();
    expect(short.asked).toBe(3);
    const none = new TestImages();
    none.meaning = null;
    for (let question = 0; question < 3; question += 1) expect(await none.find()).toBeUndefined();
    expect(none.asked).toBe(3);
  });
});

// What becomes of an image that an engine made other than it was asked: a server in the engine’s place says so.

const SAID = `sha256:${'a'.repeat(64)}`;
const OTHERS = `sha256:${'b'.repeat(64)}`;
const { signal } = new AbortController();
const base = { id: 'sha256:base', labels: {}, layers: ['one'], triggers: [] };

/** Builds on an engine that says it made `SAID`, and whose name means `named` afterwards; which images were removed. */
async function outcomeOf(named: string, layers: readonly string[]): Promise<{ outcome: unknown; removed: string[] }> {
  const directory = mkdtempSync(join(tmpdir(), 'acode-builds-'));
  const removed: string[] = [];
  const server = createServer((request, response) => {
    const path = (request.url ?? '').replace(/^\/v[\d.]+/, '');
    request.resume().on('end', () => {
      response.setHeader('Api-Version', '1.44').setHeader('Content-Type', 'application/json');
      if (request.method === 'DELETE') removed.push(decodeURIComponent(path.split('/')[2] ?? ''));
      if (path.startsWith('/build?')) response.end(`${JSON.stringify({ aux: { ID: SAID } })}\n`);
      else if (path.startsWith('/images/')) response.end(JSON.stringify({ Id: named, RootFS: { Layers: layers } }));
      else response.end(JSON.stringify({ ApiVersion: '1.44', MinAPIVersion: '1.24', Version: '25', Components: [] }));
    });
  });
  const socketPath = join(directory, 's');
  await new Promise<void>(resolve => void server.listen(socketPath, resolve));
  try {
    using engine = await Engine.open({ socketPath, signal });
    const request = { reference: 'x:project', base, template: 'Dockerfile', labels: {}, timeoutMs: 5000 };
    const making = new DockerBuilds(engine).build({ ...request, context: Readable.from([Buffer.from('tar')]) }, signal);
    return { outcome: await making.catch((error: unknown) => error), removed };
  } finally {
    server.closeAllConnections();
    await new Promise(resolve => server.close(resolve));
    rmSync(directory, { recursive: true });
  }
}

it('an image that is what was asked for stays', async () => {
  expect(await outcomeOf(SAID, ['one', 'two'])).toMatchObject({ outcome: { id: SAID }, removed: [] });
});

it('one that is not is removed', async () => {
  const { outcome, removed } = await outcomeOf(SAID, ['one', 'two', 'three']);
  expect(outcome).toMatchObject({ code: 'ACODE-IMG-001' });
  expect(removed).toEqual([SAID]);
});

it('one that took its name meanwhile is another’s, and is never removed', async () => {
  const { outcome, removed } = await outcomeOf(OTHERS, ['one', 'two']);
  expect(outcome).toMatchObject({ code: 'ACODE-IMG-001', message: expect.stringContaining('another image’s') });
  expect(removed).toEqual([SAID]);
});
