// The user inside has an entry in the image’s lists of users and groups, whatever the maker of the image put there.

import { execFileSync } from 'node:child_process';
import {
  createReadStream,
  createWriteStream,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { rootCertificates } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { path } from '../../packages/sandbox/src/isolation/docker/engine/connection.ts';
import { UserNetwork } from '../network/canaries.ts';
import { EngineProxy } from '../support/proxy.ts';
import { TestHost, engines, images, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

const { uid, gid, username } = userInfo();
const state = (): string => join(process.env['XDG_STATE_HOME'] ?? '', 'acode', 'users');
const signal = (): AbortSignal => AbortSignal.timeout(60_000);

/** Makes images of the test image’s files with another `/etc`. */
class ImageMaker implements Disposable {
  readonly #top = mkdtempSync('/var/tmp/acode-image-users-');
  readonly #made: (readonly [TestEngine, string])[] = [];

  async make(name: string, change: (etc: string) => void, engine = mainEngine): Promise<string> {
    const root = join(this.#top, name);
    mkdirSync(root);
    const files = join(this.#top, 'files.tar');
    execFileSync('tar', ['-xf', files, '-C', root, '--exclude=dev/*']);
    change(join(root, 'etc'));
    execFileSync('tar', ['-cf', `${root}.tar`, '-C', root, '.']);
    const repo = `acode-test-users-${process.pid}`;
    await withEngine(engine, async ({ connection }) => {
      const { body } = await connection.stream({
        method: 'POST',
        path: path`/images/create`,
        query: { fromSrc: '-', repo, tag: name, changes: 'ENV PATH=/bin:/usr/bin' },
        body: createReadStream(`${root}.tar`),
        signal: signal(),
        deadlineMs: 60_000,
      });
      for await (const _ of body);
    });
    this.#made.push([engine, `${repo}:${name}`]);
    return `${repo}:${name}`;
  }

  async fetch(): Promise<void> {
    await withEngine(mainEngine, async ({ containers, connection }) => {
      const { id } = await containers.create({ Image: images.busybox, Cmd: ['true'] }, { signal: signal() });
      try {
        const { body } = await connection.stream({
          method: 'GET',
          path: path`/containers/${id}/export`,
          signal: signal(),
          deadlineMs: 60_000,
        });
        await pipeline(body, createWriteStream(join(this.#top, 'files.tar')));
      } finally {
        await containers.remove(id, { force: true, volumes: true, signal: signal() });
      }
    });
  }

  async removeAll(): Promise<void> {
    for (const [engine, reference] of this.#made)
      await withEngine(engine, ({ images: there }) =>
        there.remove(reference, { signal: signal(), deadlineMs: 60_000 }),
      );
  }

  [Symbol.dispose](): void {
    rmSync(this.#top, { recursive: true, force: true });
  }
}

describe.skipIf(withoutEngines)('the lists of users and groups', () => {
  let host: TestHost;
  const maker = new ImageMaker();
  const canary = `/var/tmp/acode-image-users-canary-${process.pid}`;
  beforeAll(async () => {
    writeFileSync(canary, 'canary:x:4711:4711:of the host:/:/bin/sh\n');
    host = await TestHost.open(mainEngine);
    await maker.fetch();
  });
  afterAll(async () => {
    rmSync(canary, { force: true });
    await host[Symbol.asyncDispose]();
    await maker.removeAll();
    maker[Symbol.dispose]();
  });
  const seen = async (image: string) => {
    const request = { policy: { image } };
    const { stdout, exitCode } = await host.acode.run('id -un; id -gn; cat /etc/passwd /etc/group 2>&1', request);
    expect(exitCode).not.toBeNull();
    const { notes, spec } = await host.acode.explain('true', request);
    const mounts = spec.mounts.filter(({ purpose }) => purpose === 'identity').map(({ target }) => target);
    return { stdout, mounts, notes: notes.join('\n') };
  };

  it('of an ordinary image are its own with one line more, read once, and can be written by nobody inside', async () => {
    const before = await host.acode.explain('true');
    expect(before.notes.join('\n')).toContain('has not read the user lists of this image yet');
    const inside = await seen(images.busybox);
    expect(inside.stdout.split('\n').slice(0, 4)).toEqual([
      username,
      username,
      'root:x:0:0:root:/root:/bin/sh',
      `${username}:x:${uid}:${gid}:${username}:/home/sandbox:/bin/sh`,
    ]);
    expect(inside).toMatchObject({
      mounts: ['/etc/passwd', '/etc/group'],
      notes: expect.not.stringContaining('entry'),
    });
    const kept = readdirSync(state());
    const change = await host.acode.run(
      'for f in passwd group; do echo x >> /etc/$f; chmod 666 /etc/$f; rm -f /etc/$f; done',
    );
    expect(change.stderr.match(/Read-only file system|Permission denied/g)).toHaveLength(6);
    expect((await seen(images.busybox)).stdout).toBe(inside.stdout);
    expect(readdirSync(state())).toEqual(kept);
  });

  it('of a hostile image show nothing of the host, and never keep the image from being used', async () => {
    const cases: readonly (readonly [string, (etc: string) => void, object])[] = [
      [
        'links',
        etc => {
          rmSync(join(etc, 'passwd'));
          symlinkSync(`../../../../..${canary}`, join(etc, 'passwd'));
          rmSync(join(etc, 'group'));
          mkdirSync(join(etc, 'group'));
        },
        {
          mounts: [],
          notes: expect.stringMatching(/passwd: the image’s own is a symbolic link.*group: .* is a directory/),
        },
      ],
      [
        'bytes',
        etc => {
          writeFileSync(join(etc, 'passwd'), 'x:x:9:9:::\n'.repeat(40_000));
          writeFileSync(join(etc, 'group'), Buffer.from([0x72, 0, 0xff]));
        },
        { mounts: [], notes: expect.stringMatching(/larger than 256 KiB.*is not text/) },
      ],
      [
        'taken',
        etc => {
          writeFileSync(join(etc, 'passwd'), `known:x:${uid}:${gid}::/home/known:/bin/sh\n`);
          writeFileSync(join(etc, 'group'), `${username}:x:7:`);
        },
        {
          stdout: expect.stringMatching(new RegExp(`^known\nsandbox\n(?:.*\n)*${username}:x:7:\nsandbox:x:${gid}:\n$`)),
          mounts: ['/etc/group'],
        },
      ],
      [
        'none',
        etc => rmSync(etc, { recursive: true }),
        {
          stdout: `${username}\n${username}\n${username}:x:${uid}:${gid}:${username}:/home/sandbox:/bin/sh\n${username}:x:${gid}:\n`,
          mounts: ['/etc/passwd', '/etc/group'],
        },
      ],
    ];
    for (const [name, change, expected] of cases) {
      const inside = await seen(await maker.make(name, change));
      expect(inside, name).toMatchObject(expected);
      expect(inside.stdout, name).not.toContain('4711');
    }
    const kept = readdirSync(state(), { recursive: true, withFileTypes: true }).filter(entry => entry.isFile());
    for (const { parentPath, name } of kept) expect(readFileSync(join(parentPath, name), 'utf8')).not.toContain('4711');
  });

  it('come with CA certificates, which are left out where the image has a link on the way: it would lead to the host', async () => {
    // The oldest one makes what is missing beyond the link; newer ones refuse to start.
    const engine = engines[0] ?? mainEngine;
    const link = (etc: string): void => symlinkSync('/workspace/through/link', join(etc, 'acode'));
    const image = await maker.make('ca-link', link, engine);
    const directory = mkdtempSync('/var/tmp/acode-image-users-ca-');
    const bundle = join(directory, 'ca.pem');
    writeFileSync(bundle, rootCertificates[0] ?? '', { mode: 0o644 });
    await using network = await UserNetwork.create(engine);
    const config = { sandbox: { network: { allowed_networks: [network.name], ca_file: bundle } } };
    await using open = await TestHost.open(engine, { config });
    const asked = (of: string) => ({ policy: { image: of, network: { name: network.name } } });
    const inside = await open.acode.run('ls /etc/acode/ca.pem; ls /workspace', asked(image));
    expect(inside.stdout).not.toContain('through');
    expect(readdirSync(open.workspace)).not.toContain('through');
    const { notes, spec } = await open.acode.explain('true', asked(image));
    expect(notes.join('\n')).toContain('ca_file are not mounted: the image’s /etc/acode is a symbolic link');
    expect(spec.mounts.filter(({ purpose }) => purpose === 'ca')).toEqual([]);
    expect((await open.acode.run('ls /etc/acode/ca.pem', asked(images.busybox))).exitCode).toBe(0);
    rmSync(directory, { recursive: true });
  });

  it('are left out, and that is said, where the engine does not see the state directory as it is', async () => {
    const before = process.env['XDG_STATE_HOME'];
    try {
      // There is nothing at that path, and there is something else.
      for (const elsewhere of [(source: string) => `${source}-unseen`, () => host.workspace]) {
        const unseen = mkdtempSync('/var/tmp/acode-unseen-');
        process.env['XDG_STATE_HOME'] = unseen;
        await using proxy = await EngineProxy.start(mainEngine.socket);
        proxy.onRequest((_method, _path, body) => {
          const source = /"Source":"([^"]+\/users\/\.[0-9a-f]+)"/.exec(body.toString())?.[1];
          return source === undefined ? undefined : Buffer.from(body.toString().replace(source, elsewhere(source)));
        });
        await using other = await TestHost.open(mainEngine, { engine: { socket: proxy.socket } });
        const { stdout } = await other.acode.run('whoami 2>&1; grep -c /etc/passwd /proc/mounts');
        expect(stdout).toMatch(/unknown uid.*\n0\n$/);
        expect((await other.acode.explain('true')).notes.join('\n')).toContain('cannot see acode’s state directory');
        rmSync(unseen, { recursive: true });
      }
    } finally {
      process.env['XDG_STATE_HOME'] = before;
    }
  });
});
