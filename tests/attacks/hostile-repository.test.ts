// A hostile repository, all at once and one trick after the other, through the library and through the built command.

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { images, withoutEngines } from '../support/engines.ts';
import { Arena } from './arena.ts';
import { runCommand } from './command.ts';
import type { CommandResult } from './command.ts';
import { HostileRepository, LOOSENING, UNTRUSTED } from './hostile-repository.ts';
import { refusal } from './refusal.ts';
import type { Refusal } from './refusal.ts';
import { Greeter } from './scratch.ts';
import { MAIN } from './targets.ts';
import { UntrustedImage } from './untrusted-image.ts';

/** Every refusal of a setting says which key, in whose file, where in it, and what to do. */
function expectExplained(error: Refusal, key: string): void {
  const named = typeof error.context['key'] === 'string' ? error.context['key'] : error.message;
  expect([key, named.startsWith(key) || key.startsWith(named) || named.includes(key)]).toEqual([key, true]);
  expect([key, error.message]).toEqual([key, expect.stringMatching(/\.agent\/config\.yml:\d+:\d+/)]);
  expect(error.hint.length).toBeGreaterThan(20);
}

describe.skipIf(withoutEngines)('a hostile repository', () => {
  let untrusted: UntrustedImage;
  beforeAll(async () => {
    untrusted = await UntrustedImage.on(MAIN.engine);
    await untrusted.alsoNamed(UNTRUSTED);
  });
  afterAll(() => untrusted[Symbol.asyncDispose]());

  const run = async (repository: HostileRepository, command: readonly string[] = ['touch', 'ran']) => {
    await using arena = await Arena.open(MAIN, { workspace: repository.project });
    return await arena.run(command);
  };
  const refusedBy = async (repository: HostileRepository): Promise<Refusal> => {
    const error = await refusal(run(repository));
    expect(existsSync(join(repository.project, 'ran'))).toBe(false);
    return error;
  };
  const command = (repository: HostileRepository, words: readonly string[]): Promise<CommandResult> =>
    runCommand(MAIN, repository.scratch, words, { PATH: `${repository.project}/node_modules/.bin:/usr/bin:/bin` });

  it.each(LOOSENING)('may not set %s, and is told key, file, line and remedy', async (key, value) => {
    using repository = new HostileRepository().set([key, value]);
    const error = await refusedBy(repository);
    if (key === 'sandbox.images.default') expect(error.context['violation']).toBe('UnverifiedImage');
    else expectExplained(error, key);
    expect(repository.outsideIsWhole).toBe(true);
  });

  it('with everything in it is refused again and again until nothing hostile is left, and then runs harmlessly', async () => {
    using repository = new HostileRepository();
    repository
      .set(...LOOSENING)
      .plantPrograms()
      .plantGitFile()
      .plantPipe();
    repository.plantLink('.vscode', 'canary/secret').plantLink('data', 'canary/home');
    const seen: string[] = [];
    for (let round = 0; round < 60; round += 1) {
      const outcome = await run(repository, ['sh', '-c', 'cat file; cat data/.ssh/id; echo end']).catch(
        (error: unknown) => error,
      );
      if (!(outcome instanceof Error)) {
        const { stdout } = outcome as { stdout: string };
        expect(stdout).toBe('fineend\n');
        break;
      }
      const error = await refusedBy(repository);
      const key = typeof error.context['key'] === 'string' ? error.context['key'] : keyIn(error.message);
      seen.push(key === '' ? JSON.stringify(error.context['violation'] ?? error.code) : key);
      if (error.context['violation'] === 'ProtectedPath') repository.remove('.vscode');
      else if (error.context['violation'] === 'UnverifiedImage') repository.unset('sandbox.images.default');
      else expect([error.message, repository.unset(key)]).toEqual([error.message, true]);
      expect(repository.outsideIsWhole).toBe(true);
    }
    expect(seen.length).toBeGreaterThanOrEqual(LOOSENING.length);
    expect(seen).toContain('"ProtectedPath"');
    expect(existsSync(repository.marker)).toBe(false);
    expect(repository.outsideIsWhole).toBe(true);
  });

  it('is refused by the built command with the same key, line and remedy, and none of its programs run', async () => {
    using repository = new HostileRepository();
    repository
      .set(['sandbox.network.mode', 'bridge'], ['sandbox.mounts.allowed_host_roots', ['/']])
      .plantPrograms()
      .plantGitFile();
    for (const words of [
      ['run', 'touch ran'],
      ['sandbox', 'exec', '--', 'touch', 'ran'],
      ['explain', '--', 'true'],
    ]) {
      const { status, stderr } = await command(repository, words);
      expect([words, status]).toEqual([words, 125]);
      expect(stderr).toMatch(/ACODE-SBX-0(?:20|13)/);
      expect(stderr).toMatch(/sandbox\.(?:network\.mode|mounts\.allowed_host_roots)/);
      expect(stderr).toMatch(/\.agent\/config\.yml:\d+:\d+/);
      expect(stderr).toMatch(/hint:/);
    }
    for (const words of [['sandbox', 'status'], ['sandbox', 'list'], ['trust', '--show'], ['doctor'], ['--help']])
      await command(repository, words);
    expect(existsSync(join(repository.project, 'ran'))).toBe(false);
    expect(existsSync(repository.marker)).toBe(false);
    expect(repository.outsideIsWhole).toBe(true);
    repository.config('{}\n');
    expect(await command(repository, ['run', 'echo tame'])).toMatchObject({ status: 0, stdout: 'tame\n' });
  });

  it('whose configuration is a link, a pipe or a directory is refused and not read', async () => {
    using linked = new HostileRepository();
    linked.scratch.directory('project/.agent');
    linked.plantLink('.agent/config.yml', 'canary/home/.ssh/config');
    const error = await refusedBy(linked);
    expect(error.code).toBe('ACODE-SBX-013');
    expect(error.message + error.hint).not.toContain('fsmonitor');
    using folder = new HostileRepository();
    folder.scratch.directory('project/.agent/config.yml');
    expect(await refusedBy(folder)).toMatchObject({ code: 'ACODE-SBX-013' });
  });

  it.each([
    [
      'a link',
      (repository: HostileRepository) =>
        repository.scratch.directory('project/sub') && repository.plantLink('sub/out', 'canary/secret'),
      'sub/out',
    ],
    ['a step upwards', () => undefined, '../canary/secret'],
    ['a step upwards, later', () => undefined, 'sub/../../canary/secret'],
  ])('that mounts a secret by way of %s does not get it', async (_, plant, source) => {
    using repository = new HostileRepository();
    repository.scratch.directory('project/sub');
    plant(repository);
    repository.set(['sandbox.mounts.additional', [{ source, target: '/mnt/secret' }]]);
    const error = await refusedBy(repository);
    expect(error.code).toMatch(/^ACODE-SBX-0(?:03|20)$/);
    expect(repository.outsideIsWhole).toBe(true);
  });

  it('that names a hostile image of a trusted repository gets its files and nothing else of it', async () => {
    using repository = new HostileRepository().useHostileImage();
    const { stdout, image } = await run(repository, [
      'sh',
      '-c',
      'echo mine; id -u; pwd; env | grep -c -e LD_PRELOAD -e NODE_OPTIONS; grep " /data " /proc/mounts | cut -d" " -f3',
    ]);
    expect(image?.reference).toBe(images.hostile);
    expect(stdout).toBe(`mine\n${process.getuid?.()}\n/workspace\n0\ntmpfs\n`);
  });

  it('with a socket in it is refused', async () => {
    using repository = new HostileRepository();
    await using _ = await Greeter.at(repository.scratch.path('project/notes'));
    expect(await refusedBy(repository)).toMatchObject({
      code: 'ACODE-SBX-003',
      context: { violation: 'DockerSocketMounted' },
    });
  });

  it('counts only once it is trusted, for that content, and never for what only the user may say', async () => {
    using repository = new HostileRepository().set(['sandbox.defaults.user', '4242:4242']);
    expectExplained(await refusedBy(repository), 'sandbox.defaults.user');
    expect(await command(repository, ['trust', '--yes'])).toMatchObject({ status: 0 });
    const trusted = await command(repository, ['explain', '--json', '--', 'true']);
    expect([trusted.status, trusted.stdout]).toEqual([0, expect.stringContaining('4242:4242')]);
    repository.set(['sandbox.defaults.user', '4243:4243']);
    expect(await command(repository, ['run', 'id'])).toMatchObject({
      status: 125,
      stderr: expect.stringContaining('ACODE-SBX-020'),
    });
    repository.set(['sandbox.security.allow_untrusted_registries', true]);
    await command(repository, ['trust', '--yes']);
    expect(await command(repository, ['run', 'id'])).toMatchObject({
      status: 125,
      stderr: expect.stringContaining('allow_untrusted_registries'),
    });
  });

  it('cannot have a program loosen the policy without a terminal, unless a person agreed, which is recorded', async () => {
    using repository = new HostileRepository().set(['sandbox.defaults.user', '4242:4242']);
    const consent = ['config', 'set', 'sandbox.network.allow_bridge', 'true'];
    // Each call begins with the file as it was.
    const isSet = () =>
      readFileSync(repository.scratch.path('config/acode/config.yml'), 'utf8').includes('allow_bridge');
    const asked = { status: 2, stderr: expect.stringContaining('--yes') as string };
    expect(await command(repository, ['trust'])).toMatchObject(asked);
    expect(await command(repository, ['explain', '--', 'true'])).toMatchObject({ status: 125 });
    expect(await command(repository, consent)).toMatchObject(asked);
    expect(isSet()).toBe(false);
    // The same calls by a person’s word, as a control.
    expect(await command(repository, ['trust', '--yes'])).toMatchObject({ status: 0 });
    expect(await command(repository, ['explain', '--', 'true'])).toMatchObject({ status: 0 });
    expect(await command(repository, [...consent, '--yes'])).toMatchObject({ status: 0 });
    expect(isSet()).toBe(true);
    const { stdout } = await command(repository, ['audit', 'tail', '--json']);
    const { items } = JSON.parse(stdout) as { items: { event?: string; detail?: Record<string, string> }[] };
    const consents = items.flatMap(({ event, detail }) => (detail?.['consent'] ? [[event, detail['parent']]] : []));
    expect(consents).toEqual([
      ['trusted', expect.stringMatching(/./)],
      ['policy loosened', expect.stringMatching(/./)],
    ]);
  });
});

function keyIn(message: string): string {
  return /`([\w.]+)`|key ([\w.]+)/.exec(message)?.slice(1).find(Boolean) ?? '';
}
