// What the root user meets: refused before anything is touched, unless root’s own file says otherwise. Run by .ci/run as root.

import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import type { WeakenedBackend } from '../../packages/sandbox/src/isolation/backend.ts';
import { NoneBackend } from '../../packages/sandbox/src/isolation/none/backend.ts';
import { UlimitBackend } from '../../packages/sandbox/src/isolation/ulimit/backend.ts';
import { BIN, Bench } from '../cli/bench.ts';
import { LevelBench, OPTIONS } from '../levels/bench.ts';
import { images, mainEngine } from '../support/engines.ts';

const asRoot = process.getuid?.() === 0;

// Every command that runs, makes or removes something.
const REFUSED = [
  ['run', '--', 'true'],
  ['sandbox', 'exec', '--', 'true'],
  ['sandbox', 'create'],
  ['sandbox', 'cleanup'],
  ['sandbox', 'pull', 'busybox'],
  ['sandbox', 'build-image'],
  ['explain', '--', 'true'],
  ['serve'],
  ['mcp'],
];

const audit = z.looseObject({ items: z.array(z.looseObject({ event: z.string().optional() })) });

const LEVELS: readonly (readonly [name: string, make: () => WeakenedBackend])[] = [
  ['ulimit', () => new UlimitBackend(OPTIONS)],
  ['none', () => new NoneBackend(OPTIONS)],
];

describe.skipIf(!asRoot)('root', () => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.at(mainEngine);
  });
  afterEach(() => bench[Symbol.asyncDispose]());

  it('is really what these tests run as', () => {
    expect(execFileSync('/usr/bin/id', ['-u'], { encoding: 'utf8' })).toBe('0\n');
  });

  it.each(REFUSED.map(argv => ({ line: `acode ${argv.join(' ')}`, argv })))(
    'is refused by $line, before the engine is asked or anything is made',
    async ({ argv }) => {
      let connections = 0;
      const socket = join(bench.workspace, 'engine.sock');
      const server: Server = createServer(client => {
        connections += 1;
        client.destroy();
      });
      await new Promise<void>(resolve => server.listen(socket, resolve));
      const { XDG_STATE_HOME: state = '', XDG_RUNTIME_DIR: runtime = '' } = bench.env;
      const before = [state, runtime].map(directory => everythingIn(directory));
      const { status, stderr } = await bench.call(argv, {
        env: { DOCKER_HOST: `unix://${socket}` },
        stdin: Buffer.alloc(0),
      });
      server.close();
      expect({ status, connections }).toEqual({ status: 125, connections: 0 });
      expect(stderr).toContain('ACODE-SBX-011');
      expect(stderr).toContain('acode must not run as root');
      expect([state, runtime].map(directory => everythingIn(directory))).toEqual(before);
    },
  );

  it('may look: help, version, status', async () => {
    for (const argv of [['--help'], ['--version'], ['sandbox', 'status']])
      expect((await bench.call(argv)).status).toBe(0);
  });

  it('is not let in by the file of a repository, nor by a file that is named', async () => {
    await bench.repositoryFile('allow_root: true\n');
    expect((await bench.call(['run', '--', 'true'])).stderr).toContain('ACODE-SBX-011');
    const named = join(bench.workspace, 'other.yml');
    writeFileSync(named, 'allow_root: true\n');
    expect((await bench.call(['run', '--config', named, '--', 'true'])).stderr).toContain('ACODE-SBX-011');
  });

  it('is let in by allow_root in root’s own file, never as root inside, and each start is on record', async () => {
    // Root’s own file is below the home that the system names, which no variable changes: here, in a mount namespace, a home of
    // the test’s own.
    const home = join(bench.workspace, '..', 'root');
    mkdirSync(join(home, '.config', 'acode'), { recursive: true });
    const passwd = join(home, 'passwd');
    writeFileSync(passwd, readFileSync('/etc/passwd', 'utf8').replace(/^root:.*$/m, `root:x:0:0:root:${home}:/bin/sh`));
    // Sandboxes of root run as 1000:1000, who must be able to write here.
    for (const directory of [join(bench.workspace, '..'), bench.workspace]) chmodSync(directory, 0o777);
    const asOwner = (...argv: string[]) => {
      const inside = ['sh', '-c', 'mount --bind "$1" /etc/passwd && shift && exec "$@"', 'sh', passwd];
      return spawnSync('unshare', ['--mount', ...inside, process.execPath, BIN, ...argv], {
        cwd: bench.workspace,
        env: { ...bench.env, XDG_CONFIG_HOME: '' },
        encoding: 'utf8',
        timeout: 60_000,
      });
    };
    const command = ['run', '--image', images.busybox, '--', 'sh', '-c', 'id -u; touch made'];
    const own = join(home, '.config', 'acode', 'config.yml');
    writeFileSync(own, 'allow_root: false\n');
    expect(asOwner(...command).stderr).toContain('ACODE-SBX-011');
    writeFileSync(own, 'allow_root: true\n');
    for (const starts of [1, 2]) {
      const { stdout, stderr, status } = asOwner(...command);
      expect({ status, inside: stdout }, stderr).toEqual({ status: 0, inside: '1000\n' });
      expect(statSync(join(bench.workspace, 'made')).uid).toBe(1000);
      const { items } = audit.parse(JSON.parse(asOwner('audit', 'tail', '--json', '-n', '50').stdout));
      expect(items.filter(({ event }) => event?.startsWith('opened by root'))).toHaveLength(starts);
    }
  });

  it.each(LEVELS)(
    'E11: level %s, whose limits root could raise, is not there for root and starts nothing',
    async (_, make) => {
      expect(await make().probe(AbortSignal.timeout(60_000))).toMatchObject({ available: false });
      await using level = new LevelBench(make());
      await expect(level.waiting()).rejects.toMatchObject({ code: 'ACODE-SBX-011' });
      // The control: root gets past the limit on processes that such a level would set.
      const fork = 'ulimit -u 1; (exec /bin/true) && (exec /bin/true) && echo forked';
      expect(execFileSync('/bin/sh', ['-c', fork], { encoding: 'utf8' })).toBe('forked\n');
    },
  );
});

function everythingIn(directory: string): string[] {
  mkdirSync(directory, { recursive: true });
  return readdirSync(directory, { recursive: true, encoding: 'utf8' }).sort();
}
