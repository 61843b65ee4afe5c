// Server of the egress bench, in a process of its own: HTTPS on the loopback, with small answers, long ones, and nothing else.
// Prints its port and its certificate authority as one line of JSON; ends with its input.
// @ts-check

import { createServer } from 'node:https';
import { SandboxAuthority } from '../../packages/sandbox/dist/egress/proxy/certificates.js';

const [name = ''] = process.argv.slice(2);
const authority = new SandboxAuthority([name]);
const BLOCK = Buffer.alloc(256 * 1024, 120);
const SMALL = Buffer.alloc(100, 120);

const server = createServer({
  SNICallback: (host, done) => done(null, authority.context(host)),
  keepAliveTimeout: 600_000,
});
server.on('request', (request, response) => {
  const [, bytes] = /^\/(\d+)$/.exec(request.url ?? '') ?? [];
  request.resume();
  if (bytes === undefined) {
    response.end(SMALL);
    return;
  }
  let left = Number(bytes);
  response.writeHead(200, { 'Content-Length': left });
  const more = () => {
    while (left > 0) {
      const part = left < BLOCK.length ? BLOCK.subarray(0, left) : BLOCK;
      left -= part.length;
      if (!response.write(part)) {
        response.once('drain', more);
        return;
      }
    }
    response.end();
  };
  more();
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  console.log(JSON.stringify({ port: typeof address === 'object' ? address?.port : 0, pem: authority.pem }));
});
process.stdin.on('end', () => process.exit()).resume();
