// Client and server of the egress bench in one sandbox without a network: what the sandbox itself costs a connection, without a proxy.
// @ts-check

import { execFileSync, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const job = JSON.parse(process.argv[2] ?? '{}');
const program = (/** @type {string} */ name) => fileURLToPath(new URL(name, import.meta.url));
const server = spawn(process.execPath, [program('server.mjs'), job.host], { stdio: ['pipe', 'pipe', 'inherit'] });

server.stdout.once('data', line => {
  const { port, pem } = JSON.parse(String(line));
  writeFileSync('/tmp/ca.pem', pem);
  const asked = JSON.stringify({ ...job, port, address: '127.0.0.1' });
  const env = { ...process.env, NODE_EXTRA_CA_CERTS: '/tmp/ca.pem' };
  execFileSync(process.execPath, [program('client.mjs'), asked], { stdio: 'inherit', env });
  server.stdin.end();
});
