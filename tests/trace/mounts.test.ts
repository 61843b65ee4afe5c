// Mounts as a user configures them, and what is said where one is refused: which path, why, and what to do next.

import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LogFields } from '@acode/sandbox';
import { TestHost, images, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';

type Mount = { source: string; target: string; readOnly?: boolean };

describe.skipIf(withoutEngines)('a mount', () => {
  const lines: { level: string; message: string; fields: LogFields }[] = [];
  let shared: string;
  let socket: Server;
  let proxy: EngineProxy;
  let host: TestHost;

  beforeAll(async () => {
    shared = mkdtempSync('/var/tmp/acode-shared-');
    for (const name of ['data', 'writable', 'listening']) mkdirSync(join(shared, name));
    // Its name begins like the directory that is allowed.
    mkdirSync(`${shared}-other`);
    writeFileSync(join(shared, 'data/file'), 'shared');
    socket = createServer();
    await new Promise<void>(resolve => socket.listen(join(shared, 'listening/engine'), resolve));
    proxy = await EngineProxy.start(mainEngine.socket);
    const write = (level: string) => (fields: LogFields, message: string) =>
      void lines.push({ level, message, fields });
    host = await TestHost.open(mainEngine, {
      engine: { socket: proxy.socket },
      logger: { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') },
      config: {
        sandbox: {
          images: { default: images.busybox },
          mounts: {
            workspace_mode: 'ro',
            allowed_host_roots: [shared],
            additional: [
              { source: join(shared, 'data'), target: '/data' },
              { source: join(shared, 'writable'), target: '/writable', readonly: false },
            ],
          },
        },
      },
    });
    mkdirSync(host.file('.git'));
  });
  afterAll(async () => {
    await host[Symbol.asyncDispose]();
    await proxy.close();
    await new Promise(resolve => socket.close(resolve));
    for (const directory of [shared, `${shared}-other`]) rmSync(directory, { recursive: true });
  });

  const creations = () => proxy.requests.filter(({ path }) => path.includes('/containers/create')).length;

  it('of the workspace is read-only where the configuration says so, and writable where a request does', async () => {
    expect(await host.acode.run('touch x')).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining('Read-only file system'),
    });
    expect(existsSync(host.file('x'))).toBe(false);
    expect(await host.acode.run('touch x', { policy: { workspace: 'direct' } })).toMatchObject({ exitCode: 0 });
    expect(existsSync(host.file('x'))).toBe(true);
  });

  it('of the configuration is there, read-only unless it says otherwise, each a private bind', async () => {
    await using command = await host.acode.spawn('cat /data/file; touch /data/x; touch /writable/x; cat');
    const [mine] = await host.containers();
    const made = await withEngine(mainEngine, direct =>
      direct.containers.inspect(mine?.id ?? '', { signal: AbortSignal.timeout(60_000) }),
    );
    // With the lists of users and groups.
    expect(made.Mounts).toHaveLength(5);
    for (const mount of made.Mounts) expect(mount).toMatchObject({ Type: 'bind', Propagation: 'rprivate' });
    expect(made.Mounts).toContainEqual(expect.objectContaining({ Destination: '/data', RW: false }));
    expect(made.Mounts).toContainEqual(expect.objectContaining({ Destination: '/writable', RW: true }));
    await command.closeStdin();
    expect(await command.result).toMatchObject({ stdout: 'shared', stderr: expect.stringContaining('/data/x') });
    expect(existsSync(join(shared, 'data/x'))).toBe(false);
    expect(existsSync(join(shared, 'writable/x'))).toBe(true);
  });

  it.each<[string, string, (shared: string) => Mount, RegExp, RegExp]>([
    ['is missing', 'Missing', s => ({ source: `${s}/none`, target: '/m' }), /\/none .*does not exist/, /Make it first/],
    ['is the system’s', 'ForbiddenPath', () => ({ source: '/etc', target: '/m' }), /\/etc .*: /, /Leave the mount out/],
    [
      'was not allowed',
      'OutsideAllowedRoots',
      s => ({ source: `${s}-other`, target: '/m' }),
      /-other .*outside the workspace/,
      /sandbox\.mounts\.allowed_host_roots/,
    ],
    [
      'holds a socket',
      'DockerSocketMounted',
      s => ({ source: `${s}/listening`, target: '/m' }),
      /listening .*holds the socket engine/,
      /Remove .*listening\/engine/,
    ],
    [
      'is written for another system',
      'HostPathEscape',
      () => ({ source: 'C:\\Windows', target: '/m' }),
      /C:\\Windows .*another system/,
      /with slashes/,
    ],
    [
      'is a way round what is protected',
      'ProtectedPath',
      () => ({ source: '.git', target: '/m', readOnly: false }),
      /\.git .*read-only inside/,
      /Mount it read-only/,
    ],
    [
      'is wanted in a place that is taken',
      'ForbiddenTarget',
      s => ({ source: `${s}/data`, target: '/proc/x' }),
      /\/proc\/x .*: /,
      /Choose a directory of its own/,
    ],
  ])('whose source or target %s is refused with path, reason and remedy, and nothing is made', async (...of) => {
    const [, violation, mount, message, hint] = of;
    lines.length = 0;
    const before = creations();
    await expect(host.acode.run(['true'], { policy: { mounts: [mount(shared)] } })).rejects.toMatchObject({
      code: 'ACODE-SBX-003',
      context: { violation },
      message: expect.stringMatching(message),
      hint: expect.stringMatching(hint),
    });
    expect(creations()).toBe(before);
    expect(lines.filter(({ level }) => level === 'error')).toMatchObject([
      { message: 'run error', fields: { errorCode: 'ACODE-SBX-003', errorMessage: expect.stringMatching(message) } },
    ]);
  });
});
