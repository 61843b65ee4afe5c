// Every command as a person and as a program sees it, on a real engine.

import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXAMPLES } from '../../packages/cli/src/examples.ts';
import { engines, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { Bench } from './bench.ts';
import type { Ended } from './bench.ts';

function json({ stdout }: Ended): Record<string, unknown> {
  const text = stdout.toString();
  expect(text.endsWith('}\n')).toBe(true);
  return JSON.parse(text) as Record<string, unknown>;
}

describe.skipIf(withoutEngines).each(engines)('the commands on $name', engine => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.at(engine);
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  it('status tells the engine, in text and in JSON', async () => {
    const text = await bench.call(['sandbox', 'status']);
    expect(text.status).toBe(0);
    expect(text.stdout.toString()).toMatch(
      new RegExp(String.raw`^Sandbox available: Docker version ${engine.version.replaceAll('.', String.raw`\.`)}`),
    );
    expect(text.stdout.toString()).toContain(`${engine.socket} (found by DOCKER_HOST)`);
    expect(text.stdout.toString()).toContain(bench.workspace);
    const object = json(await bench.call(['--json', 'sandbox', 'status']));
    expect(object).toMatchObject({ schema: 'acode.status/1', available: true, level: 'docker' });
  });

  it('list, inspect, cleanup see a sandbox while it runs, by either name', async () => {
    const running = bench.start(['run', '--task', 'seen', 'sleep 600']);
    let items: { name: string; containerId: string; state: string; labels: Record<string, string> }[] = [];
    await until(async () => {
      const mine = await bench.left();
      const all = json(await bench.call(['sandbox', 'list', '--json'])) as unknown as { items: typeof items };
      items = all.items.filter(({ containerId, state }) => mine.includes(containerId) && state === 'running');
      return items.length > 0;
    });
    const name = items[0]?.name ?? '';
    expect(name).toMatch(/^acode-.*-seen-001$/);

    const list = await bench.call(['docker', 'list'], { env: { COLUMNS: '40' } });
    expect(list.status).toBe(0);
    for (const line of list.stdout.toString().split('\n')) expect(line.length).toBeLessThanOrEqual(40);

    expect(json(await bench.call(['docker', 'inspect', name, '--json']))).toMatchObject({
      schema: 'acode.inspect/1',
      name,
      network: 'none',
      taskId: 'seen',
    });
    const details = await bench.call(['sandbox', 'inspect', name]);
    expect(details.stdout.toString()).toMatch(/[1-4](?:\.\d)? GiB[^]*→ \/workspace/);

    const kept = json(await bench.call(['sandbox', 'cleanup', '--json']));
    expect(kept).toMatchObject({ schema: 'acode.cleanup/1', removed: [], dryRun: false, kept: [{ name }] });
    const spared = await bench.call(['sandbox', 'cleanup', '--force']);
    expect(spared.stdout.toString()).toContain('Removed 0 sandboxes, 1 left alone');
    const every = ['--force', '--all-sessions'];
    const wouldBe = await bench.call(['docker', 'cleanup', ...every, '--dry-run']);
    expect(wouldBe.stdout.toString()).toContain('Would remove 1 sandbox.');
    const removed = await bench.call(['sandbox', 'cleanup', ...every]);
    expect(removed.stdout.toString()).toContain('Removed 1 sandbox.');
    await running.ended;
    expect(await bench.left()).toEqual([]);
  });

  it('logs keeps the streams of a past run apart', async () => {
    await bench.exec(['--task', 'kept', 'echo kept out; echo kept err >&2; exit 3']);
    const { items } = json(await bench.call(['sandbox', 'logs', '--json'])) as unknown as {
      items: { name: string; exitCode: number }[];
    };
    const name = items[0]?.name ?? '';
    expect(items[0]).toMatchObject({ exitCode: 3 });
    const shown = await bench.call(['docker', 'logs', name]);
    expect({ ...shown, stdout: shown.stdout.toString() }).toMatchObject({
      status: 0,
      stdout: 'kept out\n',
      stderr: 'kept err\n',
    });
    expect(json(await bench.call(['docker', 'logs', '--json', name]))).toMatchObject({
      schema: 'acode.logs/1',
      items: [{ name, stdout: 'kept out\n', stderr: 'kept err\n' }],
    });
    const list = await bench.call(['sandbox', 'logs'], { env: { COLUMNS: '30' } });
    expect(list.stdout.toString()).toContain('…');
    for (const line of list.stdout.toString().split('\n')) expect(line.length).toBeLessThanOrEqual(30);
  });

  it.runIf(engine.name === mainEngine.name)(
    'logs --follow prints what there is and what comes, to the end',
    async () => {
      const command = 'echo first; echo err >&2; until [ -e go ]; do sleep 0.1; done; echo second; exit 4';
      const running = bench.start(['run', '--task', 'followed', command]);
      await until(async () => (await bench.left()).length > 0);
      const [id = ''] = await bench.left();
      const onOutput = (): void => void writeFile(join(bench.workspace, 'go'), '');
      const followed = await bench.call(['sandbox', 'logs', '--follow', id.slice(0, 12)], { onOutput });
      expect({ ...followed, stdout: followed.stdout.toString() }).toMatchObject({
        status: 0,
        stdout: 'first\nsecond\n',
      });
      expect(followed.stderr).toMatch(/^err$[^]*the command ended with exit status 4\./m);
      expect((await running.ended).status).toBe(4);
    },
  );

  it('explain tells each value and who set it, and runs nothing', async () => {
    const { status, stdout } = await bench.call(['explain', '--memory', '64', '--', 'touch', 'ran']);
    expect(status).toBe(0);
    const text = stdout.toString();
    expect(text).toMatch(/memory +64 MiB +this call +--memory/);
    expect(text).toMatch(/image +\S+ +user +\S+config\.yml:2:\d+ \(sandbox\.images\.default\)/);
    expect(text).toMatch(/time +600 s +built-in/);
    expect(text).toContain(`${bench.workspace} → /workspace (workspace, writable)`);
    expect(text).toContain(`${bench.workspace}/.git → /workspace/.git (protected, read-only)`);
    expect(text).not.toContain('HostConfig');
    for (const name of ['mode', 'runtime', 'network time', 'dns', 'ports', 'mounts', 'host roots', 'trusted images'])
      expect(text).toMatch(new RegExp(`^${name} +\\S`, 'm'));
    const object = json(await bench.call(['explain', '--json', '--', 'touch', 'ran']));
    expect(object).toMatchObject({ schema: 'acode.explain/1', level: 'docker', command: ['touch', 'ran'] });
    expect(JSON.stringify(object['engineRequest'])).toContain('"HostConfig"');
    const { stdout: files } = await bench.exec(['ls']);
    expect(files.toString()).not.toContain('ran');
  });

  it('explain shows the engine request with --verbose, the filter abbreviated, and whole in JSON', async () => {
    const { stdout } = await bench.call(['explain', '--verbose', '--', 'true']);
    expect(stdout.toString()).toMatch(
      /Engine request\n\{[^]*"HostConfig"[^]*"seccomp=\{.{1,80}… \(\d+ characters; whole in --json\)"/,
    );
    const { engineRequest } = json(await bench.call(['explain', '--json', '--', 'true'])) as {
      engineRequest: { body?: unknown };
    };
    const filter = /"seccomp=(\{.*?\})"[,\]]/.exec(JSON.stringify(engineRequest))?.[1] ?? '';
    expect(JSON.parse(JSON.parse(`"${filter}"`) as string)).toMatchObject({ defaultAction: expect.any(String) });
  });

  it('explain stays readable in 60 columns', async () => {
    const { stdout } = await bench.call(['explain', '--memory', '64', '--', 'true'], { env: { COLUMNS: '60' } });
    const [, policy = ''] = stdout.toString().split('\n\n');
    expect(policy).not.toContain('…');
    expect(policy).toMatch(/^memory +64 MiB  this call, --memory$/m);
    // Only a path may be longer, since half of one is of no use.
    for (const line of policy.split('\n')) if (!line.includes('/var/tmp/')) expect(line.length).toBeLessThanOrEqual(60);
  });

  it('a result in JSON has bytes where the output is not text', async () => {
    const object = json(await bench.exec(['--json', String.raw`printf 'a\377\000b'; echo text >&2`]));
    expect(object).toMatchObject({ schema: 'acode.run/1', exitCode: 0, stderr: 'text\n', stdoutBytes: 'Yf8AYg==' });
    expect(object).not.toHaveProperty('stderrBytes');
  });

  it('an empty or relative HOME makes nobody’s file in the current directory the user’s own', async () => {
    const here = join(bench.workspace, '..', 'elsewhere');
    await mkdir(join(here, '.config', 'acode'), { recursive: true });
    await writeFile(join(here, '.config', 'acode', 'config.yml'), 'sandbox: { network: { allow_bridge: true } }\n');
    const words = ['explain', '--workspace', bench.workspace, '--image', images.busybox, '--network', 'bridge'];
    for (const HOME of ['', '.']) {
      const { status, stderr } = await bench.call([...words, '--', 'true'], {
        cwd: here,
        env: { HOME, XDG_CONFIG_HOME: '' },
      });
      expect([status, stderr]).toEqual([125, expect.stringContaining('ACODE-SBX-005')]);
    }
    expect(await readdir(here)).toEqual(['.config']);
    // The control: in the user’s own place the same file counts.
    const own = await bench.call([...words, '--', 'true'], { cwd: here, env: { HOME: here, XDG_CONFIG_HOME: '' } });
    expect([own.status, own.stderr]).toEqual([0, '']);
  });

  it('another user who has taken the runtime directory keeps nobody from running commands', async () => {
    const top = join(bench.workspace, '..');
    const temporary = join(top, 'shared');
    await mkdir(temporary);
    // As what another user put there: nothing that can be used, or taken away.
    await symlink('/nonexistent', join(temporary, `acode-${process.getuid?.() ?? 0}`));
    const env = { TMPDIR: temporary, XDG_RUNTIME_DIR: '', XDG_STATE_HOME: join(top, 'other-state') };
    const { status, stderr } = await bench.exec(['--', 'true'], { env });
    expect([status, stderr]).toEqual([0, '']);
    // Either of the two, by whether the user who runs this has a session; and the next command comes to the same.
    const places = [join(top, 'other-state', 'acode', 'run'), `/run/user/${process.getuid?.() ?? 0}/acode`];
    expect(places.filter(place => existsSync(join(place, 'host'))).length).toBeGreaterThan(0);
    const hosts = await Promise.all(
      [0, 1].map(async () => (await bench.call(['explain', '--json', '--', 'true'], { env })).stdout.toString()),
    );
    const [one, other] = hosts.map(text => /"acode\.host":\s*"([0-9a-f]+)"/.exec(text)?.[1]);
    expect(one).toBeDefined();
    expect(one).toBe(other);
  });

  it('--config takes another file, and a wrong one is an error with its place', async () => {
    const file = join(bench.workspace, 'other.yml');
    await writeFile(file, 'sandbox:\n  defaults:\n    memory_mb: 96\n');
    const { stdout } = await bench.call(['explain', '--config', file, '--image', images.busybox, '--', 'true']);
    expect(stdout.toString()).toMatch(/memory +96 MiB +user +\S+other\.yml/);
    await writeFile(file, 'sandbox:\n  defalts: {}\n');
    const wrong = await bench.call(['sandbox', 'list', '--config', file]);
    expect(wrong.status).toBe(125);
    expect(wrong.stderr).toMatch(/other\.yml:2:3[^]*ACODE-SBX-013/);
    // The status says so, and still tells about the engine.
    const status = await bench.call(['sandbox', 'status', '--config', file]);
    expect(status.status).toBe(1);
    expect(status.stdout.toString()).toMatch(/^Sandbox unavailable: \S+other\.yml:2:3[^]*Engine socket/);
  });
});

it.skipIf(withoutEngines)('the examples in the help texts work', async () => {
  await using bench = await Bench.at(mainEngine);
  await writeFile(join(bench.workspace, 'build.sh'), 'echo built\n');
  await bench.repositoryFile('sandbox:\n  defaults:\n    memory_mb: 256\n');
  // What stays, and what needs a terminal, is tried in tests/sessions; the others that are left out beside this file.
  const tried = Object.values(EXAMPLES)
    .flat()
    .filter(one => !one.stays && !one.terminal && !one.project && !one.home && !one.fork && !one.outside);
  const all = [...new Set(tried.map(({ type }) => type))];
  const failed: string[] = [];
  const attempt = async (type: string): Promise<void> => {
    const words = execFileSync('xargs', ['-n1'], { input: type, encoding: 'utf8' }).trimEnd().split('\n');
    const { status, stderr } = await bench.call(words.slice(1));
    if (status !== 0) failed.push(`${type}: ${status} ${stderr}`);
  };
  // Those that change the user's file come last, one after the other: no other command is to see it change.
  const changing = all.filter(type => type.includes(' config set '));
  const others = all.filter(type => !changing.includes(type));
  for (let at = 0; at < others.length; at += 4) await Promise.all(others.slice(at, at + 4).map(attempt));
  for (const type of changing) await attempt(type);
  expect(failed).toEqual([]);
});
