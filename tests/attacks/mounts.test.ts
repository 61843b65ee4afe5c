// Group B: talking the sandbox into a part of the host that it must not have.

import { existsSync, renameSync, symlinkSync, unlinkSync } from 'node:fs';
import { describe, expect } from 'vitest';
import { withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { Arena } from './arena.ts';
import { attack } from './attack.ts';
import { HostMount } from './host-mount.ts';
import { refusal } from './refusal.ts';
import { Scratch } from './scratch.ts';
import { targetsOf } from './targets.ts';
import type { Target } from './targets.ts';
import { bind, runWeakened } from './weakened.ts';

describe.skipIf(withoutEngines).each(targetsOf('mounts'))('mounts, on $name', target => {
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
    await using arena = await Arena.open(target, { workspace: project, engine: { socket: proxy.socket } });
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
