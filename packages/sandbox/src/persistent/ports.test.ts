// Ports: an invalid or unknown option is refused before anything runs inside; an unanswered connection is reported.

import { once } from 'node:events';
import { connect } from 'node:net';
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { Inside } from '../isolation/backend.ts';
import { portsOf } from './ports.ts';

let asked = 0;
const inside: Inside = {
  call: () => Promise.reject(new Error(`asked ${++asked}`)),
  open: () => Promise.reject(new Error(`asked ${++asked}`)),
};

describe('a port', () => {
  it.each([
    [80, { port: 9 }, 'port'],
    [80, { hostPort: '9' }, 'hostPort'],
    [80, 9, 'options'],
    [80, { signal: 9 }, 'signal'],
    [80, { onUnanswered: 9 }, 'onUnanswered'],
    [0, {}, 'containerPort'],
  ])('is refused: forward(%j, %j)', async (port, options, field) => {
    const ports = portsOf(inside, new AbortController().signal);
    const given = options as { hostPort?: number };
    await expect(ports.forward(port, given)).rejects.toMatchObject({ code: 'ACODE-SBX-017', context: { field } });
    expect(asked).toBe(0);
  });

  // The control.
  it('that is understood is asked for inside', async () => {
    const ports = portsOf(inside, new AbortController().signal);
    await expect(ports.forward(80, { hostPort: 0 })).rejects.toThrow('asked 1');
  });
});

describe('a connection', () => {
  const leading = (exitCode: number, answer: string): Inside => ({
    call: () => Promise.resolve({ exitCode: 0, stderr: '', stdout: Buffer.from('nc') }),
    open: () => {
      const stdout = Readable.from(answer === '' ? [] : [Buffer.from(answer)]);
      return Promise.resolve({
        stdout,
        write: () => Promise.reject(new Error('it has ended')),
        closeStdin: () => Promise.resolve(),
        ended: once(stdout, 'end').then(() => ({ exitCode, stderr: '' })),
        destroy: () => undefined,
      });
    },
  });

  it.each([
    [1, '', 1],
    [0, '', 0],
    [1, 'cut off', 0],
  ])('whose program ends with %i after %j is reported %i times', async (exitCode, answer, times) => {
    let reported = 0;
    const ports = portsOf(leading(exitCode, answer), new AbortController().signal);
    await using way = await ports.forward(80, { onUnanswered: () => void reported++ });
    const socket = connect(way.port, '127.0.0.1').resume();
    socket.end('asked');
    await once(socket, 'close');
    expect(reported).toBe(times);
  });
});
