// Ports are read from what came out, and an engine’s words about a taken port are understood.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { ContainerDetails } from '../engine/containers.ts';
import { EngineError } from '../engine/error.ts';
import { portFailure, publishedPorts } from './ports.ts';

const spec = {
  ports: [{ container: 80 }, { container: 53, host: 5353, protocol: 'udp' }],
} as unknown as SandboxSpec;
const details = (Ports: unknown) => ({ NetworkSettings: { Ports } }) as ContainerDetails;
const refusal = (engineMessage: string) =>
  new EngineError({
    kind: 'status',
    operation: 'POST /containers/{id}/start',
    detail: 'x',
    status: 500,
    engineMessage,
  });

describe('publishedPorts', () => {
  it('gives them in the order they were asked for', () => {
    const ports = {
      '53/udp': [{ HostIp: '127.0.0.1', HostPort: '5353' }],
      '80/tcp': [{ HostIp: '127.0.0.1', HostPort: '32768' }],
      '443/tcp': null,
    };
    expect(publishedPorts(spec, details(ports))).toEqual([
      { container: 80, host: 32_768, protocol: 'tcp' },
      { container: 53, host: 5353, protocol: 'udp' },
    ]);
    expect(publishedPorts(spec, details(null))).toEqual([]);
  });

  it.each(['0.0.0.0', '', '::', '10.0.0.1'])('refuses one on %s', HostIp => {
    expect(() => publishedPorts(spec, details({ '9/tcp': [{ HostIp, HostPort: '9' }] }))).toThrow(
      expect.objectContaining({ code: 'ACODE-SBX-010' }),
    );
  });
});

describe('portFailure', () => {
  it.each([
    ['Bind for 127.0.0.1:5353 failed: port is already allocated', 5353],
    ['Error starting userland proxy: listen udp4 127.0.0.1:5353: bind: address already in use', 5353],
    ['listen tcp4 127.0.0.1:1: bind: address already in use', 5353],
  ])('understands “%s”', (message, port) => {
    expect(portFailure(spec, refusal(message))).toMatchObject({ code: 'ACODE-SBX-021', context: { port } });
  });

  it('says what else may be wrong with a low port', () => {
    const message = 'cannot expose privileged port 80, bind: permission denied';
    expect(portFailure(spec, refusal(message))?.message).toContain('so low a port');
  });

  it('leaves other failures alone, and sandboxes without ports', () => {
    expect(portFailure(spec, refusal('exec format error'))).toBeNull();
    expect(portFailure(spec, new Error('port is already allocated'))).toBeNull();
    expect(portFailure({ ...spec, ports: [] }, refusal('port is already allocated'))).toBeNull();
  });
});
