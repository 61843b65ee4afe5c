// The files of sandboxes on real engines: what they can do, the errors of node’s own, and file systems that nobody may write to.

import * as real from 'node:fs/promises';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Sandbox } from '@acode/sandbox';
import { TestHost, engines, images, mainEngine, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import { behaviours } from './behaviours.ts';
import type { FileTarget } from './behaviours.ts';
import { ACTS, CLEARED, GROUND, NAMES_ANOTHER, PATHS, outcomeOf } from './mistakes.ts';

// Every engine with every image takes minutes; the programs differ by image and not by engine.
const places = engines.flatMap(engine =>
  (everything ? [images.busybox, images.debian] : [images.busybox]).map(image => ({
    engine,
    image,
    name: `${engine.name} with ${image}`,
  })),
);

async function opened(engine: TestEngine, image: string): Promise<{ host: TestHost; sandbox: Sandbox }> {
  const host = await TestHost.open(engine, { config: { sandbox: { images: { default: image } } } });
  return { host, sandbox: await host.acode.create() };
}

/** The workspace of a sandbox, which is empty again when the ground is let go. */
async function targetIn(sandbox: Sandbox): Promise<FileTarget> {
  const sh = async (script: string): Promise<void> => {
    const { exitCode, stderr } = await sandbox.commands.run(script);
    if (exitCode !== 0) throw new Error(stderr);
  };
  return {
    files: sandbox.files,
    root: await sandbox.files.realpath('.'),
    sh,
    [Symbol.asyncDispose]: () => sh('chmod -R u+rwX . && rm -rf ./* ./.[!.]* ./..?*'),
  };
}

// What a call does with each path is shown on this host with the same programs (on-host.test.ts); of an engine one call of each
// kind is enough to show that errors and results come through it.
const CALLS = ['readFile', 'writeFile', 'readdir with types', 'mkdir deeper', 'rm of everything', 'rename', 'lstat'];
const acts = Object.entries(ACTS).filter(([name]) => everything || CALLS.includes(name));

describe.skipIf(withoutEngines).each(places)('files on $name', ({ engine, image }) => {
  let host: TestHost;
  let sandbox: Sandbox;
  beforeAll(async () => {
    ({ host, sandbox } = await opened(engine, image));
  });
  afterAll(() => host[Symbol.asyncDispose]());

  behaviours(() => targetIn(sandbox));

  describe('mistakes', () => {
    let own: string;

    beforeAll(() => {
      own = mkdtempSync('/var/tmp/acode-test-ground-');
    });

    afterAll(() => {
      chmodSync(own, 0o700);
      execFileSync('/bin/sh', ['-c', CLEARED, 'sh', own]);
      rmSync(own, { recursive: true, force: true });
    });

    // One ground for each call, and all paths in one test: a table of a thousand tests would say no more.
    it.each(acts)('%s makes are node’s', async (name, act) => {
      const here = mkdtempSync(join(own, 'ground-'));
      // As long as the other, or a path that is too long for one would not be for the other.
      const there = `/tmp/${'g'.repeat(here.length - '/tmp/'.length - 2)}${Object.keys(ACTS).indexOf(name) + 10}`;
      execFileSync('/bin/sh', ['-c', GROUND, 'sh', here]);
      await sandbox.files.mkdir(there);
      const made = await sandbox.commands.run(['/bin/sh', '-c', GROUND, 'sh', there]);
      expect(made).toMatchObject({ exitCode: 0 });
      for (const [kind, path] of Object.entries(PATHS)) {
        if (name === 'realpath' && kind === 'a path that is too long') continue;
        const expected = await outcomeOf(act, real, path, here);
        const found = await outcomeOf(act, sandbox.files, path, there);
        if (NAMES_ANOTHER.test(name))
          expect({ ...Object(found), message: '' }, kind).toEqual({ ...Object(expected), message: '' });
        else expect(found, kind).toEqual(expected);
      }
    });

    it('of space leave nothing of a file that was too large', async () => {
      const large = join(own, 'large');
      await real.writeFile(large, '');
      await real.truncate(large, 2 * 1024 ** 3);
      const before = await sandbox.files.readdir('/tmp');
      await expect(sandbox.files.upload(large, '/tmp/large')).rejects.toMatchObject({
        code: 'ENOSPC',
        syscall: 'write',
      });
      expect(await sandbox.files.readdir('/tmp')).toEqual(before);
      // The control: there is room again.
      await sandbox.files.writeFile('/tmp/small', Buffer.alloc(1_000_000));
    });

    it('on a file system that nobody may write to are EROFS', async () => {
      const { files } = sandbox;
      const refused = { code: 'EROFS' };
      await expect(files.writeFile('/etc/new', 'x')).rejects.toMatchObject({ ...refused, syscall: 'open' });
      await expect(files.mkdir('/etc/new')).rejects.toMatchObject({ ...refused, syscall: 'mkdir' });
      await expect(files.symlink('x', '/etc/new')).rejects.toMatchObject({ ...refused, syscall: 'symlink' });
      await expect(files.rename('/etc/passwd', '/etc/new')).rejects.toMatchObject({ ...refused, syscall: 'rename' });
      // The control: the same calls where writing is allowed.
      await files.writeFile('/tmp/new', 'x');
      await files.rename('/tmp/new', '/tmp/newer');
    });
  });
});

describe.skipIf(withoutEngines)('an image without a shell', () => {
  it('has no files that could be reached, and says why', async () => {
    await using host = await TestHost.open(mainEngine, {
      config: { sandbox: { images: { default: images.noshell } } },
    });
    const reading = host.acode.create().then(sandbox => sandbox.files.readFile('x'));
    // Refused where it is made, or where it is used: never a call that hangs.
    await expect(reading).rejects.toMatchObject({ code: expect.stringMatching(/^ACODE-/) as string });
  });
});

describe.skipIf(withoutEngines)('a sandbox whose tar lies', () => {
  it('writes nothing outside the target, and a good tar beside it does arrive', async () => {
    await using host = await TestHost.open(mainEngine);
    await using sandbox = await host.acode.create();
    const out = mkdtempSync('/var/tmp/acode-test-out-');
    try {
      // What a command left behind: a tree full of ways out.
      const script = `mkdir -p t/sub && cd t && echo good >good && ln -s /etc/passwd link && ln -s ../.. sub/up && mkfifo fifo && echo x >s && { chmod 6755 s || true; }`;
      expect(await sandbox.commands.run(script)).toMatchObject({ exitCode: 0 });
      const report = await sandbox.files.download('t', join(out, 'target'));
      expect(report.skipped.map(({ path }) => path).sort()).toEqual(['fifo', 'link', 'sub/up']);
      expect((await real.readdir(join(out, 'target'))).sort()).toEqual(['good', 's', 'sub']);
      expect((await real.stat(join(out, 'target/s'))).mode & 0o7000).toBe(0);
      expect(await real.readdir(out)).toEqual(['target']);
    } finally {
      rmSync(out, { recursive: true, force: true });
    }
  });
});
