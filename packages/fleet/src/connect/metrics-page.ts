// Figures for Prometheus on a port of the loopback, in its text format.

import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { FLEET_ERRORS } from '../errors.ts';

const ASK_MS = 5000;
const HOST = '127.0.0.1';

/** Answers on a port of the loopback, as long as the process lives. It keeps no process alive. Returns the port. */
export async function serveFigures(port: number, text: () => Promise<string>): Promise<number> {
  const server = createServer((request, response) => void answer(request, response, text));
  server.maxConnections = 16;
  server.headersTimeout = ASK_MS;
  server.requestTimeout = ASK_MS;
  await new Promise<void>((resolve, reject) => {
    server.once('error', cause =>
      reject(FLEET_ERRORS.create('ACODE-FLT-014', { file: `--metrics ${port}`, reason: cause.message }, { cause })),
    );
    server.listen({ host: HOST, port }, resolve);
  });
  server.unref();
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : port;
}

async function answer(
  { method, url, headers }: IncomingMessage,
  response: ServerResponse,
  text: () => Promise<string>,
): Promise<void> {
  response.on('error', () => undefined);
  // A page of a stranger whose name leads to this address sends that name.
  const isOwn = /^(?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?$/.test(headers.host ?? '');
  if (!isOwn || method !== 'GET' || url !== '/metrics') {
    response.writeHead(isOwn ? 404 : 421).end();
    return;
  }
  response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' }).end(await text());
}

/** One figure with its samples; nothing where there are none. */
export function figure(name: string, type: string, help: string, lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines];
}

/** A label’s value as the format has it. */
export function escaped(label: string): string {
  return label.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', ' ');
}
