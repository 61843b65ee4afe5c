// What becomes of an image that an engine made other than it was asked: a server in the engine’s place says so.

import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect, it } from 'vitest';
import { DockerBuilds } from './builds.ts';
import { Engine } from '../engine/index.ts';

const SAID = `sha256:${'a'.repeat(64)}`;
const OTHERS = `sha256:${'b'.repeat(64)}`;
const { signal } = new AbortController();
const base = { id: 'sha256:base', labels: {}, layers: ['one'], triggers: [] };

/** Builds on an engine that says it made `SAID`, and whose name means `named` afterwards; which images were removed. */
async function built(named: string, layers: readonly string[]): Promise<{ outcome: unknown; removed: string[] }> {
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
  expect(await built(SAID, ['one', 'two'])).toMatchObject({ outcome: { id: SAID }, removed: [] });
});

it('one that is not is removed', async () => {
  const { outcome, removed } = await built(SAID, ['one', 'two', 'three']);
  expect(outcome).toMatchObject({ code: 'ACODE-IMG-001' });
  expect(removed).toEqual([SAID]);
});

it('one that took its name meanwhile is another’s, and is never removed', async () => {
  const { outcome, removed } = await built(OTHERS, ['one', 'two']);
  expect(outcome).toMatchObject({ code: 'ACODE-IMG-001', message: expect.stringContaining('another image’s') });
  expect(removed).toEqual([SAID]);
});
