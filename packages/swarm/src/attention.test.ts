// Attention: which tasks need a person, and how the user’s own program or address is told.

import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AttentionWatch } from './attention.ts';
import { Notifier, plainText } from './notify.ts';
import type { Notice } from './notify.ts';
import type { TaskRecord } from './record.ts';
import { DEFAULT_SETTINGS, readSettings, settingsFile } from './settings.ts';

let top: string;
let workspace: string;
let env: Record<string, string>;

beforeEach(() => {
  top = realpathSync(mkdtempSync(join(tmpdir(), 'acode-attention-')));
  workspace = join(top, 'project');
  env = { HOME: top, XDG_CONFIG_HOME: join(top, 'config'), PATH: process.env['PATH'] ?? '' };
  for (const name of ['project/.agent', 'config/acode']) mkdirSync(join(top, name), { recursive: true });
});
afterEach(() => rmSync(top, { recursive: true, force: true }));

const notice = (given: Partial<Notice> = {}): Notice => ({
  schema: 'acode.swarm-notice/1',
  at: '2026-11-19T10:00:00.000Z',
  swarm: '1f0c2d3e-0000-4000-8000-000000000000',
  workspace: '/w',
  state: 'failed',
  task: 'login',
  ...given,
});

// A program of the user’s: it leaves its arguments, variables and standard input.
function program(body = ''): string {
  const path = join(top, 'tell');
  const text = `#!/bin/sh\n${body}\nprintf '%s\\n' "$@" > ${top}/args\nenv > ${top}/env\npwd > ${top}/cwd\ncat >> ${top}/got\n`;
  writeFileSync(path, text, { mode: 0o755 });
  return path;
}

describe('a person', () => {
  it('is told by a program: the event on standard input, and nothing of it in an argument, a variable or a shell', async () => {
    const failed: string[] = [];
    const settings = { command: [program(), '--swarm'], on: ['failed', 'needs-input'] as const, timeoutMs: 10_000 };
    const notifier = new Notifier(settings, { ...env, ANTHROPIC_API_KEY: 'secret' }, (_, detail) =>
      failed.push(detail),
    );
    notifier.tell(notice({ title: '$(touch x); `touch x`' }));
    notifier.tell(notice({ state: 'completed', title: 'not asked for' }));
    notifier.tell(notice({ state: 'needs-input' }));
    await notifier.close();
    expect(failed).toEqual([]);
    const got = readFileSync(join(top, 'got'), 'utf8')
      .trim()
      .split('\n')
      .map(line => JSON.parse(line) as Notice);
    expect(got.map(({ state, title }) => [state, title])).toEqual([
      ['failed', '$(touch x); `touch x`'],
      ['needs-input', undefined],
    ]);
    expect(readFileSync(join(top, 'args'), 'utf8')).toBe('--swarm\n');
    expect(readFileSync(join(top, 'cwd'), 'utf8')).toBe('/\n');
    const variables = readFileSync(join(top, 'env'), 'utf8');
    expect(variables).toContain(`HOME=${top}`);
    expect(variables).not.toMatch(/secret|touch|login/);
    expect(existsSync('/x')).toBe(false);
  });

  it('is told by an address, which gets no redirect to follow and is not named where it fails', async () => {
    const got: string[] = [];
    const server = createServer((request, response) => {
      const { url = '' } = request;
      request.on('data', (chunk: Buffer) => got.push(`${url} ${chunk.toString()}`));
      request.on('end', () => {
        if (url === '/moved') response.writeHead(302, { location: '/other' });
        else if (url === '/broken') response.writeHead(500);
        if (url !== '/slow') response.end();
      });
    });
    await new Promise<void>(resolve => void server.listen(0, '127.0.0.1', resolve));
    const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const outcomes: string[][] = [];
    for (const path of ['/ok', '/moved', '/broken', '/slow']) {
      const failed: string[] = [];
      const settings = { url: base + path, on: ['failed'] as const, timeoutMs: path === '/slow' ? 300 : 10_000 };
      const notifier = new Notifier(settings, env, (how, detail) => failed.push(`${how}: ${detail}`));
      notifier.tell(notice());
      await notifier.close();
      outcomes.push(failed);
    }
    server.closeAllConnections();
    server.close();
    expect(outcomes).toEqual([
      [],
      ['webhook: it could not be reached'],
      ['webhook: it answered with status 500'],
      ['webhook: it did not answer within 0.3 s'],
    ]);
    expect(got.filter(one => one.includes('/other'))).toEqual([]);
    expect(JSON.parse(got[0]?.slice(4) ?? '')).toEqual(notice());
  });

  it('is told of the next event where a program hangs or fails, and everything it started is ended', async () => {
    const failed: string[] = [];
    const hang = `[ -e ${top}/got ] || { touch ${top}/got; sleep 300 & echo $! > ${top}/pid; wait; }`;
    const settings = { command: [program(hang)], on: ['failed'] as const, timeoutMs: 1500 };
    const notifier = new Notifier(settings, env, (_, detail) => failed.push(detail));
    notifier.tell(notice());
    notifier.tell(notice({ title: 'second' }));
    await notifier.close();
    expect(failed).toEqual(['it did not end within 1.5 s']);
    expect(readFileSync(join(top, 'got'), 'utf8')).toContain('second');
    const pid = readFileSync(join(top, 'pid'), 'utf8').trim();
    await expect.poll(() => existsSync(`/proc/${pid}`)).toBe(false);
  });

  it('is shown text that drives no terminal', () => {
    const hostile = 'a\u001b]0;title\u0007\u001b[2J\u001b[31mred\u001b[0m\r\nb\u202ec\u0000\u009b31m';
    const text = plainText(hostile);
    // eslint-disable-next-line no-control-regex
    expect(text).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/);
    expect(text).toContain('red');
    expect(plainText('x'.repeat(10_000))).toHaveLength(500);
  });
});

describe('settings', () => {
  const write = (text: string, mode = 0o600): void => writeFileSync(settingsFile(env), text, { mode });

  it('come from the user’s own file, and from none of the repository', () => {
    writeFileSync(join(workspace, '.agent/swarm.yml'), 'notify: { command: [/bin/sh] }\n');
    expect(readSettings(env, workspace)).toEqual(DEFAULT_SETTINGS);
    write(`notify:\n  command: [${program()}, a]\n  on: [failed]\n  timeout_seconds: 3\nidle_minutes: 2\n`);
    expect(readSettings(env, workspace)).toEqual({
      notify: { command: [join(top, 'tell'), 'a'], on: ['failed'], timeoutMs: 3000 },
      idleMs: 120_000,
    });
  });

  it('are refused where they are not the user’s alone, or name what a task could have written', () => {
    const inside = join(workspace, 'tell');
    writeFileSync(inside, '', { mode: 0o755 });
    symlinkSync(inside, join(top, 'link'));
    const refused: readonly [string, RegExp][] = [
      ['notify: { command: [notify-send] }', /absolute path/],
      ['notify: { command: [/nonexistent/x] }', /does not exist/],
      [`notify: { command: [${inside}] }`, /of the workspace/],
      [`notify: { command: [${join(top, 'link')}] }`, /of the workspace/],
      ['notify: { command: "rm -rf x" }', /notify.command/],
      ['notify: { url: "http://hooks.example/x" }', /https/],
      ['notify: { url: "file:///etc/passwd" }', /notify.url/],
      ['notify: { on: [failed] }', /neither command nor url/],
      ['notify: { command: [/bin/true], shell: true }', /notify/],
      ['notify: {', /YAML/],
      ['hooks: {}', /key/],
    ];
    for (const [text, reason] of refused) {
      write(text);
      expect(() => readSettings(env, workspace), text).toThrow(reason);
    }
    write('notify: { command: [/bin/true] }');
    expect(readSettings(env, workspace).notify?.command).toEqual(['/bin/true']);
    chmodSync(settingsFile(env), 0o666);
    expect(() => readSettings(env, workspace)).toThrow(/by others/);
  });
});

describe('a task that runs', () => {
  const task = (id: string, allow: string[] = ['npm']): TaskRecord =>
    ({ id, containerName: `acode-1f0c2d3e-${id}`, agent: null, limits: { allow } }) as unknown as TaskRecord;
  const connection = { host: 'x.example', port: 443, verdict: 'denied', reason: 'not-listed', count: 1 };

  it('is idle once nothing was heard of it for long, and blocked while its proxy refuses what could be granted', async () => {
    let now = 0;
    let asked = 0;
    const one = { taskId: 'acode-1f0c2d3e-a', connections: [connection] };
    const access = { id: 'abcd1234', host: 'x.example', port: 443, entry: 'x.example', isRunning: true };
    const pending = [
      { ...access, taskId: 'acode-1f0c2d3e-a' },
      { ...access, id: 'other', taskId: 'acode-ffffffff-a' },
      { ...access, id: 'ended', taskId: 'acode-1f0c2d3e-b', isRunning: false },
    ];
    let running: object[] = [];
    const network = {
      running: async () => running as never,
      pending: async () => {
        asked += 1;
        return pending as never;
      },
    };
    const watch = new AttentionWatch(network, 1000, () => now);
    const tasks = [task('a'), task('b'), task('c', [])];
    for (const { id } of tasks) watch.heard(id);
    const seen = async () => [...(await watch.look(tasks)).values()].map(({ attention }) => attention);
    expect(await seen()).toEqual([null, null, null]);
    now = 1500;
    watch.heard('b');
    expect(await seen()).toEqual(['idle', null, 'idle']);
    // Nothing was refused: the audit log was not read.
    expect(asked).toBe(0);
    running = [one];
    expect(await seen()).toEqual(['blocked-by-policy', null, 'idle']);
    expect((await watch.look(tasks)).get('a')?.waitsFor).toEqual([
      { id: 'abcd1234', host: 'x.example', port: 443, entry: 'x.example' },
    ]);
  });
});
