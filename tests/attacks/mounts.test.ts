// Group B: talking the sandbox into a part of the host that it must not have.

import { existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmdirSync, symlinkSync, unlinkSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect } from 'vitest';
import type { RunRequest } from '@acode/sandbox';
import { withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { Arena } from './arena.ts';
import { attack } from './attack.ts';
import { HostMount } from './host-mount.ts';
import { refusal } from './refusal.ts';
import type { Refusal } from './refusal.ts';
import { Greeter, Scratch } from './scratch.ts';
import { TOOLS, targetsOf } from './targets.ts';
import type { Target } from './targets.ts';
import { bind, runWeakened } from './weakened.ts';

const CONNECT = 'import socket,sys;s=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1]);print(s.recv(99).decode())';

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

  attack(target, 'B1', 'refused, and a project of its own is not', async () => {
    const seen: string[] = [];
    for (const workspace of ['/', '/tmp/..', '/proc/self/root', '/var/tmp/../..', '//', '/proc/self/cwd/../../..']) {
      await using arena = await open(target, workspace);
      const error = await refusal(arena.run(['touch', 'ran']));
      expect([workspace, error]).toMatchObject([
        workspace,
        { code: 'ACODE-SBX-003', context: { violation: 'ForbiddenPath' } },
      ]);
      seen.push(error.context['violation'] as string);
    }
    using scratch = new Scratch();
    scratch.file('secret/key', 'canary');
    await using arena = await Arena.open(target, { workspace: scratch.directory('project') });
    expect(await arena.run(['touch', 'ran'])).toMatchObject({ exitCode: 0 });
    expect(existsSync(scratch.path('project', 'ran'))).toBe(true);
    expect(await shownByEngine('/', scratch.path('secret/key').slice(1))).toBe('canary');
    return { observed: `ACODE-SBX-003 ${seen[0]}`, control: 'the engine mounts / and shows a secret' };
  });

  attack(target, 'B2', 'a neighbour whose name begins like an allowed root is refused', async () => {
    using scratch = new Scratch();
    scratch.file('proj/data/file', 'allowed');
    scratch.file('proj-evil/file', 'canary');
    await using arena = await openWithRoots(target, scratch, [scratch.path('proj')]);
    const seen = await refused(arena, mounting(scratch.path('proj-evil')), 'OutsideAllowedRoots');
    for (const way of ['proj/../proj-evil', 'proj/data/../../proj-evil'])
      await refused(arena, mounting(`${scratch.root}/${way}`), 'OutsideAllowedRoots');
    expect((await arena.run(['cat', '/mnt/given/file'], mounting(scratch.path('proj/data')))).stdout).toBe('allowed');
    expect(scratch.path('proj-evil').startsWith(scratch.path('proj'))).toBe(true);
    expect(await shownByEngine(scratch.path('proj-evil'), 'file')).toBe('canary');
    return { observed: seen, control: 'it does begin like the root, and the engine shows it' };
  });

  attack(target, 'B3', 'resolved, then judged', async () => {
    using scratch = new Scratch();
    scratch.file('home/.ssh/key', 'canary');
    scratch.file('project/file', 'fine');
    symlinkSync(scratch.path('home/.ssh'), scratch.path('link'));
    symlinkSync('/etc', scratch.path('system'));
    symlinkSync(scratch.path('project'), scratch.path('good'));
    const seen = await withHome(scratch.path('home'), async () => {
      await using secret = await open(target, scratch.path('link'));
      const error = await refusal(secret.run(['cat', 'key']));
      await using system = await open(target, scratch.path('system'));
      expect(await refusal(system.run(['true']))).toMatchObject({ context: { violation: 'ForbiddenPath' } });
      return error;
    });
    expect(seen).toMatchObject({ code: 'ACODE-SBX-003', context: { violation: 'SensitivePathAccess' } });
    await using good = await open(target, scratch.path('good'));
    expect((await good.run(['cat', 'file'])).stdout).toBe('fine');
    expect(await shownByEngine(scratch.path('link'), 'key')).toBe('canary');
    return {
      observed: `ACODE-SBX-003 ${String(seen.context['violation'])}`,
      control: 'the engine follows the link and shows the secret',
    };
  });

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

  attack(target, 'B5', 'a link in the place of .git is refused and not followed', async () => {
    using scratch = new Scratch();
    scratch.file('secret/key', 'canary');
    const seen: string[] = [];
    for (const [name, to] of [
      ['.git', scratch.path('secret')],
      ['.agent', scratch.path('secret')],
      ['.vscode', scratch.path('secret')],
    ] as const) {
      const project = scratch.directory(`project${name}`);
      symlinkSync(to, join(project, name));
      await using arena = await open(target, project);
      const error = await refusal(arena.sh(`cat ${name}/key; touch ran`));
      // acode reads its own configuration first, and does not follow a link to it either.
      if (name === '.agent') expect(error).toMatchObject({ code: 'ACODE-SBX-013' });
      else
        expect([name, error]).toMatchObject([name, { code: 'ACODE-SBX-003', context: { violation: 'ProtectedPath' } }]);
      expect(existsSync(join(project, 'ran'))).toBe(false);
      seen.push(error.code);
    }
    const real = scratch.directory('real');
    scratch.file('real/.git/HEAD', 'ref: refs/heads/main\n');
    await using arena = await open(target, real);
    expect((await arena.run(['cat', '.git/HEAD'])).stdout).toBe('ref: refs/heads/main\n');
    expect(await shownByEngine(join(scratch.path('project.git'), '.git'), 'key')).toBe('canary');
    return { observed: `${seen[0]} ProtectedPath`, control: 'the engine follows the link and shows what it names' };
  });

  const socketControl = async (scratch: Scratch, name: string): Promise<string> => {
    const { stdout } = await runWeakened(target.engine, {
      image: TOOLS,
      command: ['python3', '-c', CONNECT, '/m'],
      host: { Mounts: [bind(scratch.path(name), '/m')] },
    });
    expect(stdout).toContain('hello from the host');
    return 'mounted past the library, it answers from inside';
  };

  attack(target, 'B6', 'any socket is refused, whatever it is called', async () => {
    using scratch = new Scratch();
    await using socket = await Greeter.at(scratch.path('roots/engine.sock'));
    linkSync(socket.path, scratch.path('roots/notes.txt'));
    symlinkSync(socket.path, scratch.path('roots/link'));
    scratch.file('roots/real.txt', 'fine');
    await using arena = await openWithRoots(target, scratch, [scratch.path('roots')]);
    let seen = '';
    for (const name of ['engine.sock', 'notes.txt', 'link'])
      seen = await refused(arena, mounting(scratch.path('roots', name)), 'DockerSocketMounted');
    expect((await arena.run(['ls', '/mnt/given'], mounting(scratch.directory('roots/fine')))).exitCode).toBe(0);
    return { observed: seen, control: await socketControl(scratch, 'roots/notes.txt') };
  });

  attack(target, 'B7', 'refused, read-only or not, and so is what lies above', async () => {
    using scratch = new Scratch();
    const proxied = scratch.directory('roots/run/deep');
    await using socket = await Greeter.at(join(proxied, 'engine.sock'));
    await using arena = await openWithRoots(target, scratch, [
      scratch.path('roots'),
      dirname(dirname(target.engine.socket)),
    ]);
    const own = dirname(target.engine.socket);
    const seen = await refused(arena, mounting(own), ['DockerSocketMounted', 'ForbiddenPath']);
    await refused(arena, mounting(proxied), 'DockerSocketMounted');
    await refused(arena, mounting(proxied, '/mnt/given', false), 'DockerSocketMounted');
    expect((await arena.run(['ls', '/mnt/given'], mounting(scratch.directory('roots/fine')))).exitCode).toBe(0);
    return {
      observed: seen,
      control: await socketControl(scratch, 'roots/run/deep/engine.sock').then(text =>
        `${text} (${socket.path})`.replace(scratch.root, ''),
      ),
    };
  });

  attack(target, 'B8', 'refused by what they are, and by their names', async () => {
    using scratch = new Scratch();
    const names = [
      'podman/podman.sock',
      'containerd/containerd.sock',
      'ssh-XXXX/agent.1',
      'gnupg/S.gpg-agent',
      'buildkit/buildkitd.sock',
    ];
    await using arena = await openWithRoots(target, scratch, [scratch.path('roots')]);
    let seen = '';
    for (const name of names) {
      await using socket = await Greeter.at(scratch.path('roots', name));
      seen = await refused(arena, mounting(socket.path), 'DockerSocketMounted');
      await refused(arena, mounting(dirname(socket.path)), 'DockerSocketMounted');
    }
    await using one = await Greeter.at(scratch.path('roots/agent'));
    const control = await socketControl(scratch, 'roots/agent');
    expect(one.path).toBe(scratch.path('roots/agent'));
    return { observed: `${seen}, for ${names.length} kinds`, control };
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

  attack(target, 'B11', 'mounted as itself', async () => {
    using scratch = new Scratch();
    const seen: string[] = [];
    for (const name of ['p,source=,target=', 'a:b', 'with space', 'q"uote', "apo'strophe", 'dollar$HOME']) {
      const project = scratch.directory(name);
      await using arena = await open(target, project);
      expect([name, (await arena.sh('pwd > ran; cat ran')).stdout]).toEqual([name, '/workspace\n']);
      expect(readFileSync(join(project, 'ran'), 'utf8')).toBe('/workspace\n');
      seen.push(name);
    }
    const split = await runWeakened(target.engine, {
      command: ['ls', '/workspace'],
      host: { Binds: [`${scratch.path('a:b')}:/workspace`] },
    }).then(
      ({ stdout, stderr }) => stdout + stderr,
      (error: unknown) => String(error),
    );
    expect(split).not.toBe('ran\n');
    return {
      observed: `${seen.length} odd names, each its own directory`,
      control: 'a bind string is split at the colon',
    };
  });

  attack(target, 'B12', 'an error before anything is made', async () => {
    using scratch = new Scratch();
    await using arena = await openWithRoots(target, scratch, [scratch.root]);
    await using proxyless = await open(target, scratch.path('no-project'));
    expect(await refusal(proxyless.run(['true']))).toMatchObject({
      code: 'ACODE-SBX-003',
      context: { violation: 'Missing' },
    });
    const seen = await refused(arena, mounting(scratch.path('missing')), 'Missing');
    expect(existsSync(scratch.path('missing'))).toBe(false);
    expect(existsSync(scratch.path('no-project'))).toBe(false);
    expect(await arena.isGone()).toBe(true);
    await runWeakened(target.engine, { command: ['true'], host: { Binds: [`${scratch.path('missing')}:/m`] } });
    expect(existsSync(scratch.path('missing'))).toBe(true);
    rmdirSync(scratch.path('missing'));
    return { observed: seen, control: 'a bind string makes the directory, as root' };
  });

  attack(target, 'B13', 'refused, and two targets are not', async () => {
    using scratch = new Scratch();
    scratch.file('one/file', 'one');
    scratch.file('two/file', 'two');
    await using arena = await openWithRoots(target, scratch, [scratch.root]);
    const both = (first: string, second: string): RunRequest => ({
      policy: {
        mounts: [
          { source: scratch.path('one'), target: first },
          { source: scratch.path('two'), target: second },
        ],
      },
    });
    let seen = '';
    for (const [first, second] of [
      ['/m', '/m'],
      ['/m', '/m/'],
      ['/m', '/x/../m'],
      ['/workspace', '/n'],
      ['/m', '/tmp'],
    ] as const)
      seen = await refused(arena, both(first, second), ['DuplicateTarget', 'ForbiddenTarget']);
    expect((await arena.sh('cat /m/file /n/file', both('/m', '/n'))).stdout).toBe('onetwo');
    return { observed: seen, control: 'on two targets both are there' };
  });

  attack(target, 'B14', 'never followed', async () => {
    using scratch = new Scratch();
    scratch.file('home/.ssh/config', 'canary');
    scratch.file('home/.ssh/HEAD', 'ref: refs/heads/main\n');
    scratch.file('project/.git', `gitdir: ${scratch.path('home/.ssh')}\n`);
    scratch.file('project/file', 'fine');
    const { stdout, stderr } = await withHome(scratch.path('home'), async () => {
      await using arena = await open(target, scratch.path('project'));
      return await arena.sh(
        `cat file; cat ${scratch.path('home/.ssh/config')}; find / -xdev -name HEAD 2>/dev/null; grep -c ssh /proc/self/mountinfo`,
      );
    });
    expect(stdout).not.toContain('canary');
    expect(stdout.split('\n')[0]).toMatch(/^fine0?$/);
    expect(stderr).toContain('No such file');
    expect(await shownByEngine(scratch.path('home/.ssh'), 'config')).toBe('canary');
    return { observed: 'the named directory is not inside', control: 'mounted past the library, it is' };
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
