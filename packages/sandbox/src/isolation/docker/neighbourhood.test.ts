// Who comes to an engine, told by a stand-in for its events: the faults cannot be produced otherwise.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../contract/spec.ts';
import type { Engine } from './engine/index.ts';
import { Neighbourhood } from './neighbourhood.ts';

const OWN = 'me';

function engineWith(events: AsyncIterable<unknown> | Error, isPodman = false): Engine {
  const subscribe = async (): Promise<AsyncIterable<unknown>> => {
    if (events instanceof Error) throw events;
    return events;
  };
  return { events: { subscribe }, connection: { isPodman } } as unknown as Engine;
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

describe('a neighbourhood', () => {
  it('is quiet until somebody else starts a sandbox', async () => {
    const { events, say } = channel();
    const around = new Neighbourhood(engineWith(events), OWN);
    await around.listen();
    const { mark } = around;
    expect(around.isQuietSince(mark)).toBe(true);
    await say(OWN);
    expect(around.isQuietSince(mark)).toBe(true);
    await say('another');
    expect(around.isQuietSince(mark)).toBe(false);
    expect(around.isQuietSince(around.mark)).toBe(true);
  });

  it('is never quiet where nobody listens', async () => {
    const around = new Neighbourhood(engineWith(new Error('no engine')), OWN);
    expect(around.isQuietSince(around.mark)).toBe(false);
    await around.listen();
    expect(around.isQuietSince(around.mark)).toBe(false);
  });

  it('is never quiet on Podman, which tells of things after they have happened', async () => {
    const around = new Neighbourhood(engineWith(channel().events, true), OWN);
    await around.listen();
    expect(around.isQuietSince(around.mark)).toBe(false);
  });

  it('is not quiet any more for those who waited while the engine was away', async () => {
    const { events, end } = channel();
    const around = new Neighbourhood(engineWith(events), OWN);
    await around.listen();
    const { mark } = around;
    await end();
    expect(around.isQuietSince(mark)).toBe(false);
    expect(around.mark).toBeNull();
  });

  it('knows its own by what they have of the host', () => {
    const around = new Neighbourhood(engineWith(new Error('unused')), OWN);
    const mounts = [
      { source: '/w', readOnly: false },
      { source: '/w/.git', readOnly: true },
    ];
    around.entered('one', { mounts } as unknown as SandboxSpec);
    expect(around.own).toEqual([{ id: 'one', writableSources: ['/w'], readOnlySources: ['/w/.git'] }]);
    around.left('one');
    expect(around.own).toEqual([]);
  });
});
