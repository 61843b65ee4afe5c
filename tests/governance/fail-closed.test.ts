// Whatever is wrong with an engine, a level or the audit log: a refusal with a code, in time, and never a weaker level.

import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { BIN, Bench } from '../cli/bench.ts';
import type { Ended } from '../cli/bench.ts';
import { everyEngine, mainEngine, withoutEngines } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import { make, trouble, withoutTrouble } from '../support/trouble.ts';
import { figure } from '../support/waiting.ts';
import { underFilter } from '../support/under-filter.ts';

const MARKER = 'it-ran-after-all';

// As permissive as a user can be about low risks: bubblewrap may stand in, and works here. Still nothing may be weaker.
const PERMISSIVE = { fallback: 'warn', bubblewrap: { accept_process_limits: true } };

/** What a call came to. */
function seen({ status, stdout, stderr, ms }: Ended) {
  figure('refusal of a command', ms, 6000);
  return {
    status,
    ran: stdout.toString().includes(MARKER),
    code: /├▶ code: (\S+)/.exec(stderr)?.[1],
    saysWhatToDo: stderr.includes('hint: '),
  };
}

const refused = (code: string) => ({ status: 125, ran: false, code, saysWhatToDo: true });

describe.skipIf(withoutEngines)('fail closed', () => {
  const directory = mkdtempSync(join(tmpdir(), 'acode-governance-'));
  const hung = createServer(() => undefined);
  const refusing = join(directory, 'refusing.sock');
  let bench: Bench;

  const echo = (options: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Ended> =>
    bench.call(['run', ...options, '--', 'echo', MARKER], { env });
  const at = (socket: string): Readonly<Record<string, string>> => ({ DOCKER_HOST: `unix://${socket}` });

  beforeAll(async () => {
    const killed = createServer();
    await new Promise<void>(resolve => killed.listen(join(directory, 'moved.sock'), resolve));
    renameSync(join(directory, 'moved.sock'), refusing);
    await new Promise(resolve => killed.close(resolve));
    await new Promise<void>(resolve => hung.listen(join(directory, 'hung.sock'), resolve));
    bench = await Bench.at(mainEngine);
    await bench.configure(PERMISSIVE);
  });

  afterAll(async () => {
    hung.close();
    rmSync(directory, { recursive: true });
    await bench[Symbol.asyncDispose]();
  });

  it('runs where nothing is wrong, at docker, which is the control of everything below', async () => {
    const { status, stdout } = await echo(['--json']);
    expect(status).toBe(0);
    expect(JSON.parse(stdout.toString())).toMatchObject({ level: 'docker', stdout: `${MARKER}\n` });
  });

  it('refuses where the socket is missing', async () => {
    expect(seen(await echo([], at(join(directory, 'missing.sock'))))).toEqual(refused('ACODE-SBX-008'));
  });

  it('refuses where nobody listens on the socket', async () => {
    expect(seen(await echo([], at(refusing)))).toEqual(refused('ACODE-SBX-008'));
  });

  it('refuses where the engine takes connections and never answers', async () => {
    expect(seen(await echo([], at(join(directory, 'hung.sock'))))).toEqual(refused('ACODE-SBX-008'));
  });

  it('says what was required and what there is', async () => {
    const { stderr } = await echo(['--risk', 'high'], at(refusing));
    expect(stderr).toMatch(
      /\(fail-closed\); required: docker \(risk high, the built-in default\), available: bubblewrap/,
    );
  });

  it('waits for an engine that takes two seconds for every answer, or refuses, and uses nothing weaker', async () => {
    await using slow = await EngineProxy.start(mainEngine.socket);
    slow.onRequest(() => new Promise(resolve => setTimeout(() => resolve(undefined), 2000)));
    const { status, stdout, stderr } = await echo(['--json'], at(slow.socket));
    if (status === 0) expect(JSON.parse(stdout.toString())).toMatchObject({ level: 'docker' });
    else expect(`${stdout.toString()}${stderr}`).toMatch(/ACODE-(?:SBX|CTN)-\d+/);
    expect(slow.requests.length).toBeGreaterThan(0);
  });

  it('refuses an engine whose API is too old', async () => {
    // No engine of that age can be had, so its answer stands for it.
    const old = createHttpServer((_, reply) => reply.writeHead(200, { 'Api-Version': '1.30' }).end('OK'));
    const socket = join(directory, 'old.sock');
    await new Promise<void>(resolve => old.listen(socket, resolve));
    expect(seen(await echo([], at(socket)))).toEqual(refused('ACODE-SBX-008'));
    old.close();
  });

  const withBroken = everyEngine.filter(({ runtimes }) => runtimes?.includes('kata-broken'));

  it('has an engine with a runtime that does not work', () => {
    expect(withBroken).not.toEqual([]);
  });

  it.each(withBroken)('refuses a runtime of $name that is configured and does not start', async ({ socket }) => {
    expect(seen(await echo(['--level', 'microvm'], at(socket)))).toEqual(refused('ACODE-SBX-006'));
  });

  it('refuses bubblewrap where user namespaces are forbidden, and says what to change', async () => {
    await bench.configure({ ...PERMISSIVE, level: 'bubblewrap' });
    try {
      expect((await echo([])).stdout.toString()).toContain(MARKER);
      const forbidden = await withoutNamespaces(bench, ['run', '--', 'echo', MARKER]);
      expect(seen(forbidden)).toEqual(refused('ACODE-SBX-012'));
      expect(forbidden.stderr).toMatch(/namespace/);
    } finally {
      await bench.configure(PERMISSIVE);
    }
  });

  it('refuses where the audit log cannot be written', async () => {
    const audit = join(bench.env['XDG_STATE_HOME'] ?? '', 'acode', 'audit');
    expect((await echo([])).status).toBe(0);
    expect(existsSync(audit)).toBe(true);
    chmodSync(audit, 0o500);
    try {
      expect(seen(await echo([]))).toEqual(refused('ACODE-AUD-001'));
    } finally {
      chmodSync(audit, 0o700);
    }
    expect((await echo([])).status).toBe(0);
  });

  it('refuses where the disk under the audit log is full, and leaves no half record', async () => {
    const audit = join(bench.env['XDG_STATE_HOME'] ?? '', 'acode', 'audit');
    mkdirSync(audit, { recursive: true });
    const small = ['--size', '16384', '--tmpfs', audit];
    const script = `dd if=/dev/zero of=${audit}/filler bs=4096 count=8 2>/dev/null; "$0" "$@"; s=$?; rm ${audit}/filler; for f in ${audit}/*.jsonl; do [ -e "$f" ] || continue; tail -c 1 "$f" | od -An -c >&2; done; exit $s`;
    expect(seen(await inside(small, bench, ['run', '--', 'echo', MARKER], script))).toEqual(refused('ACODE-AUD-001'));
  });
});

describe.skipIf(withoutEngines || withoutTrouble)('an engine that is stopped with SIGSTOP', () => {
  it('refuses, status answers, and both recover afterwards', async () => {
    await using bench = await Bench.at(trouble);
    await bench.configure(PERMISSIVE);
    await make('pause');
    try {
      expect(seen(await bench.call(['run', '--', 'echo', MARKER]))).toEqual(refused('ACODE-SBX-008'));
      const { status, stdout } = await bench.call(['sandbox', 'status', '--json']);
      expect(status).toBe(1);
      expect(JSON.parse(stdout.toString())).toMatchObject({
        available: false,
        levels: expect.arrayContaining([expect.objectContaining({ level: 'docker', state: 'unknown' })]) as unknown,
      });
    } finally {
      await make('resume');
    }
    expect((await bench.call(['run', '--', 'echo', MARKER])).stdout.toString()).toContain(MARKER);
  });
});

// The command in a world of its own, made by bubblewrap: what an ordinary user cannot change outside can be different in it.
async function inside(
  world: readonly string[],
  bench: Bench,
  argv: readonly string[],
  script = '"$0" "$@"',
): Promise<Ended> {
  const words = ['--dev-bind', '/', '/', ...world, '--', '/bin/sh', '-c', script, process.execPath, BIN, ...argv];
  return ended(bench, '/usr/bin/bwrap', words);
}

// The command under a filter that forbids it to make user namespaces, as the settings of many systems do.
async function withoutNamespaces(bench: Bench, argv: readonly string[]): Promise<Ended> {
  const [program, ...words] = underFilter(join(bench.workspace, '..', 'filter'), [process.execPath, BIN, ...argv]);
  return ended(bench, program, words);
}

async function ended(bench: Bench, program: string, words: readonly string[]): Promise<Ended> {
  const began = performance.now();
  const child = spawn(program, words, {
    cwd: bench.workspace,
    env: bench.env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const stdout: Buffer[] = [];
  let stderr = '';
  child.stdout.on('data', (data: Buffer) => stdout.push(data));
  child.stderr.on('data', (data: Buffer) => (stderr += data.toString()));
  const status = await new Promise<number | null>(resolve => child.on('close', resolve));
  return { status, stdout: Buffer.concat(stdout), stderr, ms: performance.now() - began };
}
