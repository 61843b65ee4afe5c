// `acode init` without an engine: what it finds, writes, never overwrites, and shows to try.

import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { runCli } from '../cli.ts';
import { TOOL_NAMES } from '../project/names.ts';
import { Recorder, call, testIo } from '../test-process.ts';
import type { Called } from '../test-process.ts';
import { firstConfig } from './config-text.ts';

const top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-init-')));
const project = join(top, 'project');
const file = join(top, 'XDG_CONFIG_HOME', 'acode', 'config.yml');

beforeEach(() => {
  rmSync(top, { recursive: true, force: true });
  mkdirSync(join(project, '.git'), { recursive: true });
  writeFileSync(join(project, 'package.json'), '{"scripts":{"test":"node --test"}}');
  for (const name of ['XDG_CONFIG_HOME', 'XDG_STATE_HOME', 'XDG_RUNTIME_DIR']) {
    mkdirSync(join(top, name), { mode: 0o700 });
    vi.stubEnv(name, join(top, name));
  }
  vi.stubEnv('DOCKER_HOST', `unix://${join(top, 'no.sock')}`);
});

afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(top, { recursive: true });
});

function program(path: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, '#!/bin/sh\n');
  chmodSync(path, 0o755);
}

const init = (): Promise<Called> =>
  call(['init'], { cwd: () => project, env: { PATH: [join(top, 'bin'), join(project, 'bin')].join(':') } });

async function atTerminal(typed: string): Promise<Called> {
  const stdin = Object.assign(new PassThrough(), { isTTY: true });
  const stdout = new Recorder();
  const stderr = new Recorder(true, 80);
  stdin.end(typed);
  const status = await runCli(['init'], testIo({ stdin, stdout, stderr, env: { NO_COLOR: '1' }, cwd: () => project }));
  return { status, stdout: stdout.text, stderr: stderr.text };
}

describe('acode init', () => {
  it('shows what it finds and would write, asks, writes, runs the doctor and shows three commands', async () => {
    const { status, stdout, stderr } = await atTerminal('\n');
    expect(stderr).toContain('acode: Write it? [Y/n]');
    expect(stdout).toMatch(/Found here\n {2}Engine +.*no\.sock[^]*Project +.*project, with npm/);
    expect(stdout).toContain(
      readFileSync(file, 'utf8')
        .trimEnd()
        .split('\n')
        .map(line => `│ ${line}`.trimEnd())
        .join('\n'),
    );
    expect(stdout).toContain(`✔ created ${file}`);
    expect(stdout).toMatch(/✘ Engine reachable[^]*✔ \d+ checks passed \(`acode doctor` lists them\)/);
    expect(stdout).toMatch(
      /Try, once[^]*\n {2}acode run --network allow=npm:install -- npm install\n[^]*\n {2}acode run --fork [^]*\n {2}acode agent claude\n.*first: export ANTHROPIC_API_KEY=…/,
    );
    // The doctor’s.
    expect(status).toBe(1);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect((await call(['config', 'check'], { cwd: () => project })).status).toBe(0);
  });

  it('writes nothing where the person says no, and works without a file', async () => {
    const { stdout } = await atTerminal('n\n');
    expect(existsSync(file)).toBe(false);
    expect(stdout).toContain('Nothing was written. acode works without a file.');
    expect(stdout).toContain('Engine reachable');
  });

  it('shows an agent whose key is there, and acode downloads it', async () => {
    const env = { PATH: join(top, 'bin'), OPENAI_API_KEY: 'x' };
    const { stdout } = await call(['init', '--yes'], { cwd: () => project, env });
    expect(stdout).toMatch(/Agents +none in your PATH; `acode agent` downloads one/);
    expect(stdout).toMatch(/acode agent codex\n +the whole agent in a sandbox, on a copy\n/);
  });

  it('never changes a file that exists, valid or not', async () => {
    mkdirSync(dirname(file), { recursive: true });
    for (const text of ['mode: airgapped\n', 'broken: [\n', '']) {
      writeFileSync(file, text);
      const { stdout } = await call(['init', '--yes'], { cwd: () => project });
      expect(readFileSync(file, 'utf8')).toBe(text);
      expect(stdout).toContain('acode init never changes it');
    }
  });

  it('is refused where there is nobody to ask, before anything is read; --yes writes', async () => {
    const { status, stderr } = await init();
    expect(status).toBe(2);
    expect(stderr).toMatch(/no terminal to ask at[^]*add --yes/);
    expect(existsSync(file)).toBe(false);
    await call(['init', '--yes'], { cwd: () => project });
    expect(existsSync(file)).toBe(true);
  });

  it('prints one object with --json, and agents of the PATH but not those of the workspace', async () => {
    program(join(top, 'bin', 'claude'));
    program(join(project, 'bin', 'codex'));
    mkdirSync(join(project, 'node_modules'));
    const env = { PATH: [join(top, 'bin'), join(project, 'bin')].join(':') };
    const { stdout } = await call(['--json', 'init', '--yes'], { cwd: () => project, env });
    expect(JSON.parse(stdout)).toMatchObject({
      schema: 'acode.init/1',
      engine: null,
      project: { directory: project, tool: 'npm' },
      agents: ['claude'],
      file,
      outcome: 'created',
      doctor: { ok: false },
      next: [{ type: 'acode test' }, {}, { type: 'acode agent claude' }],
    });
  });
});

describe('the first configuration', () => {
  it('is valid with each of its lines taken on, for every tool, and loosens nothing as it is written', async () => {
    for (const tool of [...TOOL_NAMES, null]) {
      const text = firstConfig({ head: '', tool, image: 'registry.example:5000/a"b:1' });
      const off = text.split('\n').flatMap((line, at) => (/^ {2}# \w+: [{[]/.test(line) ? [at] : []));
      expect(off.length).toBe(5);
      const whole = text.replaceAll(/^ {2}# (?=\w+: [{[])/gm, '  ');
      writeFileSync(join(top, 'config.yml'), whole.replace('a\\"b', 'ab'));
      const checked = await call(['config', 'check', join(top, 'config.yml')], { cwd: () => project });
      expect(checked.stdout, whole).toContain('No problem found');
    }
  });
});
