// The copy of a project is not read nor removed while the sandbox of its install command may still write in it.

import { expect, it } from 'vitest';
import type { SandboxInfo } from './contract/host.ts';
import { isGone } from './installing.ts';

const sandbox = (owner: string, state: SandboxInfo['state']): SandboxInfo => ({
  sandboxId: 's',
  containerId: 'c',
  name: 'n',
  image: 'i',
  state,
  createdAt: '',
  sessionId: '',
  taskId: '',
  level: 'docker',
  labels: { 'acode.owner': owner },
});

/** Asks with a clock on which every pause passes at once, of an engine that answers as it is told. */
async function asked(answers: readonly (readonly SandboxInfo[] | Error)[]): Promise<{ gone: boolean; looks: number }> {
  let [now, looks] = [0, 0];
  const clock = {
    now: () => now,
    monotonic: () => now,
    after: (ms: number, then: () => void) => {
      now += ms;
      setImmediate(then);
      return () => undefined;
    },
  };
  const list = async (): Promise<SandboxInfo[]> => {
    const answer = answers[Math.min(looks, answers.length - 1)] ?? [];
    looks += 1;
    if (answer instanceof Error) throw answer;
    return [...answer];
  };
  return { gone: await isGone({ list }, 'mine', clock), looks };
}

it('one that runs on after its host was closed is waited for', async () => {
  const running = [sandbox('mine', 'running')];
  expect(await asked([running, running, [sandbox('others', 'running')]])).toEqual({ gone: true, looks: 3 });
  expect(await asked([[sandbox('mine', 'exited')]])).toEqual({ gone: true, looks: 1 });
});

it('one that never ends, or that the engine says nothing about, is not gone', async () => {
  expect((await asked([[sandbox('mine', 'running')]])).gone).toBe(false);
  expect((await asked([new Error('no answer')])).gone).toBe(false);
});
