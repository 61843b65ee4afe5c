// When the process that has the proxy is killed: connections end, sandboxes are removed, and a sandbox that still runs has no network.

import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';
import { figure, until } from '../support/waiting.ts';
import { exists, gone } from '../ownership/victims.ts';
import { ONE, withoutNames } from './servers.ts';

const HOLD = (port: number): string =>
  `import socket; s = socket.create_connection(('${ONE}', ${port})); print('open', flush=True); s.recv(1)`;

describe.skipIf(withoutEngines || withoutNames)(
  `a killed process on '${mainEngine.name}' that has an allow-list’s proxy`,
  () => {
    let bench: Bench;
    beforeEach(async () => {
      bench = await Bench.at(mainEngine);
      await bench.configure({ images: { default: images.debian }, network: { private_hosts: [ONE] } });
    });
    afterEach(() => bench[Symbol.asyncDispose]());

    /** A server, and what becomes of the first connection to it. */
    async function server(): Promise<{ readonly port: number; readonly connected: Promise<Socket>; close(): void }> {
      const listening = createServer();
      const connected = once(listening, 'connection').then(([socket]: Socket[]) => socket as Socket);
      listening.listen(0, '127.0.0.1');
      await once(listening, 'listening');
      return { port: (listening.address() as AddressInfo).port, connected, close: () => void listening.close() };
    }

    it('loses its connections and its sandbox', async () => {
      const site = await server();
      const line = ['run', '--network', `allow=tcp:${ONE}:${site.port}`, '--', 'python3', '-c', HOLD(site.port)];
      const { child, ended } = bench.start(line);
      const socket = await site.connected;
      const [id = ''] = await bench.left();
      expect(await exists(mainEngine, id)).toBe(true);
      const closed = once(
        socket.on('error', () => undefined),
        'close',
      );
      socket.resume();
      const before = performance.now();
      child.kill('SIGKILL');
      await closed;
      figure('killed process to the end of its connections', performance.now() - before, 1000);
      await gone(mainEngine, id);
      figure('killed process to the end of its sandbox', performance.now() - before, 1000);
      await ended;
      site.close();
    });

    it('loses the persistent sandbox that the background process has for others', async () => {
      const site = await server();
      const environment = { env: { CI: undefined } };
      const list = ['--network', `allow=tcp:${ONE}:${site.port}`];
      const created = await bench.call(['sandbox', 'create', '--name', 'kept', ...list], environment);
      expect([created.status, created.stderr]).toEqual([0, expect.stringContaining('background process')]);
      const state = JSON.parse(String((await bench.call(['serve', 'status', '--json'], environment)).stdout)) as {
        server: { pid: number };
      };
      // From another process, by the proxy of the first.
      const hold = bench.start(['sandbox', 'exec', 'kept', '--', 'python3', '-c', HOLD(site.port)], environment);
      const socket = await site.connected;
      const [id = ''] = await bench.left();
      const closed = once(
        socket.on('error', () => undefined),
        'close',
      );
      socket.resume();
      process.kill(state.server.pid, 'SIGKILL');
      await closed;
      await gone(mainEngine, id);
      await hold.ended;
      site.close();
      await until(async () => (await bench.left()).length === 0);
    });
  },
);
