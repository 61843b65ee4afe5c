// Who comes to an engine, told by a stand-in for its events: the faults cannot be produced otherwise.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { ContainerDetails } from '../engine/containers.ts';
import type { Engine } from '../engine/index.ts';
import { EngineError } from '../engine/protocol.ts';
import { MountConflicts, portFailure, publishedPorts } from './creation.ts';

const OWN = 'me';

/** Whom the engine lists; `asked` counts how often. */
interface Listed {
  asked: number;
  there: { id: string; owner: string; writable?: string[] }[];
}

function engineWith(events: AsyncIterable<unknown> | Error, isPodman = false, listed?: Listed): Engine {
  const list = async (): Promise<unknown[]> => {
    if (listed) listed.asked += 1;
    return (listed?.there ?? []).map(({ id, owner, writable = [] }) => ({
      id,
      labels: { 'acode.owner': owner },
      writableSources: writable,
      readOnlySources: [],
      names: ['not kept'],
    }));
  };
  const subscribe = async (): Promise<AsyncIterable<unknown>> => {
    if (events instanceof Error) throw events;
    return events;
  };
  return { events: { subscribe }, containers: { list }, connection: { isPodman } } as unknown as Engine;
}

function channel(): {
  events: AsyncIterable<unknown>;
  say: (owner: string) => Promise<void>;
  end: () => Promise<void>;
} {
  const queue: (string | null)[] = [];
  let wake: () => void = () => undefined;
  const settled = async (): Promise<void> => {
    wake();
    for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  };
  async function* events(): AsyncGenerator {
    for (;;) {
      while (queue.length === 0) await new Promise<void>(resolve => (wake = resolve));
      const owner = queue.shift();
      if (owner === null) throw new Error('the engine went away');
      yield { attributes: { 'acode.owner': owner } };
    }
  }
  const put = (word: string | null): Promise<void> => {
    queue.push(word);
    return settled();
  };
  return { events: events(), say: put, end: () => put(null) };
}

const forGood = new AbortController().signal;

async function listening(listed: Listed = { asked: 0, there: [] }) {
  const told = channel();
  const around = new MountConflicts(engineWith(told.events, false, listed), OWN);
  await around.listen();
  return { around, ...told };
}

describe('mount conflicts', () => {
  it('remembers nobody before the engine was asked', async () => {
    const { around } = await listening();
    expect(around.remembered).toBeNull();
    await around.ask(forGood);
    expect(around.remembered).toEqual([]);
  });

  it('remembers who was there until somebody else starts a sandbox', async () => {
    const labels = { 'acode.owner': 'another' };
    const other = { id: 'theirs', labels, writableSources: ['/p'], readOnlySources: [] };
    const listed = { asked: 0, there: [{ id: 'theirs', owner: 'another', writable: ['/p'] }] };
    const { around, say } = await listening(listed);
    expect(await around.ask(forGood)).toEqual([other]);
    await say(OWN);
    expect(around.remembered).toEqual([other]);
    await say('another');
    expect(around.remembered).toBeNull();
    await around.ask(forGood);
    expect(around.remembered).toEqual([other]);
    expect(listed.asked).toBe(2);
  });

  it('does not remember an answer during which somebody came', async () => {
    const { around, say } = await listening();
    const answer = around.ask(forGood);
    await say('another');
    await answer;
    expect(around.remembered).toBeNull();
  });

  it('remembers nobody where nobody listens', async () => {
    const around = new MountConflicts(engineWith(new Error('no engine')), OWN);
    await around.ask(forGood);
    expect(around.remembered).toBeNull();
    await around.listen();
    await around.ask(forGood);
    expect(around.remembered).toBeNull();
  });

  it('remembers nobody on Podman, which tells of things after they have happened', async () => {
    const around = new MountConflicts(engineWith(channel().events, true), OWN);
    await around.listen();
    await around.ask(forGood);
    expect(around.remembered).toBeNull();
  });

  it('remembers nobody any more once the engine was away', async () => {
    const { around, end } = await listening();
    await around.ask(forGood);
    await end();
    expect(around.remembered).toBeNull();
  });

  it('knows its own by what they have of the host, whatever the engine said of them', async () => {
    const { around } = await listening({ asked: 0, there: [{ id: 'gone', owner: OWN, writable: ['/w'] }] });
    expect(await around.ask(forGood)).toMatchObject([{ id: 'gone' }]);
    const mounts = [
      { source: '/w', readOnly: false },
      { source: '/w/.git', readOnly: true },
    ];
    around.entered('one', { mounts } as unknown as SandboxSpec);
    expect(around.remembered).toEqual([{ id: 'one', writableSources: ['/w'], readOnlySources: ['/w/.git'] }]);
    around.left('one');
    expect(around.remembered).toEqual([]);
  });
});

// Ports are read from what came out, and an engine’s words about a taken port are understood.

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
