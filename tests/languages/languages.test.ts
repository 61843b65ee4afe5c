// The image of a workspace by the files in it, on real engines: chosen, explained, and missed with the reason.

import { mkdirSync, realpathSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { ConfigInput } from '@acode/sandbox';
import { path } from '../../packages/sandbox/src/isolation/docker/engine/connection.ts';
import { projectReference } from '../../packages/sandbox/src/policy/pull.ts';
import { TestHost, images, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';

const SYSTEM = ['sh', '-c', 'cat /etc/os-release 2>/dev/null || echo busybox'];

async function hostWith(files: readonly string[], sandbox: ConfigInput['sandbox']): Promise<TestHost> {
  const host = await TestHost.open(mainEngine, { config: { sandbox: { images: {}, ...sandbox } } });
  for (const file of files) writeFileSync(host.file(file), '');
  return host;
}

describe.skipIf(withoutEngines)('the image of a workspace', () => {
  it('is that of its language, and the default’s without one', async () => {
    const config = { images: { default: images.busybox, python: images.debian } };
    await using host = await hostWith(['setup.py'], config);
    expect((await host.acode.run(SYSTEM)).stdout).toContain('debian');
    await using other = await hostWith(['setup.txt'], config);
    expect((await other.acode.run(SYSTEM)).stdout).toBe('busybox\n');
    expect((await other.acode.run(SYSTEM, { policy: { image: images.debian } })).stdout).toContain('debian');
  });

  it('is explained by the file that led to it, and shown by the status', async () => {
    await using host = await hostWith(['requirements.txt'], { images: { python: images.debian } });
    const { policy, notes } = await host.acode.explain('true');
    expect(policy.image).toMatchObject({ value: images.debian, layer: 'user' });
    expect(notes).toContain(`The image is ${images.debian} because requirements.txt says python.`);
    expect((await host.acode.status()).defaultImage).toBe(images.debian);
  });

  it('is missed with its name and the file that led to it', async () => {
    await using host = await hostWith(['go.mod'], { images: { pull_policy: 'never' } });
    await expect(host.acode.run('true')).rejects.toMatchObject({
      code: 'ACODE-SBX-009',
      message: expect.stringMatching(/golang:1-bookworm \(because go\.mod says go\) is not on this engine/),
    });
    // The control: without the file another image is missed.
    await using other = await hostWith([], { images: { pull_policy: 'never' } });
    await expect(other.acode.run('true')).rejects.toMatchObject({ message: expect.stringContaining('ubuntu:22.04') });
  });

  it('of several languages is the combined one, and without one the run is refused', async () => {
    const files = ['package.json', 'App.csproj'];
    await using host = await hostWith(files, { images: { combined: { 'dotnet+node': images.debian } } });
    expect((await host.acode.run(SYSTEM)).stdout).toContain('debian');
    await using other = await hostWith(files, { images: { node: images.debian } });
    await expect(other.acode.run(SYSTEM)).rejects.toMatchObject({
      code: 'ACODE-SBX-017',
      message: expect.stringContaining('App.csproj says dotnet, package.json says node'),
    });
    expect((await other.acode.run(SYSTEM, { policy: { image: images.debian } })).stdout).toContain('debian');
  });
});

// Gives the image of the tests one more name, for the time of a test.
async function alsoNamed(name: string): Promise<AsyncDisposable> {
  const [repo, tag] = name.split(':');
  const terms = () => ({ signal: AbortSignal.timeout(60_000), deadlineMs: 60_000 });
  await withEngine(mainEngine, engine =>
    engine.connection.empty({
      method: 'POST',
      path: path`/images/${images.busybox}/tag`,
      query: { repo, tag },
      expect: [201],
      ...terms(),
    }),
  );
  return {
    [Symbol.asyncDispose]: () =>
      withEngine(mainEngine, engine => engine.images.remove(name, { force: true, ...terms() })),
  };
}

describe.skipIf(withoutEngines)('an image that lies on this machine', () => {
  it('is not a repository’s or a model’s to name, unless the user’s file names it or it is the project’s own', async () => {
    await using host = await hostWith([], { images: { default: images.busybox } });
    const own = projectReference(realpathSync(host.workspace), process.getuid?.() ?? 0);
    const others = projectReference(`${realpathSync(host.workspace)}-other`, process.getuid?.() ?? 0);
    await using _own = await alsoNamed(own);
    await using _others = await alsoNamed(others);
    await using _library = await alsoNamed('acodetestprivate:1');
    const id = (await host.acode.explain('true')).spec.image.id;
    mkdirSync(host.file('.agent'));
    const asRepository = (image: string) => {
      writeFileSync(host.file('.agent/config.yml'), `sandbox: { images: { default: "${image}" } }\n`);
      return host.acode.run(SYSTEM);
    };
    const asModel = (image: string) => host.acode.run(SYSTEM, { policy: { image, askedBy: 'model' } });
    const refused = { code: 'ACODE-SBX-010', context: { violation: 'UnverifiedImage' } };
    for (const image of [images.debian, others, 'acodetestprivate:1', id]) {
      await expect(asRepository(image), image).rejects.toMatchObject(refused);
      await expect(asModel(image), image).rejects.toMatchObject(refused);
    }
    // The control: the program or person that makes the request may name it.
    expect((await host.acode.run(SYSTEM, { policy: { image: others } })).stdout).toBe('busybox\n');
    expect((await asRepository(own)).stdout).toBe('busybox\n');
    expect((await asModel(images.busybox)).stdout).toBe('busybox\n');
    // The control: what the user trusted counts.
    await expect(asRepository(images.debian)).rejects.toMatchObject({ hint: expect.stringContaining('`acode trust`') });
    expect((await host.acode.trust.grant()).needsTrust).toMatchObject([{ key: 'sandbox.images.default' }]);
    expect((await host.acode.run(SYSTEM)).stdout).toContain('debian');
    await host.acode.trust.revoke();
    await expect(host.acode.run(SYSTEM)).rejects.toMatchObject(refused);
  });

  it('and one that does not is not pulled for a model, whatever its tag says', async () => {
    await using host = await hostWith([], { images: { default: images.busybox } });
    const image = 'busybox:text-that-would-leave-this-machine';
    await expect(host.acode.run('true', { policy: { image, askedBy: 'model' } })).rejects.toMatchObject({
      code: 'ACODE-SBX-009',
      hint: expect.stringContaining(`\`acode sandbox pull ${image}\``),
    });
    // The control: for the caller the engine would ask a registry.
    const { notes } = await host.acode.explain('true', { policy: { image } });
    expect(notes).toContainEqual(expect.stringContaining(`The image ${image} would be pulled first`));
  });
});
