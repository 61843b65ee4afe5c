import type { Forks, RunRequest, RunResult, WorkspaceDiff } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { forkingHost } from './forking-host.ts';
import type { ToolHost } from './host.ts';

const RESULT = { exitCode: 0, fork: { id: 'abcdefgh' } } as RunResult;

interface Bench {
  readonly host: ToolHost;
  readonly asked: RunRequest['policy'][];
  readonly most: () => number;
}

function bench(name?: string, result: RunResult = RESULT): Bench {
  const asked: RunRequest['policy'][] = [];
  let running = 0;
  let most = 0;
  const plain: ToolHost = {
    run: async (_, request) => {
      asked.push(request?.policy);
      running += 1;
      most = Math.max(most, running);
      await new Promise(resolve => void setImmediate(resolve));
      running -= 1;
      return result;
    },
    create: async request => {
      asked.push(request?.policy);
      throw new Error('created');
    },
    explain: async (_, request) => {
      asked.push(request?.policy);
      throw new Error('explained');
    },
    status: () => Promise.reject(new Error('asked')),
    network: {
      request: () => {
        throw new Error('asked');
      },
    },
  };
  const counts = { added: 2, changed: 1, deleted: 0 };
  const forks: Pick<Forks, 'diff'> = { diff: async () => ({ counts }) as WorkspaceDiff };
  return { host: forkingHost(plain, forks, name), asked, most: () => most };
}

describe('a server with a fork', () => {
  it('gives it to every command, sandbox and plan, whatever the model asked for', async () => {
    const { host, asked } = bench('upgrade');
    await host.run('ls', { policy: { askedBy: 'model', workspace: 'readonly' } });
    await expect(host.create({ policy: { askedBy: 'model' } })).rejects.toThrow('created');
    await expect(host.explain('ls')).rejects.toThrow('explained');
    expect(asked).toEqual([
      { askedBy: 'model', workspace: 'fork', fork: 'upgrade' },
      { askedBy: 'model', workspace: 'fork', fork: 'upgrade' },
      { workspace: 'fork', fork: 'upgrade' },
    ]);
  });

  it('runs one command after the other, and the next after one that failed', async () => {
    const { host, most } = bench();
    const cancelled = host.run('ls', { signal: AbortSignal.abort(new Error('cancelled')) });
    const ended = Promise.all([host.run('a'), host.run('b'), host.run('c')]);
    await expect(cancelled).rejects.toThrow('cancelled');
    await ended;
    expect(most()).toBe(1);
  });

  it('that is to be new makes one, and stays in it', async () => {
    const { host, asked } = bench('new');
    await host.run('a');
    await host.run('b');
    expect(asked.map(policy => policy?.fork)).toEqual(['new', 'abcdefgh']);
  });

  it('says in one line what the fork has, and nothing where no fork was left', async () => {
    const { host } = bench();
    await expect(host.forkNote?.(RESULT)).resolves.toBe(
      'Changes are in fork abcdefgh (2 added, 1 changed, 0 deleted so far); the user’s own files are unchanged. The user sees them with `acode fork diff abcdefgh`.',
    );
    await expect(host.forkNote?.({ ...RESULT, fork: undefined } as unknown as RunResult)).resolves.toBeNull();
  });
});
