// Risky changes that a run can leave for host tools, named after the attacks; earlier ones are never reported.

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { absentEnvironments, changesOfCancelledRun, changesOfRun, scanRoots } from './after-run.ts';
import { identityOf } from './file-identity.ts';
import { scanDirectory } from './risky.ts';
import type { ScanOptions } from './risky.ts';

let root: string;
let since: number;

function put(path: string, content = ''): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), content);
}

// What was there before the run, and the moment it began.
async function before(make: () => void): Promise<void> {
  make();
  await delay(80);
  since = Date.now();
}

// A loaded machine is not what these tests are about.
const UNHURRIED = { milliseconds: 60_000, patience: 60_000 };

async function changes(budget: ScanOptions['budget'] = {}, skipped = new Set<string>()) {
  const window = { sinceMs: since, untilMs: Infinity };
  return (await scanDirectory(root, window, { budget: { ...UNHURRIED, ...budget }, skipped })).riskyChanges;
}

async function found(...rest: Parameters<typeof changes>) {
  return (await changes(...rest)).map(({ kind, path }) => `${kind} ${path}`);
}

beforeEach(async () => {
  root = realpathSync(mkdtempSync(join(tmpdir(), 'acode-risky-')));
  since = Date.now();
});
afterEach(() => {
  execFileSync('chmod', ['-R', 'u+rwX', root]);
  rmSync(root, { recursive: true, force: true });
});

describe('scanDirectory', () => {
  it('finds what a renamed directory brought along, although nothing in it has changed', async () => {
    await before(() => {
      for (const path of ['a/workflows/x.yml', 'b/settings.json', 'c/sub/package.json', 'd/.bin/git', 'e/HEAD'])
        put(`docs/${path}`);
      put('docs/e/config');
      for (const path of ['untouched/package.json', 'work/package.json']) put(path);
    });
    const to = { a: '.github', b: '.claude', c: 'app', d: 'node_modules', e: 'x' };
    for (const [from, name] of Object.entries(to)) renameSync(join(root, 'docs', from), join(root, name));
    expect(await found()).toEqual([
      'agent-config .claude/settings.json',
      'ci-file .github/workflows/x.yml',
      'package-scripts app/sub/package.json',
      'shadowed-program node_modules/.bin/git',
      'git-repository x',
    ]);
  });

  it('does not take a directory for a renamed one because something was made in it alone', async () => {
    await before(() => put('work/app/package.json'));
    put('work/app/dist/index.js');
    expect(await found()).toEqual([]);
  });

  it('finds nothing in ordinary work, nor in what was there before', async () => {
    await before(() => {
      for (const path of ['package.json', '.git/config', 'sub/.git/config', '.vscode/tasks.json', 'Makefile'])
        put(path);
      symlinkSync('/etc/passwd', join(root, 'old'));
      chmodSync(join(root, 'Makefile'), 0o4755);
    });
    put('src/index.ts');
    put('README.md');
    symlinkSync('src/index.ts', join(root, 'inside'));
    expect(await found()).toEqual([]);
  });

  it.each<[string, string, string]>([
    ['C5', 'sub/.git/config', 'git-repository sub/.git'],
    ['C5', 'sub/.git', 'git-repository sub/.git'],
    ['C7', '.git/hooks/pre-commit', 'git-repository .git'],
    ['C8', 'a/.gitattributes', 'git-settings a/.gitattributes'],
    ['C8', '.gitmodules', 'git-settings .gitmodules'],
    ['C8', '.vscode/tasks.json', 'editor-config .vscode/tasks.json'],
    ['C8', '.idea/runConfigurations/x.xml', 'editor-config .idea/runConfigurations/x.xml'],
    ['C8', '.envrc', 'shell-startup .envrc'],
    ['C8', 'Makefile', 'build-file Makefile'],
    ['C8', 'sub/conftest.py', 'build-file sub/conftest.py'],
    ['C8', 'sub/package.json', 'package-scripts sub/package.json'],
    ['C8', '.mcp.json', 'agent-config .mcp.json'],
    ['C8', '.claude/settings.json', 'agent-config .claude/settings.json'],
    ['C8', 'AGENTS.md', 'agent-config AGENTS.md'],
    ['C8', '.bashrc', 'shell-startup .bashrc'],
    ['C8', '.github/workflows/x.yml', 'ci-file .github/workflows/x.yml'],
    ['C8', '.gitlab-ci.yml', 'ci-file .gitlab-ci.yml'],
    ['C9', 'node_modules/.bin/docker', 'shadowed-program node_modules/.bin/docker'],
    ['C10', '.npmrc', 'package-scripts .npmrc'],
  ])('%s: %s is reported when it is made, and when it is changed in place', async (_, path, expected) => {
    put(path);
    expect(await found()).toEqual([expected]);
    await before(() => undefined);
    expect(await found()).toEqual([]);
    writeFileSync(join(root, path), 'changed');
    // Times that programs can set say nothing.
    utimesSync(join(root, path), 0, 0);
    expect(await found()).toEqual([expected]);
  });

  it.each<[string, string]>([
    ['eslint.config.js', 'build-file'],
    ['.eslintrc.cjs', 'build-file'],
    ['.eslintrc', 'build-file'],
    ['vite.config.mts', 'build-file'],
    ['vitest.config.ts', 'build-file'],
    ['vitest.workspace.ts', 'build-file'],
    ['jest.config.mjs', 'build-file'],
    ['webpack.config.js', 'build-file'],
    ['rollup.config.js', 'build-file'],
    ['babel.config.cjs', 'build-file'],
    ['.babelrc.js', 'build-file'],
    ['postcss.config.js', 'build-file'],
    ['tailwind.config.ts', 'build-file'],
    ['next.config.js', 'build-file'],
    ['nuxt.config.ts', 'build-file'],
    ['svelte.config.js', 'build-file'],
    ['astro.config.mjs', 'build-file'],
    ['playwright.config.ts', 'build-file'],
    ['x.code-workspace', 'editor-config'],
    ['App.csproj', 'build-file'],
    ['App.sln', 'build-file'],
    ['Directory.Build.props', 'build-file'],
    ['.hg/hgrc', 'git-settings'],
    ['.yarn/releases/yarn.cjs', 'package-scripts'],
    ['.yarnrc.yml', 'package-scripts'],
    ['.pnp.cjs', 'package-scripts'],
    ['flake.nix', 'build-file'],
    ['shell.nix', 'build-file'],
    ['default.nix', 'build-file'],
    ['Cargo.toml', 'build-file'],
    ['build.rs', 'build-file'],
    ['.cargo/config.toml', 'build-file'],
    ['go.work', 'build-file'],
    ['.opencode/x.json', 'agent-config'],
    ['.kiro/hooks/x', 'agent-config'],
    ['.continue/x.json', 'agent-config'],
    ['.roo/mcp.json', 'agent-config'],
    ['.clinerules/x.md', 'agent-config'],
    ['.clinerules', 'agent-config'],
    ['.github/copilot-instructions.md', 'agent-config'],
    ['.pre-commit-config.yaml', 'git-settings'],
    ['lefthook.yml', 'git-settings'],
    ['tox.ini', 'build-file'],
    ['noxfile.py', 'build-file'],
    ['pyproject.toml', 'build-file'],
    ['Rakefile', 'build-file'],
    ['Gemfile', 'package-scripts'],
    ['Vagrantfile', 'build-file'],
    ['Dockerfile', 'build-file'],
    ['Dockerfile.dev', 'build-file'],
    ['docker-compose.prod.yml', 'build-file'],
    ['compose.override.yaml', 'build-file'],
    ['.tool-versions', 'shell-startup'],
    ['mise.toml', 'shell-startup'],
    ['ESLINT.CONFIG.JS', 'build-file'],
  ])('C8: %s is reported wherever it is, as %s', async (path, kind) => {
    put(path);
    put(`deep/er/${path}`);
    expect((await found()).toSorted()).toEqual([`${kind} ${path}`, `${kind} deep/er/${path}`].toSorted());
  });

  it('C9: the programs of an environment are reported as one', async () => {
    put('.venv/bin/python');
    put('.venv/bin/pip');
    put('a/venv/bin/python');
    put('venv/lib/x.py');
    expect(await found()).toEqual(['shadowed-program .venv/bin', 'shadowed-program a/venv/bin']);
  });

  it('names that only look like those are not reported', async () => {
    for (const name of [
      'config.js',
      'my.eslint.config.json',
      'eslintrc',
      'composer.yml',
      'dockerfiles',
      'x.slnf',
      'bin/x',
    ])
      put(name);
    expect(await found()).toEqual([]);
  });

  it('C6: a bare repository is reported, a folder with only some of its names is not', async () => {
    put('b/HEAD');
    expect(await found()).toEqual([]);
    put('b/config');
    expect(await found()).toEqual(['git-repository b']);
  });

  it('what a package manager installed is not listed by name', async () => {
    put('node_modules/x/package.json');
    put('node_modules/.bin/eslint');
    put('node_modules/x/.git/config');
    put('node_modules/y/.GIT/config');
    put('node_modules/z/.Git', 'gitdir: ../y/.GIT\n');
    expect(await found()).toEqual([
      'git-repository node_modules/x/.git',
      'git-repository node_modules/y/.GIT',
      'git-repository node_modules/z/.Git',
    ]);
  });

  it('C9: programs that only the scripts of one installed package would start are not reported; others are', async () => {
    put('node_modules/prefix/node_modules/.bin/which');
    put('node_modules/@scope/prefix/node_modules/.bin/node');
    put('node_modules/.pnpm/which@1.3.1/node_modules/which/node_modules/.bin/which');
    expect(await found()).toEqual([]);
    put('node_modules/.bin/which');
    put('packages/a/node_modules/.bin/which');
    put('node_modules/.pnpm/node_modules/.bin/which');
    mkdirSync(join(root, 'b/node_modules'), { recursive: true });
    symlinkSync('../../node_modules/prefix/node_modules/.bin', join(root, 'b/node_modules/.bin'));
    expect(await found()).toEqual([
      'shadowed-program b/node_modules/.bin',
      'shadowed-program node_modules/.bin/which',
      'shadowed-program node_modules/.pnpm/node_modules/.bin/which',
      'shadowed-program node_modules/prefix/node_modules/.bin/which',
      'shadowed-program packages/a/node_modules/.bin/which',
    ]);
  });

  it('C11: links out are reported, also through older links and by steps upwards; links inside are not', async () => {
    await before(() => {
      mkdirSync(join(root, 'a/b'), { recursive: true });
      symlinkSync('/etc', join(root, 'old'));
    });
    symlinkSync('/etc/passwd', join(root, 'absolute'));
    symlinkSync('../../..', join(root, 'a/b/up'));
    symlinkSync('old/passwd', join(root, 'through'));
    symlinkSync('loop', join(root, 'loop'));
    symlinkSync('../../a/b', join(root, 'a/b/fine'));
    symlinkSync(join(root, 'a'), join(root, 'fine'));
    symlinkSync('missing', join(root, 'dangling'));
    expect(await found()).toEqual(['a/b/up', 'absolute', 'loop', 'through'].map(path => `symlink-out ${path}`));
  });

  it('C12: setuid and setgid are reported, also on a file that was there', async () => {
    await before(() => put('tool'));
    chmodSync(join(root, 'tool'), 0o4755);
    put('other');
    chmodSync(join(root, 'other'), 0o2755);
    expect(await found()).toEqual(['privileged-file other', 'privileged-file tool']);
  });

  it('a changed file with a second name is reported, an unchanged one and a single one are not', async () => {
    await before(() => {
      for (const name of ['.git/config', 'other', 'single']) put(name);
      linkSync(join(root, '.git/config'), join(root, 'notes.txt'));
      linkSync(join(root, 'other'), join(root, 'another'));
    });
    writeFileSync(join(root, 'notes.txt'), 'x');
    writeFileSync(join(root, 'single'), 'x');
    expect(await changes({}, new Set(['.git']))).toEqual([
      { path: 'notes.txt', kind: 'hard-link', reason: expect.stringContaining('another name that changed with it') },
    ]);
  });

  it('C13: a FIFO and a socket are reported and never opened', async () => {
    execFileSync('mkfifo', [join(root, '.env')]);
    execFileSync('mkfifo', [join(root, 'package.json')]);
    const server = createServer();
    await new Promise<void>(resolve => server.listen(join(root, 's'), resolve));
    expect(await found()).toEqual([
      'special-file .env',
      'package-scripts package.json',
      'special-file package.json',
      'special-file s',
    ]);
    server.close();
  });

  it('C14: 200-deep directories and long names are survived, and what was not scanned is reported', async () => {
    put(`${Array.from({ length: 200 }, () => 'd').join('/')}/package.json`);
    put(`${'n'.repeat(255)}/package.json`);
    const listed = await found();
    expect(listed).toContain(`package-scripts ${'n'.repeat(255)}/package.json`);
    expect(listed.at(-1)).toBe('scan-incomplete .');
    expect(await found({ depth: 300 })).toHaveLength(2);
  });

  it('names that are no text are looked into like others', async () => {
    const odd = Buffer.concat([Buffer.from(root), Buffer.from('/\xff', 'latin1')]);
    mkdirSync(odd);
    mkdirSync(Buffer.concat([odd, Buffer.from('/.git')]));
    expect(await found()).toEqual(['git-repository \ufffd/.git']);
  });

  it('a directory that the scan could not enter is reported', async () => {
    if (process.getuid?.() === 0) return;
    await before(() => {
      mkdirSync(join(root, 'old'), 0o000);
    });
    expect(await found()).toEqual([]);
    put('hidden/.git/config');
    chmodSync(join(root, 'hidden'), 0o000);
    expect(await changes()).toEqual([
      { path: '.', kind: 'scan-incomplete', reason: 'hidden could not be looked into' },
    ]);
  });

  // A program that knows a name in such a directory can follow it, and git knows `.git`.
  it.runIf(process.getuid?.() !== 0)('what is in a directory that cannot be listed is asked for by name', async () => {
    mkdirSync(join(root, 'sub/.git'), { recursive: true });
    for (const path of [
      'sub/Makefile',
      'sub/eslint.config.mjs',
      'sub/.vscode/tasks.json',
      'sub/a/.git/config',
      'sub/x',
    ])
      put(path);
    chmodSync(join(root, 'sub'), 0o311);
    const listed = await changes();
    expect(listed.map(({ kind, path }) => `${kind} ${path}`)).toEqual([
      'git-repository sub/.git',
      'editor-config sub/.vscode/tasks.json',
      'build-file sub/Makefile',
      'build-file sub/eslint.config.mjs',
      'scan-incomplete .',
    ]);
    expect(listed.at(-1)?.reason).toBe('sub could not be looked into');
  });

  it.runIf(process.getuid?.() !== 0)('such a directory is named although only something below it changed', async () => {
    await before(() => {
      put('sub/a/file');
      chmodSync(join(root, 'sub'), 0o311);
      mkdirSync(join(root, 'shut'), 0o000);
    });
    put('sub/a/.git/config');
    expect(await changes()).toEqual([{ path: '.', kind: 'scan-incomplete', reason: 'sub could not be looked into' }]);
  });

  it.runIf(process.getuid?.() !== 0)(
    'a root that cannot be listed is asked too, and a closed risky directory reported',
    async () => {
      put('package.json');
      put('.vscode/tasks.json');
      chmodSync(join(root, '.vscode'), 0o311);
      chmodSync(root, 0o311);
      expect(await found()).toEqual(['editor-config .vscode', 'package-scripts package.json', 'scan-incomplete .']);
    },
  );

  it.runIf(process.getuid?.() !== 0)('many closed directories are counted where they are not named', async () => {
    for (let n = 0; n < 8; n += 1) mkdirSync(join(root, `d${n}`), 0o000);
    const [change] = await changes();
    expect(change?.reason.match(/d\d could not/g)).toHaveLength(5);
    expect(change?.reason).toMatch(/; nor could 3 other directories$/);
  });

  it('however full a directory is, what is known to matter there is seen', async () => {
    for (let n = 0; n < 60; n += 1) for (const place of ['', '.github/', 'venv/']) put(`${place}0decoy${n}`);
    const expected = [
      'ci-file .github/workflows/x.yml',
      'git-settings .husky/pre-commit',
      'build-file Makefile',
      'package-scripts package.json',
      'shadowed-program venv/bin',
    ];
    for (const path of expected) put(path.replace(/^\S+ /, '').replace('venv/bin', 'venv/bin/python'));
    expect(await found({ entries: 30 })).toEqual([...expected, 'scan-incomplete .']);
    expect(await found()).toEqual(expected);
  });

  it.each([
    [{ entries: 10 }, /only 10 entries/],
    [{ directories: 3 }, /only 3 directories/],
    [{ milliseconds: 0 }, /only what 0 ms/],
  ])('ends at its budget %j and says so once', async (budget, reason) => {
    for (let n = 0; n < 40; n += 1) put(`d${n}/file`);
    const listed = await changes(budget);
    expect(listed).toEqual([{ path: '.', kind: 'scan-incomplete', reason: expect.stringMatching(reason) }]);
  });

  it('sees enough within a short budget, and reports what it left out', async () => {
    for (let n = 0; n < 40; n += 1) put(`d${n}/file`);
    put('d39/deep/Makefile');
    expect(await changes({ patience: 0 })).toMatchObject([{ path: 'd39/deep/Makefile' }]);
    for (let n = 0; n < 6000; n += 1) put(`many/file-${n}`);
    const listed = await changes({ patience: 0 });
    expect(listed.at(-1)).toMatchObject({
      kind: 'scan-incomplete',
      reason: expect.stringMatching(
        /^only \d+ entries were scanned, the uppermost first, since the run was a short one$/,
      ),
    });
    const patient = { milliseconds: 60_000, patience: Infinity };
    expect(await changes(patient)).toMatchObject([{ path: 'd39/deep/Makefile' }]);
  });

  it('lists at most 200, and a flood of one kind does not hide another', async () => {
    for (let n = 0; n < 300; n += 1) put(`a${n}/package.json`);
    put('z/z/z/.git/config');
    const listed = await found();
    expect(listed).toHaveLength(200);
    expect(listed).toContain('git-repository z/z/z/.git');
    expect(listed.at(-1)).toBe('scan-incomplete .');
  });

  it('knows what further tools execute or obey, each by its kind', async () => {
    const names: Readonly<Record<string, string>> = {
      'package-scripts':
        'binding.gyp requirements.txt requirements-dev.txt package-lock.json yarn.lock pnpm-lock.yaml npm-shrinkwrap.json go.mod uv.lock',
      'build-file':
        'gradle/wrapper/gradle-wrapper.jar gradle/wrapper/gradle-wrapper.properties .pylintrc mypy.ini .flake8 .rubocop.yml ansible.cfg tools/bazel WORKSPACE BUILD project/plugins.sbt .jvmopts nodemon.json wrangler.toml firebase.json',
      'shell-startup':
        '.Rprofile .ghci .ocamlinit .iex.exs .pdbrc .perldb devbox.json mise/config.toml .config/mise/config.toml',
      'editor-config': '.helix/languages.toml .bsp/sbt.json .run/app.xml .vim/coc-settings.json',
      'ci-file':
        '.forgejo/workflows/x.yml .gitea/workflows/x.yml .woodpecker/x.yml .semaphore/semaphore.yml .teamcity/settings.kts',
      'agent-config':
        '.github/hooks/x.json .github/skills/x/SKILL.md .agents/skills/x/SKILL.md .openhands/setup.sh .factory/settings.json .rules',
      'git-settings': '.git-hooks/pre-commit .hooks/pre-commit githooks/pre-push',
    };
    const wanted = Object.entries(names).flatMap(([kind, paths]) => paths.split(' ').map(path => `${kind} ${path}`));
    for (const line of wanted) put(line.slice(line.indexOf(' ') + 1));
    for (const path of [
      'tools/other',
      'src/hooks/useState.ts',
      'yarn.lock.md',
      'docs/requirements.md',
      '.config/app/x',
    ])
      put(path);
    expect((await found()).toSorted()).toEqual(wanted.toSorted());
  });

  it('counts every new and changed file once, by kind, and nothing else', async () => {
    await before(() => {
      for (const path of ['old.ts', 'old.json', '.old', 'src/edited.ts']) put(path);
    });
    for (const path of [
      '.hidden',
      'a/.cache/x.ts',
      'package.json',
      'x.yml',
      'src/edited.ts',
      'run.py',
      'a.png',
      'LICENSE',
    ])
      put(path);
    put('tool.py');
    chmodSync(join(root, 'tool.py'), 0o755);
    symlinkSync('run.py', join(root, 'link.py'));
    mkdirSync(join(root, 'made'));
    const { changed } = await scanDirectory(root, { sinceMs: since, untilMs: Infinity });
    expect(changed).toEqual({ executable: 1, hidden: 2, configuration: 2, source: 3, other: 2 });
    // So full that what matters is asked for by name before it is listed.
    for (let n = 0; n < 200; n += 1) put(`file-${n}`);
    const full = await scanDirectory(root, { sinceMs: since, untilMs: Infinity });
    expect(full.changed).toEqual({ ...changed, other: 202 });
  });

  it('ends when it is cancelled, with what it has found, and reports that', async () => {
    put('Makefile');
    for (let n = 0; n < 300; n += 1) put(`d${n}/file`);
    const signal = AbortSignal.abort();
    const scan = await scanDirectory(root, { sinceMs: since, untilMs: Infinity }, { signal });
    expect(scan).toMatchObject({
      complete: false,
      riskyChanges: [{ path: 'Makefile' }, { reason: 'the scan was stopped' }],
    });
  });

  it('leaves out what the run could not change', async () => {
    put('.git/config');
    put('sub/.git/config');
    expect(await found({}, new Set(['.git']))).toEqual(['git-repository sub/.git']);
  });
});

describe('changesOfRun', () => {
  const mounts = (readOnly: boolean) => [
    { purpose: 'workspace' as const, source: root, target: '/workspace', readOnly, identity: { device: 0, inode: 0 } },
    {
      purpose: 'protected' as const,
      source: join(root, '.git'),
      target: '/workspace/.git',
      readOnly: true,
      identity: identityNow(join(root, '.git')),
    },
  ];
  const identityNow = (path: string) => {
    const now = lstatSync(path, { throwIfNoEntry: false });
    return now ? identityOf(now) : { device: 0, inode: 0 };
  };
  const clock = {
    now: () => 0,
    monotonic: () => 0,
    after: (_: number, action: () => void) => (action(), () => undefined),
  };
  const none = { executable: 0, hidden: 0, configuration: 0, source: 0, other: 0 };
  const patient = { ...clock, after: () => () => undefined };

  it('looks at a protected part that was made anew during the run, also where it has the number of the old one', async () => {
    mkdirSync(join(root, '.git'));
    const planned = mounts(false);
    const old = lstatSync(join(root, '.git'));
    const anew = async (): Promise<number> => {
      rmSync(join(root, '.git'), { recursive: true });
      // The kernel’s clock of files has steps of some milliseconds.
      await delay(20);
      put('.git/config');
      return lstatSync(join(root, '.git')).ino;
    };
    // A file system gives the inode number to the next file, which may be another user’s.
    for (let tries = 0; tries < 50 && (await anew()) !== old.ino; tries += 1);
    const run = { mounts: planned, sinceMs: since, dead: Promise.resolve() };
    const listed = (await changesOfRun(run, patient)).riskyChanges;
    expect(listed.map(({ path }) => path)).toEqual(['.git']);
    // The control: one that is what it was could not be changed by the run.
    const same = await changesOfRun({ ...run, mounts: mounts(false) }, patient);
    expect(same).toMatchObject({ riskyChanges: [], changed: none, complete: true });
  });

  it('looks when everything is dead, and only at what could be written', async () => {
    put('.git/config');
    put('package.json');
    const run = { sinceMs: since, dead: delay(50).then(() => put('Makefile')) };
    expect(await changesOfRun({ ...run, mounts: mounts(false) }, patient)).toMatchObject({
      riskyChanges: [{ path: 'Makefile' }, { path: 'package.json' }],
      changed: { ...none, configuration: 2 },
      complete: true,
    });
    expect(await changesOfRun({ ...run, mounts: mounts(true) }, patient)).toEqual({
      riskyChanges: [],
      changed: none,
      complete: true,
      spent: false,
      rest: null,
    });
  });

  it('looks at a protected part that was replaced, since nothing lies over it any more', async () => {
    put('.git/config');
    const planned = mounts(false);
    renameSync(join(root, '.git'), join(root, 'old'));
    put('.git/config');
    const run = { sinceMs: since, dead: Promise.resolve(), mounts: planned };
    expect((await changesOfRun(run, patient)).riskyChanges.map(({ path }) => path)).toContain('.git');
  });

  it('looks at what was brought into a workspace that could not be written', async () => {
    const run = { sinceMs: since, dead: Promise.resolve(), mounts: mounts(true) };
    put('Makefile');
    expect((await changesOfRun(run, patient)).riskyChanges).toEqual([]);
    expect((await changesOfRun({ ...run, brought: true }, patient)).riskyChanges).toMatchObject([{ path: 'Makefile' }]);
  });

  it('scans every directory that could be written, and says where it was inside', async () => {
    const other = realpathSync(mkdtempSync(join(tmpdir(), 'acode-risky-other-')));
    const file = join(other, '..', `${basename(other)}.Makefile`);
    const identity = { device: 0, inode: 0 };
    const more = (source: string, target: string, readOnly: boolean) =>
      ({ purpose: 'additional', source, target, readOnly, identity }) as const;
    try {
      mkdirSync(join(other, '.vscode'));
      writeFileSync(join(other, '.vscode/tasks.json'), '');
      writeFileSync(file, '');
      put('Makefile');
      put('below/package.json');
      const run = { sinceMs: since, dead: Promise.resolve() };
      const writable = [
        ...mounts(false),
        more(other, '/other', false),
        more(join(root, 'below'), '/below', false),
        more(file, '/one', false),
      ];
      const { riskyChanges, changed } = await changesOfRun({ ...run, mounts: writable }, patient);
      expect(riskyChanges.map(({ path }) => path)).toEqual([
        'Makefile',
        'below/package.json',
        '/other/.vscode/tasks.json',
      ]);
      expect(changed).toEqual({ ...none, hidden: 1, configuration: 2, other: 1 });
      // The control: what the run could not write is not scanned.
      const closed = [...mounts(true), more(other, '/other', true)];
      expect((await changesOfRun({ ...run, mounts: closed }, patient)).riskyChanges).toEqual([]);
      expect(changesOfCancelledRun([...mounts(true), more(other, '/other', false)], since, true)).toMatchObject({
        complete: false,
      });
    } finally {
      rmSync(other, { recursive: true });
      rmSync(file);
    }
  });

  it('does not attribute changes after its end to the run', async () => {
    put('Makefile');
    const run = { sinceMs: since, dead: delay(5), mounts: mounts(false) };
    const scan = changesOfRun(run, patient);
    expect((await scan).riskyChanges).toMatchObject([{ path: 'Makefile' }]);
    // A clock that was set back since is taken into account.
    await delay(30);
    since = Date.now() + 60_000;
    const later = { ...run, sinceMs: since };
    expect((await changesOfRun(later, patient)).riskyChanges).toEqual([]);
    const clockOffset = Date.now() - performance.now() + 120_000;
    expect((await changesOfRun({ ...later, clockOffset }, patient)).riskyChanges).toMatchObject([{ path: 'Makefile' }]);
  });

  it('sees what was written before the clock was set back', async () => {
    put('Makefile');
    const clockOffset = Date.now() - performance.now();
    const now = vi.spyOn(Date, 'now').mockImplementation(() => performance.now() + clockOffset - 60_000);
    try {
      const run = { sinceMs: since, dead: Promise.resolve(), mounts: mounts(false) };
      expect((await changesOfRun({ ...run, clockOffset }, patient)).riskyChanges).toMatchObject([{ path: 'Makefile' }]);
    } finally {
      now.mockRestore();
    }
  });

  it('does not know the end of a command in a persistent sandbox, where what it started may go on', async () => {
    put('Makefile');
    const run = { sinceMs: since, dead: Promise.resolve(), mounts: mounts(false) };
    // As if the command had ended a minute before the file was written.
    const early = Date.now() - 60_000;
    const now = vi.spyOn(Date, 'now').mockReturnValue(early);
    try {
      expect((await changesOfRun(run, patient)).riskyChanges).toEqual([]);
      const open = await changesOfRun({ ...run, persistent: true }, patient);
      expect(open).toMatchObject({ riskyChanges: [{ path: 'Makefile' }], complete: true });
    } finally {
      now.mockRestore();
    }
    expect(changesOfCancelledRun(mounts(false), since, true, { persistent: true })).toMatchObject({
      rest: { untilMs: null, final: false },
    });
  });

  it('knows which environments were absent when the run began', async () => {
    put('venv/pyvenv.cfg');
    const absent = absentEnvironments(mounts(false));
    expect(absent).toEqual([join(root, '.venv'), join(root, 'env')]);
    const { rest } = changesOfCancelledRun(mounts(false), since, true, { absent });
    expect(rest).toMatchObject({ directories: [{ path: root, absent: ['.venv', 'env'] }] });
    expect(absentEnvironments(mounts(true))).toEqual([]);
  });

  it('says that it failed in one directory, and still scans the others', async () => {
    put('Makefile');
    let asked = 0;
    // What a defect of the scan would do, in the first directory alone.
    const signal = {
      get aborted() {
        asked += 1;
        if (asked === 1) throw new Error('broken');
        return false;
      },
    } as unknown as AbortSignal;
    mkdirSync(join(root, 'sub/deep'), { recursive: true });
    const roots = [join(root, 'sub'), root].map(path => ({ path, skipped: [] }));
    const scan = await scanRoots(roots, { sinceMs: since, untilMs: Infinity }, { signal });
    expect(scan).toMatchObject({
      riskyChanges: [
        { kind: 'scan-incomplete', reason: 'the scan failed: broken' },
        { kind: 'build-file', path: 'Makefile' },
      ],
      complete: false,
    });
  });

  it('reports when the end was not seen, or no scan was made', async () => {
    const forever = { mounts: mounts(false), sinceMs: since, dead: new Promise(() => undefined) };
    const incomplete = { riskyChanges: [{ kind: 'scan-incomplete' }], complete: false };
    expect(await changesOfRun(forever, clock)).toMatchObject({ ...incomplete, rest: null });
    const rest = { directories: [{ path: root, skipped: [] }], sinceMs: since };
    expect(changesOfCancelledRun(mounts(false), since, true)).toMatchObject({
      ...incomplete,
      rest: { ...rest, untilMs: expect.any(Number), final: false },
    });
    expect(changesOfCancelledRun(mounts(false), since, false)).toMatchObject({
      ...incomplete,
      rest: { ...rest, untilMs: null, final: true },
    });
    expect(changesOfCancelledRun(mounts(true), since, true)).toMatchObject({
      riskyChanges: [],
      complete: true,
      rest: null,
    });
  });
});
