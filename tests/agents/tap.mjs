// Stands between an agent and an MCP server: passes every byte on, and writes down each message with its direction.
// Usage: tap.mjs FILE COMMAND ARG…
// @ts-check

import { spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const [file = '', command = '', ...args] = process.argv.slice(2);
const server = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });

/**
 * @param {'client' | 'server'} from
 * @param {import('node:stream').Readable} source
 * @param {import('node:stream').Writable} target
 */
function pass(from, source, target) {
  source.on('data', chunk => target.write(chunk));
  source.on('end', () => target.end());
  target.on('error', () => undefined);
  createInterface({ input: source }).on('line', line => appendFileSync(file, `${JSON.stringify({ from, line })}\n`));
}

pass('client', process.stdin, server.stdin);
pass('server', server.stdout, process.stdout);
for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])) {
  process.on(signal, () => {
    appendFileSync(file, `${JSON.stringify({ from: 'client', line: signal })}\n`);
    server.kill(signal);
  });
}
server.on('exit', code => process.exit(code ?? 1));
