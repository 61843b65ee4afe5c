// `acode config` from the arguments to the file: values, changes, consent, problems. Without an engine.

import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { runCli } from '../cli.ts';
import { Recorder, call, testIo } from '../test-process.ts';
import type { Called } from '../test-process.ts';

const top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-config-')));
const project = join(top, 'project');
const file = join(top, 'XDG_CONFIG_HOME', 'acode', 'config.yml');
const CONSENT = 'sandbox.network.allow_bridge';

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

const config = (...argv: string[]): Promise<Called> => call(['config', ...argv], { cwd: () => project });

function write(text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text, { mode: 0o600 });
}

/** Calls the command at a terminal where a person types. */
async function atTerminal(argv: readonly string[], typed: string): Promise<Called> {
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  const stdout = new Recorder();
  const stderr = new Recorder(true, 80);
  stdin.end(typed);
  const status = await runCli(argv, testIo({ stdin, stdout, stderr, env: { NO_COLOR: '1' }, cwd: () => project }));
  return { status, stdout: stdout.text, stderr: stderr.text };
}

async function records(): Promise<Record<string, unknown>[]> {
  const { stdout } = await call(['audit', 'tail', '--json'], { cwd: () => project });
  return (JSON.parse(stdout) as { items: Record<string, unknown>[] }).items;
}

describe('config set', () => {
  it('makes a private file that names its schema, beside the schema', async () => {
    expect(await config('set', 'sandbox.defaults.memory_mb', '2g')).toMatchObject({
      status: 0,
      stdout: `Created ${file}\n`,
    });
    expect(readFileSync(file, 'utf8')).toMatch(
      /^# yaml-language-server: \$schema=\.\/config\.schema\.v1\.json\n[^]*sandbox:\n {2}defaults:\n {4}memory_mb: 2g\n$/,
    );
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(JSON.parse(readFileSync(join(dirname(file), 'config.schema.v1.json'), 'utf8'))).toMatchObject({
      $id: 'urn:acode:config:1',
    });
  });

  it.each([
    ['set', 'sandbox.defaults.memory_mb', '1g'],
    ['set', '--add', 'sandbox.network.allowed_networks', 'db'],
    ['unset', 'sandbox.defaults.memory_mb'],
  ])('and unset refuse a file that is not YAML, with its line and what opens it: %s %s', async (...argv) => {
    const text = 'sandbox:\n\tdefaults:\n\t\tmemory_mb: 1g\n';
    write(text);
    const { status, stderr } = await config(...argv);
    expect({ status, stderr }).toMatchObject({
      status: 125,
      stderr: expect.stringMatching(
        /config\.yml:2:1: is not valid YAML[^]*ACODE-SBX-013[^]*`acode config edit` opens it\./,
      ),
    });
    expect(readFileSync(file, 'utf8')).toBe(text);
  });

  it('preserves comments, order, mode and a link, and says when nothing changes', async () => {
    const real = join(top, 'dotfile.yml');
    writeFileSync(real, '# mine\nsandbox:\n  # why\n  images:\n    default: a # old\n  level: gvisor\n', {
      mode: 0o640,
    });
    chmodSync(real, 0o640);
    mkdirSync(dirname(file), { recursive: true });
    symlinkSync(real, file);
    expect((await config('set', 'sandbox.images.default', 'b')).status).toBe(0);
    expect(readFileSync(real, 'utf8')).toBe(
      '# mine\nsandbox:\n  # why\n  images:\n    default: b # old\n  level: gvisor\n',
    );
    expect(statSync(real).mode & 0o777).toBe(0o640);
    expect((await config('set', 'sandbox.images.default', 'b')).stdout).toContain('says so already');
  });

  it('takes lists, entries to add, names of one’s own, and text where text is wanted', async () => {
    await config('set', '--yes', 'sandbox.network.dns_servers', '1.1.1.1,9.9.9.9');
    await config('set', '--yes', '--add', 'sandbox.network.dns_servers', '8.8.8.8', '1.1.1.1');
    await config('set', 'sandbox.containers.labels.com.example.team', '7');
    await config('set', 'sandbox.images.default', '20');
    const { stdout } = await config('get', '--json');
    const { items } = JSON.parse(stdout) as { items: { key: string; value: unknown }[] };
    expect(Object.fromEntries(items.map(({ key, value }) => [key, value]))).toEqual({
      'sandbox.network.dns_servers': ['1.1.1.1', '9.9.9.9', '8.8.8.8'],
      'sandbox.containers.labels': { 'com.example.team': '7' },
      'sandbox.images.default': '20',
    });
  });

  it('replaces a key that was written with dots, or under an old name', async () => {
    write('sandbox.defaults.memory_mb: 1g\nDefaultImage: a\n');
    await config('set', 'sandbox.defaults.memory_mb', '2g');
    await config('set', 'sandbox.images.default', 'b');
    expect((await config('check')).status).toBe(0);
    const { stdout } = await config('get');
    expect(stdout).toMatch(/memory_mb +2g[^]*images\.default +b/);
  });

  it.each([
    [['sandbox.memory', '2g'], /did you mean sandbox\.defaults\.memory_mb\?/],
    [['sandbox.network', 'x'], /is a section[^]*sandbox\.network\.mode/],
    [['sandbox.defaults.memory_mb', 'lots'], /must be a size[^]*Nothing was changed/],
    [['sandbox.network.allow_bridge', 'no'], /found `no` \(text\); write false/],
    [['sandbox.security.readonly_rootfs', 'false'], /readonly_rootfs/],
    [['--add', 'sandbox.level', 'gvisor'], /not a list/],
    [['completely.different', '1'], /is not a known key\./],
  ])('refuses %j, and writes nothing', async (argv, said) => {
    write('# as it was\n');
    const { status, stderr } = await config('set', ...argv, '--yes');
    expect(status).toBe(125);
    expect(stderr).toMatch(said);
    expect(readFileSync(file, 'utf8')).toBe('# as it was\n');
  });

  it('unset takes out the key and the sections that held nothing else', async () => {
    write('# mine\nsandbox:\n  level: gvisor\n  images:\n    default: a\n');
    expect((await config('unset', 'sandbox.images.default')).status).toBe(0);
    expect(readFileSync(file, 'utf8')).toBe('# mine\nsandbox:\n  level: gvisor\n');
  });
});

describe('a change that loosens', () => {
  it('is asked about at a terminal, with what it allows, and the answer is no unless it is yes', async () => {
    for (const typed of ['', '\n', 'n\n', 'sure\n']) {
      const { status, stderr } = await atTerminal(['config', 'set', CONSENT, 'true'], typed);
      expect(status).toBe(1);
      expect(stderr).toMatch(
        /This loosens the policy:\n {2}sandbox\.network\.allow_bridge: true\n {4}A sandbox that asks/,
      );
      expect(stderr).toMatch(/Change the file\? \[y\/N\][^]*Nothing was changed/);
      expect(existsSync(file)).toBe(false);
    }
    expect(await records()).toEqual([]);
    expect((await atTerminal(['config', 'set', CONSENT, 'true'], 'y\n')).status).toBe(0);
    expect(readFileSync(file, 'utf8')).toContain('allow_bridge: true');
    expect(await records()).toMatchObject([
      { event: 'policy loosened', detail: { keys: CONSENT, consent: 'terminal' } },
    ]);
  });

  it('needs --yes without a terminal, and is recorded with the name of the calling program', async () => {
    for (const argv of [[], ['--json']]) {
      const refused = await config('set', CONSENT, 'true', ...argv);
      expect(refused.status).toBe(2);
      expect(refused.stdout + refused.stderr).toMatch(
        /no terminal to ask at: sandbox\.network\.allow_bridge: true[^]*--yes/,
      );
      expect(existsSync(file)).toBe(false);
    }
    expect((await config('set', CONSENT, 'true', '--yes')).status).toBe(0);
    const parent = readFileSync(`/proc/${process.ppid}/comm`, 'utf8').trim();
    expect(await records()).toMatchObject([{ detail: { file, keys: CONSENT, consent: 'option', parent } }]);
  });

  it('is not made where the record cannot be written', async () => {
    writeFileSync(join(top, 'XDG_STATE_HOME', 'acode'), 'in the way');
    const { status, stderr } = await config('set', CONSENT, 'true', '--yes');
    expect(status).toBe(125);
    expect(stderr).not.toBe('');
    expect(existsSync(file)).toBe(false);
    // What does not loosen needs no record.
    expect((await config('set', 'sandbox.level', 'gvisor')).status).toBe(0);
  });

  it('is not asked about where it tightens', async () => {
    write('sandbox:\n  network:\n    allow_bridge: true\n');
    expect((await config('unset', CONSENT)).status).toBe(0);
    expect((await config('set', CONSENT, 'false')).status).toBe(0);
    expect(await records()).toEqual([]);
  });

  it('is found in an edited file too, and in the trust in a repository’s file', async () => {
    vi.stubEnv('EDITOR', 'sed -i "$ a sandbox.network.allow_bridge: true"');
    const edit = (argv: string[]) => call(['config', 'edit', ...argv], { cwd: () => project, env: { ...process.env } });
    expect(await edit([])).toMatchObject({ status: 2 });
    expect(existsSync(file)).toBe(false);
    expect(await edit(['--yes'])).toMatchObject({ status: 0, stdout: `Created ${file}\n` });
    mkdirSync(join(project, '.agent'));
    writeFileSync(join(project, '.agent', 'config.yml'), 'sandbox:\n  network:\n    mode: bridge\n');
    expect((await call(['trust'], { cwd: () => project })).stderr).toMatch(
      /no terminal to ask at: sandbox\.network\.mode/,
    );
    expect((await atTerminal(['trust'], '\n')).stderr).toContain('not trusted. Nothing was changed');
    expect((await call(['trust', '--show'], { cwd: () => project })).stdout).toMatch(/^Not trusted/);
    expect((await atTerminal(['trust'], 'y\n')).stdout).toMatch(/^Trusted until/);
    expect((await records()).at(-1)).toMatchObject({ event: 'trusted', detail: { consent: 'terminal' } });
  });
});

describe('config edit', () => {
  const edit = (editor: string) => call(['config', 'edit'], { cwd: () => project, env: { EDITOR: editor } });

  it('installs a valid result only, and says everything that is wrong with another', async () => {
    write('sandbox:\n  level: docker\n');
    const { status, stderr } = await edit('sed -i "$ a \\  memroy: 1\\n  leval: 2"');
    expect(status).toBe(1);
    expect(stderr).toMatch(/not installed[^]*config\.yml:3:3[^]*config\.yml:4:3/);
    expect(readFileSync(file, 'utf8')).toBe('sandbox:\n  level: docker\n');
    expect((await edit('sed -i s/docker/gvisor/')).status).toBe(0);
    expect(readFileSync(file, 'utf8')).toBe('sandbox:\n  level: gvisor\n');
    expect((await edit('true')).stderr).toContain('Nothing was changed');
  });

  it('needs an editor that works', async () => {
    expect((await edit('')).stderr).toMatch(/no editor to open[^]*EDITOR=/);
    expect((await edit('false')).stderr).toContain('ended with status 1');
  });
});

describe('config check', () => {
  it('reports every problem of every file, and ends with 1', async () => {
    write('sandbox:\n  memory: 5\n  network:\n    allow_bridge: no\n');
    mkdirSync(join(project, '.agent'));
    writeFileSync(join(project, '.agent', 'config.yml'), 'allow_root: true\nsandbox:\n  docker: { host: /x }\n');
    const { status, stdout } = await config('check');
    expect(status).toBe(1);
    for (const part of [
      /config\.yml:2:3/,
      /config\.yml:4:5/,
      /`allow_root` \(\.agent\/config\.yml:1:1\)/,
      /docker\.host/,
      /^4 problems$/m,
    ])
      expect(stdout).toMatch(part);
    const { items } = JSON.parse((await config('check', '--json')).stdout) as {
      items: { layer: string; problems: unknown[] }[];
    };
    expect(items.map(({ layer, problems }) => [layer, problems.length])).toEqual([
      ['repository', 2],
      ['user', 2],
      ['team', 0],
      ['machine', 0],
    ]);
    expect((await config('get')).status).toBe(125);
  });

  it('warns of a valid file of the repository that keeps commands from running until it is trusted', async () => {
    mkdirSync(join(project, '.agent'));
    writeFileSync(join(project, '.agent', 'config.yml'), 'sandbox:\n  level: auto\n  network:\n    mode: bridge\n');
    const { status, stdout } = await config('check');
    expect({ status, stdout }).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(
        /refused until you trust it, because it sets sandbox\.network\.mode.*`acode trust`/,
      ),
    });
    expect((await call(['trust', '--yes'], { cwd: () => project })).status).toBe(0);
    expect((await config('check')).stdout).not.toContain('refused');
  });

  it('checks a file that is not in its place yet, by the rules of its layer', async () => {
    const draft = join(top, 'policy.yml');
    writeFileSync(draft, 'sandbox:\n  defaults:\n    memory_mb: 1g\n');
    expect((await config('check', draft)).stdout).toMatch(/did you mean sandbox\.ceilings\?/);
    expect((await config('check', '--as', 'user', draft)).status).toBe(0);
    expect((await config('check', join(top, 'none.yml'))).stderr).toContain('does not exist');
    expect((await config('check', '--as', 'team')).status).toBe(2);
  });
});

it('config path names the files, strongest first', async () => {
  const { stdout } = await config('path');
  expect(stdout.split('\n').filter(line => !line.startsWith(' '))).toEqual([
    join(project, '.agent', 'config.yml'),
    file,
    '/etc/acode/config.yml',
    '/etc/acode/policy.yml',
    '',
  ]);
  expect((await config('path', 'user')).stdout).toBe(`${file}\n`);
});

it('config get shows value and place, and ends with 1 for what is not set', async () => {
  write('sandbox:\n  level: gvisor\n');
  expect((await config('get', 'sandbox.level')).stdout).toBe(`sandbox.level: gvisor\n  your own file, ${file}:2:3\n`);
  expect(await config('get', 'sandbox.fallback')).toMatchObject({
    status: 1,
    stdout: expect.stringContaining('is not set') as string,
  });
});

// Root can read every file.
it.skipIf(process.getuid?.() === 0)(
  'status and doctor survive a file that cannot be read, and say what to type',
  async () => {
    write('sandbox: {}\n');
    chmodSync(file, 0o000);
    const socket = ['--socket', join(top, 'none.sock')];
    const status = await call(['sandbox', 'status', ...socket], { cwd: () => project });
    expect(status).toMatchObject({
      status: 1,
      stdout: expect.stringMatching(/permission denied[^]*Levels[^]*chmod u\+r/) as string,
    });
    const doctor = await call(['doctor', ...socket], { cwd: () => project });
    expect(doctor.stdout).toMatch(/✘ Configuration[^]*chmod u\+r[^]*Workspace/);
    expect((await call(['run', '--', 'true', ...[]], { cwd: () => project })).stderr).toMatch(
      /permission denied[^]*chmod u\+r/,
    );
  },
);
