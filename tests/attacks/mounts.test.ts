// Group B: talking the sandbox into a part of the host that it must not have.

import { existsSync, mkdirSync, renameSync, symlinkSync, unlinkSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import type { RunRequest } from '@acode/sandbox';
import { withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { Arena } from './arena.ts';
import { attack } from './attack.ts';
import { HostMount } from './host-mount.ts';
import { refusal } from './refusal.ts';
import type { Refusal } from './refusal.ts';
import { Scratch } from './scratch.ts';
import { targetsOf } from './targets.ts';
import type { Target } from './targets.ts';
import { bind, runWeakened } from './weakened.ts';

describe.skipIf(withoutEngines).each(targetsOf('mounts'))('mounts, on $name', target => {
  const mounting = (source: string, to = '/mnt/given', readOnly = true): RunRequest => ({
    policy: { mounts: [{ source, target: to, readOnly }] },
  });
  /** What an engine shows of a directory when it is asked past the library. */
  const shownByEngine = async (source: string, file: string) =>
    (
      await runWeakened(target.engine, {
        command: ['cat', `/m/${file}`],
        host: { Mounts: [bind(source, '/m', { ReadOnly: true })] },
      })
    ).stdout;

  attack(target, 'B4', 'found before anything is handed over', async () => {
    using scratch = new Scratch();
    scratch.file('secret/key', 'canary');
    const project = scratch.directory('project');
    await using proxy = await EngineProxy.start(target.engine.socket);
    await using arena = await Arena.open(target, {
      workspace: project,
      engine: { socket: proxy.socket },
      pool: false,
    });
    const violations: string[] = [];
    arena.acode.events.on('SecurityViolation', ({ violation }) => violations.push(violation));
    const swap = (from: string): void => {
      renameSync(project, `${project}.away`);
      symlinkSync(from, project);
    };
    let swapped = false;
    proxy.onRequest((method, path) => {
      if (method !== 'POST' || !path.includes('/start') || swapped) return undefined;
      swapped = true;
      swap(scratch.path('secret'));
      return undefined;
    });
    const error = await refusal(arena.run(['sh', '-c', 'cat key; touch ran']));
    expect(swapped).toBe(true);
    expect(error).toMatchObject({ code: 'ACODE-SBX-010', context: { violation: 'MountMismatch' } });
    expect(violations).toEqual(['MountMismatch']);
    expect(existsSync(scratch.path('secret/ran'))).toBe(false);
    expect(await arena.isGone()).toBe(true);
    expect(await shownByEngine(project, 'key')).toBe('canary');
    // Swapped back once it is mounted: the path is what was checked, and only what the sandbox has shows the swap.
    unlinkSync(project);
    renameSync(`${project}.away`, project);
    let isAway = false;
    proxy.onRequest((method, path) => {
      if (method === 'POST' && path.includes('/start')) {
        isAway = true;
        swap(scratch.path('secret'));
      } else if (isAway && path.includes('/json')) {
        isAway = false;
        unlinkSync(project);
        renameSync(`${project}.away`, project);
      }
      return undefined;
    });
    expect(await refusal(arena.run(['sh', '-c', 'cat key; touch ran']))).toMatchObject({
      code: 'ACODE-SBX-010',
      context: { violation: 'MountMismatch' },
    });
    expect(isAway).toBe(false);
    expect(existsSync(scratch.path('secret/ran'))).toBe(false);
    return {
      observed: 'ACODE-SBX-010 MountMismatch, sandbox removed, event',
      control: 'the same mount shows the secret',
    };
  });

  attack(target, 'B9', 'refused, and so is the home above them', async () => {
    using scratch = new Scratch();
    const home = scratch.directory('home');
    const seen = await withHome(home, async () => {
      await using arena = await openWithRoots(target, scratch, [scratch.root]);
      let last = '';
      for (const name of ['.ssh', '.aws', '.kube', '.docker', '.gnupg', '.azure', '.config/gcloud']) {
        scratch.file(`home/${name}/key`, 'canary');
        last = await refused(arena, mounting(join(home, name)), 'SensitivePathAccess');
      }
      for (const name of ['.netrc', '.npmrc', '.git-credentials', '.pypirc']) {
        scratch.file(`home/${name}`, 'canary');
        await refused(arena, mounting(join(home, name)), ['SensitivePathAccess', 'NotADirectory']);
      }
      await refused(arena, mounting(home), ['ForbiddenPath', 'SensitivePathAccess']);
      await refused(arena, mounting(scratch.root), ['ForbiddenPath', 'SensitivePathAccess']);
      scratch.file('home/projects/a/file', 'fine');
      expect((await arena.run(['cat', '/mnt/given/file'], mounting(join(home, 'projects/a')))).stdout).toBe('fine');
      return last;
    });
    expect(homedir()).not.toBe(home);
    expect(await shownByEngine(home, '.ssh/key')).toBe('canary');
    return { observed: seen, control: 'the engine mounts the home and shows a key' };
  });

  attack(target, 'B10', 'what is mounted below stays out', async () => {
    using scratch = new Scratch();
    scratch.file('project/file', 'fine');
    scratch.directory('project/nested');
    await using nested = await HostMount.at(target.engine, scratch.path('project/nested'));
    await using arena = await open(target, scratch.path('project'));
    const inside = await arena.sh('cat file; ls nested; touch nested/planted || echo refused', {
      policy: { workspace: 'readonly' },
    });
    expect(inside.stdout).toBe('finerefused\n');
    expect(await nested.list()).toEqual(['below']);
    const control = await runWeakened(target.engine, {
      command: ['touch', '/m/nested/planted'],
      host: {
        Mounts: [bind(scratch.path('project'), '/m', { ReadOnly: true, BindOptions: { ReadOnlyNonRecursive: true } })],
      },
    });
    expect(control.exitCode).toBe(0);
    expect(await nested.list()).toEqual(['below', 'planted']);
    return {
      observed: 'not there, not writable, and nothing arrived in it',
      control: 'below a plain read-only mount it is writable',
    };
  });
});

/** A host on a workspace that may not even exist; its own directory goes with the scratch it lies in. */
async function open(target: Target, workspace: string): Promise<Arena> {
  return Arena.open(target, { workspace });
}

async function openWithRoots(target: Target, scratch: Scratch, roots: readonly string[]): Promise<Arena> {
  const config = { sandbox: { mounts: { allowed_host_roots: [...roots] } } };
  return Arena.open(target, { workspace: scratch.directory('workspace'), config });
}

async function refused(arena: Arena, request: RunRequest, violation: string | readonly string[]): Promise<string> {
  const error: Refusal = await refusal(arena.run(['touch', '/workspace/ran'], request));
  const source = request.policy?.mounts?.map(mount => `${mount.source} → ${mount.target}`).join();
  expect([source, error.code, error.message]).toEqual([source, 'ACODE-SBX-003', expect.any(String)]);
  expect([source, [violation].flat()]).toEqual([source, expect.arrayContaining([error.context['violation']])]);
  expect(error.hint).not.toBe('');
  expect(existsSync(join(arena.workspace, 'ran'))).toBe(false);
  return `${error.code} ${String(error.context['violation'])}`;
}

/** Another home for a while: acode asks the environment and the account, and holds to both. */
async function withHome<Value>(home: string, work: () => Promise<Value>): Promise<Value> {
  const before = process.env['HOME'];
  process.env['HOME'] = home;
  mkdirSync(home, { recursive: true });
  try {
    return await work();
  } finally {
    if (before === undefined) delete process.env['HOME'];
    else process.env['HOME'] = before;
  }
}
