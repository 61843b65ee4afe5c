// Masks: what is found, what is not, and what becomes of it when a command moves it.

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { maskLine } from '../../contract/masks.ts';
import type { MaskPolicy, MaskReport } from '../../contract/masks.ts';
import type { Clock } from '../../contract/ports.ts';
import type { Layer } from '../../contract/sourced.ts';
import { systemClock } from '../../lifecycle/clock.ts';
import { prepareMasks, rescanMasks } from './masks.ts';
import type { MaskRequest } from './masks.ts';
import { MaskPattern, mayMatch } from './rules.ts';

const base = realpathSync(mkdtempSync(join(tmpdir(), 'acode-masks-')));
afterAll(() => rmSync(base, { recursive: true, force: true }));

const KEY = '-----BEGIN RSA PRIVATE KEY-----\nx\n-----END RSA PRIVATE KEY-----\n';
const ENVIRONMENT = { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_SYSTEM: '/dev/null' };

let root = '';
let state = '';
let number = 0;

beforeEach(() => {
  number += 1;
  root = join(base, `w${number}`);
  state = join(base, `s${number}`);
  mkdirSync(root);
});

function put(path: string, content: string | Buffer = 'SECRET=1\n'): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), content);
}

function git(...words: string[]): void {
  const identity = ['-c', 'user.name=a', '-c', 'user.email=a@b.invalid', '-c', 'protocol.file.allow=always'];
  execFileSync('git', [...identity, ...words], { cwd: root, env: ENVIRONMENT, stdio: 'pipe' });
}

/** A repository that tracks these files. */
function track(...paths: string[]): void {
  if (!existsSync(join(root, '.git'))) git('init', '--quiet');
  for (const path of paths) {
    if (!existsSync(join(root, path))) put(path, 'x');
    git('add', '--force', path);
  }
}

const add = (layer: Layer, ...patterns: string[]): MaskPolicy['add'] =>
  patterns.map(value => ({ value, layer, where: `f.yml (sandbox.mask)` }));
const policy = (added: MaskPolicy['add'] = [], removed: readonly string[] = []): MaskPolicy => ({
  add: added,
  remove: { value: removed, layer: 'user', where: 'f.yml (sandbox.unmask)' },
});

// A busy machine must not change what is found.
const UNHURRIED = { walkMs: 600_000, indexMs: 600_000, movedMs: 600_000 };

const prepare = (given: MaskPolicy = policy(), more: Partial<MaskRequest> = {}): Promise<MaskReport> =>
  prepareMasks({ root, state, policy: given, ...more, limits: { ...UNHURRIED, ...more.limits } });
const paths = async (given?: MaskPolicy, more?: Partial<MaskRequest>): Promise<string[]> =>
  (await prepare(given, more)).masked.map(({ path }) => path);

// By this clock, everything has changed since it was last read, and no time passes.
const earlier: Clock = { ...systemClock, now: () => Date.now() - 3_600_000, monotonic: () => 0 };

// A directory that changed a moment ago is listed again in any case: by this clock, all of them are old.
const later: Clock = { ...systemClock, now: () => Date.now() + 5000 };

describe('the built-in rules', () => {
  const SECRET: Readonly<Record<string, string>> = {
    '.env': 'A=1',
    '.env.local': 'A=1',
    '.env.production': 'A=1',
    '.envrc': 'export A=1',
    'prod.env': 'A=1',
    '.dev.vars': 'A=1',
    id_rsa: 'anything',
    id_ed25519: 'anything',
    'a.pem': KEY,
    'b.key': `some text before\n${KEY}`,
    'c.PEM': '-----BEGIN PRIVATE KEY-----\n',
    'd.key': '-----BEGIN ENCRYPTED PRIVATE KEY-----\n',
    'e.pem': '-----BEGIN OPENSSH PRIVATE KEY-----\n',
    'f.asc': '-----BEGIN PGP PRIVATE KEY BLOCK-----\n',
    'g.ppk': 'PuTTY-User-Key-File-3: ssh-rsa\n',
    'config/master.key': '0123456789abcdef0123456789abcdef\n',
    'h.p12': '\0',
    'i.pfx': '\0',
    'j.jks': '\0',
    '.npmrc': '//registry.npmjs.org/:_authToken=npm_abc\n',
    '.yarnrc.yml': 'npmRegistries:\n  x:\n    npmAuthToken: "abc"\n',
    '.pypirc': '[pypi]\nusername = __token__\npassword = pypi-abc\n',
    '.netrc': 'machine x login y password z\n',
    '.pgpass': 'h:5432:db:me:pw\n',
    '.git-credentials': 'https://me:token@github.com\n',
    'auth.json': '{"http-basic": {"x": {"username": "a", "password": "b"}}}',
    '.cargo/credentials.toml': '[registry]\n',
    '.aws/credentials': '[default]\naws_secret_access_key = abc\n',
    '.config/gcloud/application_default_credentials.json': '{}',
    'my-service-account.json': '{"type": "service_account", "private_key": "-----BEGIN"}',
    'proj-0a1b2c3d4e5f.json': '{"private_key": "x"}',
    '.azure/accessTokens.json': '[]',
    kubeconfig: `${'certificate-authority-data: QQ==\n'.repeat(300)}users:\n- user:\n    client-key-data: QQ==\n`,
    '.kube/config': 'users:\n- user:\n    token: abc\n',
    '.docker/config.json': '{"auths": {"x": {"auth": "abc"}}}',
    'terraform.tfvars': 'db_password = "x"\n',
  };
  const HARMLESS: Readonly<Record<string, string>> = {
    '.env.example': 'A=1',
    '.env.sample': 'A=1',
    '.env.template': 'A=1',
    '.env.dist': 'A=1',
    '.env.local.example': 'A=1',
    '.environment': 'A=1',
    'environment.ts': 'A=1',
    'id_rsa.pub': 'ssh-rsa AAAA',
    'cert.pem': '-----BEGIN CERTIFICATE-----\n',
    'far.pem': `${' '.repeat(4096)}${KEY}`,
    'public.key': '-----BEGIN PUBLIC KEY-----\n',
    'slides.key': 'PK\u0003\u0004 a presentation',
    'a/.npmrc': 'registry=https://x\n//x/:_authToken=${NPM_TOKEN}\n',
    'a/.yarnrc.yml': 'nodeLinker: node-modules\n',
    'a/.netrc': '# nothing\n',
    'a/auth.json': '{"theme": "dark"}',
    '.aws/config': '[default]\nregion = x\n',
    'package.json': '{"private_key": "no"}',
    'tokens.json': '{"color": "red"}',
    'a/kubeconfig': 'clusters: []\n',
    'a/.docker/config.json': '{"credsStore": "x"}',
    'a/terraform.tfvars': 'region = "x"\n',
    'config/credentials': 'x',
    'terraform.tfstate': '{}',
  };

  it('find each of these, and nothing beside them', async () => {
    for (const [path, content] of Object.entries({ ...SECRET, ...HARMLESS })) put(path, content);
    expect(await paths()).toEqual(Object.keys(SECRET).sort());
  });

  it('do not apply to directories, FIFOs and links that lead out', async () => {
    put('.env/pyvenv.cfg', 'x');
    execFileSync('mkfifo', [join(root, 'x.env')]);
    symlinkSync('/etc/hostname', join(root, 'y.env'));
    symlinkSync('z.env', join(root, 'z.env'));
    symlinkSync('nowhere', join(root, 'n.env'));
    expect(await paths()).toEqual([]);
  });

  it('take a file that cannot be read for a secret', async () => {
    put('locked.pem', 'x');
    chmodSync(join(root, 'locked.pem'), 0);
    // Root reads everything.
    expect(await paths()).toEqual(process.getuid?.() === 0 ? [] : ['locked.pem']);
  });

  it('are cheap on names that no rule fits, of source code above all', () => {
    expect(['index.ts', 'README.md', 'env.ts', 'package.json', 'kubeconfig.py'].filter(mayMatch)).toEqual([]);
    expect(['.env.ts', 'kubeconfig.prod', 'kubeconfig'].filter(mayMatch)).toHaveLength(3);
  });
});

describe('where it looks', () => {
  it('in directories of the index, and not at what git tracks', async () => {
    track('.env', 'a/b/c/tracked.pem', 'a/b/c/x');
    put('a/b/c/tracked.pem', KEY);
    put('a/b/c/.env');
    put('a/b/own.pem', KEY);
    expect(await paths()).toEqual(['a/b/c/.env', 'a/b/own.pem']);
  });

  it('one level deep in others, and never in node_modules', async () => {
    track('src/x');
    for (const path of ['dist/.env', 'dist/deep/.env', 'src/out/.env', 'node_modules/p/.env', 'node_modules/.env'])
      put(path);
    put('.config/gcloud/credentials.db', 'x');
    expect(await paths()).toEqual(['.config/gcloud/credentials.db', 'dist/.env', 'src/out/.env']);
  });

  it('in submodules as in the repository', async () => {
    const inner = join(base, `inner${number}`);
    execFileSync('git', ['init', '--quiet', inner], { env: ENVIRONMENT });
    mkdirSync(join(inner, 'a/b'), { recursive: true });
    writeFileSync(join(inner, 'a/b/.env'), 'tracked');
    for (const words of [
      ['add', '.'],
      ['-c', 'user.name=a', '-c', 'user.email=a@b.invalid', 'commit', '-qm', 'x'],
    ])
      execFileSync('git', words, { cwd: inner, env: ENVIRONMENT });
    track('top');
    git('submodule', '--quiet', 'add', inner, 'sub');
    put('sub/a/b/own.env');
    expect(await paths()).toEqual(['sub/a/b/own.env']);
  });

  it('everywhere within limits where there is no repository, and says when a limit was met', async () => {
    for (let at = 0; at < 30; at += 1) put(`d${at}/e/f/.env`);
    put('node_modules/.env');
    expect(await paths()).toHaveLength(30);
    put('new/.env');
    const { warnings } = await prepare(policy([], ['x']), { state: `${state}-other`, limits: { entries: 20 } });
    expect(warnings).toEqual([{ kind: 'search-limit', limit: 'entries', entries: expect.any(Number) as number }]);
    // What was listed in one run is not listed in the next, which comes further.
    let seen = 0;
    const limits = { entries: 20 };
    for (let run = 0; run < 12; run += 1)
      seen = (await prepare(policy([], ['x']), { state: `${state}-other`, limits, clock: later })).masked.length;
    expect(seen).toBeGreaterThan(0);
  });

  it('at everything where the index is damaged, tracked or not', async () => {
    track('a/b/tracked.env', 'x');
    put('c/d/e/.env');
    writeFileSync(join(root, '.git/index'), 'DIRC');
    const { masked, warnings } = await prepare();
    expect(masked.map(({ path }) => path)).toEqual(['a/b/tracked.env', 'c/d/e/.env']);
    expect(warnings).toEqual([{ kind: 'tracking-unknown', because: 'index' }]);
  });

  it('at files of a repository that has no index yet', async () => {
    git('init', '--quiet');
    put('a/b/c/.env');
    const { masked, warnings } = await prepare();
    expect([masked.map(({ path }) => path), warnings]).toEqual([['a/b/c/.env'], []]);
  });

  it('everywhere in a workspace that a repository above knows nothing of', async () => {
    track('elsewhere/x', '.gitignore');
    put('project/a/b/c/.env');
    expect(await paths(policy(), { root: join(root, 'project') })).toEqual(['a/b/c/.env']);
    // And along the index in one that it knows.
    put('known/a/b/.env');
    track('known/a/x');
    expect(await paths(policy(), { root: join(root, 'known') })).toEqual(['a/b/.env']);
    put('known/a/b/c/.env');
    expect(await paths(policy(), { root: join(root, 'known') })).toEqual(['a/b/.env']);
  });

  it('at names with newlines, commas, quotes and 255 bytes', async () => {
    const names = ['new\nline.env', 'a, b (c).env', '"quoted".env', `${'n'.repeat(251)}.env`, 'é\u202e.env'];
    for (const name of names) put(`d/${name}`);
    track('d/x');
    expect((await paths()).sort()).toEqual(names.map(name => `d/${name}`).sort());
  });

  it('refuses names that are not UTF-8, which no engine can be told of', async () => {
    writeFileSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0xff]), Buffer.from('.env')]), 'x');
    await expect(prepare()).rejects.toMatchObject({ code: 'ACODE-MSK-002', context: { problem: 'name', rule: 'env' } });
    expect(await paths(policy([], ['*.env']))).toEqual([]);
  });

  it('in directories that are too large to be listed at once', async () => {
    track('a/b/x', 'a/tracked.env');
    put('a/b/.env');
    put('other/.env');
    expect(await paths(policy(), { limits: { atOnceBytes: -1 } })).toEqual(['a/b/.env', 'other/.env']);
  });

  it('refuses more than can be mounted', async () => {
    for (let at = 0; at < 520; at += 1) put(`${at}.env`);
    await expect(prepare()).rejects.toMatchObject({
      code: 'ACODE-MSK-002',
      context: { problem: 'too-many', count: 520 },
    });
  });
});

describe('what it remembers of directories', () => {
  it('finds what came, changed and went since, whatever time a directory claims', async () => {
    track('a/x', 'b/c/x', 'd/e/x');
    put('a/.env');
    put('gone/.env');
    expect(await paths(policy(), { clock: later })).toEqual(['a/.env', 'gone/.env']);
    const file = join(
      state,
      'masks',
      readdirSync(join(state, 'masks')).find(name => name.endsWith('directories')) ?? '',
    );
    const before = lstatSync(file).ino;
    expect(await paths(policy(), { clock: later })).toEqual(['a/.env', 'gone/.env']);
    // Nothing changed, and so nothing was written.
    expect(lstatSync(file).ino).toBe(before);
    const { mtime, atime } = lstatSync(join(root, 'b/c'));
    put('b/c/late.env');
    utimesSync(join(root, 'b/c'), atime, mtime);
    put('new/.env');
    rmSync(join(root, 'gone'), { recursive: true });
    renameSync(join(root, 'd/e'), join(root, 'd/f'));
    put('d/f/.env');
    expect(await paths(policy(), { clock: later })).toEqual(['a/.env', 'b/c/late.env', 'd/f/.env', 'new/.env']);
    expect(lstatSync(file).ino).not.toBe(before);
  });

  it('looks at content each time: a file that becomes a key is masked', async () => {
    track('x');
    put('a.pem', 'not yet');
    expect(await paths(policy(), { clock: later })).toEqual([]);
    put('a.pem', KEY);
    expect(await paths(policy(), { clock: later })).toEqual(['a.pem']);
    put('a.pem', 'not any more');
    expect(await paths(policy(), { clock: later })).toEqual([]);
  });

  it('follows the index: what is added is shown, what is taken out of it is masked', async () => {
    track('a/x', 'a/.env');
    put('b/c/x', 'x');
    put('b/c/.env');
    expect(await paths(policy(), { clock: later })).toEqual([]);
    git('add', 'b/c/x');
    expect(await paths(policy(), { clock: later })).toEqual(['b/c/.env']);
    git('rm', '--quiet', '--cached', 'a/.env');
    expect(await paths(policy(), { clock: later })).toEqual(['a/.env', 'b/c/.env']);
    git('add', '--force', 'b/c/.env');
    expect(await paths(policy(), { clock: later })).toEqual(['a/.env']);
    // A tracked directory that is missing is looked into when it comes back.
    rmSync(join(root, 'b'), { recursive: true });
    expect(await paths(policy(), { clock: later })).toEqual(['a/.env']);
    put('b/c/d.env');
    expect(await paths(policy(), { clock: later })).toEqual(['a/.env', 'b/c/d.env']);
  });

  it('is not misled by a file that is cut, changed or another user’s', async () => {
    track('x');
    put('.env');
    await prepare(policy(), { clock: later });
    for (const name of readdirSync(join(state, 'masks'))) {
      const file = join(state, 'masks', name);
      const content = readFileSync(file);
      for (const bytes of [content.subarray(0, content.length / 2), Buffer.from('{}\n'), Buffer.alloc(0)]) {
        writeFileSync(file, bytes);
        expect(await paths(policy(), { clock: later })).toEqual(['.env']);
      }
    }
  });
});

describe('patterns', () => {
  it.each([
    ['.env', '.env a/b/.env', 'x.env .env/x'],
    ['secrets/', 'secrets/ a/secrets/', 'secrets a/secrets'],
    ['secrets/**', 'secrets/ ', 'a/secrets/ secrets'],
    ['a/*.txt', 'a/x.txt a/.txt', 'a/b/x.txt x.txt b/a/x.txt'],
    ['a/**/z', 'a/z a/b/z a/b/c/z', 'z b/a/z a/zz'],
    ['**/k?y', 'key a/kay', 'ky kexy'],
    ['./a', 'a', 'b/a/c'],
  ])('%j fit %j and not %j', (text, fit, others) => {
    const pattern = new MaskPattern(text);
    const fits = (path: string) => pattern.matches(path.replace(/\/$/, ''), path.endsWith('/'));
    expect(
      fit
        .split(' ')
        .filter(Boolean)
        .filter(path => !fits(path)),
    ).toEqual([]);
    expect(others.split(' ').filter(fits)).toEqual([]);
  });

  it('take no longer than their length times that of the path', () => {
    const pattern = new MaskPattern(`${'**/*a*/'.repeat(50)}b`);
    expect(pattern.matches(`${'a'.repeat(200)}/`.repeat(60).slice(0, -1), false)).toBe(false);
    expect(new MaskPattern('*a'.repeat(190)).matches('a'.repeat(255), false)).toBe(true);
    expect(new MaskPattern(`${'*a'.repeat(190)}b`).matches('a'.repeat(255), false)).toBe(false);
  });

  it('of the user mask tracked files, directories and deep paths; those of a repository untracked files only', async () => {
    track('src/config.json', 'src/deep/other.json', 'data/tracked/x');
    put('src/local.json', 'x');
    put('build/out/deep/key.txt', 'x');
    put('vault/a/b', 'x');
    const given = ['*.json', 'build/*/deep/key.txt', 'vault/**', 'data/tracked/'];
    expect(await paths(policy(add('user', ...given)))).toEqual([
      'build/out/deep/key.txt',
      'data/tracked',
      'src/config.json',
      'src/deep/other.json',
      'src/local.json',
      'vault',
    ]);
    rmSync(state, { recursive: true });
    expect(await paths(policy(add('repository', ...given)))).toEqual([
      'build/out/deep/key.txt',
      'src/local.json',
      'vault',
    ]);
  });

  it('of the user remove masks, but for those of the machine’s policy', async () => {
    put('.env');
    put('a/.env');
    put('a/b/x.pem', KEY);
    put('m', 'x');
    const masks = [...add('machine', 'm', 'a/.env'), ...add('repository', 'm')];
    expect(await paths(policy(masks, ['.env', 'm']))).toEqual(['a/.env', 'a/b/x.pem', 'm']);
    expect(await paths(policy(masks, ['a/', 'm']))).toEqual(['.env', 'a/.env', 'm']);
    const [first] = (await prepare(policy(masks))).masked;
    expect(first).toMatchObject({ path: '.env', kind: 'file', rule: 'env', setBy: { layer: 'built-in' } });
  });

  it('say who set them', async () => {
    put('x/y', 'z');
    const { masked } = await prepare(policy(add('user', 'x/')));
    const { dev, ino } = lstatSync(join(root, 'x'));
    expect(masked).toEqual([
      {
        path: 'x',
        kind: 'directory',
        device: dev,
        inode: ino,
        rule: 'x/',
        setBy: { layer: 'user', where: expect.any(String) as string },
      },
    ]);
  });
});

describe('links', () => {
  it('are masked by what they point to inside, once', async () => {
    put('shared/settings.txt');
    symlinkSync('../shared', join(root, 'shared/again'));
    mkdirSync(join(root, 'app'));
    symlinkSync('../shared/again/settings.txt', join(root, 'app/.env'));
    symlinkSync(join(root, 'shared/settings.txt'), join(root, 'b.env'));
    track('app/x', 'x');
    const { masked } = await prepare();
    expect(masked).toHaveLength(1);
    expect(masked[0]).toMatchObject({
      path: 'shared/settings.txt',
      rule: 'env',
      link: expect.stringMatching(/env$/) as string,
    });
    // The command removes the links: the file stays masked.
    rmSync(join(root, 'app/.env'));
    rmSync(join(root, 'b.env'));
    expect(await paths()).toEqual(['shared/settings.txt']);
    expect(await paths(policy([], ['shared/settings.txt']))).toEqual([]);
  });

  it('to directories are not followed, and a directory that becomes one is no way out', async () => {
    const outside = join(base, `outside${number}`);
    mkdirSync(outside);
    writeFileSync(join(outside, '.env'), 'x');
    track('a/x', 'a/b/x');
    symlinkSync(outside, join(root, 'way'));
    expect(await paths()).toEqual([]);
    rmSync(join(root, 'a'), { recursive: true });
    symlinkSync(outside, join(root, 'a'));
    expect(await paths()).toEqual([]);
  });

  it('that are hard are warned of, unless every name is masked', async () => {
    put('.env');
    linkSync(join(root, '.env'), join(root, 'other.txt'));
    expect((await prepare()).warnings).toEqual([{ kind: 'hard-link', path: '.env', others: 1 }]);
    renameSync(join(root, 'other.txt'), join(root, 'other.env'));
    expect((await prepare()).warnings).toEqual([]);
  });
});

describe('what was masked before', () => {
  it('is found where a command moved its directory, and stays masked there', async () => {
    track('top');
    put('sub/key.pem', KEY);
    put('sub/deep/x', 'x');
    expect(await paths()).toEqual(['sub/key.pem']);
    // Two levels deep in a directory that is never looked into: only the memory leads there.
    mkdirSync(join(root, 'node_modules/a'), { recursive: true });
    renameSync(join(root, 'sub'), join(root, 'node_modules/a/sub'));
    expect(await paths()).toEqual(['node_modules/a/sub/key.pem']);
    expect(await paths()).toEqual(['node_modules/a/sub/key.pem']);
    // Without the memory, it would not be.
    expect(await paths(policy(), { state: `${state}-other` })).toEqual([]);
  });

  it('is found beside a decoy at its old path', async () => {
    track('top');
    put('a/b/.env', 'real');
    put('a/x', 'x');
    git('add', 'a/x');
    mkdirSync(join(root, 'a/b/c'));
    put('a/b/y', 'x');
    git('add', 'a/b/y');
    expect(await paths()).toEqual(['a/b/.env']);
    mkdirSync(join(root, 'p/q'), { recursive: true });
    renameSync(join(root, 'a/b'), join(root, 'p/q/b'));
    put('a/b/.env', 'decoy');
    expect(await paths()).toEqual(['a/b/.env', 'p/q/b/.env']);
  });

  it('stays masked under a name of its directory that no rule knows', async () => {
    track('top');
    put('.aws/credentials', 'aws_secret_access_key = x');
    expect(await paths()).toEqual(['.aws/credentials']);
    renameSync(join(root, '.aws'), join(root, 'harmless'));
    expect(await paths()).toEqual(['harmless/credentials']);
    expect(await paths()).toEqual(['harmless/credentials']);
  });

  it('is forgotten where the user removed or replaced it', async () => {
    track('top', 'a/x');
    put('.env');
    put('a/.env');
    expect(await paths()).toEqual(['.env', 'a/.env']);
    rmSync(join(root, 'a/.env'));
    put('new');
    renameSync(join(root, 'new'), join(root, '.env'));
    expect(await prepare()).toMatchObject({ masked: [{ path: '.env' }], forgotten: [] });
    put('b/c/.env');
    git('add', '--intent-to-add', 'b/c/.env');
    git('rm', '--quiet', '--cached', 'b/c/.env');
  });

  it('is forgotten after a search of the whole workspace, and said so', async () => {
    track('top');
    put('sub/key.pem', KEY);
    expect(await paths()).toEqual(['sub/key.pem']);
    rmSync(join(root, 'sub'), { recursive: true });
    expect(await prepare(policy(), { clock: later })).toMatchObject({ masked: [], forgotten: ['sub/key.pem'] });
    expect(await prepare(policy(), { clock: later })).toMatchObject({ masked: [], forgotten: [] });
  });

  it('refuses the run where the search proves nothing: no time, or directories that change', async () => {
    track('top');
    put('sub/key.pem', KEY);
    put('sub/.env');
    await prepare();
    rmSync(join(root, 'sub'), { recursive: true });
    // The directory changed a moment ago, as it does while another sandbox moves things about.
    const refused = { code: 'ACODE-MSK-001', context: { path: 'sub/.env', others: 1, because: 'changing' } };
    await expect(prepare(policy(), { clock: earlier, limits: { movedMs: 20 } })).rejects.toMatchObject(refused);
    const limits = { movedMs: -1 };
    await expect(prepare(policy(), { clock: earlier, limits })).rejects.toMatchObject({
      code: 'ACODE-MSK-001',
      context: { because: 'time' },
    });
    // The run stays refused, and the command that searches again ends that.
    await expect(prepare(policy(), { clock: earlier, limits })).rejects.toMatchObject({
      hint: expect.stringContaining('acode masks rescan') as string,
    });
    expect(await rescanMasks({ root, state, policy: policy() })).toMatchObject({
      forgotten: ['sub/.env', 'sub/key.pem'],
    });
    expect(await paths(policy(), { limits })).toEqual([]);
  });

  it('is told of once, and forgotten with its workspace', async () => {
    put('.env');
    const untold = async (tells: boolean) =>
      (await prepareMasks({ root, state, policy: policy(), tells })).untold.masked.map(({ path }) => path);
    expect(await untold(false)).toEqual(['.env']);
    expect(await untold(true)).toEqual(['.env']);
    expect(await untold(true)).toEqual([]);
    put('b.env');
    expect(await untold(true)).toEqual(['b.env']);
    const files = () => readdirSync(join(state, 'masks'));
    const before = files();
    expect(before).toHaveLength(2);
    const other = mkdtempSync(join(tmpdir(), 'acode-masks-other-'));
    await prepareMasks({ root: other, state, policy: policy() });
    expect(files()).toEqual(expect.arrayContaining(before));
    rmSync(root, { recursive: true });
    const third = mkdtempSync(join(tmpdir(), 'acode-masks-third-'));
    await prepareMasks({ root: third, state, policy: policy() });
    expect(files().filter(name => before.includes(name))).toEqual([]);
    expect(files().filter(name => name.endsWith('.json'))).toHaveLength(2);
    for (const made of [other, third]) rmSync(made, { recursive: true });
    mkdirSync(root);
  });

  it('is not shown because a command made a repository that claims to track it', async () => {
    put('a/b/c/.env');
    expect(await paths()).toEqual(['a/b/c/.env']);
    track('a/b/c/.env', 'x');
    put('late.env');
    git('add', 'late.env');
    const { masked, warnings } = await prepare();
    expect(masked.map(({ path }) => path)).toEqual(['a/b/c/.env', 'late.env']);
    expect(warnings).toEqual([{ kind: 'tracking-unknown', because: 'new-repository' }]);
    // The user, asked, vouches for the repository.
    expect((await rescanMasks({ root, state, policy: policy() })).masked).toEqual([]);
    expect(await prepare()).toMatchObject({ masked: [], warnings: [], forgotten: [] });
  });

  it('is no concern of another directory at the same path', async () => {
    put('a/.env');
    await prepare();
    renameSync(root, `${root}-before`);
    mkdirSync(root);
    put('b/.env');
    expect(await prepare()).toMatchObject({ masked: [{ path: 'b/.env' }], forgotten: [] });
  });

  it('is in private files of the state directory', async () => {
    put('.env');
    await prepare();
    const files = readdirSync(join(state, 'masks'));
    expect(files).toHaveLength(2);
    for (const name of files) expect(lstatSync(join(state, 'masks', name)).mode & 0o777).toBe(0o600);
    expect(lstatSync(join(state, 'masks')).mode & 0o777).toBe(0o700);
  });
});

describe('the line about masks', () => {
  const file = (path: string) => ({ path, kind: 'file' as const });

  it.each([
    [[], null],
    [[file('.env')], 'masked: 1 file (.env)'],
    [[file('.env'), file('certs/key.pem')], 'masked: 2 files (.env, certs/key.pem)'],
    [[file('.env'), { path: 'vault', kind: 'directory' as const }], 'masked: 1 file and 1 directory (.env, vault/)'],
    [['a', 'b', 'c', 'd', 'e', 'f', 'g'].map(file), 'masked: 7 files (a, b, c, d, e, 2 more)'],
    [[file('a\nb, c\u001b[2J')], 'masked: 1 file ("a\\nb, c\\u001b[2J")'],
    [[file('x\u202ey')], 'masked: 1 file ("x\\u{202e}y")'],
  ])('%j: %s', (masked, line) => {
    expect(maskLine(masked)).toBe(line);
  });
});
