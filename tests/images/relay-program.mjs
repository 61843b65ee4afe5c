// Runs beside an engine, in its network: the real registry, and a door in front of it that counts, slows down and breaks.
// @ts-check

import { spawn } from 'node:child_process';
import { chmodSync } from 'node:fs';
import http from 'node:http';
import { connect } from 'node:net';

const PORT = Number(process.env['PORT']);
const BEHIND = PORT + 1;
const CONTROL = '/scratch/control.sock';

/** What the door does to the content of blobs. */
const state = {
  /** Bytes a second of each answer; 0 for no limit. */
  rate: 0,
  /** After so many bytes of blobs the registry is killed; 0 for never. */
  killAfter: 0,
  /** How long it stays away then. */
  awayMs: 1000,
  /** Whether answers never come. */
  hang: false,
  /** Whether a byte of every blob is changed. */
  damage: false,
  /** Whether whoever logs in is denied, in words that repeat what they logged in with. */
  echo: false,
};

/** @type {{ connections: number, requests: { method: string, url: string, range: string | null, authorised: boolean, bytes: number }[] }} */
let seen = { connections: 0, requests: [] };
let sinceKill = 0;

/** @type {{ kill(signal: 'SIGKILL'): unknown } | null} */
let registry = null;
/** @type {Set<import('node:net').Socket>} */
const sockets = new Set();

async function startRegistry() {
  registry = spawn('/docker-registry', ['serve', '/scratch/registry.json'], { stdio: ['ignore', 'ignore', 'inherit'] });
  for (;;) {
    const up = await new Promise(resolve => {
      const socket = connect(BEHIND, '127.0.0.1', () => resolve(socket.end() !== null));
      socket.once('error', () => resolve(false));
    });
    if (up) return;
    await pause(50);
  }
}

/** @param {number} ms */
function pause(ms) {
  return new Promise(resolve => void setTimeout(resolve, ms));
}

async function listen() {
  await new Promise(resolve => void door.listen(PORT, '127.0.0.1', () => resolve(null)));
}

// As when somebody pulls the plug: the process is killed, every connection with it, and nothing listens.
async function goAway() {
  registry?.kill('SIGKILL');
  door.close();
  for (const socket of sockets) socket.destroy();
  await pause(state.awayMs);
  await startRegistry();
  await listen();
}

/**
 * @param {http.IncomingMessage} request
 * @param {http.ServerResponse} response
 * @param {boolean} inFront
 */
function forward(request, response, inFront) {
  const { method = '', url = '', headers } = request;
  const entry = {
    method,
    url,
    range: headers.range ?? null,
    authorised: headers.authorization !== undefined,
    bytes: 0,
  };
  if (inFront) seen.requests.push(entry);
  if (inFront && state.hang) return;
  if (inFront && state.echo && headers.authorization !== undefined && url.includes('/manifests/')) {
    // Without the word before it, by which everybody knows what it is.
    const errors = [{ code: 'DENIED', message: `you said ${headers.authorization.replace(/^Basic /, '')}` }];
    response.writeHead(403, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify({ errors }));
    return;
  }
  const isBlob = inFront && method === 'GET' && url.includes('/blobs/');
  // Without an agent: a connection that is kept may be one that the registry has just closed.
  const to = { host: '127.0.0.1', port: BEHIND, method, path: url, headers, agent: false };
  const onward = http.request(to, answer => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    void pass(answer, response, isBlob, entry);
  });
  onward.once('error', () => response.destroy());
  response.once('close', () => onward.destroy());
  request.pipe(onward);
}

/**
 * @param {http.IncomingMessage} from
 * @param {http.ServerResponse} to
 * @param {boolean} isBlob
 * @param {{ bytes: number }} entry
 */
async function pass(from, to, isBlob, entry) {
  try {
    for await (const chunk of from) {
      for (const part of isBlob && state.rate > 0 ? parts(chunk) : [chunk]) {
        if (to.destroyed) return;
        to.write(isBlob && state.damage ? Buffer.from(part.map((/** @type {number} */ byte) => byte ^ 1)) : part);
        entry.bytes += part.length;
        if (!isBlob) continue;
        if (state.rate > 0) await pause((part.length * 1000) / state.rate);
        sinceKill += part.length;
        if (state.killAfter > 0 && sinceKill >= state.killAfter) {
          state.killAfter = 0;
          void goAway();
          return;
        }
      }
    }
    to.end();
  } catch {
    to.destroy();
  }
}

/** @param {Buffer} chunk */
function* parts(chunk) {
  for (let at = 0; at < chunk.length; at += 16_384) yield chunk.subarray(at, at + 16_384);
}

const door = http.createServer((request, response) => forward(request, response, true));
door.on('connection', socket => {
  seen.connections += 1;
  sockets.add(socket);
  socket.once('close', () => sockets.delete(socket));
});
// The engine tries TLS first, whose first bytes are no HTTP.
door.on('clientError', (_, socket) => void socket.destroy());

const control = http.createServer((request, response) => {
  if (request.url?.startsWith('/v2/')) forward(request, response, false);
  else void obey(request, response);
});

async function obey(request, response) {
  const { method, url = '' } = request;
  const body = [];
  for await (const chunk of request) body.push(chunk);
  if (url === '/state') {
    sinceKill = 0;
    Object.assign(state, JSON.parse(Buffer.concat(body).toString()));
  }
  if (url === '/seen' && method === 'DELETE') seen = { connections: 0, requests: [] };
  response.end(JSON.stringify(seen));
}

await startRegistry();
await listen();
control.listen(CONTROL, () => chmodSync(CONTROL, 0o600));
