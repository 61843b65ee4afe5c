// Every way in which a command of a client can leave something behind is reported.

import { AcodeError } from '@acode/sandbox';
import type { RiskyChange, RunResult } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import type { InsideHandle, InsideSandbox, ToolHost } from './host.ts';
import { reportingHost } from './reporting-host.ts';

const left = (path: string): RiskyChange => ({ path, kind: 'build-file', reason: 'make executes it' });
const resultWith = (path: string): RunResult =>
  ({ riskyChanges: path === '' ? [] : [left(path)], auditSequence: 7 }) as unknown as RunResult;
const nobody = (): never => {
  throw new Error('not asked for');
};

function reporting(sandbox: Partial<InsideSandbox>, run: () => Promise<RunResult> = nobody) {
  const reports: string[] = [];
  const host: ToolHost = {
    run,
    create: async () =>
      ({
        riskyChanges: [],
        ended: new Promise(() => undefined),
        kill: async () => undefined,
        ...sandbox,
      }) as InsideSandbox,
    explain: nobody,
    status: nobody,
    network: { request: nobody },
  };
  const heard = reportingHost(host, (changes, record) =>
    reports.push(...changes.map(({ path }) => `${path} of ${record ?? 'none'}`)),
  );
  return { host: heard, reports };
}

describe('what is left behind', () => {
  it('by a command of its own is reported, and nothing where nothing is', async () => {
    for (const [path, expected] of [
      ['Makefile', ['Makefile of 7']],
      ['', []],
    ] as const) {
      const { host, reports } = reporting({}, async () => resultWith(path));
      await host.run('make');
      expect(reports).toEqual(expected);
    }
  });

  it('by a cancelled command is reported with what ended it', async () => {
    const error = new AcodeError('ACODE-SBX-014', { result: resultWith('Makefile') });
    const { host, reports } = reporting({}, () => Promise.reject(error));
    await expect(host.run('make')).rejects.toBe(error);
    expect(reports).toEqual(['Makefile of 7']);
  });

  it('by a command in a sandbox, to its end or in the background, is reported', async () => {
    const handle = { result: Promise.resolve(resultWith('late')) } as unknown as InsideHandle;
    const run = ((_: unknown, request?: { background?: boolean }) =>
      Promise.resolve(request?.background === true ? handle : resultWith('soon'))) as InsideSandbox['commands']['run'];
    const { host, reports } = reporting({ commands: { run } });
    const { commands } = await host.create();
    await commands.run('make');
    await (
      await commands.run('make', { background: true })
    ).result;
    await new Promise(setImmediate);
    expect(reports).toEqual(['soon of 7', 'late of 7']);
  });

  it('and found late is in the next result, once', async () => {
    const late = [left('found-late')];
    const run = (() => Promise.resolve(resultWith(''))) as unknown as InsideSandbox['commands']['run'];
    const { host: inner } = reporting({ commands: { run } }, async () => resultWith('now'));
    const host = reportingHost(
      inner,
      () => undefined,
      () => late.splice(0),
    );
    const paths = ({ riskyChanges }: RunResult): string[] => riskyChanges.map(({ path }) => path);
    expect(paths(await host.run('make'))).toEqual(['found-late', 'now']);
    expect(paths(await host.run('make'))).toEqual(['now']);
    late.push(left('later'));
    expect(paths(await (await host.create()).commands.run('make'))).toEqual(['later']);
  });

  it('after the last command of a sandbox is reported once, however it ends', async () => {
    const { host, reports } = reporting({ riskyChanges: [left('after')] });
    const sandbox = await host.create();
    await Promise.all([sandbox.kill(), sandbox.kill()]);
    expect(reports).toEqual(['after of none']);
    const expired = reporting({ riskyChanges: [left('after')], ended: Promise.resolve('its lease expired') });
    await expired.host.create();
    await new Promise(setImmediate);
    expect(expired.reports).toEqual(['after of none']);
  });
});
