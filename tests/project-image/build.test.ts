// Shows what a project image holds and what it never does, on real engines: seen from a sandbox of the image itself.

import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { engines, images, podman, withEngine, withoutEngines } from '../support/engines.ts';
import { ProjectBench } from './bench.ts';

const CANARY = 'canary-5b1c9e';
const soon = (): { signal: AbortSignal } => ({ signal: AbortSignal.timeout(60_000) });

describe.skipIf(withoutEngines).each(engines)('a project image on $name', engine => {
  it('has the project’s files, runs in a sandbox, and was trusted like any image made here', async () => {
    await using bench = await ProjectBench.at(engine);
    bench.put('src/main.sh', 'echo from the project', 0o700);
    bench.put('ünï code/a file.txt', 'x');
    symlinkSync('src/main.sh', bench.host.file('way'));
    const lines: string[] = [];
    const image = await bench.build({ onOutput: text => lines.push(text) });
    const made = { built: true, base: { reference: images.busybox }, withheld: { count: 0 } };
    // Two files and a link; directories do not count.
    expect(image).toMatchObject({ ...made, files: 3 });
    expect(lines.join('')).toContain('COPY');
    const run = await bench.run(
      image.reference,
      'sh $ACODE_PROJECT/way; ls "/project/ünï code"; stat -c %a:%u /project/src/main.sh',
    );
    expect(run).toMatchObject({ exitCode: 0, stdout: 'from the project\na file.txt\n755:0\n' });
    expect(run.image).toEqual({ reference: image.reference, digest: image.id });
    // Nobody in the sandbox can change it.
    expect((await bench.run(image.reference, 'echo x > /project/src/main.sh')).exitCode).not.toBe(0);
    // By its id, where a digest is required.
    expect((await bench.run(image.id, 'true')).exitCode).toBe(0);
  });

  it('holds no secret under any name, whatever the .dockerignore says', async () => {
    await using bench = await ProjectBench.at(engine, { config: { sandbox: { mask: ['private/', 'notes.txt'] } } });
    for (const path of [
      'private/deep/file',
      'notes.txt',
      '.env',
      'sub/.env.local',
      '.npmrc',
      '.git/config',
      'deploy/id_rsa',
      'tls/server.key',
      '.ssh/config',
    ])
      bench.put(path, CANARY);
    bench.put('.dockerignore', '!.env\n!**/.env.local\n!.npmrc\n!.git\n!**/*.key\nignored\n');
    bench.put('ignored/file', CANARY);
    execFileSync('ln', [bench.host.file('.env'), bench.host.file('second-name')]);
    execFileSync('ln', [bench.host.file('notes.txt'), bench.host.file('other-notes')]);
    // The control: the same content under a harmless name is found.
    bench.put('harmless.txt', CANARY);
    const image = await bench.build();
    const found = await bench.run(image.reference, `grep -rl ${CANARY} /project; find /project -name ignored`);
    expect(found.stdout).toBe('/project/harmless.txt\n');
    const withheld = ['.env', '.git', '.npmrc', 'second-name', 'private', 'notes.txt', 'other-notes'];
    expect(image.withheld.paths).toEqual(expect.arrayContaining(withheld));
  });

  it('is never made from a Dockerfile of the repository', async () => {
    await using bench = await ProjectBench.at(engine);
    const evil = 'FROM scratch\nRUN touch /pwned\nUSER root\nENV EVIL=1\nVOLUME /project\n';
    for (const name of ['Dockerfile', 'Containerfile', 'dockerfile', 'project/Dockerfile']) bench.put(name, evil);
    const image = await bench.build();
    const seen = await bench.run(image.reference, 'ls /project/Dockerfile /pwned 2>&1; echo "EVIL=$EVIL"');
    expect(seen.stdout).toContain('/project/Dockerfile\n');
    expect(seen.stdout).toMatch(/\/pwned: No such file/);
    expect(seen.stdout).toContain('EVIL=\n');
    const { config } = await withEngine(engine, on => on.images.inspect(image.id, soon()));
    expect(config).toMatchObject({ User: '1000:1000' });
    expect(config.Volumes ?? {}).toEqual({});
  });

  it('has labels that say what it is made of, and no path of the host', async () => {
    await using bench = await ProjectBench.at(engine);
    bench.put('a');
    const image = await bench.build();
    const details = await withEngine(engine, on => on.images.inspect(image.reference, soon()));
    const labels = Object.entries(details.config.Labels ?? {}).filter(([name]) => name.includes('acode'));
    expect(Object.fromEntries(labels)).toMatchObject({
      'dev.acode.image.checksum': image.checksum,
      'dev.acode.image.kind': 'project',
    });
    expect(labels.every(([name]) => !name.startsWith('acode.'))).toBe(true);
    expect(JSON.stringify(details)).not.toContain(bench.host.workspace);
    expect(JSON.stringify(labels)).not.toMatch(/\//);
  });

  it('takes what an install command made in a sandbox on a copy, and leaves the project as it was', async () => {
    await using bench = await ProjectBench.at(engine);
    bench.put('package.json', '{}');
    bench.put('.env', CANARY);
    const before = readdirSync(bench.host.workspace);
    const line =
      'mkdir -p node_modules/dep && id -u > node_modules/dep/uid && ls -A > node_modules/dep/seen && ls /sys/class/net > node_modules/dep/net && chmod 555 node_modules/dep && ln -s /bin/sh python && echo installed';
    const printed: string[] = [];
    const steps: string[] = [];
    const image = await bench.build({
      install: { command: line },
      onOutput: text => printed.push(text),
      onStep: step => steps.push(step),
    });
    expect(printed.join('')).toContain('installed\n');
    expect(steps).toEqual(['install', 'build']);
    expect(readdirSync(bench.host.workspace)).toEqual(before);
    const seen = await bench.run(image.reference, 'cd /project && cat node_modules/dep/* && readlink python');
    expect(seen.stdout).toBe(`lo\nnode_modules\npackage.json\n${process.getuid?.()}\n/bin/sh\n`);
    expect(readdirSync('/var/tmp').filter(name => name.startsWith('acode-project-'))).toEqual([]);
  });

  it('is not built where its install command fails, and says so', async () => {
    await using bench = await ProjectBench.at(engine);
    bench.put('a');
    await expect(bench.build({ install: { command: 'exit 3' } })).rejects.toMatchObject({
      code: 'ACODE-IMG-001',
      context: { reason: 'the install command ended with 3' },
    });
    expect(bench.builds).toBe(0);
    await expect(bench.build({ install: { command: 'true' } })).resolves.toMatchObject({ built: true });
  });

  it('is refused, before anything is sent, for a project or a base that is a trap', async () => {
    await using bench = await ProjectBench.at(engine);
    bench.put('a');
    const refused = async (code: string, context: object, options = {}): Promise<void> => {
      const error: unknown = await bench.build(options).catch((reason: unknown) => reason);
      expect(error).toMatchObject({ code, context, hint: expect.stringMatching(/\.$/) });
    };
    // Its ONBUILD would run as root in the build.
    await refused('ACODE-SBX-010', { violation: 'DangerousImage' }, { base: images.hostile });
    await refused('ACODE-SBX-017', {}, { base: `${images.busybox}\nRUN id` });
    await refused('ACODE-IMG-002', { path: 'a' }, { mostBytes: 0 });
    symlinkSync('/etc/passwd', bench.host.file('link'));
    await refused('ACODE-IMG-002', { path: 'link' });
    bench.put('.dockerignore', 'link\n[');
    await refused('ACODE-IMG-002', { path: '.dockerignore:2' });
    expect(bench.builds).toBe(0);
    // The control: without the traps it is built.
    bench.put('.dockerignore', 'link\n');
    await expect(bench.build()).resolves.toMatchObject({ built: true });
    expect(bench.builds).toBe(1);
  });

  it('is given up at its deadline and when it is cancelled, with what was there before still there', async () => {
    await using bench = await ProjectBench.at(engine);
    bench.put('a');
    const first = await bench.build();
    bench.put('a', 'changed');
    await expect(bench.build({ timeoutMs: 1 })).rejects.toMatchObject({ code: 'ACODE-IMG-001' });
    const controller = new AbortController();
    bench.proxy.onRequest((_method, path) => {
      if (!path.includes('/build?')) return undefined;
      controller.abort();
      return 'hang';
    });
    await expect(bench.build({ signal: controller.signal })).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    bench.proxy.onRequest(undefined);
    expect((await bench.run(first.reference, 'cat /project/a')).stdout).toBe('a');
  });

  it('is asked for with no network, no cache and no pull, and written down', async () => {
    await using bench = await ProjectBench.at(engine);
    bench.put('a');
    const { checksum } = await bench.build();
    const asked = bench.proxy.requests.find(({ path }) => path.includes('/build?'));
    const query = new URLSearchParams(asked?.path.split('?')[1]);
    expect(Object.fromEntries(query)).toMatchObject({ networkmode: 'none', nocache: 'true', pull: 'false' });
    expect([...query.keys()].filter(key => /secret|ssh|buildargs|cachefrom|remote/.test(key))).toEqual([]);
    const records = await bench.host.acode.audit.tail({ count: 100 });
    expect(records.filter(({ operation }) => operation === 'build').slice(-2)).toEqual([
      expect.objectContaining({ detail: expect.objectContaining({ checksum }) }),
      expect.objectContaining({ event: 'project image was built' }),
    ]);
  });

  it('takes the place of the one before, which is removed', async () => {
    await using bench = await ProjectBench.at(engine);
    writeFileSync(bench.host.file('a'), 'one');
    const first = await bench.build();
    writeFileSync(bench.host.file('a'), 'two');
    const second = await bench.build();
    expect(second.reference).toBe(first.reference);
    expect((await bench.run(second.reference, 'cat /project/a')).stdout).toBe('two');
    await withEngine(engine, async on => {
      await expect(on.images.inspect(first.id, soon())).rejects.toMatchObject({ status: 404 });
      await expect(on.images.inspect(second.id, soon())).resolves.toMatchObject({ id: second.id });
    });
    expect(existsSync(bench.host.file('a'))).toBe(true);
  });
});

it.skipIf(withoutEngines || !podman)('Podman, which hides what a base image would execute, is refused', async () => {
  if (!podman) return;
  await using bench = await ProjectBench.at(podman);
  bench.put('a');
  const building = bench.build({ base: images.hostile });
  await expect(building).rejects.toMatchObject({ code: 'ACODE-SBX-016', message: expect.stringContaining('ONBUILD') });
  expect(bench.builds).toBe(0);
});
