// Command line from the arguments to the exit status, in this process and without an engine.

import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { runCli } from './cli.ts';
import { EXAMPLES } from './examples.ts';
import { Recorder, call, testIo } from './test-process.ts';

let top = '';

beforeAll(() => {
  top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-cli-')));
  for (const name of ['XDG_CONFIG_HOME', 'XDG_STATE_HOME', 'XDG_RUNTIME_DIR']) vi.stubEnv(name, join(top, name));
});

afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(top, { recursive: true });
});

describe('help', () => {
  it('lists the commands and examples, and ends with 0', async () => {
    const { status, stdout, stderr } = await call(['--help']);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    for (const word of ['sandbox', 'run', 'explain', 'trust', 'docker', 'completion', '--json', 'Examples:'])
      expect(stdout).toContain(word);
  });

  it.each(Object.keys(EXAMPLES))('of %s has its examples', async called => {
    const { stdout } = await call([...called.split(' ').slice(1), '--help']);
    for (const { type } of EXAMPLES[called] ?? []) expect(stdout).toContain(type);
  });

  it.each(['', 'run', 'explain', 'sandbox', 'sandbox exec', 'trust', 'completion'])(
    'of `acode %s` stays within 100 columns',
    async words => {
      const { status, stdout } = await call([...words.split(' ').filter(Boolean), '--help']);
      expect(status).toBe(0);
      for (const line of stdout.split('\n')) expect(line.length, line).toBeLessThanOrEqual(100);
    },
  );

  it('is one object with --json', async () => {
    const { stdout } = await call(['--json', 'sandbox', 'exec', '--help']);
    expect(JSON.parse(stdout)).toMatchObject({ schema: 'acode.help/1', text: expect.stringContaining('--memory') });
  });

  it('is what a group without a command answers with, as a mistake', async () => {
    const { status, stdout, stderr } = await call(['sandbox']);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toContain('Usage: acode sandbox');
  });

  it('fits the terminal', async () => {
    const stdout = new Recorder(true, 72);
    await runCli(['sandbox', 'cleanup', '--help'], testIo({ stdout }));
    const [options] = stdout.text.split('Examples:');
    for (const line of options?.split('\n') ?? []) expect(line.length).toBeLessThanOrEqual(72);
  });
});

describe('the version', () => {
  it('is printed', async () => {
    await expect(call(['--version'])).resolves.toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
    });
  });

  it('is what -v shows too, alone', async () => {
    expect((await call(['-v'])).stdout).toBe((await call(['--version'])).stdout);
    await expect(call(['-v', 'run'])).resolves.toMatchObject({ status: 2 });
  });

  it('is one object with --json', async () => {
    const { stdout } = await call(['--json', '--version']);
    expect(JSON.parse(stdout)).toMatchObject({ schema: 'acode.version/1' });
  });
});

describe('a mistake in the call', () => {
  it.each<[string[], RegExp]>([
    [['sandbx'], /Did you mean sandbox/],
    [['pull', 'node:20'], /Did you mean `acode sandbox pull`/],
    [['images'], /Did you mean `acode sandbox images`/],
    [['verify'], /Did you mean `acode audit verify`/],
    [['sandbox', 'stauts'], /Did you mean status/],
    [['sandbox', 'exec', '--memroy', '64', 'ls'], /Did you mean --memory/],
    [['sandbox', 'exec', '--memory', 'lots', 'ls'], /512m/],
    [['sandbox', 'exec', '--memory'], /--help/],
    [['sandbox', 'exec', '--env', 'ACODE_NOT_SET', 'ls'], /`export ACODE_NOT_SET=…`.*`--env ACODE_NOT_SET=value`/],
    [['sandbox', 'exec', '--env', 'a b=c', 'ls'], /NAME=value, or NAME/],
    [['sandbox', 'exec', '--level', 'strong', 'ls'], /docker/],
    [['run', '--runtmie', 'runsc', 'ls'], /Did you mean --runtime/],
    [['explain', '--pubish', '80', 'ls'], /Did you mean --publish/],
    [['run', '--mount', '/a', 'ls'], /\.\/data:\/data/],
    [['run', '--publish', '0.0.0.0:80:80', 'ls'], /8080:3000.*127\.0\.0\.1 only/],
    [['run', '--dns', 'dns.example', 'ls'], /1\.1\.1\.1/],
    [['run', '--profile', 'huge', 'ls'], /exec, dev, task, swarm/],
    [['run', '--open-files', '0', 'ls'], /whole number/],
    [['run', '--memory', '0', 'ls'], /above zero/],
    [['run', '--tmp', '0k', 'ls'], /above zero/],
    [['run', '--tmp', 'big', 'ls'], /512m/],
    [['run', '--swap', '-1', 'ls'], /512m/],
    [['run', '--network', 'a b', 'ls'], /none, allow=<hosts>, bridge/],
    [['sandbox', 'exec', 'echo', 'hi'], /acode sandbox exec -- echo hi/],
    [['sandbox', 'exec', 'ls', '--network', 'none'], /acode sandbox exec --network none ls/],
    [['run', '--image', 'x', '--readonly', 'echo', 'hi'], /`acode run … "echo hi"`.*`acode run … -- echo hi`/],
    [['run', '--readonly', 'ls', '--timeout', '5'], /`acode run … --timeout 5 ls`/],
    [['run', '--rm', 'ls'], /removed automatically/],
    [['run', '--gpus', 'all', 'ls'], /hint: A sandbox has no access to GPUs\.\n/],
    [['sandbox', 'create', '--gpus=all'], /no access to GPUs/],
    [['mcp', '--print-config', 'claud'], /claude-code/],
    [['run', '--dry-run', 'ls'], /`acode explain/],
    [['version'], /`acode --version`/],
    [['sandbox', 'exec'], /acode sandbox exec -- echo hi/],
    [['run', '--'], /acode run -- echo hi/],
    [['sandbox', 'list', 'extra'], /--help/],
    [['sandbox', 'list', '--', 'x'], /--help/],
    [['sandbox', 'inspect'], /--help/],
    [['run', '--network', 'npm:install', 'ls'], /Did you mean --network allow=npm:install\?/],
    [['run', '--network', 'alow=npm:install', 'ls'], /Did you mean --network allow=npm:install\?/],
    [['run', '--network', 'allow:pypi', 'ls'], /Did you mean --network allow=pypi\?/],
    [['run', '--network', 'none,allow=pypi', 'ls'], /Expected none, allow=<hosts>/],
    [['run', '--net', 'none', 'ls'], /Did you mean --network\?/],
    [['run', '--allow', 'pypi', 'ls'], /Did you mean --network allow=<hosts>\?/],
    [['run', '--fork', '--deps', 'ls'], /leave --fork out; to have the fork, leave --deps out/],
    [['run', '--', '--fork', 'ls'], /`acode run --fork -- ls`/],
    [['--fork', 'run', 'ls'], /`acode run --fork -- …`/],
    [['fork', 'run', 'ls'], /`acode run --fork -- <command>`/],
    [['diff'], /`acode fork diff`/],
    [['apply'], /`acode fork apply`/],
    [['trsut'], /Did you mean trust/],
    [['trust', '--rovoke'], /Did you mean --revoke/],
    [['trust', '--show', '--revoke'], /Leave one of the two out/],
    [['trust', 'it'], /--help/],
    [['completion', 'tcsh'], /bash/],
    [['docker', 'exec', 'ls'], /--help/],
  ])('%j ends with 2, a short message and what to do next', async (argv, hint) => {
    const { status, stdout, stderr } = await call(argv);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toMatch(/^acode: .*\n├▶ code: ACODE-CLI-001\n╰▶ hint: /);
    expect(stderr).toMatch(hint);
    expect(stderr).not.toMatch(/\n\s+at /);
  });

  it('is one object with --json, wherever that stands', async () => {
    for (const [argv, context] of [
      [['--json', 'sandbx'], {}],
      [['sandbox', 'exec', '--json', '--memroy', '1', 'ls'], { option: '--memroy' }],
      [['sandbox', '--json'], {}],
    ] as const) {
      const { status, stdout } = await call(argv);
      expect(status).toBe(2);
      expect(JSON.parse(stdout)).toEqual({
        schema: 'acode.error/1',
        code: 'ACODE-CLI-001',
        message: expect.any(String),
        hint: expect.any(String),
        context,
        correlationId: null,
      });
    }
  });

  it('in ACODE_LOG_LEVEL is one too', async () => {
    const { status, stderr } = await call(['sandbox', 'status'], { env: { ACODE_LOG_LEVEL: 'loud' } });
    expect(status).toBe(2);
    expect(stderr).toContain('ACODE_LOG_LEVEL is loud');
  });

  it('is red on a terminal, and is not with --no-color', async () => {
    const coloured = new Recorder(true);
    const plain = new Recorder(true);
    await runCli(['sandbx'], testIo({ stderr: coloured }));
    await runCli(['--no-color', 'sandbx'], testIo({ stderr: plain }));
    expect(coloured.text).toContain('\u001b[31m');
    expect(plain.text).not.toContain('\u001b');
  });
});

describe('status without an engine', () => {
  const argv = ['sandbox', 'status', '--socket', '/nonexistent/docker.sock'];

  it('says so, with a hint, and ends with 1', async () => {
    const { status, stdout } = await call(argv);
    expect(status).toBe(1);
    expect(stdout).toMatch(/^Sandbox unavailable: .*\/nonexistent\/docker\.sock/);
    expect(stdout).toContain('╰▶ hint: Start Docker');
    expect(stdout).not.toMatch(/fail-closed|nothing was run/i);
  });

  it('says so in one object with --json', async () => {
    const { status, stdout } = await call(['--json', ...argv]);
    expect(status).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ schema: 'acode.status/1', available: false, level: null });
  });

  it('logs with --verbose: JSON for programs, a line for people', async () => {
    const { stdout, status } = await call([...argv, '--verbose', '--config', join(top, 'none.yml')]);
    expect(stdout).toMatch(/^Sandbox unavailable: .*none\.yml: does not exist/);
    expect(status).toBe(1);
    const quiet = await call(argv, { env: { ACODE_LOG_LEVEL: 'debug' } });
    for (const line of quiet.stderr.trim().split('\n').filter(Boolean)) expect(() => JSON.parse(line)).not.toThrow();
  });
});

it('logs lists nothing where nothing was kept', async () => {
  await expect(call(['sandbox', 'logs'])).resolves.toMatchObject({
    status: 0,
    stdout: 'No run has saved output.\n',
  });
});

describe('trust', () => {
  const file = () => join(top, 'project', '.agent', 'config.yml');
  const trust = (...argv: string[]) => call(['trust', ...argv], { cwd: () => join(top, 'project') });
  const write = (content: string) => {
    mkdirSync(join(top, 'project', '.agent'), { recursive: true });
    writeFileSync(file(), content);
  };

  it('says so with 1 where there is no file, and changes nothing', async () => {
    mkdirSync(join(top, 'project', '.git'), { recursive: true });
    for (const argv of [[], ['--show'], ['--revoke']]) {
      const { status, stdout, stderr } = await trust(...argv);
      expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
      expect(stderr).toMatch(/project has no \.agent\/config\.yml[^]*hint: /);
    }
    const { status, stdout } = await trust('--json');
    expect(status).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ schema: 'acode.trust/1', file: null, trusted: false });
  });

  it('shows what the file asks for, and grants only when asked to', async () => {
    write('sandbox:\n  network:\n    mode: bridge\n');
    for (let look = 0; look < 2; look += 1) {
      const { status, stdout } = await trust('--show');
      expect(status).toBe(0);
      expect(stdout).toMatch(/^Not trusted\n/);
      expect(stdout).toMatch(/File +\S+project\/\.agent\/config\.yml\n/);
      expect(stdout).toMatch(/Content +sha256:[0-9a-f]{64}\n/);
      expect(stdout).toMatch(/sandbox\.network\.mode: .?bridge.?\n +\S*config\.yml:3:5/);
    }
  });

  it('lasts until the content changes, or is revoked', async () => {
    write('sandbox:\n  network:\n    mode: bridge\n');
    expect((await trust('--yes')).stdout).toMatch(/^Trusted until its content changes\n[^]*--revoke/);
    expect(JSON.parse((await trust('--show', '--json')).stdout)).toMatchObject({
      schema: 'acode.trust/1',
      file: file(),
      trusted: true,
      needsTrust: [{ key: 'sandbox.network.mode', value: expect.stringContaining('bridge') }],
    });
    write('sandbox:\n  network:\n    mode: bridge \n');
    expect((await trust('--show')).stdout).toMatch(/^Not trusted: changed since you trusted it\n/);
    write('sandbox:\n  network:\n    mode: bridge\n');
    expect((await trust('--show')).stdout).toMatch(/^Trusted /);
    expect((await trust('--revoke')).stdout).toMatch(/^Not trusted\n[^]*The trust was ended/);
    expect((await trust('--show')).stdout).toMatch(/^Not trusted\n/);
  });

  it('says that a file which only tightens needs none', async () => {
    write('sandbox:\n  defaults:\n    memory_mb: 64\n');
    expect((await trust('--show')).stdout).toContain('no need to trust it');
  });

  it('says that a file which is refused anyway is, before and after it is trusted', async () => {
    write('sandbox:\n  mounts:\n    additional:\n      - { source: /etc, target: /data }\n');
    for (const argv of [['--show'], ['--yes'], ['--show']]) {
      const { status, stdout } = await trust(...argv);
      expect(status).toBe(0);
      expect(stdout).toMatch(/It is refused, trusted or not:\n.*not inside the repository\n.*config\.yml:4:9/);
    }
    write('sandbox:\n  docker:\n    host: unix:///x\n');
    const { status, stderr } = await trust('--show');
    expect(status).toBe(125);
    expect(stderr).toMatch(/may not set `sandbox\.docker\.host`.*only your own configuration may set it/);
  });

  it('of a file that is wrong is an error with its place', async () => {
    write('sandbox:\n  netwrok: {}\n');
    const { status, stderr } = await trust();
    expect(status).toBe(125);
    expect(stderr).toMatch(/config\.yml:2:3[^]*ACODE-SBX-013/);
  });
});

it('kept output is read whatever becomes of new runs', async () => {
  const state = join(top, 'state-with-logs');
  const before = process.env['XDG_STATE_HOME'];
  vi.stubEnv('XDG_STATE_HOME', state);
  try {
    const logs = join(state, 'acode', 'logs');
    mkdirSync(logs, { recursive: true, mode: 0o700 });
    const header = {
      name: 'acode-1-old-001',
      sandboxId: 'abcdef12',
      command: 'ls',
      endedAt: '2026-01-01',
      exitCode: 0,
    };
    const body = { stdout: 'kept\n', stderr: '', dropped: { stdout: 0, stderr: 0 } };
    writeFileSync(
      join(logs, '000001700000000-abcdef12.log.json'),
      `${JSON.stringify(header)}\n${JSON.stringify(body)}\n`,
    );
    const config = join(state, 'config.yml');
    writeFileSync(config, 'sandbox: { output: { save: false } }\n');
    expect((await call(['sandbox', 'logs', '--config', config])).stdout).toContain('acode-1-old-001');
    expect((await call(['sandbox', 'logs', '--config', config, 'abcdef12'])).stdout).toBe('kept\n');
  } finally {
    vi.stubEnv('XDG_STATE_HOME', before);
  }
});

it('a run that is not there is an error with its code', async () => {
  const { status, stderr } = await call(['docker', 'logs', 'nothing']);
  expect(status).toBe(125);
  expect(stderr).toContain('ACODE-CTN-012');
});

it('ends quietly with 141 where the output was closed', async () => {
  const stdout = new Writable({
    write: (_chunk, _encoding, done) => done(Object.assign(new Error('EPIPE'), { code: 'EPIPE' })),
  });
  const stderr = new Recorder();
  await expect(runCli(['--help'], testIo({ stdout, stderr }))).resolves.toBe(141);
  expect(stderr.text).toBe('');
});

it('says so with 125 where the output cannot be written for another reason', async () => {
  const full = Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' });
  const stdout = new Writable({ write: (_chunk, _encoding, done) => done(full) });
  const stderr = new Recorder();
  await expect(runCli(['--help'], testIo({ stdout, stderr }))).resolves.toBe(125);
  expect(stderr.text).toBe('acode: Standard output cannot be written: ENOSPC: no space left on device.\n');
});

it('says so where the current directory was removed', async () => {
  const cwd = (): string => {
    throw new Error('ENOENT: no such file or directory, uv_cwd');
  };
  const { status, stderr } = await call(['sandbox', 'status'], { cwd });
  expect(status).toBe(2);
  expect(stderr).toContain('The current directory does not exist any more.');
});
