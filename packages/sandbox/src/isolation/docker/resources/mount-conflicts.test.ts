// Who comes to an engine, told by a stand-in for its events: the faults cannot be produced otherwise.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../../contract/spec.ts';
import type { Engine } from '../engine/index.ts';
import { MountConflicts } from './mount-conflicts.ts';

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
    const other = { id: 'theirs', writableSources: ['/p'], readOnlySources: [] };
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
