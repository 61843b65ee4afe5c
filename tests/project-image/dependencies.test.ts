// The dependencies of a project image in the workspace: there for the run, and nothing of them on the host.

import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { policyFrom } from '@acode/sandbox';
import type { PolicyFields, PolicyInput } from '@acode/sandbox';
import { Builds } from '../../packages/sandbox/src/isolation/docker/engine/images.ts';
import { projectReference } from '../../packages/sandbox/src/policy/pull.ts';
import { tarHeader } from '../../packages/sandbox/src/workspace/archive/context-tar.ts';
import { tarEnd, tarPadding } from '../../packages/sandbox/src/workspace/archive/tar-read.ts';
import { everyEngine, images, mainEngine, podman, withEngine, withoutEngines } from '../support/engines.ts';
import { ProjectBench } from './bench.ts';

const INSTALL =
  'mkdir -p node_modules/dep node_modules/.bin packages/a/node_modules/own && echo from the image > node_modules/dep/index && ' +
  'printf "#!/bin/sh\\necho program\\n" > node_modules/.bin/tool && chmod +x node_modules/.bin/tool && ' +
  'echo nested > packages/a/node_modules/own/index && ln -s ../packages/a node_modules/a && mkdir dist && touch dist/output';

const targets = everyEngine.flatMap(engine => [
  { engine, runtime: undefined, on: engine.name },
  ...(engine.runtimes?.includes('runsc') ? [{ engine, runtime: 'runsc', on: `gVisor on ${engine.name}` }] : []),
]);

async function project(bench: ProjectBench): Promise<void> {
  bench.put('package.json', '{}');
  bench.put('package-lock.json', 'one');
  bench.put('packages/a/package.json', 'as it is now');
  await bench.build({ install: { command: INSTALL } });
}

describe.skipIf(withoutEngines).each(targets)('dependencies of a project image on $on', ({ engine, runtime }) => {
  it('are where the workspace expects them, can be written for the run, and leave the host as it was', async () => {
    await using bench = await ProjectBench.at(engine);
    await project(bench);
    bench.put('packages/a/package.json', 'changed since');
    const line =
      'cat node_modules/dep/index packages/a/node_modules/own/index node_modules/a/package.json; node_modules/.bin/tool; ' +
      'echo kept > node_modules/.cache && cat node_modules/.cache; echo made > made; ls -d dist';
    const policy: PolicyInput = { deps: true, ...(runtime ? { runtime } : {}) };
    const { stdout, exitCode, stderr } = await bench.host.acode.run(line, { policy });
    expect([stdout, exitCode], stderr).toEqual(['from the image\nnested\nchanged sinceprogram\nkept\n', 1]);
    // Build output of the image does not cover the workspace’s own.
    expect(stderr).toContain('dist');
    expect(readFileSync(bench.host.file('made'), 'utf8')).toBe('made\n');
    // On the host there is an empty directory to mount on, and it is the user’s.
    expect(readdirSync(bench.host.file('node_modules'))).toEqual([]);
    expect(lstatSync(bench.host.file('node_modules')).uid).toBe(process.getuid?.());
    // A second run sees the image’s again, and not what the first one wrote.
    const again = await bench.host.acode.run('ls -A node_modules', { policy });
    expect(again.stdout).toBe('.bin\na\ndep\n');
    // The control: without them, there is nothing.
    const without = await bench.host.acode.run('ls -A node_modules; node_modules/.bin/tool', {
      policy: { ...(runtime ? { runtime } : {}) },
    });
    expect([without.stdout, without.exitCode]).toEqual(['', 127]);
    // Nothing of it is left on the engine, once what is removed off the caller’s path is gone.
    const left = async (): Promise<string[]> => {
      const labels = [`acode.session=${bench.host.session}`];
      const found = await withEngine(engine, on => on.volumes.list({ labels, signal: AbortSignal.timeout(10_000) }));
      return found.map(({ Name }) => Name).filter(name => name.includes('-deps'));
    };
    await expect.poll(left, { timeout: 10_000 }).toEqual([]);
  });
});

describe.skipIf(withoutEngines)('dependencies of a project image', () => {
  const policy: PolicyInput = { deps: true };

  it('cover the workspace’s own for the run, say so, and say when they are out of date', async () => {
    await using bench = await ProjectBench.at(mainEngine);
    await project(bench);
    bench.put('node_modules/mine/index', 'the host’s');
    const notes = async (): Promise<string> => (await bench.host.acode.explain('true', { policy })).notes.join('\n');
    expect(await notes()).toMatch(/For this run, node_modules is that of the project image/);
    expect(await notes()).not.toMatch(/out of date/);
    bench.put('package-lock.json', 'two');
    expect(await notes()).toMatch(/out of date: lockfiles have changed/);
    const { stdout } = await bench.host.acode.run('ls node_modules; rm -rf node_modules/* 2>&1 | head -1', {
      policy: { ...policy, workspace: 'readonly' },
    });
    expect(stdout).toMatch(/^a\ndep\n/);
    expect(readFileSync(bench.host.file('node_modules/mine/index'), 'utf8')).toBe('the host’s');
  });

  it('never follow a link of the workspace, and are left out there', async () => {
    await using bench = await ProjectBench.at(mainEngine);
    await project(bench);
    mkdirSync(bench.host.file('elsewhere'));
    symlinkSync('elsewhere', bench.host.file('node_modules'));
    const { notes, spec } = await bench.host.acode.explain('true', { policy });
    expect(notes.join('\n')).toMatch(/no directory for them: node_modules\./);
    expect(spec.dependencies).toEqual([
      { source: '/project/packages/a/node_modules', target: '/workspace/packages/a/node_modules' },
    ]);
    rmSync(bench.host.file('packages'), { recursive: true });
    expect((await bench.host.acode.explain('true', { policy })).spec.dependencies ?? []).toEqual([]);
    expect(readdirSync(bench.host.file('elsewhere'))).toEqual([]);
  });

  it('are refused where there is no image, none in it, another image, or a sandbox that outlives the session', async () => {
    await using bench = await ProjectBench.at(mainEngine);
    const refused = (more: PolicyFields = {}) =>
      bench.host.acode.run('true', { policy: policyFrom({ deps: true, ...more }) });
    await expect(refused()).rejects.toMatchObject({
      code: 'ACODE-SBX-009',
      hint: expect.stringContaining('build-image'),
    });
    bench.put('a');
    await bench.build();
    await expect(refused()).rejects.toMatchObject({
      code: 'ACODE-SBX-017',
      message: expect.stringContaining('no dependencies'),
    });
    await expect(refused({ image: 'busybox' })).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    await bench.build({ install: { command: INSTALL } });
    await expect(bench.host.acode.create({ policy: { deps: true }, keep: true })).rejects.toMatchObject({
      code: 'ACODE-SBX-016',
    });
    await expect(refused()).resolves.toMatchObject({ exitCode: 0 });
    if (podman === null) return;
    await using other = await ProjectBench.at(podman);
    await expect(other.host.acode.run('true', { policy })).rejects.toMatchObject({
      code: 'ACODE-SBX-016',
      message: expect.stringContaining('Podman'),
    });
  });

  // The kernel follows a link in a layer’s path on the engine’s host, as root: behind it could be anything of the machine’s.
  it('are refused if the image leads elsewhere, although it says that it has them', async () => {
    await using bench = await ProjectBench.at(mainEngine);
    const secrets = mkdtempSync('/var/tmp/acode-elsewhere-');
    const reference = projectReference(bench.host.workspace, process.getuid?.() ?? 0);
    try {
      writeFileSync(join(secrets, 'canary'), 'a secret of the host');
      for (const link of [secrets, null]) {
        await forge(reference, link);
        const run = bench.host.acode.run('cat node_modules/canary', { policy });
        if (link !== null)
          await expect(run).rejects.toMatchObject({ code: 'ACODE-SBX-010', context: { violation: 'DangerousImage' } });
        // The control: the same forged image with a directory in it runs.
        else await expect(run).resolves.toMatchObject({ stdout: 'of the image' });
      }
    } finally {
      rmSync(secrets, { recursive: true });
      await withEngine(mainEngine, on =>
        on.images.remove(reference, { force: true, signal: AbortSignal.timeout(10_000) }),
      );
    }
  });
});

// An image of the project’s name, by another than acode, with dependencies that are a directory or a link to one of the host.
async function forge(reference: string, link: string | null): Promise<void> {
  const file = (path: string, text: string): Buffer[] => {
    const content = Buffer.from(text);
    const header = tarHeader({ path, kind: 'file', mode: 0o644, size: content.length });
    return [header, content, tarPadding(content.length)];
  };
  const entry = (path: string, target: string | null): Buffer =>
    tarHeader({
      path,
      kind: target === null ? 'directory' : 'link',
      mode: 0o755,
      size: 0,
      ...(target === null ? {} : { target }),
    });
  const tar = Buffer.concat([
    ...file('Dockerfile', `FROM ${images.busybox}\nCOPY project/ /project/\n`),
    entry('project', null),
    entry('project/node_modules', link),
    ...(link === null ? file('project/node_modules/canary', 'of the image') : []),
    tarEnd(),
  ]);
  const label = JSON.stringify({ lockfiles: '', paths: ['node_modules'], omitted: 0 });
  const labels = { 'dev.acode.image.kind': 'project', 'dev.acode.image.dependencies': label };
  const request = { reference, dockerfile: 'Dockerfile', labels, context: Readable.from([tar]) };
  await withEngine(mainEngine, on => new Builds(on.connection).build(request, { signal: AbortSignal.timeout(30_000) }));
}
