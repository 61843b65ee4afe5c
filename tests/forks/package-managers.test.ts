// npm, pnpm, yarn and cargo in a fork of a workspace that they have filled before: over files that are the host’s. In the long test
// suite alone: `.ci/long forks`. `git mv` of a directory is in git.test.ts.

import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Acode, policyFrom } from '@acode/sandbox';
import type { PolicyInput, RunResult } from '@acode/sandbox';
import { images, mainEngine, makeWorkspace, withoutEngines } from '../support/engines.ts';
import { fingerprint } from './project.ts';

const MIB = 1024 ** 2;
const MANIFEST = {
  name: 'tried',
  version: '1.0.0',
  private: true,
  dependencies: { 'is-number': '7.0.0', once: '1.3.3' },
};
const PRINTED = `node -p "require('is-number/package').version + ' ' + require('once/package').version + ' ' + typeof require('once')"`;

/** A package manager, by what each step of its use is called. */
interface Manager {
  readonly name: string;
  /** Installs what the manifest names. */
  readonly install: string;
  /** Installs again what the lockfile has, over what is there. */
  readonly again: string;
  /** Puts another version in the place of one that is there. */
  readonly upgrade: string;
  /** Removes a package. */
  readonly remove: string;
}

const MANAGERS: readonly Manager[] = [
  {
    name: 'npm',
    install: 'npm install',
    again: 'npm ci',
    upgrade: 'npm install once@1.4.0',
    remove: 'npm uninstall is-number',
  },
  {
    name: 'pnpm',
    install: 'pnpm install',
    again: 'pnpm install --frozen-lockfile --force',
    upgrade: 'pnpm add once@1.4.0',
    remove: 'pnpm remove is-number',
  },
  {
    name: 'yarn',
    install: 'yarn install',
    again: 'yarn install --frozen-lockfile --force',
    upgrade: 'yarn add once@1.4.0',
    remove: 'yarn remove is-number',
  },
];

describe.skipIf(withoutEngines)(`in a fork on ${mainEngine.name}`, () => {
  const registry = new URL(execFileSync('npm', ['config', 'get', 'registry'], { encoding: 'utf8' }).trim());
  let tools = '';

  // This machine’s own Node.js and npm, and the other two from the registry that npm is configured with.
  beforeAll(() => {
    tools = mkdtempSync('/var/tmp/acode-tools-');
    const npm = realpathSync(execFileSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).trim());
    cpSync(realpathSync(process.execPath), join(tools, 'node'));
    cpSync(dirname(dirname(npm)), join(tools, 'npm'), { recursive: true });
    const others = ['--prefix', tools, '--no-audit', '--no-fund', '--ignore-scripts', 'pnpm@10.34.9', 'yarn@1.22.22'];
    execFileSync('npm', ['install', ...others], { stdio: 'ignore', timeout: 120_000 });
    mkdirSync(join(tools, 'bin'));
    const programs = {
      npm: 'npm/bin/npm-cli.js',
      pnpm: 'node_modules/pnpm/bin/pnpm.cjs',
      yarn: 'node_modules/yarn/bin/yarn.js',
    };
    for (const [name, path] of Object.entries(programs))
      writeFileSync(join(tools, 'bin', name), `#!/bin/sh\nexec /tools/node /tools/${path} "$@"\n`, { mode: 0o755 });
  });
  afterAll(() => rmSync(tools, { recursive: true, force: true }));

  it.each(MANAGERS)(
    '$name installs over a node_modules of the host, changes it and removes from it',
    async ({ name, install, again, upgrade, remove }) => {
      const workspace = makeWorkspace();
      const sandbox = {
        images: { default: images.debian },
        mounts: { allowed_host_roots: [tools] },
        network: { private_hosts: [registry.hostname] },
      };
      await using acode = await Acode.open({ workspace, engine: { socket: mainEngine.socket }, config: { sandbox } });
      const run = async (line: string, more: PolicyInput): Promise<RunResult> => {
        const result = await acode.run(`export PATH=/tools/bin:/tools:$PATH; ${line}`, {
          env: {
            ...{ npm_config_registry: registry.href, npm_config_update_notifier: 'false', npm_config_fund: 'false' },
            ...{ npm_config_audit: 'false', YARN_REGISTRY: registry.href, npm_config_confirm_modules_purge: 'false' },
          },
          policy: policyFrom({
            mounts: [{ source: tools, target: '/tools', readOnly: true }],
            network: { allow: [registry.hostname === 'registry.npmjs.org' ? 'npm:install' : registry.host] },
            limits: { memoryBytes: 1024 * MIB, tmpBytes: 512 * MIB },
            ...more,
          }),
        });
        expect({
          line,
          exitCode: result.exitCode,
          output: result.exitCode === 0 ? '' : result.stdout + result.stderr,
        }).toEqual({
          ...{ line, exitCode: 0, output: '' },
        });
        return result;
      };
      const inFork = (line: string): Promise<RunResult> => run(line, { workspace: 'fork', fork: name });
      const last = ({ stdout }: RunResult): string => stdout.trim().split('\n').at(-1) ?? '';
      try {
        writeFileSync(join(workspace, 'package.json'), JSON.stringify(MANIFEST));
        await run(install, { workspace: 'direct' });
        expect(existsSync(join(workspace, 'node_modules/once/package.json'))).toBe(true);
        const before = fingerprint(workspace);
        expect(last(await inFork(`${again}; ${PRINTED}`))).toBe('7.0.0 1.3.3 function');
        expect(last(await inFork(`${upgrade}; ${PRINTED}`))).toBe('7.0.0 1.4.0 function');
        expect(last(await inFork(`${remove}; ls node_modules; test ! -e node_modules/is-number; echo gone $?`))).toBe(
          'gone 0',
        );
        expect(fingerprint(workspace)).toBe(before);
        // The control: it is the same workspace, and what was done is the fork’s, which comes home as a whole.
        const { changes } = await acode.forks.diff({ fork: name });
        expect(changes.map(({ path }) => path)).toContain('package.json');
        expect(await acode.forks.apply({ fork: name, acceptRisk: 'all' })).toMatchObject({
          outcome: 'applied',
          conflicts: [],
        });
        expect(readFileSync(join(workspace, 'node_modules/once/package.json'), 'utf8')).toContain('"1.4.0"');
        expect(existsSync(join(workspace, 'node_modules/is-number'))).toBe(false);
      } finally {
        for (const { id } of await acode.forks.list()) await acode.forks.discard(id);
        rmSync(workspace, { recursive: true, force: true });
      }
    },
  );
});

const withoutCargo = !existsSync('/usr/bin/cargo') || !existsSync('/usr/bin/bwrap') || process.getuid?.() === 0;

describe.skipIf(withoutCargo)('in a fork at level bubblewrap', () => {
  it('cargo builds over a target directory of the host, anew and after a change', async () => {
    const workspace = makeWorkspace();
    const sandbox = { level: 'bubblewrap' as const, bubblewrap: { accept_process_limits: true }, require_for: [] };
    await using acode = await Acode.open({
      ...{ workspace, engine: { socket: '/nonexistent/docker.sock' }, config: { sandbox } },
    });
    const run = async (line: string, more: PolicyInput): Promise<string> => {
      const policy = policyFrom({ limits: { memoryBytes: 2048 * MIB }, ...more });
      const { exitCode, stdout, stderr } = await acode.run(`export CARGO_HOME=/tmp/cargo; ${line}`, {
        policy,
        risk: 'low',
      });
      expect({ line, exitCode, stderr: exitCode === 0 ? '' : stderr }).toEqual({ line, exitCode: 0, stderr: '' });
      return stdout;
    };
    const inFork = (line: string): Promise<string> => run(line, { workspace: 'fork', fork: 'cargo' });
    try {
      const write = (path: string, text: string): void => {
        mkdirSync(dirname(join(workspace, path)), { recursive: true });
        writeFileSync(join(workspace, path), text);
      };
      write('Cargo.toml', '[workspace]\nmembers = ["app", "lib"]\nresolver = "2"\n');
      write('lib/Cargo.toml', '[package]\nname = "own"\nversion = "0.1.0"\nedition = "2021"\n');
      write('lib/src/lib.rs', 'pub fn answer() -> u8 { 41 }\n');
      write(
        'app/Cargo.toml',
        '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nown = { path = "../lib" }\n',
      );
      write('app/src/main.rs', 'fn main() { println!("{}", own::answer()); }\n');
      expect(await run('cargo run --quiet --offline', { workspace: 'direct' })).toBe('41\n');
      const before = fingerprint(workspace);
      expect(await inFork('cargo run --quiet --offline')).toBe('41\n');
      expect(await inFork('sed -i s/41/42/ lib/src/lib.rs; cargo run --quiet --offline')).toBe('42\n');
      expect(await inFork('cargo clean --quiet --offline; cargo run --quiet --offline')).toBe('42\n');
      expect(fingerprint(workspace)).toBe(before);
    } finally {
      for (const { id } of await acode.forks.list()) await acode.forks.discard(id);
      rmSync(workspace, { recursive: true, force: true });
    }
  });
});
