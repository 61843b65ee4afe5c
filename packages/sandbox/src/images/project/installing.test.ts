// The copy of a project is not read nor removed while the sandbox of its install command may still write in it; and what
// a failed install command reports.

import { describe, expect, it } from 'vitest';
import type { SandboxInfo } from '../../contract/host.ts';
import { assertSucceeded, cannotFetch, isGone, tooLong } from './installing.ts';
import type { Denial } from '../../contract/denials.ts';
import { rendered } from '../../contract/wording.ts';
import type { Planned } from '../../run/host.ts';

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

/** Asks with a clock on which every pause passes at once, of an engine with prepared answers. */
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

const of = <Value>(value: Value) => ({ value, layer: 'built-in', where: 'x' }) as const;
const plannedWith = (network: 'none' | 'bridge', caches: readonly unknown[] = []): Planned =>
  ({ policy: { network: of({ kind: network }), mode: of('local-only') }, spec: { caches } }) as unknown as Planned;
const installingWith = (network: 'none' | 'bridge') => ({
  planned: plannedWith(network),
  install: { command: 'npm ci' },
});
const denied: Denial = {
  rule: 'network.none',
  setBy: of('none'),
  count: 1,
  remedies: [{ kind: 'provide-offline' }],
};

describe('an install command without a network', () => {
  it('that fails without one reports that, and how to get one', () => {
    const failed = { exitCode: 1, timedOut: false, denials: [denied] };
    const refused = (): void => assertSucceeded(failed, { image: 'i', ...installingWith('none') });
    expect(refused).toThrow('ended with 1, and it had no network');
    expect(refused).toThrow(
      expect.objectContaining({
        hint: expect.stringMatching(/cache.*policy\.network: \{ allow: \['npm:install'\] \}/),
      }),
    );
    const timedOut = { exitCode: null, timedOut: true, denials: [denied] };
    expect(() => assertSucceeded(timedOut, { image: 'i', ...installingWith('none') })).toThrow(
      'took longer than its time limit, and it had no network',
    );
  });

  it('that hits a limit reports which, and the error of that limit is the cause', () => {
    const time: Denial = {
      rule: 'limit.time',
      value: 2000,
      setBy: of(2000),
      effect: { kind: 'command-ended' },
      count: 1,
      remedies: [{ kind: 'raise-limit', field: 'policy.timeoutMs', suggested: 4000 }],
    };
    const timedOut = { exitCode: null, timedOut: true, denials: [time] };
    expect(() => assertSucceeded(timedOut, { image: 'i', ...installingWith('bridge') })).toThrow(
      expect.objectContaining({
        hint: expect.stringContaining('policy.timeoutMs: 4000'),
        cause: expect.objectContaining({ code: 'ACODE-SBX-007', exitStatus: 124 }),
      }),
    );
  });

  it('that fails otherwise reports nothing about networks', () => {
    const failed = { exitCode: 1, timedOut: false, denials: [] };
    const refused = (): void => assertSucceeded(failed, { image: 'i', ...installingWith('none') });
    expect(refused).toThrow(/ended with 1\.$/);
    expect(refused).toThrow(expect.objectContaining({ hint: expect.not.stringContaining('allow') }));
    expect(() => assertSucceeded({ ...failed, exitCode: 0 }, { image: 'i', ...installingWith('none') })).not.toThrow();
  });

  it('is named where the time for the whole build is up while it runs, and .dockerignore is not', () => {
    const waiting = tooLong(5000, installingWith('none'));
    expect(waiting.reason).toContain('it had no network, which may be what it waited for');
    expect(rendered(waiting.remedy)).toMatch(/policy\.network: \{ allow: \['npm:install'\] \}/);
    expect(rendered(waiting.remedy)).not.toContain('.dockerignore');
    expect(tooLong(5000, installingWith('bridge'))).toEqual({
      reason: 'it took longer than 5 s, and the install command was still running',
      remedy: 'Give it more time: --timeout.',
    });
    expect(tooLong(5000, null).remedy).toContain('.dockerignore');
  });

  it('is warned of before it runs, where it fetches packages and has no cache', () => {
    expect(cannotFetch(plannedWith('none'), { command: 'npm ci --ignore-scripts' })).toBe(true);
    expect(cannotFetch(plannedWith('none', [{}]), { command: 'npm ci' })).toBe(false);
    expect(cannotFetch(plannedWith('bridge'), { command: 'npm ci' })).toBe(false);
    expect(cannotFetch(plannedWith('none'), { command: 'make' })).toBe(false);
  });
});
