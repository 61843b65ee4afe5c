// Scans that continue after their commands: private, one process at a time, reported once by the next command, never lost.

import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { RiskyChange, ScanJob, ScanReport } from '@acode/sandbox';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { OwnProgram } from '../own-program.ts';
import { Recorder, call } from '../test-process.ts';
import { ScansHere, inOwnProcess, storeJob } from './hand-over.ts';
import { allScans } from './directory.ts';
import { parseStat, processStart } from './process.ts';
import { scanStored } from './scanner.ts';
import { ScanStore } from './store.ts';
import { sayOn, terminalOf } from './terminal.ts';
import { storeUnused } from './unused.ts';

const uid = process.getuid?.() ?? 0;
const changed = { executable: 0, hidden: 0, configuration: 0, source: 0, other: 0 };
const hook = (path = 'deep/.husky/pre-commit'): RiskyChange => ({ path, kind: 'git-settings', reason: 'git runs it' });
const never = new AbortController().signal;
let top = '';

beforeEach(() => {
  top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-scans-')));
  for (const name of ['XDG_CONFIG_HOME', 'XDG_STATE_HOME', 'XDG_RUNTIME_DIR']) vi.stubEnv(name, join(top, name));
});

afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(top, { recursive: true });
});

function job(id: string): ScanJob {
  const directories = [{ path: top, skipped: ['.git'], shownAs: '/data', repositories: ['/r'] }];
  return {
    workspace: top,
    directories,
    sinceMs: 1,
    untilMs: null,
    sandboxId: id,
    correlationId: id,
    known: [{ kind: 'git-settings', path: 'a' }],
  };
}

function added(id: string): ScanStore {
  const store = storeJob(job(id), { uid, pid: null });
  if (!store) throw new Error('not stored');
  return store;
}

// The lines of a terminal as one: messages are wrapped there.
const unwrapped = (text: string): string => text.replaceAll(/\n +/g, ' ');

const finding = (riskyChanges: RiskyChange[]) =>
  async function* (jobs: readonly ScanJob[]): AsyncGenerator<ScanReport> {
    yield { jobs, riskyChanges, changed, complete: true };
  };

const next = () => call(['audit', 'tail'], { cwd: () => top });

// What a person at a terminal is told.
async function atTerminal(cwd = top): Promise<string> {
  const stderr = new Recorder(true);
  await call(['audit', 'tail', '--no-color'], { cwd: () => cwd, stderr });
  return stderr.text;
}

const storeDirectory = (): string => join(allScans(), readdirSync(allScans())[0] ?? '');

describe('a scan that continues', () => {
  it('is written down whole, for this user alone, and nothing is left when it found nothing', async () => {
    const store = added('one');
    expect(store.jobs().map(({ content }) => content.job)).toEqual([job('one')]);
    const [name = ''] = readdirSync(allScans());
    const directory = join(allScans(), name);
    expect(statSync(directory).mode & 0o777).toBe(0o700);
    for (const file of readdirSync(directory)) expect(statSync(join(directory, file)).mode & 0o777).toBe(0o600);
    await scanStored(store, { scan: finding([]), found: () => expect.unreachable(), signal: never });
    expect(readdirSync(join(top, 'XDG_STATE_HOME', 'acode'))).toEqual([]);
  });

  it('is reported by the next command, first thing, on standard error, once; its paths drive no terminal', async () => {
    const heard: string[] = [];
    await scanStored(added('one'), {
      scan: finding([hook(), hook('\u001b[2Jx')]),
      found: ({ riskyChanges }) => heard.push(...riskyChanges.map(({ path }) => path)),
      signal: never,
    });
    expect(heard).toHaveLength(2);
    const { stderr } = await next();
    expect(stderr).toMatch(/^acode: the background scan after the command of \d\d:\d\d:\d\d found more:\n/);
    expect(stderr).toContain('deep/.husky/pre-commit');
    expect(stderr).not.toContain('\u001b');
    expect((await next()).stderr).not.toContain('husky');
  });

  it('is reported to a terminal also after a program got the report, once, and then nothing is left', async () => {
    await scanStored(added('one'), { scan: finding([hook()]), found: () => undefined, signal: never });
    expect((await next()).stderr).toContain('husky');
    expect((await next()).stderr).not.toContain('husky');
    expect(await atTerminal()).toContain('husky');
    expect(await atTerminal()).not.toContain('husky');
    expect(existsSync(allScans())).toBe(false);
  });

  it('is kept for a terminal for a week, and of many the newest, with a word about the others', async () => {
    const store = added('one');
    let clock = Date.now();
    vi.spyOn(Date, 'now').mockImplementation(() => (clock += 1));
    onTestFinished(() => void vi.restoreAllMocks());
    for (let count = 0; count < 20; count += 1)
      store.finish(count === 0 ? store.jobs() : [], { riskyChanges: [hook(`husky-${count}-`)], complete: true });
    expect((await next()).stderr).toContain('husky-0-');
    expect(readdirSync(storeDirectory())).toHaveLength(17);
    const text = await atTerminal();
    expect(text).toContain('husky-19-');
    expect(text).not.toContain('husky-0-');
    expect(text).toContain('acode changes');
    await scanStored(added('two'), { scan: finding([hook()]), found: () => undefined, signal: never });
    await next();
    const [name = ''] = readdirSync(storeDirectory());
    renameSync(join(storeDirectory(), name), join(storeDirectory(), name.replace(/\d{15}/, '000000000000001')));
    expect(await atTerminal()).not.toContain('husky');
    expect(existsSync(allScans())).toBe(false);
  });

  it('is reported in a directory below, whatever root was planted there', async () => {
    await scanStored(added('one'), { scan: finding([hook()]), found: () => undefined, signal: never });
    const below = join(top, 'below', 'deeper');
    mkdirSync(join(below, '.git'), { recursive: true });
    const text = await atTerminal(below);
    expect(text).toContain('husky');
    expect(text).toContain(top);
  });

  it('of another workspace is not reported, and completion and the background server never report', async () => {
    await scanStored(added('one'), { scan: finding([hook()]), found: () => undefined, signal: never });
    const other = realpathSync(mkdtempSync(join(tmpdir(), 'acode-other-')));
    onTestFinished(() => rmSync(other, { recursive: true }));
    mkdirSync(join(other, '.git'));
    expect((await call(['audit', 'tail'], { cwd: () => other })).stderr).not.toContain('husky');
    expect(await atTerminal(other)).not.toContain('husky');
    expect((await call(['completion', 'bash'], { cwd: () => top })).stderr).toBe('');
    const background = ['serve', '--background', '--config', join(top, 'missing')];
    expect((await call(background, { cwd: () => top })).stderr).not.toContain('husky');
    expect((await next()).stderr).toContain('husky');
  });

  it('is done by one process at a time, which also does what comes meanwhile', async () => {
    const store = added('one');
    const seen: string[] = [];
    await scanStored(store, {
      async *scan(jobs) {
        seen.push(...jobs.map(({ sandboxId }) => sandboxId));
        if (seen.length === 1) {
          added('two');
          // As another process would try.
          const others = ScanStore.of(top, uid);
          expect(others?.scanner).toBe('works');
        }
        yield { jobs, riskyChanges: [], changed, complete: true };
      },
      found: () => undefined,
      signal: never,
    });
    expect(seen).toEqual(['one', 'two']);
    added('three');
    const [name = ''] = readdirSync(allScans());
    symlinkSync(`${process.ppid}.${processStart(process.ppid) ?? ''}`, join(allScans(), name, 'scanner'));
    await scanStored(store, { scan: () => expect.unreachable(), found: () => undefined, signal: never });
    expect(store.jobs()).toHaveLength(1);
    expect((await next()).stderr).not.toContain('did not finish');
  });

  it.each([
    ['was killed', `999999999.1`],
    ['was of another process with the same id', `${process.pid}.1`],
  ])('whose process %s is said not to have finished, once', async (_, holder) => {
    added('one');
    const [name = ''] = readdirSync(allScans());
    symlinkSync(holder, join(allScans(), name, 'scanner'));
    expect((await next()).stderr).toMatch(/^acode: the background scan .* did not finish: its process was ended\./);
    expect((await next()).stderr).not.toContain('did not finish');
    expect(await atTerminal()).not.toContain('did not finish');
    const { stdout } = await call(['changes'], { cwd: () => top });
    expect(stdout).toContain('not everything was scanned: its process was ended');
    expect(added('two').lock()).toBe(true);
  });

  it('is reported by no call that a mistake ends, or that touches no workspace', async () => {
    await scanStored(added('one'), { scan: finding([hook()]), found: () => undefined, signal: never });
    for (const args of [['changes', '--since', 'x'], ['run', '--no-such'], ['run'], ['mcp', '--print-config']])
      expect((await call(args, { cwd: () => top })).stderr, args.join(' ')).not.toContain('husky');
    expect((await next()).stderr).toContain('husky');
  });

  it('whose process was started and is slow to begin is waited for', async () => {
    const store = added('one');
    store.started(process.ppid);
    const later = Date.now() + 120_000;
    vi.spyOn(Date, 'now').mockReturnValue(later);
    onTestFinished(() => void vi.restoreAllMocks());
    expect((await next()).stderr).not.toContain('did not finish');
    // The control: without the process, it has had its time.
    rmSync(join(storeDirectory(), `started-${process.ppid}`));
    expect((await next()).stderr).toContain('did not finish: its process was ended');
    expect(existsSync(allScans())).toBe(false);
  });

  it('whose process lives and has had its time is said not to have finished', async () => {
    const store = added('one');
    symlinkSync(`${process.pid}.${processStart(process.pid) ?? ''}`, join(storeDirectory(), 'scanner'));
    expect(await atTerminal()).not.toContain('did not finish');
    vi.spyOn(Date, 'now').mockReturnValue(Date.now() + 3_600_000);
    onTestFinished(() => void vi.restoreAllMocks());
    expect(unwrapped(await atTerminal())).toMatch(
      /^acode: the background scan .* did not finish: its process is stuck\./,
    );
    expect(store.jobs()).toEqual([]);
    expect(await atTerminal()).not.toContain('did not finish');
  });

  it('that fails is reported, and one of a process that ends is left to another', async () => {
    const store = added('one');
    const failing = { scan: () => expect.unreachable('it failed'), found: () => undefined, signal: never };
    await expect(scanStored(store, failing)).rejects.toThrow('it failed');
    expect((await next()).stderr).toContain('the scan failed');
    await using here = new ScansHere({
      uid,
      program: new OwnProgram('/nonexistent'),
      async *scan(jobs, signal) {
        await new Promise(resolve => {
          signal.addEventListener('abort', resolve);
        });
        yield { jobs, riskyChanges: [], changed, complete: false };
      },
    });
    expect(here.take(job('two'), null)).toBe(true);
    await here[Symbol.asyncDispose]();
    expect(ScanStore.of(top, uid)?.jobs()).toHaveLength(1);
    expect(here.take(job('three'), null)).toBe(false);
  });

  it('is not handed to a program that the command could have replaced, however it was replaced', async () => {
    const entry = join(top, 'node_modules', 'acode', 'bin', 'acode.js');
    mkdirSync(dirname(entry), { recursive: true });
    writeFileSync(entry, `require('node:fs').writeFileSync(${JSON.stringify(join(top, 'started'))}, '')`);
    const inside = new OwnProgram(entry);
    // As a command would do it: the parent renamed, and a link out of the workspace in its place.
    const outside = mkdtempSync(join(tmpdir(), 'acode-outside-'));
    renameSync(entry, join(outside, 'acode.js'));
    symlinkSync(join(outside, 'acode.js'), entry);
    const elsewhere = new OwnProgram(join(outside, 'acode.js'));
    expect([top, outside].map(root => inside.isBelow([root]))).toEqual([true, false]);
    expect([top, outside].map(root => elsewhere.isBelow([root]))).toEqual([false, true]);
    const roots = { directories: [{ path: top, skipped: [] }] };
    expect(inOwnProcess(inside, null)({ ...job('one'), ...roots })).toBe(false);
    expect(ScanStore.of(top, uid)?.jobs() ?? []).toEqual([]);
    // The control: one that lies elsewhere is started.
    expect(inOwnProcess(elsewhere, null)({ ...job('one'), ...roots })).toBe(true);
    await expect.poll(() => existsSync(join(top, 'started'))).toBe(true);
    rmSync(outside, { recursive: true });
  });

  it('is not read from what is not a file of ours', async () => {
    const store = added('one');
    const [name = ''] = readdirSync(allScans());
    writeFileSync(join(allScans(), name, 'found-1-x'), '{"riskyChanges":');
    symlinkSync('/etc/passwd', join(allScans(), name, 'found-2-x'));
    mkdirSync(join(allScans(), name, 'job-3-x'));
    expect(store.jobs()).toHaveLength(1);
    // Nobody knows what stood in them: that is said, and they go.
    const text = await atTerminal();
    expect(unwrapped(text)).toMatch(
      /^acode: the background scan .* did not finish: what was written down of it cannot be read\./,
    );
    expect(text).not.toContain('root:');
    expect(await atTerminal()).not.toContain('did not finish');
    expect(readdirSync(storeDirectory())).toEqual([expect.stringMatching(/^job-/)]);
  });

  it('is accepted however long the paths are that a command chose, and what it finds is reported', async () => {
    const long = (count: number): string => `${count}${'\u0001'.repeat(2000)}${'\u0300'.repeat(1000)}`;
    const many = Array.from({ length: 199 }, (_, count) => hook(long(count)));
    const known = [...many, hook('short')].map(({ kind, path }) => ({ kind, path }));
    const store = storeJob({ ...job('one'), known }, { uid, pid: null });
    // What is left out of these is told twice.
    expect(store?.jobs().map(({ content }) => content.job.known)).toEqual([[{ kind: 'git-settings', path: 'short' }]]);
    if (store) await scanStored(store, { scan: finding(many), found: () => undefined, signal: never });
    expect(await atTerminal()).toMatch(/found more:\n[^]*git-settings[^]*and 189 more/);
  });

  it('is not taken on where it could not be read again', () => {
    const directories = [{ path: top, skipped: Array.from({ length: 2000 }, () => 'x'.repeat(4000)) }];
    expect(storeJob({ ...job('one'), directories }, { uid, pid: null })).toBeNull();
    expect(ScanStore.of(top, uid)?.jobs() ?? []).toEqual([]);
  });
});

describe('what appeared while a warm sandbox waited that had no command', () => {
  it('is reported by the next command, with the image, and is bounded however often it happens', async () => {
    const report = { jobs: [job('one')], riskyChanges: [hook()], changed, complete: true };
    for (let count = 0; count < 80; count += 1) storeUnused(report, 'evil:1');
    expect(readdirSync(storeDirectory()).length).toBeLessThanOrEqual(65);
    const text = await atTerminal();
    expect(text).toMatch(/^acode: while a warm sandbox of evil:1 waited for a command, files appeared [^]*husky/);
    expect(text).toContain('acode changes');
    expect(existsSync(allScans())).toBe(false);
  });
});

describe('the terminal of a caller', () => {
  it('is none where standard error is not a terminal, and nothing is written to one that was closed', () => {
    expect(terminalOf(999_999_999, uid)).toBeNull();
    const gone = { path: '/dev/null', device: 1, madeMs: 1, leader: 999_999_999, leaderStart: '1' };
    expect(sayOn(gone, uid, ['x'])).toBe('gone');
  });

  it('is read of a process whose name tries to be something else', () => {
    const rest = Array.from({ length: 14 }, () => '0').join(' ');
    expect(parseStat(`7 (a) S 1) S 1 70 60 34816 80 ${rest.slice(2)} 4242 0`)).toMatchObject({
      group: 70,
      session: 60,
      terminal: 34816,
      foreground: 80,
    });
  });
});
