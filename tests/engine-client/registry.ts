// A registry with one whole and one damaged image, run as a container in the engine's own network so that the engine reaches it on loopback.
import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { type Bench, images } from './engines.ts';
import { tarOf } from './tar.ts';

const manifestType = 'application/vnd.docker.distribution.manifest.v2+json';

function digestOf(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

/** What the registry serves: path → type and content in base64. */
function pages(marker: string): Record<string, readonly [string, string]> {
  const layer = tarOf('marker', Buffer.from(marker));
  const packed = gzipSync(layer);
  const config = Buffer.from(
    JSON.stringify({
      architecture: 'amd64',
      os: 'linux',
      config: { Env: ['FROM=registry'], Cmd: ['/none'] },
      rootfs: { type: 'layers', diff_ids: [digestOf(layer)] },
    }),
  );
  const descriptor = (mediaType: string, bytes: Buffer) => ({ mediaType, size: bytes.length, digest: digestOf(bytes) });
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: manifestType,
      config: descriptor('application/vnd.docker.container.image.v1+json', config),
      layers: [descriptor('application/vnd.docker.image.rootfs.diff.tar.gzip', packed)],
    }),
  );
  const binary = 'application/octet-stream';
  const served: Record<string, readonly [string, string]> = { '/v2/': [binary, ''] };
  for (const name of ['whole', 'damaged']) {
    const blob = (bytes: Buffer) => Buffer.from(name === 'whole' ? bytes : bytes.map(byte => byte ^ 1));
    served[`/v2/${name}/manifests/1`] = [manifestType, manifest.toString('base64')];
    served[`/v2/${name}/manifests/${digestOf(manifest)}`] = [manifestType, manifest.toString('base64')];
    for (const bytes of [config, packed]) {
      served[`/v2/${name}/blobs/${digestOf(bytes)}`] = [binary, blob(bytes).toString('base64')];
    }
  }
  return served;
}

// Runs with the image's own Node. The engine first tries TLS, whose first bytes are no HTTP: that connection is closed.
const server = `
const pages = JSON.parse(process.env.PAGES), crypto = require('crypto');
require('http').createServer((request, response) => {
  const page = pages[request.url];
  if (!page) return void response.writeHead(404).end();
  const body = Buffer.from(page[1], 'base64');
  const digest = 'sha256:' + crypto.createHash('sha256').update(body).digest('hex');
  response.writeHead(200, { 'Content-Type': page[0], 'Content-Length': body.length, 'Docker-Content-Digest': digest });
  response.end(request.method === 'HEAD' ? undefined : body);
}).listen(Number(process.env.PORT), '127.0.0.1', () => console.log('ready'));
`;

/** Starts it and gives its address; it ends with the bench. */
export async function startRegistry(bench: Bench): Promise<string> {
  const port = 20_000 + Math.floor(Math.random() * 20_000);
  const id = await bench.container('', {
    Image: images.debian,
    Cmd: ['node', '-e', server],
    Env: [`PORT=${port}`, `PAGES=${JSON.stringify(pages(bench.label))}`],
    HostConfig: { NetworkMode: 'host' },
  });
  const { signal } = bench;
  const stream = await bench.engine.containers.attach(id, { stdout: true, stderr: true, signal });
  await bench.engine.containers.start(id, bench);
  for await (const chunk of stream) {
    if (chunk.includes('ready')) return `127.0.0.1:${port}`;
    throw new Error(`the registry did not start: ${chunk.toString()}`);
  }
  throw new Error('the registry ended');
}
