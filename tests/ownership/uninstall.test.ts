// `acode uninstall --purge` leaves no trace on engine or disk, and says before what it will remove.

import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { exists, leftover, sleeping } from './victims.ts';

const soon = () => AbortSignal.timeout(60_000);

describe.skipIf(withoutEngines)('uninstall', () => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await Bench.at(mainEngine);
    // A first command, so that there are traces.
    await bench.call(['run', '--', 'true']);
  });
  afterEach(() => bench[Symbol.asyncDispose]());

  it('knows what commands leave that only show something', async () => {
    const shows = [
      'swarm list',
      'fork list --all',
      'egress pending',
      'egress log',
      'masks list',
      'stats',
      'agent list',
      'sandbox logs',
    ];
    for (const words of shows) {
      const { status, stderr } = await bench.call(words.split(' '));
      expect(status, `${words}: ${stderr}`).toBe(0);
    }
    const { status, stdout } = await bench.call(['uninstall', '--purge', '--with-audit', '--with-config']);
    expect(status, stdout.toString()).toBe(0);
    expect(directories().filter(existsSync)).toEqual([]);
  });

  it('shows first and removes nothing; with --purge nothing is left but the audit log and the configuration, unless they are asked for', async () => {
    const own = directories();
    const { child, ended, id } = await sleeping(bench, mainEngine, 'labels');
    const labels = await withEngine(
      mainEngine,
      async direct => (await direct.containers.inspect(id, { signal: soon() })).Config.Labels ?? {},
    );
    const kept = await leftover(mainEngine, { ...labels, 'acode.owner': 'x', 'acode.keep': 'true' });
    const others = await leftover(mainEngine, { ...labels, 'acode.uid': '4242' });
    try {
      const shown = await bench.call(['uninstall']);
      expect(shown.status).toBe(0);
      for (const path of own) expect(shown.stdout.toString()).toContain(path);
      expect(shown.stdout.toString()).toContain('Nothing was removed. 1 of your sessions still running');
      expect(await exists(mainEngine, kept)).toBe(true);

      const refused = await bench.call(['uninstall', '--purge', '--json']);
      expect(refused.status).toBe(125);
      expect(JSON.parse(refused.stdout.toString())).toMatchObject({ code: 'ACODE-SBX-022', context: { sessions: 1 } });
      expect(own.every(existsSync)).toBe(true);
      expect(await exists(mainEngine, id)).toBe(true);

      child.kill('SIGTERM');
      await ended;
      expect(new Set(await bench.left())).toEqual(new Set([kept, others]));
      const purged = await bench.call(['uninstall', '--purge', '--json']);
      expect(purged.status).toBe(0);
      const [config = '', state = ''] = own;
      const audit = join(state, 'audit');
      const spared = [
        { what: 'config', path: config },
        { what: 'audit', path: audit },
      ];
      expect(JSON.parse(purged.stdout.toString())).toMatchObject({ purged: true, sessions: 0, spared });
      expect(await exists(mainEngine, kept)).toBe(false);
      expect(await exists(mainEngine, others)).toBe(true);
      expect(own.filter(existsSync)).toEqual([config, state]);
      expect(readdirSync(state)).toEqual(['audit']);
      expect((await bench.call(['audit', 'verify'])).status).toBe(0);
      const whole = await bench.call(['uninstall', '--purge', '--with-audit', '--with-config', '--json']);
      expect(whole.status).toBe(0);
      expect(JSON.parse(whole.stdout.toString())).toMatchObject({ purged: true, spared: [] });
      expect(own.filter(existsSync)).toEqual([]);
      expect(await bench.left()).toEqual([others]);
    } finally {
      child.kill('SIGTERM');
      await withEngine(mainEngine, async direct => {
        for (const one of [kept, others]) await direct.containers.remove(one, { force: true, signal: soon() });
      });
    }
  });

  it('keeps forks with changes, says so, and removes them with --with-forks', async () => {
    const [, state = ''] = directories();
    writeFileSync(join(bench.workspace, 'a.txt'), 'one\n');
    expect((await bench.call(['run', '--fork', '--', 'rm', 'a.txt'])).status).toBe(0);
    const forks = join(state, 'f');
    const purged = await bench.call(['uninstall', '--purge', '--json']);
    expect(JSON.parse(purged.stdout.toString())).toMatchObject({
      spared: expect.arrayContaining([{ what: 'forks', path: forks }]),
    });
    expect((await bench.call(['fork', 'diff', '--name-only'])).stdout.toString()).toBe('a.txt\n');
    await bench.call(['uninstall', '--purge', '--with-audit', '--with-forks']);
    expect(existsSync(forks) ? readdirSync(forks) : []).toEqual([]);
  });

  it('shows what a worker of a fleet keeps, which may run, and does not remove it', async () => {
    const [, state = ''] = directories();
    const worker = join(dirname(state), 'acode-worker');
    mkdirSync(worker, { recursive: true });
    writeFileSync(join(worker, 'key.json'), '{}');
    const purged = await bench.call(['uninstall', '--purge', '--json']);
    expect(JSON.parse(purged.stdout.toString())).toMatchObject({ services: [worker] });
    expect(existsSync(join(worker, 'key.json'))).toBe(true);
    rmSync(worker, { recursive: true });
  });

  it('removes a link to the configuration, and not what it leads to', async () => {
    const [config = ''] = directories();
    const elsewhere = join(dirname(dirname(config)), 'dotfiles');
    mkdirSync(elsewhere);
    writeFileSync(join(elsewhere, 'config.yml'), '{}');
    rmSync(config, { recursive: true });
    symlinkSync(elsewhere, config);
    expect((await bench.call(['uninstall', '--purge', '--with-config'])).status).toBe(0);
    expect(existsSync(config)).toBe(false);
    expect(readdirSync(elsewhere)).toEqual(['config.yml']);
  });

  it('removes only what acode put there, and names the rest', async () => {
    const [config = '', state = '', runtime = ''] = directories();
    const notes = [config, state].map(directory => join(directory, 'notes.txt'));
    for (const path of notes) writeFileSync(path, 'mine');
    mkdirSync(join(state, 'src'));
    writeFileSync(join(state, 'src', 'main.ts'), 'mine');
    mkdirSync(join(state, 'audit'), { recursive: true });
    const all = ['uninstall', '--purge', '--with-audit', '--with-config'];
    const { status, stdout } = await bench.call([...all, '--json']);
    expect(status).toBe(125);
    const report: unknown = JSON.parse(stdout.toString());
    expect(report).toMatchObject({ purged: false, left: expect.arrayContaining([...notes, join(state, 'src')]) });
    expect(readdirSync(config)).toEqual(['notes.txt']);
    expect(readdirSync(state).sort()).toEqual(['notes.txt', 'src']);
    expect(readFileSync(join(state, 'src', 'main.ts'), 'utf8')).toBe('mine');
    expect(existsSync(runtime)).toBe(false);
    // For people too; and once that is gone, nothing is left.
    await bench.configure({});
    const told = (await bench.call(all)).stdout.toString();
    for (const path of notes) expect(told).toContain(path);
    for (const path of [...notes, join(state, 'src')]) rmSync(path, { recursive: true });
    expect((await bench.call(all)).status).toBe(0);
    expect([config, state, runtime].filter(existsSync)).toEqual([]);
  });

  it('says what another host of this user’s, or this one before a restart, has left, and removes it with --force', async () => {
    const { child, ended, id } = await sleeping(bench, mainEngine, 'labels');
    const labels = await withEngine(
      mainEngine,
      async direct => (await direct.containers.inspect(id, { signal: soon() })).Config.Labels ?? {},
    );
    const before = await leftover(mainEngine, { ...labels, 'acode.host': 'before-the-restart' });
    try {
      child.kill('SIGTERM');
      await ended;
      const name = await nameOf(before);
      expect((await bench.call(['uninstall'])).stdout.toString()).toContain(name);
      const spared = await bench.call(['uninstall', '--purge', '--json']);
      expect(spared.status).toBe(125);
      expect(JSON.parse(spared.stdout.toString())).toMatchObject({
        purged: false,
        elsewhere: expect.arrayContaining([{ kind: 'container', name }]),
      });
      expect(await exists(mainEngine, before)).toBe(true);
      expect(directories().every(existsSync)).toBe(true);
      expect((await bench.call(['uninstall', '--purge'])).stdout.toString()).toContain('--force');

      // Whoever else works on this engine is of another host too, and must not feel this.
      await using proxy = await EngineProxy.start(mainEngine.socket);
      proxy.onRequest((method, path) =>
        method === 'DELETE' && !path.includes(before)
          ? { status: 404, message: 'none of this test’s', when: 'before' }
          : undefined,
      );
      const env = { DOCKER_HOST: `unix://${proxy.socket}` };
      const purged = await bench.call(['uninstall', '--purge', '--force', '--json'], { env });
      expect(await exists(mainEngine, before)).toBe(false);
      const report: unknown = JSON.parse(purged.stdout.toString());
      expect(report).toMatchObject({
        engine: { removed: expect.arrayContaining([expect.objectContaining({ name })]) },
        elsewhere: expect.not.arrayContaining([{ kind: 'container', name }]),
      });
    } finally {
      child.kill('SIGTERM');
      await withEngine(mainEngine, direct => direct.containers.remove(before, { force: true, signal: soon() }));
    }
  });

  async function nameOf(id: string): Promise<string> {
    return withEngine(mainEngine, async direct =>
      (await direct.containers.inspect(id, { signal: soon() })).Name.replace(/^\//, ''),
    );
  }

  it('without an engine refuses, and with --force clears the disk and says so', async () => {
    const nowhere = { env: { DOCKER_HOST: 'unix:///var/tmp/acode-no-such.sock' } };
    const refused = await bench.call(['uninstall', '--purge'], nowhere);
    expect(refused.status).toBe(125);
    expect(refused.stderr).toContain('ACODE-SBX-008');
    expect(directories().every(existsSync)).toBe(true);
    const all = ['uninstall', '--purge', '--force', '--with-audit', '--with-config'];
    const forced = await bench.call(all, nowhere);
    expect(forced.status).toBe(0);
    expect(forced.stdout.toString()).toContain('The engine was not asked');
    expect(directories().filter(existsSync)).toEqual([]);
  });

  function directories(): string[] {
    const { env } = bench;
    return ['XDG_CONFIG_HOME', 'XDG_STATE_HOME', 'XDG_RUNTIME_DIR'].map(name => join(env[name] ?? '', 'acode'));
  }
});
