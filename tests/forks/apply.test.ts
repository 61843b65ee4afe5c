// Ways out of a fork: nothing of it reaches the host until a person says so, and what programs of the host would execute is named.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Acode, policyFrom } from '@acode/sandbox';
import type { ForkApplyRequest, RunResult } from '@acode/sandbox';
import { EXAMPLES } from '../../packages/cli/src/examples.ts';
import { applyChanges } from '../../packages/sandbox/src/workspace/fork/apply.ts';
import { Bench } from '../cli/bench.ts';
import { TestHost, engines, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { ATTACKS, NUISANCE } from './attacks.ts';
import { fingerprint } from './project.ts';

const withoutBubblewrap = process.getuid?.() === 0 || !existsSync('/usr/bin/bwrap');

function runIn(host: TestHost, script: string, fork = 'work'): Promise<RunResult> {
  return host.acode.run(['sh', '-c', script], { policy: policyFrom({ image: images.debian, fork }) });
}

function project(root: string): void {
  mkdirSync(join(root, '.git/hooks'), { recursive: true });
  mkdirSync(join(root, '.git/info'));
  mkdirSync(join(root, 'src'));
  writeFileSync(join(root, '.git/config'), '[core]\n\tbare = false\n');
  writeFileSync(join(root, '.git/HEAD'), 'ref: refs/heads/main\n');
  writeFileSync(join(root, 'src/a.txt'), 'one\ntwo\nthree\nfour\nfive\n');
  writeFileSync(join(root, 'src/b.txt'), 'b\n');
}

describe.skipIf(withoutEngines).each(engines)('what leaves a fork on $name', engine => {
  let host: TestHost;
  let before: string;

  beforeAll(async () => {
    host = await TestHost.open(engine);
    project(host.workspace);
    before = fingerprint(host.workspace);
  });
  afterAll(async () => {
    for (const { id } of await host.acode.forks.list()) await host.acode.forks.discard(id);
    await host[Symbol.asyncDispose]();
  });

  it('is reported for every attack that comes home with a workspace, and the host’s tree is what it was', async () => {
    const scripts = Object.values(ATTACKS).map(([script]) => script);
    const { exitCode, stderr } = await runIn(host, `set -e; ${scripts.join('\n')}\n${NUISANCE}`, 'attack');
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
    expect(fingerprint(host.workspace)).toBe(before);
    const { riskyChanges } = await host.acode.forks.diff({ fork: 'attack' });
    const found = new Set(riskyChanges.map(({ kind, path }) => `${kind} ${path}`));
    const missing = Object.entries(ATTACKS).filter(([, [, kind, path]]) => !found.has(`${kind} ${path}`));
    expect(missing.map(([id]) => id)).toEqual([]);
  });

  it('is nothing, by either way, as long as the risks are not accepted by their rule', async () => {
    const pieces: Uint8Array[] = [];
    const write = (piece: Uint8Array): void => void pieces.push(piece);
    const { forks } = host.acode;
    const refused = { code: 'ACODE-FRK-016' };
    await expect(forks.apply({ fork: 'attack' })).rejects.toMatchObject(refused);
    await expect(forks.apply({ fork: 'attack', acceptRisk: ['ci-file'] })).rejects.toMatchObject(refused);
    await expect(forks.patch({ fork: 'attack', write })).rejects.toMatchObject(refused);
    expect(Buffer.concat(pieces)).toHaveLength(0);
    // Accepted, the patch is printed; protected paths, FIFOs and holes still keep an apply from changing anything.
    const { omitted } = await forks.patch({ fork: 'attack', write, acceptRisk: 'all' });
    expect(omitted).toContainEqual({ path: '.env.pipe', reason: 'special' });
    expect(Buffer.concat(pieces).toString('latin1')).toContain('b/Makefile');
    expect(omitted).toContainEqual({ path: '.git', reason: 'git' });
    expect(Buffer.concat(pieces).toString('latin1')).not.toContain('.git/');
    const report = await forks.apply({ fork: 'attack', only: ['.'], acceptRisk: 'all' });
    const reasons = new Map(report.refused.map(({ path, reason }) => [path, reason]));
    expect(report.outcome).toBe('refused');
    expect(reasons.get('.git/hooks/pre-commit')).toBe('protected');
    expect(reasons.get('.env.pipe')).toBe('special');
    expect(reasons.get('hole')).toBe('content');
    expect(fingerprint(host.workspace)).toBe(before);
    expect(existsSync(join(host.workspace, '.git/hooks/pre-commit'))).toBe(false);
    // The control: named and accepted, one of them is applied.
    expect(await forks.apply({ fork: 'attack', only: ['Makefile'], acceptRisk: ['build-file'] })).toMatchObject({
      outcome: 'applied',
      removed: false,
    });
    expect(readFileSync(join(host.workspace, 'Makefile'), 'utf8')).toBe('all:\n');
  });
});

describe.skipIf(withoutEngines)('an apply', () => {
  let host: TestHost;

  beforeAll(async () => {
    host = await TestHost.open(mainEngine);
    project(host.workspace);
  });
  beforeEach(async () => {
    for (const { id } of await host.acode.forks.list()) await host.acode.forks.discard(id);
  });
  afterAll(() => host[Symbol.asyncDispose]());

  const apply = (request: ForkApplyRequest = {}) => host.acode.forks.apply({ fork: 'work', ...request });
  const read = (path: string): string => readFileSync(join(host.workspace, path), 'utf8');

  it('leaves what git keeps for itself in the fork', async () => {
    await runIn(host, 'echo 1 > made.txt; echo x > .git/hooks/pre-commit; echo "[a]" >> .git/config');
    const config = read('.git/config');
    expect(await apply()).toMatchObject({ outcome: 'applied', applied: 1, gitChanges: 2, removed: false });
    expect(read('made.txt')).toBe('1\n');
    expect(read('.git/config')).toBe(config);
    expect(existsSync(join(host.workspace, '.git/hooks/pre-commit'))).toBe(false);
    // The control: named and accepted, it is applied.
    expect(await apply({ only: ['.git/config'], acceptRisk: 'all' })).toMatchObject({ outcome: 'applied' });
    expect(read('.git/config')).toBe(`${config}[a]\n`);
  });

  it('is refused if the fork has changed since its diff was shown, and takes the diff that was', async () => {
    await runIn(host, 'echo 1 > shown.txt');
    const { id } = await host.acode.forks.diff({ fork: 'work' });
    await runIn(host, 'echo 2 > after.txt');
    await expect(apply({ diffId: id })).rejects.toMatchObject({ code: 'ACODE-FRK-015' });
    expect(existsSync(join(host.workspace, 'shown.txt'))).toBe(false);
    const now = await host.acode.forks.diff({ fork: 'work' });
    expect(await apply({ diffId: now.id })).toMatchObject({ outcome: 'applied', applied: 2, removed: true });
    expect(read('shown.txt') + read('after.txt')).toBe('1\n2\n');
    expect(await host.acode.forks.list()).toEqual([]);
  });

  it('merges with what changed here, and does nothing at all where one file conflicts', async () => {
    await runIn(host, 'sed -i s/one/ONE/ src/a.txt; echo fork > src/b.txt; echo n > src/n.txt');
    appendFileSync(join(host.workspace, 'src/a.txt'), 'six\n');
    writeFileSync(join(host.workspace, 'src/b.txt'), 'host\n');
    const before = fingerprint(host.workspace);
    const report = await apply();
    expect(report).toMatchObject({ outcome: 'refused', conflicts: [{ path: 'src/b.txt', reason: 'overlap' }] });
    expect(fingerprint(host.workspace)).toBe(before);
    expect(await apply({ check: true, only: ['src/a.txt'] })).toMatchObject({ outcome: 'checked', applied: 1 });
    expect(fingerprint(host.workspace)).toBe(before);
    // A part of it: the rest stays in the fork, and is all that its diff shows.
    expect(await apply({ only: ['src/a.txt', 'src/n.txt'] })).toMatchObject({
      outcome: 'applied',
      merged: ['src/a.txt'],
      removed: false,
    });
    expect(read('src/a.txt')).toBe('ONE\ntwo\nthree\nfour\nfive\nsix\n');
    const { changes } = await host.acode.forks.diff({ fork: 'work' });
    expect(changes.map(({ path }) => path)).toEqual(['src/b.txt']);
  });

  it('waits until no other sandbox can write the same tree', async () => {
    await runIn(host, 'echo 1 > alone.txt');
    const sandbox = await host.acode.create({ policy: policyFrom({ image: images.busybox }) });
    await expect(apply()).rejects.toMatchObject({ code: 'ACODE-FRK-017' });
    await sandbox.kill();
    // A single-use sandbox whose command runs counts, too.
    const running = await host.acode.spawn('sleep 30', { policy: policyFrom({ image: images.busybox }) });
    await expect(apply()).rejects.toMatchObject({ code: 'ACODE-FRK-017', context: { kill: false } });
    await running.kill('SIGKILL');
    await running.result.catch(() => undefined);
    expect(existsSync(join(host.workspace, 'alone.txt'))).toBe(false);
    await expect.poll(() => apply().then(({ outcome }) => outcome, String), { timeout: 20_000 }).toBe('applied');
    expect(read('alone.txt')).toBe('1\n');
  });

  it.skipIf(withoutBubblewrap)(
    'waits for sandboxes of level bubblewrap, too, and not for those in a fork',
    async () => {
      await runIn(host, 'echo 1 > waited.txt');
      const config = { sandbox: { level: 'bubblewrap', bubblewrap: { accept_process_limits: true } } } as const;
      const other = await Acode.open({ workspace: host.workspace, config });
      const running = await other.spawn('sleep 30');
      await expect(apply()).rejects.toMatchObject({ code: 'ACODE-FRK-017' });
      await running.kill('SIGKILL');
      await running.result.catch(() => undefined);
      const beside = await other.spawn('sleep 30', { policy: { fork: 'beside' } });
      expect(await apply()).toMatchObject({ outcome: 'applied' });
      await beside.kill('SIGKILL');
      await beside.result.catch(() => undefined);
      await other.forks.discard('beside');
      await other.close();
    },
  );

  it('that was interrupted is announced, keeps others from beginning, and is undone', async () => {
    const { workspace } = host;
    const before = readdirSync(workspace);
    const content = Buffer.from('half\n');
    const file = join(mkdtempSync(join(tmpdir(), 'acode-half-')), 'half');
    writeFileSync(file, content);
    const change = {
      change: 'added',
      kind: 'file',
      bytes: { after: content.length },
      mode: { after: 0o644 },
      sha256: createHash('sha256').update(content).digest('hex'),
    } as const;
    const entry = { open: () => open(file), openBase: () => Promise.resolve(null) };
    const both = ['half.txt', 'other.txt'].map(path => ({ ...entry, change: { ...change, path } }));
    const killed = applyChanges(both, {
      stateDirectory: join(process.env['XDG_STATE_HOME'] ?? '', 'acode'),
      workspace,
      forkId: 'k7m2pqrt',
      diffId: 'd',
      startedAt: 0,
      signal: AbortSignal.timeout(10_000),
      onProgress: ({ done }) => {
        if (done > 0) throw new Error('killed');
      },
    });
    await expect(killed).rejects.toThrow('killed');
    expect(readdirSync(workspace)).toContain('half.txt');
    expect(await host.acode.forks.pending()).toMatchObject({ forkId: 'k7m2pqrt', changes: 2 });
    await runIn(host, 'echo 1 > later.txt');
    await expect(apply()).rejects.toMatchObject({ code: 'ACODE-FRK-010' });
    const { notes } = await host.acode.explain('true');
    expect(notes.join('\n')).toContain('acode fork apply --rollback');
    expect(await host.acode.forks.rollback()).toMatchObject({ outcome: 'rolled-back', forkId: 'k7m2pqrt' });
    expect(await host.acode.forks.pending()).toBeNull();
    expect((await host.acode.explain('true')).notes.join('\n')).not.toContain('--rollback');
    expect(readdirSync(workspace)).toEqual(before);
    rmSync(dirname(file), { recursive: true });
  });

  it('is in the audit log before it is done, with the diff, the risks and the consent', async () => {
    await runIn(host, 'echo "{}" > package.json');
    const { id } = await host.acode.forks.diff({ fork: 'work' });
    await apply({ acceptRisk: ['package-scripts'], consent: { how: 'option', parent: 'make' } });
    const records = (await host.acode.audit.tail({ count: 50 })).filter(({ operation }) => operation === 'apply');
    const [intent, outcome] = records.slice(-2);
    expect(intent).toMatchObject({
      kind: 'event',
      workspace: host.workspace,
      detail: { diff: id, added: 1, acceptedRisk: 'package-scripts', consent: 'option', parent: 'make' },
    });
    expect(outcome).toMatchObject({ detail: { outcome: 'applied' }, riskyChanges: [{ path: 'package.json' }] });
    expect(outcome?.correlationId).toBe(intent?.correlationId);
  });
});

describe.skipIf(withoutEngines)('a fork of a workspace that has no repository (C7)', () => {
  it('takes the one that a command makes; it is reported, and no way out brings it unless it is named', async () => {
    await using host = await TestHost.open(mainEngine);
    writeFileSync(join(host.workspace, 'a.txt'), 'one\n');
    const before = fingerprint(host.workspace);
    await runIn(host, 'mkdir -p .git/hooks; echo "ref: x" > .git/HEAD; echo x > .git/hooks/pre-commit; echo 2 > b.txt');
    expect(fingerprint(host.workspace)).toBe(before);
    expect(existsSync(join(host.workspace, '.git'))).toBe(false);
    const { riskyChanges } = await host.acode.forks.diff({ fork: 'work' });
    expect(riskyChanges).toContainEqual(expect.objectContaining({ kind: 'git-repository', path: '.git' }));
    expect(await host.acode.forks.apply({ fork: 'work' })).toMatchObject({ outcome: 'applied', applied: 1 });
    expect(existsSync(join(host.workspace, '.git'))).toBe(false);
    const named = { fork: 'work', only: ['.git'] };
    await expect(host.acode.forks.apply(named)).rejects.toMatchObject({ code: 'ACODE-FRK-016' });
    // The control: named and accepted, it comes.
    expect(await host.acode.forks.apply({ ...named, acceptRisk: 'all' })).toMatchObject({ outcome: 'applied' });
    expect(existsSync(join(host.workspace, '.git/hooks/pre-commit'))).toBe(true);
  });
});

it.skipIf(withoutEngines)(
  'names and commands that draw on a terminal, or look like records, are one plain line each (C16, C17)',
  async () => {
    await using bench = await Bench.at(mainEngine);
    const osc = '\u001b]52;c;aWQ=\u0007\u001b]0;title\u0007\u202e\r';
    const record = '\n{"kind":"event","operation":"apply","outcome":"forged"}\n';
    const made = await bench.call([
      'run',
      '--fork',
      '--',
      'sh',
      '-c',
      ': > "$1"; : > "$2"',
      osc + record,
      `a${osc}`,
      `b${record}`,
    ]);
    expect(made.status, made.stderr).toBe(0);
    // What a terminal acts on, and what would begin a line of its own.
    const harmful = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]|^\{/m;
    for (const argv of [
      ['fork', 'diff'],
      ['fork', 'diff', '--name-only'],
      ['fork', 'history'],
      ['fork', 'apply', '--check'],
      ['fork', 'apply', '--yes', '--accept-risk', 'all'],
    ]) {
      const { stdout, stderr } = await bench.call(argv);
      expect(stdout.toString() + stderr, argv.join(' ')).not.toMatch(harmful);
    }
    // The control: the files have these names.
    expect(readdirSync(bench.workspace)).toEqual(expect.arrayContaining([`a${osc}`, `b${record}`]));
    const log = await bench.call(['audit', 'tail', '--json', '-n', '100']);
    expect(log.stdout.toString()).not.toContain('"outcome":"forged"');
    expect(log.stdout.toString()).toContain('apply of a fork ended');
  },
);

it.skipIf(withoutEngines)(
  'what a command writes to a masked .env stays in the fork, whichever way the rest leaves (G14)',
  async () => {
    await using bench = await Bench.at(mainEngine);
    const env = join(bench.workspace, '.env');
    writeFileSync(env, 'TOKEN=of-this-machine\n');
    const before = fingerprint(bench.workspace);
    const line = 'cat .env; echo evil >> .env; ln .env linked; mkdir -p deep; mv .env deep/moved; echo 1 > plain';
    const made = await bench.call(['run', '--fork', '--image', images.debian, '--', 'sh', '-c', line]);
    expect(made.stdout.toString(), made.stderr).toBe('');
    expect(fingerprint(bench.workspace)).toBe(before);
    const patch = await bench.call(['fork', 'diff', '--patch', '--accept-risk', 'all']);
    expect(patch.stdout.toString(), patch.stderr).toContain('plain');
    expect(patch.stdout.toString()).not.toMatch(/^(?:diff|---|\+\+\+).*\.env$|of-this-machine/m);
    const applied = await bench.call(['fork', 'apply', '--yes', '--accept-risk', 'all']);
    expect(applied.status, applied.stderr).toBe(0);
    const named = await bench.call(['fork', 'apply', '--only', '.env', '--yes', '--accept-risk', 'all']);
    expect(named.status).not.toBe(0);
    expect(readFileSync(env, 'utf8')).toBe('TOKEN=of-this-machine\n');
    // The control: what is not masked was applied, with what the command wrote, and nothing of the secret.
    expect(readFileSync(join(bench.workspace, 'plain'), 'utf8')).toBe('1\n');
    expect(readFileSync(join(bench.workspace, 'linked'), 'utf8')).toBe('evil\n');
  },
);

it.skipIf(withoutEngines)('`acode fork apply` needs a person, and its examples work', async () => {
  await using bench = await Bench.at(mainEngine);
  const line = 'mkdir -p src; echo 1 > src/new.ts; echo 2 > note; echo "{}" > package.json';
  const made = await bench.call(['run', '--fork', line]);
  expect(made.status).toBe(0);
  expect(made.stderr).toMatch(/acode fork diff.*acode fork apply/);
  const unasked = await bench.call(['fork', 'apply', '--accept-risk', 'all']);
  expect(unasked.status).toBe(2);
  expect(unasked.stderr).toContain('needs a person to confirm it');
  expect(existsSync(join(bench.workspace, 'note'))).toBe(false);
  for (const { type } of (EXAMPLES['acode fork apply'] ?? []).filter(({ fork }) => fork)) {
    const words = execFileSync('xargs', ['-n1'], { input: type, encoding: 'utf8' }).trimEnd().split('\n');
    const { status, stderr } = await bench.call(words.slice(1));
    expect({ type, status, stderr }).toEqual({ type, status: 0, stderr: '' });
  }
  expect(readFileSync(join(bench.workspace, 'note'), 'utf8')).toBe('2\n');
});
