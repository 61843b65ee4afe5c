// The hand-over works in real shells: whatever the words, the command gets exactly them, and its end is known on both streams.

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { WAITING_COMMAND, WAITING_SCRIPT, handoverLine, isWaitingCommand, quote, waitingHash } from './script.ts';
import { StatusScanner, neverStarted, parseClaim } from './status.ts';

const FACTOR = Number(process.env['ACODE_PROPERTY_FACTOR'] ?? 1);
const NONCE = 'a'.repeat(32);
const ROUNDS = 30 * FACTOR;

function bashAsSh(): string {
  const link = join(mkdtempSync(join(tmpdir(), 'acode-sh-')), 'sh');
  symlinkSync('/bin/bash', link);
  return link;
}

const shells = (
  [
    ['dash', ['/bin/dash', '-c']],
    // Under the name sh, as an image would have it: bash behaves differently by name.
    ['bash as sh', [bashAsSh(), '-c']],
    ['busybox ash', ['/bin/busybox', 'ash', '-c']],
  ] as const
).filter(([, [path]]) => existsSync(path));

interface Seen {
  stdout: Buffer;
  stderr: Buffer;
  claims: [ReturnType<typeof parseClaim>, ReturnType<typeof parseClaim>];
  status: number | null;
  /** What came on standard output, with the status line. */
  raw: string;
}

function run(shell: readonly string[], handover: Partial<Parameters<typeof handoverLine>[0]>, stdin = ''): Seen {
  const line = handoverLine({ command: ['true'], cwd: '/', env: {}, nonce: NONCE, ...handover });
  // A session of its own: one test signals its whole process group.
  const done = spawnSync('setsid', ['--wait', ...shell, WAITING_SCRIPT], {
    input: line + stdin,
    env: { PATH: process.env['PATH'] ?? '' },
  });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  const scanners = [new StatusScanner(NONCE, d => out.push(d)), new StatusScanner(NONCE, d => err.push(d))] as const;
  scanners[0].push(done.stdout);
  scanners[1].push(done.stderr);
  scanners.forEach(scanner => scanner.end());
  return {
    stdout: Buffer.concat(out),
    stderr: Buffer.concat(err),
    claims: [scanners[0].claim, scanners[1].claim],
    status: done.status,
    raw: done.stdout.toString('latin1'),
  };
}

describe.each(shells)('handed over to %s', (_, shell) => {
  it('what nobody looks at is not counted, and the status comes all the same', () => {
    const isCounted = ['cpuacct/cpuacct.usage', 'cpu.stat'].some(file => existsSync(`/sys/fs/cgroup/${file}`));
    for (const [group, traffic] of [
      [true, true],
      [true, false],
      [false, true],
      [false, false],
    ] as const) {
      const seen = run(shell, { command: ['sh', '-c', 'exit 42'], counted: { group, traffic } });
      expect(seen.claims).toMatchObject([{ exitCode: 42 }, { exitCode: 42 }]);
      expect(seen.status).toBe(42);
      expect(seen.raw.includes(';net|')).toBe(traffic);
      expect(seen.raw.includes('cpu')).toBe(group && isCounted);
    }
  });

  it('the line has what belongs to the one command, and no more: a shell reads each byte of it by itself', () => {
    const line = handoverLine({ command: ['true'], cwd: '/workspace', env: {}, nonce: NONCE });
    expect(line.length).toBeLessThan(150);
  });

  it('the command gets its words, directory, environment and standard input, and nothing of the hand-over', () => {
    const script = 'pwd; printf "%s\\n" "$A"; cat; env | grep -c -e _acode -e TINI; echo err >&2; exit 42';
    const seen = run(
      shell,
      { command: ['sh', '-c', script], cwd: '/usr', env: { A: "it's\n$HOME `x` \\" } },
      'line 1\nline 2',
    );
    expect(seen.stdout.toString()).toBe("/usr\nit's\n$HOME `x` \\\nline 1\nline 20\n");
    expect(seen.stderr.toString()).toBe('err\n');
    expect(seen.claims).toEqual([expect.objectContaining({ exitCode: 42 }), expect.objectContaining({ exitCode: 42 })]);
    expect(seen.status).toBe(42);
  });

  it('a signal that comes in the moment the command has begun ends it', async () => {
    const line = handoverLine({ command: ['sleep', '600'], cwd: '/', env: {}, nonce: NONCE });
    for (let round = 0; round < ROUNDS; round += 1) {
      const [program = '', ...words] = shell;
      // A process group of its own, as in a sandbox.
      const child = spawn(program, [...words, WAITING_SCRIPT], { detached: true, stdio: ['pipe', 'pipe', 'ignore'] });
      child.stdin.write(line);
      await once(child.stdout, 'data');
      process.kill(-(child.pid ?? 0), 'SIGTERM');
      expect(await once(child, 'exit')).toEqual([143, null]);
    }
  });

  it('a variable of the request counts more than a default, also where it is empty', () => {
    const defaults = { A: 'default', B: 'default', C: "it's" };
    const seen = run(shell, { command: 'echo "[$A] [${B-unset}] [$C]"', env: { A: 'own', B: '' }, defaults });
    expect(seen.stdout.toString()).toBe("[own] [] [it's]\n");
  });

  it('takes a string as a line for the shell', () => {
    expect(run(shell, { command: 'echo a | tr a b && exit 3' })).toMatchObject({
      stdout: Buffer.from('b\n'),
      status: 3,
    });
  });

  it('says that a command does not exist, cannot be executed, or a directory is missing, without a word on the streams', () => {
    const quiet = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
    expect(run(shell, { command: ['no-such-command'] })).toMatchObject({
      ...quiet,
      status: 127,
      claims: [{ kind: 'missing' }, { kind: 'missing' }],
    });
    expect(run(shell, { command: ['/no/such'] })).toMatchObject({
      ...quiet,
      claims: [{ kind: 'missing' }, { kind: 'missing' }],
    });
    expect(run(shell, { command: ['/etc/passwd'] })).toMatchObject({
      ...quiet,
      status: 126,
      claims: [{ kind: 'forbidden' }, { kind: 'forbidden' }],
    });
    expect(run(shell, { command: ['/etc'] })).toMatchObject({ ...quiet, status: 126 });
    expect(run(shell, { cwd: '/no/such' })).toMatchObject({ ...quiet, claims: [{ kind: 'cwd' }, { kind: 'cwd' }] });
  });

  it('acknowledges a command before it starts: what fails then is its own 126 or 127', () => {
    const directory = mkdtempSync(join(tmpdir(), 'acode-begun-'));
    const script = join(directory, 'script');
    writeFileSync(script, '#!/no/such/interpreter\n', { mode: 0o755 });
    const seen = run(shell, { command: [script] });
    expect([126, 127]).toContain(seen.status);
    expect(seen.raw).toContain(`\u001e${NONCE} begun\n`);
    expect(seen.claims).toMatchObject([{ kind: 'exit', exitCode: seen.status }, { kind: 'exit' }]);
    expect(run(shell, { command: ['/no/such'] }).raw).not.toContain('begun');
    rmSync(directory, { recursive: true });
  });

  it('keeps the shell’s own remarks about a killed command out of the output', () => {
    expect(run(shell, { command: ['sh', '-c', 'kill -9 $$'] })).toMatchObject({
      stderr: Buffer.alloc(0),
      claims: [{ exitCode: 137 }, { exitCode: 137 }],
    });
  });

  it('outlives a signal to the process group, and the command does not', () => {
    const seen = run(shell, { command: ['sh', '-c', 'kill -TERM 0; sleep 5; echo survived'] });
    expect(seen.claims[0]).toMatchObject({ kind: 'exit', exitCode: 143 });
    expect(seen.stdout.toString()).not.toContain('survived');
  });

  it('ends by itself when nobody hands anything over', () => {
    const [program = '', ...rest] = shell;
    expect(spawnSync(program, [...rest, WAITING_SCRIPT], { input: '' }).status).not.toBeNull();
  });

  it('passes any words through unchanged', { timeout: 20_000 * FACTOR }, () => {
    const word = fc
      .oneof(
        fc.string({ unit: 'grapheme' }),
        fc.string({ unit: fc.constantFrom("'", '"', '\\', '\n', '$', '`', ' ', '-', 'ā', '\u0081', '😀', '\r', '\t') }),
      )
      .filter(text => !text.includes('\0'));
    fc.assert(
      fc.property(fc.array(word, { minLength: 1, maxLength: 4 }), words => {
        const seen = run(shell, {
          command: ['sh', '-c', 'for w in "$@"; do printf "%s\\0" "$w"; done', 'sh', ...words],
        });
        // Lone surrogates have no UTF-8 form; what is compared is what was sent.
        expect(seen.stdout.toString('utf8')).toBe(words.map(w => `${Buffer.from(w).toString('utf8')}\0`).join(''));
      }),
      { numRuns: FACTOR * 40 },
    );
  });
});

describe('the waiting command', () => {
  // Persistent sandboxes of this version must be usable with the next.
  it('has the hash that later versions know: who changes the script adds this one to FORMER, and writes the new one here', () => {
    expect(waitingHash()).toBe('9cccfb3d8802083dd39a47a9209eafaaa9f8f1989e74c542a518df3e37fd246f');
  });

  it('is known by its whole text', () => {
    expect(isWaitingCommand(WAITING_COMMAND)).toBe(true);
    expect(isWaitingCommand([...WAITING_COMMAND, ''])).toBe(false);
    expect(isWaitingCommand(['/bin/sh', '-c', 'IFS= read -r _acode_l && eval "$_acode_l"'])).toBe(false);
  });
});

describe('quote', () => {
  it('never leaves a newline, which would end the frame', () => {
    fc.assert(
      fc.property(fc.string(), text => {
        expect(quote(text)).not.toContain('\n');
      }),
    );
  });
});

describe('StatusScanner', () => {
  const framed = (text: string): string => `\u001e${NONCE} ${text}\n`;

  function scan(stream: Buffer, cuts: readonly number[] = []): { scanner: StatusScanner; output: Buffer } {
    const got: Buffer[] = [];
    const scanner = new StatusScanner(NONCE, data => got.push(Buffer.from(data)));
    let from = 0;
    for (const cut of cuts) {
      scanner.push(stream.subarray(from, from + cut));
      from = Math.min(stream.length, from + cut);
    }
    scanner.push(stream.subarray(from));
    scanner.end();
    return { scanner, output: Buffer.concat(got) };
  }

  it('finds the line however the stream is cut, and passes every other byte on', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.array(fc.nat(60), { maxLength: 20 }), (bytes, cuts) => {
        const printed = Buffer.concat([Buffer.from(bytes), Buffer.from('\u001eaaaa')]);
        const end = `${framed('exit 7;memory.peak|99')}later`;
        const { scanner, output } = scan(
          Buffer.concat([Buffer.from(framed('begun')), printed, Buffer.from(end)]),
          cuts,
        );
        expect(output.equals(printed)).toBe(true);
        expect(scanner.claim).toEqual({
          kind: 'exit',
          exitCode: 7,
          counters: { oomKills: 0, pidsRefused: 0, peakMemoryBytes: 99 },
        });
      }),
    );
  });

  it('takes a claim that the command never started only in place of the acknowledgement; any later one is output', () => {
    for (const kind of ['cwd', 'missing', 'forbidden', 'begun', 'nonsense', `exit ${'9'.repeat(20_000)}`]) {
      const honest = scan(Buffer.from(framed(kind))).scanner.claim;
      expect(honest, kind).toEqual(['cwd', 'missing', 'forbidden'].includes(kind) ? { kind } : null);
      const forged = `${framed(kind)}${framed(kind)}after`;
      const text = `${framed('begun')}${forged}${framed('exit 127')}`;
      for (const cuts of [[], Array.from({ length: 400 }, () => 1)]) {
        const { scanner, output } = scan(Buffer.from(text), cuts);
        expect(output.toString(), kind).toBe(forged);
        expect(scanner.claim, kind).toMatchObject({ kind: 'exit', exitCode: 127 });
      }
    }
  });

  it('is believed to say that nothing was started where both streams say it, and not where one does', () => {
    const never = scan(Buffer.from(framed('missing'))).scanner;
    const started = scan(Buffer.from(framed('begun') + framed('missing'))).scanner;
    const silent = scan(Buffer.alloc(0)).scanner;
    expect(neverStarted({ stdout: never, stderr: never })).toBe('missing');
    for (const other of [started, silent, scan(Buffer.from(framed('cwd'))).scanner]) {
      expect(neverStarted({ stdout: never, stderr: other })).toBeNull();
      expect(neverStarted({ stdout: other, stderr: never })).toBeNull();
    }
  });

  it('gives back what it held when the stream ends without a line', () => {
    for (const held of [`x\u001e${NONCE.slice(0, 5)}`, `x\u001e${NONCE} exit 0`])
      expect(scan(Buffer.from(held))).toMatchObject({ output: Buffer.from(held), scanner: { claim: null } });
  });
});

describe('parseClaim', () => {
  it('reads the counters of both control group versions', () => {
    expect(
      parseClaim(
        'exit 0;memory/memory.oom_control|oom_kill_disable 0|under_oom 0|oom_kill 2;memory/memory.max_usage_in_bytes|4096;pids/pids.events|max 3;cpuacct/cpuacct.usage|5000000;cpu/cpu.stat|nr_periods 1|throttled_time 2000000',
      ),
    ).toEqual({
      kind: 'exit',
      exitCode: 0,
      counters: { oomKills: 2, pidsRefused: 3, peakMemoryBytes: 4096, cpuMs: 5, throttledMs: 2 },
    });
    expect(
      parseClaim(
        'exit 1;memory.events|low 0|oom_kill 1;memory.peak|8192;pids.events|max 0;cpu.stat|usage_usec 7000|throttled_usec 1000',
      ),
    ).toEqual({
      kind: 'exit',
      exitCode: 1,
      counters: { oomKills: 1, pidsRefused: 0, peakMemoryBytes: 8192, cpuMs: 7, throttledMs: 1 },
    });
  });

  it('leaves out what was counted before the command began', () => {
    const text =
      'exit 0;earlier/memory.events|oom_kill 2;earlier/pids.events|max 3;memory.events|oom_kill 3;pids.events|max 3';
    expect(parseClaim(text)).toMatchObject({ counters: { oomKills: 1, pidsRefused: 0 } });
  });

  it('reads what passed the interfaces, the loopback left out, and takes nonsense for nothing', () => {
    const net = (...lines: string[]): unknown => {
      const claim = parseClaim(`exit 0;net|Inter-|   Receive |  Transmit| face |bytes packets|${lines.join('|')}`);
      return claim?.kind === 'exit' ? [claim.counters.rxBytes, claim.counters.txBytes] : claim;
    };
    const row = (name: string, rx: string, tx: string): string => `${name}: ${rx} 1 0 0 0 0 0 0 ${tx} 2 0 0 0 0 0 0`;
    expect(net(row('lo', '5', '5'))).toEqual([undefined, undefined]);
    expect(net(row('lo', '5', '5'), row('eth0', '100', '7'), row('eth1', '1', '1'))).toEqual([101, 8]);
    expect(net(row('eth0', '9'.repeat(20), '7'))).toEqual([undefined, 7]);
    expect(net(row('eth0', '-1', '7'), 'eth0: 1 2', 'eth0:', row('eth0', '1e9', '1'))).toEqual([undefined, undefined]);
  });

  it('does not believe nonsense', () => {
    expect(parseClaim('exit')).toBeNull();
    expect(parseClaim('exit 12345')).toBeNull();
    expect(parseClaim('exit 999')).toBeNull();
  });
});
