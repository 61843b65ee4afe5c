// Mounts from the host, named after the attacks they refuse; each refusal beside the legitimate case.

import { execFileSync } from 'node:child_process';
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { validateWorkspace } from './locate.ts';
import { planMounts, workspaceTarget } from './mounts.ts';
import type { MountFacts } from './mounts.ts';

let base: string;
let home: string;
let project: string;
let shared: string;
const uid = process.getuid?.() ?? 0;

beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'acode-mounts-')));
  home = join(base, 'home');
  project = join(home, 'project');
  shared = join(home, 'shared');
  for (const directory of [join(project, 'sub'), join(shared, 'data'), join(home, '.ssh'), join(base, 'engine')])
    mkdirSync(directory, { recursive: true });
  writeFileSync(join(home, '.npmrc'), '');
  writeFileSync(join(shared, 'file'), '');
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

type Change = Partial<MountFacts> & { readonly environment?: Record<string, string> };

async function plan({ environment = {}, ...change }: Change = {}) {
  const directories = {
    home,
    config: join(home, '.config/acode'),
    state: join(home, '.local/state/acode'),
    runtime: join(base, 'run/acode'),
  };
  const engineSocket = join(base, 'engine/docker.sock');
  return planMounts({
    workspace: await validateWorkspace(project, directories, { engineSocket, environment }),
    target: '/workspace',
    readOnly: false,
    additional: [],
    hostRoots: [shared],
    uid,
    ...change,
  });
}

function mount(source: string, more: { target?: string; readOnly?: boolean } = {}, change: Change = {}) {
  return plan({ additional: [{ source, target: '/mnt/data', ...more }], ...change });
}

const refused = (violation: string) => ({ code: 'ACODE-SBX-003', context: { violation } });

async function listening<Value>(path: string, use: () => Promise<Value>): Promise<Value> {
  const server = createServer();
  await new Promise<void>(resolve => server.listen(path, resolve));
  try {
    return await use();
  } finally {
    server.close();
  }
}

describe('an additional mount', () => {
  it('is read-only by default, a directory or a file, inside the workspace or an allowed root', async () => {
    const { mounts } = await plan({
      additional: [
        { source: join(shared, 'data'), target: '/mnt/data' },
        { source: join(shared, 'file'), target: '/mnt/file', readOnly: false },
        { source: 'sub', target: '/mnt/sub' },
      ],
    });
    const { dev, ino } = lstatSync(join(shared, 'data'));
    expect(mounts.slice(1)).toMatchObject([
      { source: join(shared, 'data'), readOnly: true, identity: { device: dev, inode: ino } },
      { source: join(shared, 'file'), readOnly: false },
      { source: join(project, 'sub'), readOnly: true },
    ]);
  });

  it('B1: the root, the system and what leads there are refused', async () => {
    for (const source of ['/', '/tmp/..', '/proc/self/root', '/etc', '/usr/bin', '/var/run', '../../../../../..'])
      await expect(mount(source, {}, { hostRoots: ['/'] })).rejects.toMatchObject(refused('ForbiddenPath'));
  });

  it.skipIf(!existsSync('/etc/ssl/certs'))(
    'the CA certificates of the system may be had where the user allows it, to be read; nothing beside them',
    async () => {
      const certificates = realpathSync('/etc/ssl/certs');
      const hostRoots = ['/etc/ssl/certs'];
      const { mounts } = await mount('/etc/ssl/certs', {}, { hostRoots });
      expect(mounts).toContainEqual(expect.objectContaining({ source: certificates, readOnly: true }));
      await expect(mount('/etc/ssl/certs')).rejects.toMatchObject(refused('OutsideAllowedRoots'));
      await expect(mount('/etc/ssl/certs', { readOnly: false }, { hostRoots })).rejects.toMatchObject(
        refused('ForbiddenPath'),
      );
      await expect(mount('/etc/ssl', {}, { hostRoots: ['/etc/ssl'] })).rejects.toMatchObject(refused('ForbiddenPath'));
    },
  );

  it('B2: a sibling whose name only begins like an allowed root is outside', async () => {
    mkdirSync(`${shared}-evil`);
    await expect(mount(`${shared}-evil`)).rejects.toMatchObject(refused('OutsideAllowedRoots'));
    await expect(mount(`${shared}-evil`)).rejects.toThrow(
      expect.objectContaining({ hint: expect.stringContaining('allowed_host_roots') }),
    );
    await expect(mount(shared)).resolves.toBeDefined();
  });

  it('B3: a link is judged by where it leads', async () => {
    symlinkSync(join(home, '.ssh'), join(shared, 'keys'));
    await expect(mount(join(shared, 'keys'))).rejects.toMatchObject(refused('SensitivePathAccess'));
    symlinkSync(join(base, 'engine'), join(shared, 'out'));
    await expect(mount(join(shared, 'out'))).rejects.toMatchObject(refused('DockerSocketMounted'));
    symlinkSync(join(shared, 'data'), join(project, 'link'));
    expect((await mount('link')).mounts[1]).toMatchObject({ source: join(shared, 'data') });
  });

  it('B3: a credential store that is itself a link is known by both its names', async () => {
    mkdirSync(join(shared, 'aws'));
    await expect(mount(join(shared, 'aws'))).resolves.toBeDefined();
    symlinkSync(join(shared, 'aws'), join(home, '.aws'));
    await expect(mount(join(shared, 'aws'))).rejects.toMatchObject(refused('SensitivePathAccess'));
  });

  it('B6: a socket is refused under whatever name, a hard link of it too', async () => {
    const socket = join(base, 'engine/docker.sock');
    await listening(socket, async () => {
      linkSync(socket, join(shared, 'innocent'));
      await expect(mount(join(shared, 'innocent'))).rejects.toMatchObject(refused('DockerSocketMounted'));
      await expect(mount(shared)).rejects.toMatchObject(refused('DockerSocketMounted'));
      rmSync(join(shared, 'innocent'));
      await expect(mount(shared)).resolves.toBeDefined();
    });
  });

  it('B7: the directory of the engine’s socket, or one above it, is refused even while nothing listens', async () => {
    for (const source of [join(base, 'engine'), join(base, 'engine/docker.sock')]) {
      mkdirSync(join(base, 'engine/docker.sock'), { recursive: true });
      await expect(mount(source, {}, { hostRoots: [base] })).rejects.toMatchObject(refused('DockerSocketMounted'));
    }
  });

  it('B8: sockets and directories of agents are refused', async () => {
    const environment = {
      SSH_AUTH_SOCK: join(shared, 'agent/socket'),
      GNUPGHOME: join(shared, 'gpg'),
      XDG_RUNTIME_DIR: join(shared, 'run'),
    };
    for (const name of ['agent', 'gpg', 'run']) {
      mkdirSync(join(shared, name));
      await expect(mount(join(shared, name))).resolves.toBeDefined();
      await expect(mount(join(shared, name), {}, { environment })).rejects.toMatchObject(
        refused('SensitivePathAccess'),
      );
    }
  });

  it('B9: credentials and the directories above them are refused, whatever is allowed', async () => {
    mkdirSync(join(home, '.config/gcloud'), { recursive: true });
    for (const [source, violation] of [
      ['.ssh', 'SensitivePathAccess'],
      ['.npmrc', 'SensitivePathAccess'],
      ['.config/gcloud', 'SensitivePathAccess'],
      ['.config', 'ForbiddenPath'],
      ['.', 'ForbiddenPath'],
    ] as const)
      await expect(mount(join(home, source), {}, { hostRoots: [home] })).rejects.toMatchObject(refused(violation));
    mkdirSync(join(home, '.ssh-notes'));
    await expect(mount(join(home, '.ssh-notes'), {}, { hostRoots: [home] })).resolves.toBeDefined();
  });

  it('B11: commas and colons are part of a name', async () => {
    mkdirSync(join(shared, 'p,source=/etc'.replaceAll('/', '_')));
    mkdirSync(join(shared, 'a:b'));
    expect((await mount(join(shared, 'a:b'))).mounts[1]).toMatchObject({ source: join(shared, 'a:b') });
    await expect(mount(join(shared, 'p,source=_etc'))).resolves.toBeDefined();
  });

  it('B12: what does not exist is an error, and is not made', async () => {
    await expect(mount(join(shared, 'none'))).rejects.toMatchObject(refused('Missing'));
    expect(lstatSync(join(shared, 'none'), { throwIfNoEntry: false })).toBeUndefined();
  });

  it('FIFOs and paths written for another system are refused', async () => {
    execFileSync('mkfifo', [join(shared, 'fifo')]);
    await expect(mount(join(shared, 'fifo'))).rejects.toMatchObject(refused('ForbiddenPath'));
    for (const source of [String.raw`..\..\Windows`, 'C:/Windows', 'C:', 'a\0b'])
      await expect(mount(source)).rejects.toMatchObject(refused('HostPathEscape'));
  });

  it('acode’s own directories are neither mounted nor inside a mount', async () => {
    for (const source of ['.config/acode', '.local/state', '.local/state/acode'])
      mkdirSync(join(home, source), { recursive: true });
    for (const source of ['.config/acode', '.local/state', '.local/state/acode'])
      await expect(mount(join(home, source), {}, { hostRoots: [home] })).rejects.toMatchObject(
        refused('ForbiddenPath'),
      );
  });

  it('is no way round what is read-only in the workspace', async () => {
    mkdirSync(join(project, '.git/hooks'), { recursive: true });
    for (const source of ['.', '.git', '.git/hooks']) {
      await expect(mount(source, { readOnly: false })).rejects.toMatchObject(refused('ProtectedPath'));
      await expect(mount(source)).resolves.toBeDefined();
    }
    await expect(mount('sub', { readOnly: false })).resolves.toBeDefined();
  });

  it('protects the same parts of another project that may be written', async () => {
    mkdirSync(join(shared, '.git'));
    const { mounts } = await mount(shared, { readOnly: false });
    expect(mounts[2]).toMatchObject({ purpose: 'protected', target: '/mnt/data/.git', readOnly: true });
  });
});

describe('the target of a mount', () => {
  it.each([
    ['/'],
    ['/proc'],
    ['/proc/self'],
    ['/sys/fs'],
    ['/dev/shm'],
    ['/workspace'],
    ['/workspace/x'],
    ['/home/sandbox'],
    ['/home'],
    ['/home/sandbox/.ssh'],
    ['/tmp'],
    ['/tmp/x'],
    ['/run/x'],
    ['/bin'],
    ['/usr/local/bin'],
    ['/etc/ssl'],
    ['/lib64'],
    ['/libexec/x'],
    ['/boot'],
    ['/mnt/../etc'],
    ['relative'],
    ['//usr//bin/'],
    ['/var/run/x'],
  ])('A20: %s is refused', async target => {
    await expect(mount(shared, { target })).rejects.toMatchObject(refused('ForbiddenTarget'));
  });

  it.each(
    ['/mnt/x', '/data', '/home/other', '/opt/tools', '/library', '//srv//x/'].filter(name => name !== '/library'),
  )('%s is fine', async target => {
    await expect(mount(shared, { target })).resolves.toBeDefined();
  });

  it('B13: is used once, and lies in no other', async () => {
    const two = (one: string, other: string) =>
      plan({
        additional: [
          { source: shared, target: one },
          { source: 'sub', target: other },
        ],
      });
    await expect(two('/mnt/a', '/mnt/a/')).rejects.toMatchObject(refused('DuplicateTarget'));
    await expect(two('/mnt/a', '/mnt/a/b')).rejects.toMatchObject(refused('ForbiddenTarget'));
    await expect(two('/mnt/a', '/mnt/ab')).resolves.toBeDefined();
  });
});

describe('the workspace', () => {
  it('B7: is refused once a socket has come into it, although it had none when it was asked for before', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 5000 });
    try {
      for (let count = 0; count < 3; count += 1) await plan();
      await listening(join(project, 'late.sock'), async () => {
        await expect(plan()).rejects.toMatchObject(refused('DockerSocketMounted'));
        vi.setSystemTime(Date.now() + 5000);
        await expect(plan()).rejects.toMatchObject(refused('DockerSocketMounted'));
        await expect(plan()).rejects.toMatchObject(refused('DockerSocketMounted'));
      });
    } finally {
      vi.useRealTimers();
    }
  });

  it('B7: is refused with a socket in it, and fine without', async () => {
    await listening(join(project, 'x.sock'), () =>
      expect(plan()).rejects.toMatchObject(refused('DockerSocketMounted')),
    );
    rmSync(join(project, 'x.sock'), { force: true });
    await expect(plan()).resolves.toBeDefined();
  });

  it('has every existing part that the host trusts read-only over it, and nothing made for the others', async () => {
    for (const name of ['.git', '.vscode', '.agent']) mkdirSync(join(project, name));
    writeFileSync(join(project, '.mcp.json'), '{}');
    const { mounts, notes } = await plan();
    expect(mounts.map(({ purpose, target, readOnly }) => [purpose, target, readOnly])).toEqual([
      ['workspace', '/workspace', false],
      ['protected', '/workspace/.git', true],
      ['protected', '/workspace/.agent', true],
      ['protected', '/workspace/.vscode', true],
      ['protected', '/workspace/.mcp.json', true],
    ]);
    expect(notes).toEqual([]);
    expect(lstatSync(join(project, '.claude'), { throwIfNoEntry: false })).toBeUndefined();
    expect((await plan({ readOnly: true })).mounts).toMatchObject([{ purpose: 'workspace', readOnly: true }]);
  });

  it('has acode’s own installation read-only over it, and says so; elsewhere it is no concern', async () => {
    const installation = join(project, 'node_modules', '@acode', 'sandbox');
    mkdirSync(installation, { recursive: true });
    const cover = { purpose: 'protected', target: '/workspace/node_modules/@acode/sandbox', readOnly: true };
    const inside = await plan({ installation });
    expect(inside.mounts).toMatchObject([{ purpose: 'workspace' }, { ...cover, source: installation }]);
    expect(inside.notes).toEqual([expect.stringContaining('installed inside the workspace')]);
    expect((await plan({ installation, readOnly: true })).mounts).toHaveLength(1);
    const outside = await plan({ installation: join(base, 'elsewhere') });
    expect([outside.mounts.length, outside.notes]).toEqual([1, []]);
    // Nor is it writable by another way in.
    const further = [{ source: join(project, 'node_modules'), target: '/mnt/data', readOnly: false }];
    expect((await plan({ installation, additional: further })).mounts).toContainEqual(
      expect.objectContaining({ target: '/mnt/data/@acode/sandbox', readOnly: true }),
    );
    const itself = [{ source: installation, target: '/mnt/data', readOnly: false }];
    await expect(plan({ installation, additional: itself })).rejects.toMatchObject(refused('ProtectedPath'));
  });

  it('is refused where acode runs from the workspace itself, unless nothing can be written', async () => {
    await expect(plan({ installation: project })).rejects.toMatchObject(refused('ProtectedPath'));
    await expect(plan({ installation: project, readOnly: true })).resolves.toBeDefined();
  });

  it('B5: is refused where a protected part is a link, a FIFO, or a file with a second name', async () => {
    symlinkSync('/etc', join(project, '.git'));
    await expect(plan()).rejects.toMatchObject(refused('ProtectedPath'));
    await expect(plan({ readOnly: true })).resolves.toBeDefined();
    rmSync(join(project, '.git'));
    execFileSync('mkfifo', [join(project, '.mcp.json')]);
    await expect(plan()).rejects.toMatchObject(refused('ProtectedPath'));
    rmSync(join(project, '.mcp.json'));
    writeFileSync(join(project, 'x'), '');
    linkSync(join(project, 'x'), join(project, '.mcp.json'));
    await expect(plan()).rejects.toMatchObject(refused('ProtectedPath'));
    rmSync(join(project, 'x'));
    await expect(plan()).resolves.toBeDefined();
  });
});

describe('what git on the host trusts', () => {
  it.each(['config', 'config.worktree', 'info/attributes', 'hooks/pre-commit'])(
    'is refused with a second name of .git/%s, unless nothing can be written',
    async name => {
      const path = join(project, '.git', name);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, '');
      await expect(plan()).resolves.toBeDefined();
      linkSync(path, join(project, 'notes.txt'));
      await expect(plan()).rejects.toMatchObject({
        ...refused('ProtectedPath'),
        context: { violation: 'ProtectedPath', path, remedy: expect.stringContaining('cp -p x x.new && mv x.new x') },
      });
      await expect(plan({ readOnly: true })).resolves.toBeDefined();
      // The remedy from the message.
      execFileSync('sh', ['-c', 'cp -p "$0" "$0.new" && mv "$0.new" "$0"', path]);
      await expect(plan()).resolves.toBeDefined();
    },
  );

  it.each<[hooksPath: string, protectedToo: string[]]>([
    ['hk', ['hk']],
    ['./hk/', ['hk']],
    ['constructor', ['constructor']],
    ['.husky', []],
    ['tools/hooks', []],
    ['.', []],
    ['..', []],
    ['absent', []],
    ['notes.txt', []],
    ['~/hk', []],
    ['/etc', []],
  ])('has the directory of hooks %s read-only where it lies at the top: %j', async (hooksPath, wanted) => {
    for (const directory of ['.git', 'hk', 'constructor', '.husky', 'tools/hooks'])
      mkdirSync(join(project, directory), { recursive: true });
    writeFileSync(join(project, 'notes.txt'), '');
    writeFileSync(join(project, '.git/config'), `[core]\n\thooksPath = ${hooksPath}\n`);
    const names = (await plan()).mounts.flatMap(({ purpose, readOnly, target }) =>
      purpose === 'protected' && readOnly ? [target] : [],
    );
    expect(names).toEqual(['.git', '.husky', ...wanted].map(name => `/workspace/${name}`));
  });

  it('is that directory also by an absolute path, with a git directory of another name and in a further directory, and never a link', async () => {
    const hooks = (root: string, gitdir: string, value: string): void => {
      mkdirSync(join(root, 'hk'), { recursive: true });
      mkdirSync(gitdir, { recursive: true });
      writeFileSync(join(gitdir, 'config'), `[core]\n\thooksPath = ${value}\n`);
    };
    const targets = async (...more: Parameters<typeof plan>): Promise<string[]> =>
      (await plan(...more)).mounts.filter(({ purpose }) => purpose === 'protected').map(({ target }) => target);
    hooks(project, join(project, '.git'), join(project, 'hk'));
    hooks(shared, join(shared, '.git'), 'hk');
    const additional = [{ source: shared, target: '/mnt/data', readOnly: false }];
    expect(await targets({ additional })).toEqual(expect.arrayContaining(['/workspace/hk', '/mnt/data/hk']));
    // Nor by way of another mount.
    const round = [{ source: join(project, 'hk'), target: '/mnt/data', readOnly: false }];
    await expect(plan({ additional: round })).rejects.toMatchObject(refused('ProtectedPath'));
    // A git directory of another name.
    rmSync(join(project, '.git'), { recursive: true });
    writeFileSync(join(project, '.git'), 'gitdir: repository\n');
    hooks(project, join(project, 'repository'), 'hk');
    expect(await targets()).toEqual(expect.arrayContaining(['/workspace/repository', '/workspace/hk']));
    writeFileSync(join(project, 'hk/pre-commit'), '');
    linkSync(join(project, 'hk/pre-commit'), join(project, 'second'));
    await expect(plan()).rejects.toMatchObject(refused('ProtectedPath'));
    rmSync(join(project, 'hk'), { recursive: true });
    symlinkSync('sub', join(project, 'hk'));
    await expect(plan()).rejects.toMatchObject(refused('ProtectedPath'));
    await expect(plan({ readOnly: true })).resolves.toBeDefined();
  });

  it('is checked in a repository of another name, and in a further directory that may be written', async () => {
    mkdirSync(join(project, 'repository'));
    writeFileSync(join(project, '.git'), 'gitdir: repository\n');
    writeFileSync(join(project, 'repository/config'), '');
    mkdirSync(join(shared, '.git'));
    writeFileSync(join(shared, '.git/config'), '');
    await expect(mount(shared, { readOnly: false })).resolves.toBeDefined();
    linkSync(join(shared, '.git/config'), join(shared, 'notes'));
    await expect(mount(shared, { readOnly: false })).rejects.toMatchObject(refused('ProtectedPath'));
    await expect(mount(shared)).resolves.toBeDefined();
    linkSync(join(project, 'repository/config'), join(project, 'notes'));
    await expect(plan()).rejects.toMatchObject(refused('ProtectedPath'));
  });
});

describe('the path of the workspace inside', () => {
  it.each([
    ['/workspace', '/home/me/p', '/workspace'],
    ['/src//app/', '/home/me/p', '/src/app'],
    ['same', '/home/me/p', '/home/me/p'],
    ['same', '/tmp/p', '/tmp/p'],
    ['same', '/root/p', '/root/p'],
  ])('%s of %s is %s', (asked, root, target) => {
    expect(workspaceTarget(asked, root, () => 'you')).toBe(target);
  });

  it.each([
    ['/', '/p'],
    ['/usr/src', '/p'],
    ['/lib64/x', '/p'],
    ['/proc/x', '/p'],
    ['/home', '/p'],
    ['/home/sandbox/x', '/p'],
    ['/tmp/x', '/p'],
    ['/cache', '/p'],
    ['/out/x', '/p'],
    ['/a/../etc', '/p'],
    ['relative', '/p'],
    ['same', '/usr/src/p'],
    ['same', '/tmp'],
    ['same', '/home/sandbox'],
    ['same', '/a\\b'],
  ])('%s of %s is refused, with who asked for it', (asked, root) => {
    expect(() => workspaceTarget(asked, root, () => 'you')).toThrow(
      expect.objectContaining({
        code: 'ACODE-SBX-003',
        context: expect.objectContaining({ violation: 'ForbiddenTarget' }),
      }),
    );
  });
});

describe('a git worktree', () => {
  const git = (cwd: string, ...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@t', ...args], { cwd, stdio: 'pipe' });
  const worktreeOf = async (change: Partial<MountFacts> = {}) => {
    const found = await plan(change);
    return { worktree: found.mounts.filter(({ purpose }) => purpose === 'worktree'), ...found };
  };
  beforeEach(() => {
    git(shared, 'init', '-q', 'repo');
    git(join(shared, 'repo'), 'commit', '-q', '--allow-empty', '-m', 'x');
    rmSync(project, { recursive: true });
    git(join(shared, 'repo'), 'worktree', 'add', '-q', project);
  });

  it('gets its repository read-only at its own path, and its .git protected', async () => {
    const common = join(shared, 'repo/.git');
    const { worktree, mounts, notes } = await worktreeOf();
    expect(worktree).toMatchObject([{ source: common, target: common, readOnly: true }]);
    expect(mounts).toContainEqual(expect.objectContaining({ purpose: 'protected', target: '/workspace/.git' }));
    expect(notes).toEqual([]);
    // And the hooks that the repository names, which git looks for in each worktree.
    mkdirSync(join(project, 'hk'));
    git(join(shared, 'repo'), 'config', 'core.hooksPath', 'hk');
    const targets = (await plan()).mounts.filter(({ purpose }) => purpose === 'protected').map(({ target }) => target);
    expect(targets).toEqual(['/workspace/.git', '/workspace/hk']);
  });

  const rewrite = (path: string, content: string): undefined => {
    writeFileSync(path, content);
  };
  const cases: [string, () => Partial<MountFacts> | undefined, RegExp][] = [
    ['is in no allowed root', () => ({ hostRoots: [] }), /outside the directories you allow.*allowed_host_roots/],
    ['names a secret', () => rewrite(join(project, '.git'), `gitdir: ${home}/.ssh\n`), /outside/],
    [
      'names the worktree of another directory',
      () => rewrite(join(shared, 'repo/.git/worktrees/project/gitdir'), `${shared}/.git\n`),
      /another directory/,
    ],
    [
      'names what is no worktree',
      () => rewrite(join(project, '.git'), `gitdir: ${shared}/repo/.git\n`),
      /not the directory of a worktree/,
    ],
    ['belongs to another user', () => ({ uid: uid + 1 }), /another user/],
    [
      'has another common directory',
      () => rewrite(join(shared, 'repo/.git/worktrees/project/commondir'), '/\n'),
      /another repository/,
    ],
    ['is too long', () => rewrite(join(project, '.git'), `gitdir: ${'x'.repeat(5000)}`), /longer/],
    ['is no pointer', () => rewrite(join(project, '.git'), 'hello'), /does not say/],
  ];
  it.each(cases)('B14: is not followed where it %s', async (_, change, note) => {
    const { worktree, mounts, notes } = await worktreeOf(change() ?? {});
    expect(worktree).toEqual([]);
    expect(notes).toEqual([expect.stringMatching(note)]);
    expect(mounts).toContainEqual(expect.objectContaining({ purpose: 'protected', target: '/workspace/.git' }));
  });

  it('B14: a secret that looks like a repository is still a secret', async () => {
    const fake = join(home, '.ssh/worktrees/w');
    for (const name of ['objects', 'refs', 'worktrees/w']) mkdirSync(join(home, '.ssh', name), { recursive: true });
    writeFileSync(join(home, '.ssh/HEAD'), '');
    writeFileSync(join(fake, 'commondir'), '../..\n');
    writeFileSync(join(fake, 'gitdir'), `${project}/.git\n`);
    writeFileSync(join(project, '.git'), `gitdir: ${fake}\n`);
    const { worktree, notes } = await worktreeOf({ hostRoots: [home] });
    expect(worktree).toEqual([]);
    expect(notes[0]).toMatch(/holds credentials/);
  });

  it('a git directory under another name in the workspace is protected in its place', async () => {
    rmSync(join(project, '.git'));
    git(project, 'init', '-q', '--bare', '.bare');
    writeFileSync(join(project, '.git'), 'gitdir: ./.bare\n');
    expect((await plan()).mounts).toContainEqual(
      expect.objectContaining({ target: '/workspace/.bare', readOnly: true }),
    );
  });
});
