// Commands in a persistent sandbox: how they end, what they read and print, and that one does not disturb another.

import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CommandHandle, RunResult, Sandbox } from '@acode/sandbox';
import { openHost } from '../conformance/host.ts';
import type { ConformanceHost } from '../conformance/host.ts';
import { oddSeconds } from '../levels/host-processes.ts';
import { withoutEngines } from '../support/engines.ts';
import { FORGE } from '../support/forged-claim.ts';
import { figure, until } from '../support/waiting.ts';
import { countInside, places, untilSaid } from './places.ts';

const MEBIBYTE = 1024 ** 2;
// Goes on after its command, and writes when the test says so.
const LATER = 'setsid sh -c "until [ -e go ]; do sleep 0.05; done; rm go; echo hi > .envrc" >/dev/null 2>&1 &';
// By then a shell waits inside, on the slowest engine.
const WAITS_MS = 1500;

describe.skipIf(withoutEngines).each(places)('commands.run on $name', place => {
  let host: ConformanceHost;
  let sandbox: Sandbox;
  beforeAll(async () => {
    host = await openHost(place);
    sandbox = await host.acode.create();
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('gives exit status, streams apart, level, sandbox and a time', async () => {
    const result = await sandbox.commands.run('echo out; echo err >&2; exit 42');
    expect(result).toMatchObject({
      exitCode: 42,
      stdout: 'out\n',
      stderr: 'err\n',
      timedOut: false,
      oomKilled: false,
      level: place.level,
      sandboxId: sandbox.id,
      containerId: sandbox.containerId,
    });
    expect(result.durationMs).toBeGreaterThan(0);
  });

  it('gives every exit status as it is, up to 255', async () => {
    for (const status of [0, 1, 2, 125, 126, 127, 128, 129, 137, 143, 255])
      expect((await sandbox.commands.run(`exit ${status}`)).exitCode).toBe(status);
  });

  it('may run as long as the sandbox stays, unless somebody set a limit', async () => {
    const limitOf = async (where: Sandbox, request = {}): Promise<unknown> => {
      const { correlationId } = await where.commands.run(['true'], request);
      const [intent] = await host.acode.audit.find(correlationId);
      return (intent?.['limits'] as { timeoutMs?: number } | undefined)?.timeoutMs;
    };
    expect(sandbox.commandTimeoutMs).toBeNull();
    expect(await limitOf(sandbox)).toBeGreaterThan(3600 * 1000);
    expect(await limitOf(sandbox, { timeoutMs: 700_000 })).toBe(700_000);
    await using short = await host.acode.create({ policy: { timeoutMs: 20_000 } });
    expect(short.commandTimeoutMs).toBe(20_000);
    expect(await limitOf(short)).toBe(20_000);
    expect(await limitOf(short, { timeoutMs: 700_000 })).toBe(20_000);
  });

  it('has a result for a command that claims never to have started, or to lack memory', async () => {
    writeFileSync(host.file('forge.sh'), FORGE);
    const result = await sandbox.commands.run(['sh', 'forge.sh', 'missing', '127']);
    expect(result).toMatchObject({ exitCode: 127, stdout: expect.stringContaining(' missing\n') });
    expect(existsSync(host.file('made-by-forger'))).toBe(true);
    if (place.lacks.Podman === undefined) return;
    const forged = await sandbox.commands.run(['sh', 'forge.sh', 'exit 0;memory.events|oom_kill 5', '9']);
    expect(forged).toMatchObject({ oomKilled: false });
  });

  it('gives the status of a shell where a signal ended the command', async () => {
    expect((await sandbox.commands.run('kill -KILL $$')).exitCode).toBe(137);
    expect((await sandbox.commands.run('kill -TERM $$')).exitCode).toBe(143);
    expect((await sandbox.commands.run(['sh', '-c', 'kill -SEGV $$'])).exitCode).toBe(139);
  });

  it('takes a line for the shell or words that no shell sees', async () => {
    expect((await sandbox.commands.run('echo $((1+1)) | tr 2 3')).stdout).toBe('3\n');
    expect((await sandbox.commands.run(['echo', '$((1+1))', ';', 'id'])).stdout).toBe('$((1+1)) ; id\n');
    const words = ["it's", 'a\nb', '"', '\\', '$HOME', '`id`', '', ' ', 'ā😀\u0081', '-n', '--', 'x'.repeat(50_000)];
    const { stdout } = await sandbox.commands.run([
      'sh',
      '-c',
      'for w in "$@"; do printf "%s\\0" "$w"; done',
      'sh',
      ...words,
    ]);
    expect(stdout.split('\0').slice(0, -1)).toEqual(words);
  });

  it('reads text, bytes and streams to their end, and nothing where nothing is given', async () => {
    expect((await sandbox.commands.run(['cat'])).stdout).toBe('');
    expect((await sandbox.commands.run(['cat'], { stdin: 'text\n' })).stdout).toBe('text\n');
    const bytes = Buffer.from([0, 255, 10, 13, 30, 0]);
    expect(Buffer.from((await sandbox.commands.run(['cat'], { stdin: bytes })).stdoutBytes ?? [])).toEqual(bytes);
    const large = await sandbox.commands.run(['wc', '-c'], { stdin: Buffer.alloc(3 * MEBIBYTE) });
    expect(Number(large.stdout)).toBe(3 * MEBIBYTE);
    const stdin = Readable.from(['a', 'b', 'c']);
    expect((await sandbox.commands.run(['cat'], { stdin })).stdout).toBe('abc');
    // One that does not read all of it ends all the same.
    expect((await sandbox.commands.run(['true'], { stdin: Buffer.alloc(MEBIBYTE) })).exitCode).toBe(0);
  });

  it('has the directory it was given, in the workspace', async () => {
    mkdirSync(host.file('sub'), { recursive: true });
    expect((await sandbox.commands.run(['pwd'])).stdout).toBe('/workspace\n');
    expect((await sandbox.commands.run(['pwd'], { cwd: 'sub' })).stdout).toBe('/workspace/sub\n');
    await expect(sandbox.commands.run(['pwd'], { cwd: '../..' })).rejects.toMatchObject({ code: 'ACODE-SBX-003' });
  });

  it('rejects where the command never started, and says why', async () => {
    await expect(sandbox.commands.run(['no-such-program'])).rejects.toMatchObject({
      code: 'ACODE-SBX-015',
      context: { reason: 'not found' },
    });
    await sandbox.commands.run('echo x > plain; chmod 644 plain');
    await expect(sandbox.commands.run(['./plain'])).rejects.toMatchObject({
      code: 'ACODE-SBX-015',
      context: { reason: 'not executable' },
    });
    await expect(sandbox.commands.run(['true'], { cwd: 'nowhere' })).rejects.toMatchObject({
      code: 'ACODE-SBX-017',
      context: { field: 'cwd' },
    });
    expect((await sandbox.commands.run(['true'])).exitCode).toBe(0);
  });

  it('keeps what was printed up to the limit, says how much more there was, and passes all that on as it comes', async () => {
    await using capped = await host.acode.create({ policy: { limits: { outputBytes: 1000 } } });
    let passed = 0;
    const result = await capped.commands.run('head -c 50000 /dev/zero | tr "\\0" x; echo err >&2', {
      onStdout: chunk => (passed += chunk.length),
    });
    expect(result.stdout).toHaveLength(1000);
    expect(result).toMatchObject({ dropped: { stdout: 49_000, stderr: 0 }, stderr: 'err\n', limitExceeded: 'output' });
    expect(passed).toBe(1000);
  });

  it('passes output on while the command runs', async () => {
    // It goes on only once its first line has arrived here.
    const line = 'echo one; until [ -e heard ]; do sleep 0.05; done; echo two';
    const onStdout = (): void => writeFileSync(join(host.workspace, 'heard'), '');
    expect(await sandbox.commands.run(line, { onStdout })).toMatchObject({ exitCode: 0, stdout: 'one\ntwo\n' });
    rmSync(join(host.workspace, 'heard'));
  });

  it('takes what looks like its own marks for output', async () => {
    const { stdout, stderr } = await sandbox.commands.run(
      "printf '\\0361234\\n\\036go\\n\\036done\\n'; printf '\\036x' >&2",
    );
    expect(stdout).toBe('\u001e1234\n\u001ego\n\u001edone\n');
    expect(stderr).toBe('\u001ex');
  });

  it('ends a command at its time, with all it started, and keeps what it printed', async () => {
    const seconds = oddSeconds();
    const result = await sandbox.commands.run(`echo begun; sleep ${seconds} & sleep ${seconds}; echo not`, {
      timeoutMs: 2000,
    });
    expect(result).toMatchObject({ exitCode: null, timedOut: true, stdout: 'begun\n', limitExceeded: 'time' });
    expect(await countInside(sandbox, `sleep ${seconds}`)).toBe(0);
    expect((await sandbox.commands.run(['echo', 'next'])).stdout).toBe('next\n');
  });

  it('kills one at its time that does not listen', async () => {
    const seconds = oddSeconds();
    const result = await sandbox.commands.run(`trap "" TERM; echo deaf; while :; do sleep ${seconds}; done`, {
      timeoutMs: 2000,
    });
    expect(result).toMatchObject({ exitCode: null, timedOut: true, stdout: 'deaf\n' });
    expect(await countInside(sandbox, `sleep ${seconds}`)).toBe(0);
  });

  it('rejects when it is cancelled, with what there was, and soon nothing of it runs', async () => {
    const seconds = oddSeconds();
    const cancel = new AbortController();
    const running = sandbox.commands.run(`trap "" TERM; echo begun; sleep ${seconds} & sleep ${seconds}`, {
      signal: cancel.signal,
      onStdout: () => cancel.abort(),
    });
    await expect(running).rejects.toMatchObject({ code: 'ACODE-SBX-014', context: { result: { stdout: 'begun\n' } } });
    const ms = await until(async () => (await countInside(sandbox, `sleep ${seconds}`)) === 0);
    figure(`cancelled to gone inside, ${place.name}`, ms, 1000);
  });

  it('starts nothing where it was cancelled before', async () => {
    const signal = AbortSignal.abort();
    await expect(sandbox.commands.run('echo x > never', { signal })).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    expect((await sandbox.commands.run(['ls', 'never'])).exitCode).not.toBe(0);
  });

  it('ends with the command, although a child of it holds its output', async () => {
    const seconds = oddSeconds();
    const result = await sandbox.commands.run(`sleep ${seconds} & echo begun`);
    expect(result).toMatchObject({ exitCode: 0, stdout: 'begun\n' });
    // In a persistent sandbox, so does what was left there.
    expect(await countInside(sandbox, `sleep ${seconds}`)).toBe(1);
    await sandbox.commands.run(`kill $(ps -o pid,args | grep '[s]leep ${seconds}' | awk '{print $1}')`);
    expect(await countInside(sandbox, `sleep ${seconds}`)).toBe(0);
  });

  it('keeps sixteen commands at once apart', async () => {
    const one = async (index: number): Promise<RunResult> =>
      sandbox.commands.run(`for i in 1 2 3; do echo ${index}; echo e${index} >&2; sleep 0.05; done; exit ${index}`);
    const results = await Promise.all(Array.from({ length: 16 }, (_, index) => one(index)));
    for (const [index, { stdout, stderr, exitCode }] of results.entries())
      expect({ stdout, stderr, exitCode }).toEqual({
        stdout: `${index}\n`.repeat(3),
        stderr: `e${index}\n`.repeat(3),
        exitCode: index,
      });
    expect(await sandbox.commands.list()).toEqual([]);
  });

  it('keeps what commands leave: files of /tmp and of home, and nothing of a shell', async () => {
    await sandbox.commands.run('echo kept > /tmp/left; echo kept > ~/left; cd /tmp; export LEFT=1');
    const { stdout } = await sandbox.commands.run('cat /tmp/left ~/left; pwd; echo "[$LEFT]"');
    expect(stdout).toBe('kept\nkept\n/workspace\n[]\n');
  });

  it.runIf(place.lacks['memory limit'] === undefined)('says that memory ran out, and the sandbox goes on', async () => {
    await using small = await host.acode.create({ policy: { limits: { memoryBytes: 32 * MEBIBYTE } } });
    const hungry = ['sh', '-c', 'x=$(head -c 100000000 /dev/zero | tr "\\0" x); echo ${#x}'];
    if (place.level === 'gvisor') return;
    for (let round = 0; round < 3; round += 1)
      expect(await small.commands.run(hungry)).toMatchObject({ oomKilled: true, limitExceeded: 'memory' });
    // What one command lacked is not said of the next.
    expect(await small.commands.run(['echo', 'on'])).toMatchObject({ oomKilled: false, stdout: 'on\n', exitCode: 0 });
    expect(await small.commands.run('exit 137')).toMatchObject({ oomKilled: false, exitCode: 137 });
    const killed = await small.commands.run(['sleep', '600'], { background: true });
    await killed.kill('SIGKILL');
    expect(await killed.wait()).toMatchObject({ oomKilled: false, exitCode: 137 });
  });

  describe('in a sandbox that a command fills with processes', () => {
    const bomb = 'trap "" TERM HUP; i=0; while [ $i -lt 99 ]; do sleep 600 & i=$((i+1)); done; wait';
    const fill = async (): Promise<{ full: Sandbox; filler: CommandHandle }> => {
      const full = await host.acode.create({ policy: { limits: { pids: 32 } } });
      // A shell waits before there is no room for one: where none does, the sandbox ends with its command.
      await new Promise(resolve => void setTimeout(resolve, WAITS_MS));
      const filler = await full.commands.run(['sh', '-c', `(${bomb}); sleep 600`], { background: true });
      await untilSaid(filler.stderr, 'fork');
      return { full, filler };
    };

    it.runIf(place.lacks['process limit'] === undefined)('others fail or say that processes were refused', async () => {
      const { full } = await fill();
      const next = await full.commands
        // More than there is room for in the whole sandbox, whatever has ended of the first.
        .run('i=0; while [ $i -lt 40 ]; do sleep 2 & i=$((i+1)); done; wait', { timeoutMs: 5000 })
        .catch((error: unknown) => error);
      expect(next instanceof Error || JSON.stringify(next).includes('"limitExceeded":"pids"')).toBe(true);
      await full.kill();
    });

    it.runIf(place.lacks['process limit'] === undefined)(
      'that command can be killed, and there is room again',
      async () => {
        const { full, filler } = await fill();
        const began = performance.now();
        await filler.kill('SIGKILL');
        expect((await filler.wait()).exitCode).toBe(137);
        const ms = performance.now() - began;
        figure(`command that fills the sandbox, killed to ended, ${place.name}`, ms, 5000);
        expect((await full.commands.run(['echo', 'room'])).stdout).toBe('room\n');
        await full.kill();
      },
    );

    it.runIf(place.lacks['process limit'] === undefined)('the sandbox can be killed', async () => {
      const { full, filler } = await fill();
      const began = performance.now();
      await full.kill();
      const ms = performance.now() - began;
      figure(`sandbox full of processes, killed to gone, ${place.name}`, ms, 5000);
      await expect(filler.result).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
      expect((await host.acode.list()).filter(({ sandboxId }) => sandboxId === full.id)).toEqual([]);
    });
  });

  it.runIf(place.lacks['process limit'] === undefined)(
    'buries what its commands orphan, however many there are',
    async () => {
      await using small = await host.acode.create({ policy: { limits: { pids: 24 } } });
      for (let round = 0; round < 20; round += 1)
        await small.commands.run('for i in 1 2 3; do (sleep 0.01 >/dev/null 2>&1 &); done');
      expect((await small.commands.run(['echo', 'room'])).stdout).toBe('room\n');
    },
  );

  it('lets no command go on beyond its time by ending the shells that could end it', async () => {
    const hunted = await host.acode.create();
    // All but the first two, with which the sandbox would end at once, the one that tells of its own end, and itself. It does not
    // mind a request to end, so that only a shell that lives long enough to kill it ends it.
    const hunt =
      'trap "" TERM; while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p -gt 7 ] && [ $p != $$ ] && [ $p != $PPID ] && kill -9 $p; done 2>/dev/null; done';
    await hunted.commands.run(['sh', '-c', hunt], { timeoutMs: 1000 }).catch(() => undefined);
    // It was quicker, and the sandbox is gone with it; or one of them was, and it has ended.
    const isGone = async (): Promise<boolean> =>
      !(await host.acode.list()).some(({ sandboxId }) => sandboxId === hunted.id);
    const hasEnded = async (): Promise<boolean> => {
      const { exitCode, stdout } = await hunted.commands.run(['ps']);
      return exitCode === 0 && !stdout.includes('kill -9');
    };
    await expect.poll(async () => (await isGone()) || hasEnded().catch(() => false)).toBe(true);
    await hunted.kill();
  });

  it('tells what was left for tools of the host, also what came between two commands, and each once', async () => {
    await using own = await host.acode.create();
    const paths = async (command: string): Promise<string[]> =>
      (await own.commands.run(command)).riskyChanges.map(({ path }) => path);
    // What was left in the last moment of a command may be told twice: the clock of files is coarse.
    expect(await paths('echo all: > Makefile; sleep 0.1')).toEqual(['Makefile']);
    expect(await paths('true')).toEqual([]);
    expect(await paths(LATER)).toEqual([]);
    writeFileSync(join(host.workspace, 'go'), '');
    await until(() => existsSync(join(host.workspace, '.envrc')));
    await own.files.writeFile('package.json', '{}');
    expect((await paths('sleep 0.1')).sort()).toEqual(['.envrc', 'package.json']);
    expect(await paths('true')).toEqual([]);
    for (const name of ['Makefile', '.envrc', 'package.json']) rmSync(join(host.workspace, name));
  });

  it('tells what came after the last command when it is removed, and once', async () => {
    const own = await host.acode.create();
    await own.commands.run(LATER);
    writeFileSync(join(host.workspace, 'go'), '');
    await until(() => existsSync(join(host.workspace, '.envrc')));
    expect(own.riskyChanges).toEqual([]);
    await own.kill();
    expect(own.riskyChanges.map(({ path }) => path)).toEqual(['.envrc']);
    const other = await host.acode.create();
    await other.commands.run('echo all: > Makefile; sleep 0.1');
    await other.kill();
    expect(other.riskyChanges).toEqual([]);
    for (const name of ['Makefile', '.envrc']) rmSync(join(host.workspace, name));
  });

  it('tells whoever comes next to a kept one what came since the last look', async () => {
    const kept = await host.acode.create({ keep: true });
    try {
      const paths = async (command: string): Promise<string[]> => {
        await using connected = await host.acode.connect(kept.id);
        return (await connected.commands.run(command)).riskyChanges.map(({ path }) => path);
      };
      expect(await paths(`echo all: > Makefile; sleep 0.1; ${LATER}`)).toEqual(['Makefile']);
      writeFileSync(join(host.workspace, 'go'), '');
      await until(() => existsSync(join(host.workspace, '.envrc')));
      expect(await paths('sleep 0.1')).toEqual(['.envrc']);
      expect(await paths('true')).toEqual([]);
    } finally {
      await kept.kill();
      for (const name of ['Makefile', '.envrc']) rmSync(join(host.workspace, name), { force: true });
    }
  });

  it('rejects in a sandbox that was ended, also what was under way', async () => {
    const gone = await host.acode.create();
    const running = gone.commands.run(['sleep', '600']);
    running.catch(() => undefined);
    await new Promise(resolve => void setTimeout(resolve, 100));
    await gone.kill();
    await expect(running).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
    await expect(gone.commands.run(['true'])).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
    await expect(gone.extend(1000)).rejects.toMatchObject({ code: 'ACODE-SBX-025' });
  });

  it('refuses what it does not know', async () => {
    const refused = { code: 'ACODE-SBX-017' };
    await expect(sandbox.commands.run([])).rejects.toMatchObject(refused);
    await expect(sandbox.commands.run(['true'], { timeoutMs: 0 })).rejects.toMatchObject(refused);
    await expect(sandbox.commands.run(['true'], { cwd: '.', ...{ policy: {} } })).rejects.toMatchObject(refused);
    await expect(sandbox.commands.run(['a\0b'])).rejects.toMatchObject(refused);
  });
});
