// Quiet by default, without hiding anything: a healthy project hears nothing from acode, and what is planted where the scan after the run
// does not come is still told.

import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { quoted } from '../../packages/cli/src/arguments/command-arguments.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';
import { DEEP_HOOK, PLANT_HOOK, fillWorkspace } from '../support/full-workspace.ts';
import { BIN, Bench } from './bench.ts';

// A shell of a person at a terminal: it types a line, sees what comes until `seen`, and leaves.
function inShell(bench: Bench, argv: readonly string[], seen: RegExp): Promise<string> {
  const child = spawn('/usr/bin/script', ['-q', '-f', '-c', 'exec /bin/sh -i', '/dev/null'], {
    cwd: bench.workspace,
    env: { ...bench.env, SHELL: '/bin/sh', TERM: 'dumb', PS1: 'prompt> ' },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  let text = '';
  let step = 0;
  child.stdout.on('data', (chunk: Buffer) => {
    text += chunk.toString();
    if (step === 0 && text.includes('prompt> ')) {
      step = 1;
      text = '';
      child.stdin.write(`${[process.execPath, BIN, ...argv].map(quoted).join(' ')}; echo ended with $?\n`);
    } else if (step === 1 && seen.test(text)) {
      step = 2;
      child.stdin.write('exit\n');
    }
  });
  return new Promise(resolve => child.once('close', () => resolve(text.replaceAll('\r', ''))));
}

// Progress is drawn over again and erased; what is left is what a person reads.
const left = (text: string): string => text.replaceAll(/[^\n]*\u001b\[2K/g, '');

describe.skipIf(withoutEngines)('a workspace that the scan after a run cannot see all of', () => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
    fillWorkspace(bench.workspace, 'with files');
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  it('hears of a hook planted deep below by the next command, first thing and once; the call itself says nothing', async () => {
    const { status, stdout, stderr } = await bench.exec(['--json', PLANT_HOOK]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(JSON.parse(stdout.toString())).toMatchObject({ scan: 'continuing', riskyChanges: [] });
    await bench.scanned();
    const next = await bench.call(['run', 'echo hello >&2']);
    expect(next.stderr).toMatch(/^acode: the background scan after the command of .* found more:\n/);
    expect(next.stderr).toMatch(new RegExp(`git-settings .*: ${DEEP_HOOK}\nhello\n$`));
    expect((await bench.call(['run', 'echo hello >&2'])).stderr).toBe('hello\n');
    const { stdout: tail } = await bench.call(['audit', 'tail', '-n', '20', '--json']);
    expect(tail.toString()).toMatch(new RegExp(`"operation":\\s*"scan"[^]*${DEEP_HOOK}`));
    // What a program was told, a terminal says once more.
    const prompt = /ended with \d+\s[^]*prompt> $/;
    expect(left(await inShell(bench, ['audit', 'tail'], prompt))).toContain('found more:');
    expect(left(await inShell(bench, ['audit', 'tail'], prompt))).not.toContain('found more:');
    await bench.scanned();
    // The control: scans that found nothing have nothing to tell.
    expect((await bench.call(['run', 'true'])).stderr).toBe('');
  });

  it('hears of it at the terminal that ran the command, when its shell is at the prompt again', async () => {
    rmSync(join(bench.workspace, DEEP_HOOK), { force: true });
    const text = await inShell(bench, ['run', `${PLANT_HOOK}; echo planted`], new RegExp(`${DEEP_HOOK}\\s+$`));
    expect(left(text)).toMatch(
      new RegExp(`planted\nended with 0\n.*\n+acode: the background scan .* found more:\n[^]*${DEEP_HOOK}\n`),
    );
    expect((await bench.call(['audit', 'tail'])).stderr).toContain(DEEP_HOOK);
  });

  it('hears of what a command left that was stopped by a signal', async () => {
    const stopped = await bench.exec([`${PLANT_HOOK}; echo planted; sleep 60`], {
      onOutput: child => child.kill('SIGINT'),
    });
    expect([stopped.status, stopped.stderr]).toEqual([130, 'acode: stopped by SIGINT.\n']);
    await bench.scanned();
    expect((await bench.call(['audit', 'tail'])).stderr).toContain(DEEP_HOOK);
  });
});

// Nothing here needs a network: the dependency lies in the repository.
function healthyProject(root: string): void {
  const put = (name: string, content: string | object): void =>
    writeFileSync(join(root, name), typeof content === 'string' ? content : JSON.stringify(content));
  const git = (...words: string[]): void =>
    void execFileSync('git', ['-c', 'user.name=n', '-c', 'user.email=e@localhost', ...words], { cwd: root });
  mkdirSync(join(root, 'package'));
  put('package/package.json', { name: 'dep', version: '1.0.0', bin: { dep: 'dep.js' } });
  put('package/dep.js', '#!/usr/bin/env node\n');
  execFileSync('tar', ['-czf', 'dep.tgz', 'package'], { cwd: root });
  rmSync(join(root, 'package'), { recursive: true });
  const own = { name: 'healthy', version: '1.0.0', dependencies: { dep: 'file:dep.tgz' } };
  put('package.json', { ...own, scripts: { test: 'dep && node --test' } });
  put('package-lock.json', {
    name: 'healthy',
    version: '1.0.0',
    lockfileVersion: 3,
    packages: { '': own, 'node_modules/dep': { version: '1.0.0', resolved: 'file:dep.tgz', bin: { dep: 'dep.js' } } },
  });
  put('a.test.js', "require('node:test')('works', () => undefined);\n");
  put('main.c', 'int main(void) { return 0; }\n');
  put('Makefile', 'program: main.c\n\tgcc -o program main.c\n');
  put('.gitignore', 'node_modules\n.venv\nprogram\nt\n');
  rmSync(join(root, '.git'), { recursive: true });
  git('init', '-q');
  git('add', '.');
  git('commit', '-qm', 'all');
}

describe.skipIf(withoutEngines)('a healthy project', () => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
    await bench.configure({ images: { default: images.debian, node: images.debian } });
    healthyProject(bench.workspace);
    fillWorkspace(bench.workspace);
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  it('hears nothing of acode after installing, testing, building and asking git, nor when the scans went on', async () => {
    for (const [command, printed] of [
      ['npm ci', /added 1 package/],
      ['npm test', /pass 1/],
      ['python3 -m venv --without-pip .venv && .venv/bin/python -c "print(1 + 1)"', /^2\n$/],
      ['make', /gcc/],
      ['git status', /working tree clean/],
    ] as const) {
      const { status, stdout, stderr } = await bench.call(['run', command]);
      expect({ command, status, stderr }).toEqual({ command, status: 0, stderr: '' });
      expect(stdout.toString()).toMatch(printed);
    }
    await bench.scanned();
    expect((await bench.call(['audit', 'tail'])).stderr).toBe('');
  });

  it('hears nothing at a terminal either', async () => {
    const text = await inShell(bench, ['run', 'npm test'], /ended with \d+\s[^]*prompt> $/);
    expect(left(text)).toMatch(/pass 1[^]*ended with 0\n/);
    expect(left(text).replace(/^.*\n/, '')).not.toContain('acode');
  });
});
