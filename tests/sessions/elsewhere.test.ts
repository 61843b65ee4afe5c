// The commands of a kept sandbox from another process: listed, read from their first byte, written to, killed and waited for.

import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Bench } from '../cli/bench.ts';
import { withoutEngines } from '../support/engines.ts';
import { benchAt, client, done, everythingOf } from './clients.ts';
import type { Client, ClientTask } from './clients.ts';
import { until } from '../support/waiting.ts';
import { places } from './places.ts';

describe.skipIf(withoutEngines).each(places)('a command of another process on $name', place => {
  let bench: Bench;
  let owner: Client | null = null;

  beforeAll(async () => {
    bench = await benchAt(place);
  });

  afterEach(async () => {
    owner?.child.kill('SIGKILL');
    await owner?.ended;
    if (owner) await done(bench, { what: 'use', sandbox: owner.said.id, kill: true });
    owner = null;
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  const start = async (command: string): Promise<string> => {
    owner = await client(bench, { what: 'keep', commands: [command], stay: true });
    return owner.said.id;
  };
  const joined = (sandbox: string, task: Partial<ClientTask>, heard?: () => void): Promise<Record<string, unknown>[]> =>
    everythingOf(bench, { what: 'join', sandbox, ...task }, heard);
  const socketsOf = (sandbox: string): string[] => {
    const directory = join(bench.env['XDG_RUNTIME_DIR'] ?? '', 'acode', 'commands');
    const first = sandbox.replaceAll('-', '').slice(0, 16);
    // One that is being made has another name, until it is what it should be.
    const names = readdirSync(directory).filter(name => name.startsWith(first) && !name.endsWith('~'));
    return names.map(name => join(directory, name));
  };

  it('is listed, read from its first byte, written to, and waited for', async () => {
    const sandbox = await start('echo first; read line; echo "got $line"; echo err >&2; exit 3');
    const [there, ended] = await joined(sandbox, { until: 'first\n', write: 'hello\n' });
    expect(there).toMatchObject({ commands: [{ cwd: '.', command: expect.stringContaining('echo first') }] });
    expect(ended).toEqual({ exitCode: 3, stdout: 'first\ngot hello\n', stderr: 'err\n' });
  });

  it('is killed by a signal, and heard of by both', async () => {
    const sandbox = await start('trap "echo told; exit 7" TERM; echo up; while :; do sleep 0.05; done');
    const [, ended] = await joined(sandbox, { until: 'up\n', signal: 'SIGTERM' });
    expect(ended).toMatchObject({ exitCode: 7, stdout: 'up\ntold\n' });
    expect(await joined(sandbox, {})).toMatchObject([{ error: 'ACODE-SBX-017' }]);
  });

  it('goes on when whoever was connected hangs up, and is there for the next', async () => {
    const sandbox = await start('echo up; read line; echo over');
    expect(await joined(sandbox, { until: 'up\n', leave: true })).toHaveLength(1);
    const [, ended] = await joined(sandbox, { until: 'up\n', write: 'x\n' });
    expect(ended).toMatchObject({ exitCode: 0, stdout: 'up\nover\n' });
  });

  it('loses nothing of what is not text', async () => {
    const sandbox = await start('head -c 300000 /dev/zero | tr "\\0" "\\377"; echo; read line; exit 4');
    const [there, ended] = await joined(sandbox, { until: '\n', write: 'x\n' });
    expect(there).toMatchObject({ seenBytes: 300_001 });
    expect(ended).toMatchObject({ exitCode: 4, bytes: 300_001 });
  });

  it('is told of where the process that has it is gone, and nobody offers it any more', async () => {
    const sandbox = await start('echo up; sleep 600');
    await until(() => socketsOf(sandbox).length > 0);
    expect(socketsOf(sandbox).map(path => statSync(path).mode & 0o777)).toEqual([0o600]);
    const [, ended] = await joined(sandbox, { until: 'up\n' }, () => owner?.child.kill('SIGKILL'));
    expect(ended).toMatchObject({ error: 'ACODE-SBX-026', message: expect.stringContaining('does not answer') });
    expect(await joined(sandbox, {})).toMatchObject([{ error: 'ACODE-SBX-017' }]);
    expect(socketsOf(sandbox)).toEqual([]);
  });
});
