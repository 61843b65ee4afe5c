// `acode egress` from the arguments to what is granted. Without an engine.

import { mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { Acode } from '@acode/sandbox';
import { runCli } from '../cli.ts';
import { Recorder, call, testIo } from '../test-process.ts';
import type { Called } from '../test-process.ts';

const isRoot = process.getuid?.() === 0;
const top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-egress-')));
const project = join(top, 'project');

beforeEach(() => {
  rmSync(top, { recursive: true, force: true });
  mkdirSync(join(project, '.git'), { recursive: true });
  for (const name of ['XDG_CONFIG_HOME', 'XDG_STATE_HOME', 'XDG_RUNTIME_DIR']) {
    mkdirSync(join(top, name), { mode: 0o700 });
    vi.stubEnv(name, join(top, name));
  }
});

afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(top, { recursive: true });
});

const egress = (...argv: string[]): Promise<Called> => call(['egress', ...argv], { cwd: () => project });

async function atTerminal(argv: readonly string[], typed: string, columns = 80): Promise<Called> {
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  const stdout = new Recorder();
  const stderr = new Recorder(true, columns);
  stdin.end(typed);
  const io = testIo({ stdin, stdout, stderr, env: { NO_COLOR: '1' }, cwd: () => project });
  const status = await runCli(['egress', ...argv], io);
  return { status, stdout: stdout.text, stderr: stderr.text };
}

async function asked(host: string): Promise<string> {
  await using acode = await Acode.open({ workspace: project, engine: { socket: join(top, 'no.sock') } });
  return (await acode.network.request({ host, why: 'to install' })).id;
}

describe('egress presets', () => {
  it('name each preset with its version and what it does not prevent, in any width', async () => {
    const { status, stdout } = await egress('presets');
    expect(status).toBe(0);
    expect(stdout).toContain(
      'npm:install\n  install packages from the npm registry; publishing is refused.\n  version 1, hosts:',
    );
    const json = await egress('presets', '--json');
    const { schema, items } = JSON.parse(json.stdout) as { schema: string; items: { name: string; risk: string }[] };
    expect(schema).toBe('acode.egress-presets/1');
    for (const { name, risk } of items) expect([name, risk.endsWith('.')]).toEqual([name, true]);
    const narrow = new Recorder(true, 40);
    await runCli(['egress', 'presets'], testIo({ stdout: narrow, cwd: () => project }));
    for (const line of narrow.text.split('\n')) expect(line.replaceAll(/\u001b\[\d+m/g, '').length).toBeLessThan(41);
  });
});

describe('egress test', () => {
  it('ends with 1 where a request would be refused, and names rule, author and remedy', async () => {
    const good = await egress('test', 'https://pypi.org/simple/', '--network', 'allow=pypi');
    expect(good).toMatchObject({ status: 0, stderr: '' });
    expect(good.stdout).toMatch(/^allowed\n[^]*Rule {2,}pypi\/pypi\.org\n[^]*Set by {2,}--network\n/);
    const bad = await egress('test', 'https://registry.npmjs.org/x', '--network', 'allow=pypi');
    expect(bad.status).toBe(1);
    expect(bad.stdout).toMatch(
      /^refused\n[^]*not-listed[^]*--network allow=npm:install[^]*set --add sandbox\.network\.allow/,
    );
    expect(await egress('test', '10.0.0.1')).toMatchObject({ status: 125, stderr: expect.stringContaining('URL') });
  });
});

describe.skipIf(isRoot)('egress allow', () => {
  it('asks a person at a terminal, whose answer is no unless it begins with y', async () => {
    const id = await asked('registry.npmjs.org');
    const pending = await egress('pending');
    expect(pending.stdout).toMatch(
      new RegExp(`${id} +just now +registry\\.npmjs\\.org:443 +npm:install +a model: "to install"`),
    );
    const no = await atTerminal(['allow', id], '\n');
    expect(no).toMatchObject({ status: 1, stdout: '' });
    expect(no.stderr).toContain('This loosens the policy:');
    expect(no.stderr).toContain('A model asks for it: "to install"');
    expect(JSON.parse((await egress('pending', '--json')).stdout)).toMatchObject({ items: [{ id }] });
    const yes = await atTerminal(['allow', id], 'y\n');
    expect(yes).toMatchObject({ status: 0, stdout: expect.stringContaining('the next command with an allow-list') });
    expect((await egress('pending')).stdout).toContain('Nothing waits');
    expect(await atTerminal(['allow', id], 'y\n')).toMatchObject({ status: 125, stdout: '' });
  });

  it('is refused without a terminal, unless a person agreed; then the record names the calling program', async () => {
    const id = await asked('a.example');
    const refused = await egress('allow', id, '--task');
    expect(refused).toMatchObject({ status: 2, stdout: '' });
    expect(refused.stderr).toContain('there is no terminal to ask at');
    expect(JSON.parse((await egress('pending', '--json')).stdout)).toMatchObject({ items: [{ id }] });
    expect(await egress('allow', id, '--task', '--yes')).toMatchObject({ status: 0 });
    const { stdout } = await call(['audit', 'tail', '--json'], { cwd: () => project });
    expect(JSON.parse(stdout)).toMatchObject({
      items: [
        { event: 'network access requested' },
        { event: 'network access granted', detail: { for: 'task', consent: 'option', parent: expect.any(String) } },
      ],
    });
  });

  it('with --save adds the entry to the user’s own file, after asking', async () => {
    const id = await asked('a.example');
    expect(await egress('allow', id, '--save')).toMatchObject({ status: 2 });
    expect(await atTerminal(['allow', id, '--save'], 'y\n')).toMatchObject({ status: 0 });
    expect(readFileSync(join(top, 'XDG_CONFIG_HOME', 'acode', 'config.yml'), 'utf8')).toContain('a.example');
  });
});

describe('run --learn=open', () => {
  it('needs the consent of the user’s own file, which no repository can give', async () => {
    const learn = (): Promise<Called> => call(['run', '--learn=open', 'true'], { cwd: () => project });
    const refused = await learn();
    expect(refused).toMatchObject({ status: 2, stdout: '' });
    expect(refused.stderr).toContain('acode config set sandbox.network.allow_learning true');
    mkdirSync(join(project, '.agent'));
    writeFileSync(join(project, '.agent', 'config.yml'), 'sandbox: { network: { allow_learning: true } }');
    expect(await learn()).toMatchObject({ status: 125, stdout: '', stderr: expect.stringContaining('allow_learning') });
    expect(await call(['run', '--learn', 'true'], { cwd: () => project })).toMatchObject({
      status: 2,
      stderr: expect.stringContaining('there is no terminal to ask at'),
    });
  });
});

describe('egress log', () => {
  it('says so where nothing is recorded, and follows no end with --json', async () => {
    expect((await egress('log')).stdout).toContain('No command with an allow-list');
    expect(await egress('log', '--follow', '--json')).toMatchObject({ status: 2 });
  });
});
