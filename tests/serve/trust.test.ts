// A server is used where it is the user’s own and up to date, and nowhere else.

import { chmodSync, lstatSync, mkdirSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ServedBench, places } from './served-bench.ts';

describe('a server', () => {
  const place = places[0];
  let served: ServedBench;

  beforeEach(async () => {
    if (!place) throw new Error('there is no place to serve');
    served = await ServedBench.at(place);
  });

  afterEach(async () => {
    await served[Symbol.asyncDispose]();
  });

  const socket = (): string => served.sockets[0] ?? '';
  const run = () => served.call(['run', '--', 'echo', 'hi']);
  const impostor = async (path: string): Promise<{ server: Server; asked: () => number }> => {
    let asked = 0;
    const server = createServer(client => {
      asked++;
      client.destroy();
    });
    await new Promise<void>(resolve => server.listen(path, resolve));
    return { server, asked: () => asked };
  };

  it('is the user’s alone: its socket and the directory are nobody else’s', () => {
    expect(lstatSync(socket()).mode & 0o777).toBe(0o600);
    expect(lstatSync(served.directory).mode & 0o777).toBe(0o700);
  });

  it.each([0o660, 0o606, 0o777])('whose socket has mode %o is not used, and that is said', async mode => {
    chmodSync(socket(), mode);
    const { status, stdout, stderr } = await run();
    expect({ status, stdout: stdout.toString() }).toEqual({ status: 0, stdout: 'hi\n' });
    expect(stderr).toContain('acode: warning: the server of this workspace is not used');
    expect(await served.isWarm()).toBe(false);
    chmodSync(socket(), 0o600);
    expect(await run()).toMatchObject({ status: 0, stderr: '' });
    await served.untilWarm();
  });

  it('in a directory that others can enter is not used, and that is said', async () => {
    chmodSync(served.directory, 0o755);
    expect((await run()).stderr).toContain('can be used by others (mode 0755)');
  });

  it('behind a link is not asked anything', async () => {
    const path = socket();
    const elsewhere = join(served.bench.workspace, 'elsewhere.sock');
    const { server, asked } = await impostor(elsewhere);
    renameSync(path, `${path}.aside`);
    symlinkSync(elsewhere, path);
    expect((await run()).stderr).toContain('is not a socket');
    expect(asked()).toBe(0);
    // The control: the same impostor in the place itself is asked, and hangs up; nobody is told to go on.
    rmSync(path);
    server.close();
    const there = await impostor(path);
    chmodSync(path, 0o600);
    expect(await run()).toMatchObject({ status: 0, stderr: '' });
    expect(there.asked()).toBe(1);
    there.server.close();
    rmSync(path, { force: true });
    renameSync(`${path}.aside`, path);
    await served.untilWarm();
  });

  it('in a directory that is a link is not used', async () => {
    renameSync(served.directory, `${served.directory}.real`);
    symlinkSync(`${served.directory}.real`, served.directory);
    expect((await run()).stderr).toContain('is not a directory that can be opened');
    rmSync(served.directory);
    renameSync(`${served.directory}.real`, served.directory);
    await served.untilWarm();
  });

  it('follows the user’s configuration from the moment it is changed', async () => {
    const files = async (): Promise<string> => (await served.call(['run', 'ulimit -n'])).stdout.toString().trim();
    expect(await files()).toBe('8192');
    for (const open_files of [99, 98]) {
      await served.bench.configure({ ...place?.config, defaults: { open_files } });
      expect(await files()).toBe(String(open_files));
    }
    await served.untilWarm();
    expect(await files()).toBe('98');
  });

  it('runs nothing while the configuration is wrong, and goes on when it is right', async () => {
    await served.bench.configure({ ...place?.config, nonsense: {} });
    const { status, stderr } = await run();
    expect(status).toBe(125);
    expect(stderr).toContain('ACODE-SBX-013');
    await served.bench.configure(place?.config ?? {});
    expect(await run()).toMatchObject({ status: 0, stderr: '' });
    await served.untilWarm();
  });

  it('follows the repository’s file, which only tightens', async () => {
    await served.bench.repositoryFile('sandbox: { defaults: { open_files: 77 } }\n');
    expect((await served.call(['run', 'ulimit -n'])).stdout.toString()).toBe('77\n');
  });

  it('is for one workspace and one environment', async () => {
    const other = join(served.bench.workspace, '..', 'other');
    mkdirSync(join(other, '.git'), { recursive: true });
    writeFileSync(join(other, 'mine'), '');
    const { stdout } = await served.call(['run', '--json', 'ls'], { cwd: other });
    expect(JSON.parse(stdout.toString())).toMatchObject({ stdout: 'mine\n', warm: false });
    const mode = await served.call(['run', '--json', 'ls'], { env: { ACODE_MODE: 'airgapped' } });
    expect(JSON.parse(mode.stdout.toString())).toMatchObject({ warm: false });
    expect(await served.isWarm()).toBe(true);
    expect(readdirSync(served.directory).filter(name => name.startsWith('serve-'))).toHaveLength(1);
  });
});
