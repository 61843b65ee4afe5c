// What is wrong with a port, or not understood, is refused before anything is asked inside.

import { describe, expect, it } from 'vitest';
import type { Inside } from '../isolation/inside.ts';
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
