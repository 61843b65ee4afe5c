// Targets of links, git directories and git settings count as what they are used as. And what
// looks like an attack and is none.

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { isEntryPoint } from './environments.ts';
import { hooksAtTop } from './git-directory.ts';
import { scanDirectory } from './risky.ts';
import type { ScanOptions } from './risky.ts';

let root: string;
let since: number;

function put(path: string, content = ''): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), content);
}

function link(target: string, path: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  symlinkSync(target, join(root, path));
}

// What was there before the run, and the moment it began.
async function before(make: () => void): Promise<void> {
  make();
  await delay(60);
  since = Date.now();
}

// However busy the machine is, what a test makes is seen.
const PATIENT = { milliseconds: 60_000, patience: Infinity };

async function found({ budget, ...options }: ScanOptions = {}, untilMs = Infinity): Promise<string[]> {
  const patient = { ...options, budget: { ...PATIENT, ...budget } };
  const { riskyChanges } = await scanDirectory(root, { sinceMs: since, untilMs }, patient);
  return riskyChanges.map(({ kind, path }) => `${kind} ${path}`);
}

// As on a host whose own settings know nothing of the workspace.
function git(directory: string, ...words: string[]): void {
  const env = { PATH: process.env['PATH'] ?? '', HOME: root, GIT_CONFIG_NOSYSTEM: '1', GIT_CONFIG_GLOBAL: '/dev/null' };
  try {
    execFileSync('git', ['-c', 'safe.directory=*', ...words], { cwd: join(root, directory), env, stdio: 'ignore' });
  } catch {
    // Whether git was content does not matter: what was planted ran, or it did not.
  }
}

beforeEach(() => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'acode-leads-')));
  since = Date.now();
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

describe('a link', () => {
  it('that is called like a risky directory, or like one that holds risky parts, is reported', async () => {
    put('x/file');
    const names =
      '.vscode .husky .githooks .claude .cursor .devcontainer .cargo .mvn .github .venv venv .yarn .gitlab .hg .git node_modules packages/a/.vscode';
    for (const name of names.split(' ')) link(join(root, 'x'), name);
    const paths = (await found()).map(line => line.slice(line.indexOf(' ') + 1));
    expect(paths).toEqual(expect.arrayContaining(names.split(' ')));
    expect(paths).not.toContain('x/other');
  });

  it('that is old makes what it leads to what it is called', async () => {
    await before(() => {
      link('g', '.githooks');
      link('v', '.venv');
      link('../../shared/editor', 'packages/a/.vscode');
      link('gh', '.github');
      link('../wf', 'gh/workflows');
      link('nm', 'node_modules');
      link('mk/rules', 'Makefile');
      for (const path of ['g/pre-commit', 'v/bin/python', 'shared/editor/tasks.json', 'wf/ci.yml', 'nm/.bin/git'])
        put(path);
      put('mk/rules');
    });
    expect(await found()).toEqual([]);
    for (const path of ['g/pre-commit', 'v/bin/python', 'shared/editor/tasks.json', 'wf/ci.yml', 'nm/.bin/git'])
      put(path, 'evil');
    put('mk/rules', 'evil');
    put('shared/notes.txt');
    expect(await found()).toEqual([
      'build-file Makefile',
      'git-settings g/pre-commit',
      'shadowed-program nm/.bin/git',
      'editor-config shared/editor/tasks.json',
      'shadowed-program v/bin',
      'ci-file wf/ci.yml',
    ]);
  });

  it('that is old and leads elsewhere now, by a link or a directory on its way, is reported', async () => {
    await before(() => {
      link('current/hooks', '.githooks');
      link('v1', 'current');
      for (const path of ['v1/hooks/pre-commit', 'v2/hooks/pre-commit', 'a/tasks.json', 'b/tasks.json']) put(path);
      link('a', '.vscode');
    });
    unlinkSync(join(root, 'current'));
    link('v2', 'current');
    renameSync(join(root, 'a'), join(root, 'c'));
    renameSync(join(root, 'b'), join(root, 'a'));
    expect(await found()).toEqual(['git-settings .githooks', 'editor-config .vscode']);
  });

  // What is used as a folder of programs or packages, by a link that is new, and by one that was there before.
  it.each<[name: string, target: string, file: string, kind: string, around: () => void]>([
    ['node_modules/.bin', '../.b', '.b/git', 'shadowed-program', () => put('node_modules/a/package.json')],
    ['env/bin', '../.b', '.b', 'shadowed-program', () => put('env/pyvenv.cfg')],
    ['.venv/lib/python3.11/site-packages', '../../../sp', 'sp/a.pth', 'build-file', () => put('.venv/pyvenv.cfg')],
    ['.venv/lib/python3.11', '../../p', 'p/site-packages/a.pth', 'build-file', () => put('.venv/pyvenv.cfg')],
    ['tools', 't', 't/bazel', 'build-file', () => put('MODULE.bazel')],
  ])('%s is used as what it is called', async (name, target, file, kind, around) => {
    const planted = file.endsWith('.b') ? `${file}/mount` : file;
    await before(() => {
      around();
      put(planted);
    });
    expect(await found()).toEqual([]);
    link(target, name);
    expect(await found()).toContain(`${kind} ${name}`);
    await before(() => undefined);
    expect(await found()).toEqual([]);
    put(planted, 'evil');
    expect(await found()).toEqual([`${kind} ${file === '.b' ? name : file}`]);
  });

  it('called tools is nothing where it leads to no program of Bazel', async () => {
    put('t/x.sh');
    link('t', 'tools');
    expect(await found()).toEqual([]);
  });

  it('in what the run could not change leads to what it could', async () => {
    await before(() => {
      link('../../scripts/check.sh', '.git/hooks/pre-commit');
      link('../shared', '.claude/commands');
      put('scripts/check.sh');
      put('shared/deploy.md');
      put('.git/config', '[core]\n');
    });
    const options = { skipped: new Set(['.git', '.claude']) };
    put('scripts/other.sh');
    expect(await found(options)).toEqual([]);
    put('scripts/check.sh', 'evil');
    put('shared/deploy.md', 'evil');
    expect(await found(options)).toEqual(['git-repository .git/hooks/pre-commit', 'agent-config shared/deploy.md']);
  });

  it('that takes a thousand steps is reported, and not followed to its end', async () => {
    // Each way is asked for step by step, and the next link begins where the last one ended.
    mkdirSync(join(root, 'd'));
    const around = 'd/../'.repeat(300);
    for (let at = 0; at < 20; at += 1) link(`${around}l${at + 1}`, `l${at}`);
    put('l20');
    expect(await found()).toContain('symlink-out l0');
    expect(await found()).not.toContain('symlink-out l19');
  });

  it('to a directory around it, in a circle, or to nothing ends', async () => {
    link('.', '.vscode');
    link('..', 'a/.claude');
    link('b', 'a/b');
    link('nowhere', '.idea');
    put('a/x');
    expect(await found()).toEqual(expect.arrayContaining(['editor-config .vscode', 'agent-config a/.claude']));
  });
});

// Each is taken for a repository by git itself, which then executes what was planted.
describe('a git directory put together by hand is reported, and git would have executed what it names', () => {
  const MONITOR = (at: string): string =>
    `[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "touch ${at}/PWNED; false"\n`;
  const HEAD = 'ref: refs/heads/main\n';
  const parts = (directory: string, names: readonly string[]): void => {
    for (const name of names) mkdirSync(join(root, directory, name), { recursive: true });
  };
  const layouts: Readonly<Record<string, readonly [where: string, make: () => void]>> = {
    'all in one': [
      'd',
      () => (
        parts('d', ['objects', 'refs']),
        put('d/HEAD', HEAD),
        put('d/config', `${MONITOR(root)}\tbare = false\n\tworktree = ${root}/d\n`)
      ),
    ],
    'objects and references where commondir says': [
      'd',
      () => {
        parts('d/common', ['objects', 'refs']);
        put('d/HEAD', HEAD);
        put('d/commondir', 'common\n');
        put('d/common/config', `${MONITOR(root).replace('= 0', '= 1')}[extensions]\n\tworktreeConfig = true\n`);
        put('d/config.worktree', `[core]\n\tbare = false\n\tworktree = ${root}/d\n`);
      },
    ],
    'commondir far away': [
      'd',
      () => {
        parts('e/f', ['objects', 'refs']);
        put('d/HEAD', HEAD);
        put('d/commondir', `${root}/e/f\n`);
        put('e/f/config', `${MONITOR(root).replace('= 0', '= 1')}[extensions]\n\tworktreeConfig = true\n`);
        put('d/config.worktree', `[core]\n\tbare = false\n\tworktree = ${root}/d\n`);
      },
    ],
    'HEAD is a link, and so are objects and references': [
      'd',
      () => {
        parts('elsewhere', ['o', 'r/heads']);
        mkdirSync(join(root, 'd'));
        link('refs/heads/main', 'd/HEAD');
        link('../elsewhere/o', 'd/objects');
        link('../elsewhere/r', 'd/refs');
        put('d/config', `${MONITOR(root)}\tbare = false\n\tworktree = ${root}/d\n`);
      },
    ],
    'HEAD is a commit': [
      'd',
      () => (
        parts('d', ['objects', 'refs']),
        put('d/HEAD', `${'1'.repeat(40)}\n`),
        put('d/config', `${MONITOR(root)}\tbare = false\n\tworktree = ${root}/d\n`)
      ),
    ],
    'a .git file that names a directory': [
      'd',
      () => (
        parts('store', ['objects', 'refs']),
        put('store/HEAD', HEAD),
        put('store/config', MONITOR(root)),
        put('d/.git', 'gitdir: ../store\n')
      ),
    ],
    'a .git link': [
      'd',
      () => (
        parts('store', ['objects', 'refs']),
        put('store/HEAD', HEAD),
        put('store/config', MONITOR(root)),
        link('../store', 'd/.git')
      ),
    ],
    'a worktree of another repository': [
      'd',
      () => {
        parts('main', ['objects', 'refs']);
        put('main/HEAD', HEAD);
        put('main/config', MONITOR(root));
        put('main/worktrees/d/HEAD', HEAD);
        put('main/worktrees/d/commondir', '../..\n');
        put('main/worktrees/d/gitdir', `${root}/d/.git\n`);
        put('d/.git', `gitdir: ${root}/main/worktrees/d\n`);
      },
    ],
  };
  it.each(Object.keys(layouts))('%s', async name => {
    const [where, make] = layouts[name] ?? ['', () => undefined];
    put('calm/config');
    expect(await found()).toEqual([]);
    make();
    expect((await found()).filter(line => line.startsWith('git-repository'))).not.toEqual([]);
    git(where, 'status');
    expect(existsSync(join(root, 'PWNED'))).toBe(true);
  });

  it('which was there before is reported when the configuration it shares is changed', async () => {
    await before(() => {
      layouts['commondir far away']?.[1]();
    });
    expect(await found()).toEqual([]);
    put('e/f/config', MONITOR(root));
    expect(await found()).toEqual(['git-repository e/f']);
  });
});

describe('what the configuration of a repository names', () => {
  const CONFIG = `[core]
	hooksPath = tools/hooks
	attributesFile = etc/attributes
	fsmonitor = tools/watch
	sshCommand = sh tools/ssh.sh -v
[include]
	path = ../etc/more
[filter "x"]
	clean = "python3 'etc/clean me.py' %f"
[alias]
	go = "!tools/go now"
[user]
	name = tools/unrelated
`;
  const NAMED = [
    'tools/hooks/pre-commit',
    'etc/attributes',
    'tools/watch',
    'tools/ssh.sh',
    'etc/more',
    'tools/go',
    'etc/deep.sh',
  ];

  it.each([
    ['.git', new Set(['.git'])],
    ['sub/.git', new Set<string>()],
  ])('%s: is reported where it changed', async (gitdir, skipped) => {
    const base = dirname(gitdir) === '.' ? '' : `${dirname(gitdir)}/`;
    await before(() => {
      put(`${gitdir}/config`, CONFIG);
      put(`${gitdir}/HEAD`, 'ref: refs/heads/main\n');
      for (const path of [...NAMED, 'tools/unrelated', 'tools/hooks/deep/x']) put(`${base}${path}`);
      // What is included is read too.
      put(`${base}etc/more`, '[diff "y"]\n\ttextconv = etc/deep.sh\n');
    });
    put(`${base}tools/unrelated`, 'changed');
    put(`${base}tools/hooks/deep/x`, 'changed');
    expect(await found({ skipped })).toEqual([]);
    for (const path of NAMED)
      put(`${base}${path}`, path === 'etc/more' ? '[diff "y"]\n\ttextconv = etc/deep.sh\n' : 'evil');
    expect((await found({ skipped })).toSorted()).toEqual(NAMED.map(path => `git-settings ${base}${path}`).toSorted());
  });

  it('is executed by git on the host', async () => {
    git('.', 'init', '-q');
    await before(() => put('tools/hooks/pre-commit', '#!/bin/sh\n'));
    git('.', 'config', 'core.hooksPath', 'tools/hooks');
    put('tools/hooks/pre-commit', `#!/bin/sh\ntouch ${root}/PWNED\n`);
    chmodSync(join(root, 'tools/hooks/pre-commit'), 0o755);
    expect(await found({ skipped: new Set(['.git']) })).toEqual(['git-settings tools/hooks/pre-commit']);
    git('.', '-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '--allow-empty', '-m', 'x');
    expect(existsSync(join(root, 'PWNED'))).toBe(true);
  });

  it('outside, or by a name that leads there, is left alone, and hooks at the top count by their names', async () => {
    await before(() =>
      put(
        '.git/config',
        '[core]\n\thooksPath = .\n[include]\n\tpath = /etc/hostname\n\tpath = ~/x\n\tpath = ../../y\n',
      ),
    );
    put('notes.md');
    put('post-merge');
    expect(await found({ skipped: new Set(['.git']) })).toEqual(['git-settings post-merge']);
  });

  it('cannot stop the scan by the names it uses', async () => {
    await before(() => {
      put('sub/.git/HEAD', 'ref: refs/heads/main\n');
      put('sub/.git/config', '[constructor]\n\tx = a\n[__proto__]\n\ty = b\n[core]\n\thooksPath = constructor\n');
    });
    put('Makefile');
    expect(await found()).toEqual(['build-file Makefile']);
    expect(hooksAtTop(root, join(root, 'sub/.git'))).toEqual(['constructor']);
  });

  it('by way of the home directory counts where that leads into the workspace', async () => {
    vi.stubEnv('HOME', dirname(root));
    await before(() => {
      put('.git/config', `[core]\n\thooksPath = ~/${basename(root)}/hk\n\tpager = ~nobody/${basename(root)}/x\n`);
      put('hk/pre-commit');
    });
    try {
      put('hk/pre-commit', 'evil');
      expect(hooksAtTop(root, join(root, '.git'))).toEqual(['hk']);
      expect(await found({ skipped: new Set(['.git']) })).toEqual(['git-settings hk/pre-commit']);
      vi.stubEnv('HOME', '/nowhere');
      expect(await found({ skipped: new Set(['.git']) })).toEqual([]);
    } finally {
      vi.unstubAllEnvs();
    }
  });

  it('in a repository elsewhere counts in its worktree', async () => {
    const elsewhere = realpathSync(mkdtempSync(join(tmpdir(), 'acode-leads-common-')));
    writeFileSync(join(elsewhere, 'config'), '[core]\n\thooksPath = tools\n');
    await before(() => (put('.git', `gitdir: ${elsewhere}/worktrees/x\n`), put('tools/post-merge')));
    put('tools/post-merge', 'evil');
    expect(await found({ skipped: new Set(['.git']) })).toEqual([]);
    expect(await found({ skipped: new Set(['.git']), repositories: [elsewhere] })).toEqual([
      'git-settings tools/post-merge',
    ]);
    rmSync(elsewhere, { recursive: true });
  });
});

it('a flood of files hides nothing of that: what is known to matter comes first', async () => {
  await before(() => {
    put('.git/config', '[core]\n\thooksPath = tools/hooks\n');
    put('tools/hooks/pre-commit');
    link('../../w', 'packages/app/.vscode');
    link('packages/app/.vscode', '.zed');
    put('w/tasks.json');
  });
  for (let n = 0; n < 400; n += 1) for (const place of ['', 'tools/', 'a/']) put(`${place}0decoy${n}`);
  put('tools/hooks/pre-commit', 'evil');
  put('w/tasks.json', 'evil');
  link('a', '.githooks');
  const skipped = new Set(['.git']);
  const all = await scanDirectory(root, { sinceMs: since, untilMs: Infinity }, { skipped, budget: PATIENT });
  expect(all.changed).toEqual({ executable: 0, hidden: 1, configuration: 1, source: 0, other: 1201 });
  const budget = { entries: 100 };
  expect(await found({ budget, skipped })).toEqual(
    expect.arrayContaining([
      'git-settings .githooks',
      'git-settings tools/hooks/pre-commit',
      'editor-config w/tasks.json',
      'scan-incomplete .',
    ]),
  );
});

describe('no alarm', () => {
  it('for hard links all of whose names lie below one node_modules or target, and one for every other', async () => {
    put('crate/target/debug/deps/app-1');
    linkSync(join(root, 'crate/target/debug/deps/app-1'), join(root, 'crate/target/debug/app'));
    put('node_modules/a/bin/x');
    mkdirSync(join(root, 'node_modules/b/bin'), { recursive: true });
    linkSync(join(root, 'node_modules/a/bin/x'), join(root, 'node_modules/b/bin/x'));
    expect(await found()).toEqual([]);
    // A third name elsewhere.
    linkSync(join(root, 'node_modules/a/bin/x'), join(root, 'trusted'));
    expect(await found()).toEqual([
      'hard-link node_modules/a/bin/x',
      'hard-link node_modules/b/bin/x',
      'hard-link trusted',
    ]);
    unlinkSync(join(root, 'trusted'));
    mkdirSync(join(root, 'app/node_modules'), { recursive: true });
    linkSync(join(root, 'node_modules/a/bin/x'), join(root, 'app/node_modules/x'));
    expect(await found()).toHaveLength(3);
  });

  const environment = (name: string): void => {
    put(`${name}/pyvenv.cfg`, 'home = /usr/bin\n');
    for (const path of ['bin/activate', 'bin/pip', 'lib/python3.11/site-packages/pip/setup.py']) put(`${name}/${path}`);
    put(`${name}/lib/python3.11/site-packages/distutils-precedence.pth`, 'import os\n');
    link('/usr/bin/python3', `${name}/bin/python3`);
    link('python3', `${name}/bin/python`);
    link('lib', `${name}/lib64`);
  };
  // The clock that stamps files has steps of some milliseconds; pip comes seconds later.
  const made = async (name: string): Promise<void> => {
    mkdirSync(join(root, name, 'bin'), { recursive: true });
    await delay(20);
    environment(name);
  };

  // What the run found absent when it began.
  const absent = new Set(['.venv', 'env']);

  it.each(['.venv', 'env'])('for a new virtual environment %s', async name => {
    await made(name);
    expect(await found({ absent })).toEqual([]);
  });

  it('but one for a new virtual environment in place of another, or further down', async () => {
    await made('.venv');
    await made('app/.venv');
    expect(await found({ absent: new Set(['env']) })).toEqual(
      expect.arrayContaining(['shadowed-program .venv/bin', 'shadowed-program app/.venv/bin']),
    );
  });

  it('for an interpreter of the image that this host does not have, and one for every other spelling', async () => {
    await made('.venv');
    put('.x/python3');
    const python = async (target: string): Promise<string[]> => {
      unlinkSync(join(root, '.venv/bin/python3'));
      link(target, '.venv/bin/python3');
      return found({ absent });
    };
    expect(await python('/usr/local/lib/acode-absent/bin/python3.99')).toEqual([]);
    const spellings = [
      '/proc/self/cwd/.x/python3',
      `/proc/self/root${root}/.x/python3`,
      `/${root}/.x/python3`,
      `/.${root}/.x/python3`,
      '/usr//bin/python3',
      '/usr/./bin/python3',
      '/srv/python3',
      '/dev/fd/3/python3',
    ];
    for (const target of spellings)
      expect([target, await python(target)]).toEqual([
        target,
        expect.arrayContaining(['shadowed-program .venv/bin/python3', 'symlink-out .venv/bin/python3']),
      ]);
  });

  const IMPORTED = 'import re\nimport sys\nfrom pytest import console_main\n';
  const MAIN = "if __name__ == '__main__':\n    ";
  it.each<[string, string, boolean]>([
    [
      'pip',
      `#!/usr/bin/python3\n${IMPORTED}${MAIN}sys.argv[0] = re.sub(r'x', '', sys.argv[0])\n    sys.exit(main())\n`,
      true,
    ],
    [
      'newer pip',
      `#!/usr/bin/python3\n${IMPORTED}${MAIN}sys.argv[0] = sys.argv[0].removesuffix('.exe')\n    sys.exit(main())\n`,
      true,
    ],
    ['setuptools', "#!/usr/bin/python3\n# 'a==1','console_scripts','a'\nimport sys\nsys.exit(load('a')())\n", true],
    ['a person, in Python', '#!/usr/bin/python3\nimport sys\nsys.exit(0)\n', false],
    ['a person, for a shell', '#!/bin/sh\n# python console_scripts sys.exit(\n', false],
    ['a person, at length', `#!/usr/bin/python3\n# console_scripts\nsys.exit(0)\n${'#\n'.repeat(2000)}`, false],
  ])('a program of the host is one of Python’s by what it reads like: %s', (_, text, expected) => {
    put('program', text);
    expect(isEntryPoint(join(root, 'program'))).toBe(expected);
  });

  it.each<[string, (name: string) => void, string]>([
    ['a program of the host', name => put(`${name}/bin/git`), 'shadowed-program .venv/bin/git'],
    ['one of the system', name => put(`${name}/bin/mount`), 'shadowed-program .venv/bin/mount'],
    [
      'a regular file called python',
      name => (unlinkSync(join(root, name, 'bin/python')), put(`${name}/bin/python`)),
      'shadowed-program .venv/bin/python',
    ],
    [
      'an interpreter in the workspace',
      name => (unlinkSync(join(root, name, 'bin/python3')), link(join(root, 'python3'), `${name}/bin/python3`)),
      'shadowed-program .venv/bin/python3',
    ],
    [
      'one where anybody writes',
      name => (unlinkSync(join(root, name, 'bin/python3')), link('/tmp/python3', `${name}/bin/python3`)),
      'shadowed-program .venv/bin/python3',
    ],
    ['another program outside', name => link('/usr/bin/env', `${name}/bin/tool`), 'symlink-out .venv/bin/tool'],
  ])('but one for %s in it', async (_, plant, wanted) => {
    await made('.venv');
    plant('.venv');
    expect(await found({ absent })).toContain(wanted);
  });

  it('but one for any change in an environment that was there, or came from elsewhere', async () => {
    await made('.venv');
    await made('old');
    await before(() => undefined);
    put('.venv/bin/activate', 'evil');
    renameSync(join(root, 'old'), join(root, 'venv'));
    expect(await found({ absent: new Set(['.venv', 'venv']) })).toEqual(
      expect.arrayContaining(['shadowed-program .venv/bin', 'shadowed-program venv/bin']),
    );
    rmSync(join(root, 'venv'), { recursive: true });
    put('.venv/lib/python3.11/site-packages/evil.pth', 'import evil\n');
    expect(await found()).toContain('build-file .venv/lib/python3.11/site-packages/evil.pth');
  });

  it('for what was changed after the run', async () => {
    put('Makefile');
    put('.claude/settings.json');
    await delay(30);
    const untilMs = Date.now();
    await delay(30);
    put('package.json');
    put('.vscode/tasks.json');
    expect(await found({}, untilMs)).toEqual(['agent-config .claude/settings.json', 'build-file Makefile']);
  });
});
