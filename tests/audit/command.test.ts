// `acode audit`, from words to exit status.

import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { runCli } from '../../packages/cli/src/cli.ts';
import { Recorder, call, testIo } from '../../packages/cli/src/test-process.ts';
import { AuditLog } from '../../packages/sandbox/src/records/audit/log.ts';
import type { AuditFindings } from '../../packages/sandbox/src/contract/audit.ts';
import { systemClock } from '../../packages/sandbox/src/lifecycle/clock.ts';
import { Bench } from '../cli/bench.ts';
import { event, uid } from './log.ts';

const directory = join(process.env['XDG_STATE_HOME'] ?? '', 'acode', 'audit');
const file = join(directory, '000000000001.jsonl');

function open(): AuditLog {
  return new AuditLog({ directory, uid, clock: systemClock });
}

beforeEach(async () => {
  await rm(directory, { recursive: true, force: true });
  const log = open();
  const context = { correlationId: 'run-1', operation: 'run' } as const;
  const { seq } = await log.append({
    ...context,
    kind: 'intent',
    sandbox_level: 'docker',
    command: ['echo', 'hi\u001b]0;owned\u0007\nthere'],
    policyHash: 'p',
    commandHash: 'c',
    cwd: '.',
    stdin: 'none',
    decision: 'allowed',
  });
  await log.append({ ...context, kind: 'outcome', intent: seq, exitCode: 3, durationMs: 1500, timedOut: true });
  await log.append({
    ...context,
    kind: 'refusal',
    operation: 'deny',
    correlationId: 'run-2',
    errorCode: 'ACODE-SBX-012',
    message: 'no',
  });
  await log.append({
    kind: 'removal',
    operation: 'remove',
    correlationId: 'run-1',
    what: 'container',
    id: 'abc',
    reason: 'finished',
  });
  await log.append(event('run-3'));
  await log.close();
});
afterAll(async () => rm(directory, { recursive: true, force: true }));

describe('acode audit tail', () => {
  it('shows the newest records as a table in which nothing drives the terminal', async () => {
    const { status, stdout, stderr } = await call(['audit', 'tail']);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout).toMatch(/^RECORD +WHEN +KIND +WHAT\n1 .* intent +docker echo hi␛\]0;owned␇⏎there\n/);
    expect(stdout).toMatch(
      /\n2 .* outcome +of 1: exit 3, timed out, 1\.5 s\n3 .* refusal +ACODE-SBX-012 no\n4 .* removal +container abc finished\n5 .* event +tested\n$/,
    );
    expect(stdout).not.toContain('\u001b');
  });

  it('shows as many as asked for, and fits the terminal', async () => {
    const stdout = new Recorder(true, 40);
    await runCli(['audit', 'tail', '-n', '2'], testIo({ stdout }));
    const lines = stdout.text.trimEnd().split('\n');
    expect(lines).toHaveLength(3);
    for (const line of lines) expect(line.replaceAll(/\u001b\[\d+m/g, '').length).toBeLessThanOrEqual(40);
  });

  it('is one object with --json', async () => {
    const { stdout } = await call(['audit', 'tail', '-n', '2', '--json']);
    expect(JSON.parse(stdout)).toMatchObject({ schema: 'acode.audit/1', items: [{ seq: 4 }, { seq: 5 }] });
  });

  it('says so where nothing was recorded', async () => {
    await rm(directory, { recursive: true });
    expect(await call(['audit', 'tail'])).toMatchObject({ status: 0, stdout: 'Nothing was recorded yet.\n' });
    expect(await call(['audit', 'verify'])).toMatchObject({ status: 0, stdout: 'Nothing was recorded yet.\n' });
  });

  it('follows until a signal, and not as JSON, which would never end', async () => {
    const stdout = new Recorder();
    const io = testIo({ stdout });
    const running = runCli(['audit', 'tail', '-n', '1', '-f'], io);
    await expect.poll(() => stdout.text).toMatch(/^5 .*tested\n$/);
    const log = open();
    await log.append(event('later'));
    await log.close();
    await expect.poll(() => stdout.text).toMatch(/\n6 .*tested\n$/);
    io.signals.emit('SIGINT');
    expect(await Promise.race([running, wait(30_000, 'never')])).toBe(130);
    expect(await call(['audit', 'tail', '-f', '--json'])).toMatchObject({ status: 2 });
  });
});

describe('acode audit show', () => {
  it('shows every field of a record, or of all with a correlation id', async () => {
    const one = await call(['audit', 'show', '1']);
    expect(one.stdout).toMatch(
      /^Record 1\n[^]*kind +intent[^]*command +echo hi␛\]0;owned␇⏎there[^]*policyHash +p[^]*prev +0{64}\n +hash +[0-9a-f]{64}\n$/,
    );
    const all = await call(['audit', 'show', 'run-1', '--json']);
    expect(JSON.parse(all.stdout)).toMatchObject({ items: [{ seq: 1 }, { seq: 2 }, { seq: 4 }] });
  });

  it('says where there is none', async () => {
    const { status, stderr } = await call(['audit', 'show', '4711']);
    expect(status).toBe(125);
    expect(stderr).toMatch(/no audit record for 4711[^]*ACODE-AUD-003[^]*acode audit tail/);
  });
});

describe('acode changes', () => {
  const counts = { executable: 0, hidden: 1, configuration: 2, source: 0, other: 0 };

  // One run for each outcome, in a workspace.
  async function runs(
    workspace: string,
    ...outcomes: readonly (AuditFindings & { readonly command?: string; readonly sandboxId?: string })[]
  ): Promise<number[]> {
    const log = open();
    const seqs: number[] = [];
    for (const { command = 'make', sandboxId = `sandbox-of-${command}`, ...findings } of outcomes) {
      const context = { correlationId: `run-${command}`, operation: 'run' } as const;
      const intent = {
        ...context,
        kind: 'intent',
        sandbox_level: 'docker',
        sandboxId,
        command: ['/bin/sh', '-c', command],
        workspace,
        ...{ policyHash: 'p', commandHash: 'c', cwd: '.', stdin: 'none' as const, decision: 'allowed' },
      } as const;
      const { seq } = await log.append(intent);
      await log.append({ ...context, kind: 'outcome', intent: seq, exitCode: 0, durationMs: 1, ...findings });
      seqs.push(seq);
    }
    await log.close();
    return seqs;
  }
  const hook = { kind: 'git-settings', path: '.husky/pre-commit\u001b[2J\nNext: all is well' } as const;
  const found = { riskyChanges: [hook], riskyChangesTotal: 7, changed: counts, scan: 'complete' } as const;
  const here = process.cwd();

  it('ends with 0 where no run left anything, and where the log is older than such records or not there', async () => {
    expect(await call(['changes'])).toMatchObject({ status: 0, stdout: `No risky changes are recorded in ${here}.\n` });
    await runs(here, { changed: counts, scan: 'complete' });
    expect(await call(['changes', '--json'])).toMatchObject({ status: 0 });
    // The control: the records with and without these fields are one good chain.
    expect(await call(['audit', 'verify'])).toMatchObject({ status: 0 });
    await rm(directory, { recursive: true });
    expect(await call(['changes'])).toMatchObject({ status: 0 });
  });

  it('shows the runs of this workspace, newest first, with what they left and what was not scanned', async () => {
    const [first] = await runs(here, { ...found, command: 'npm ci' });
    const [last] = await runs(here, { scan: 'incomplete', changed: counts, scanReason: 'too much', command: 'flood' });
    await runs('/elsewhere', { ...found, command: 'other' });
    const { status, stdout } = await call(['changes']);
    expect(status).toBe(1);
    expect(stdout).toBe(
      [
        `2 runs left risky changes or could not be scanned completely in ${here}, newest first.`,
        '',
        `record ${last}, just now, sandbox sandbox-of-f`,
        '    command: flood',
        '    not everything was scanned: too much',
        '',
        `record ${first}, just now, sandbox sandbox-of-n`,
        '    command: npm ci',
        "    git-settings: '.husky/pre-commit␛[2J⏎Next: all is well'",
        '    and 6 more, not listed in the record',
        '',
      ].join('\n'),
    );
    expect((await call(['changes', '--all'])).stdout).toContain('    in /elsewhere\n');
    const json = JSON.parse((await call(['changes', '--json'])).stdout) as { items: object[] };
    expect(json).toMatchObject({ schema: 'acode.changes/1', workspace: here, since: null });
    expect(json.items).toMatchObject([
      { intent: last, scan: 'incomplete', scanReason: 'too much', riskyChanges: [] },
      {
        intent: first,
        command: ['/bin/sh', '-c', 'npm ci'],
        riskyChanges: [hook],
        riskyChangesTotal: 7,
        changed: counts,
      },
    ]);
  });

  it('takes a time span, a moment or a record to begin from, and says what it takes', async () => {
    const [, last = 0] = await runs(here, found, found);
    const count = async (since: string): Promise<number> => {
      const { stdout } = await call(['changes', '--json', '--since', since], { now: Date.now });
      return (JSON.parse(stdout) as { items: unknown[] }).items.length;
    };
    expect(await Promise.all(['1h', '2020-01-01', '2099-01-01T00:00', `${last}`, '0'].map(count))).toEqual([
      2, 2, 0, 1, 2,
    ]);
    for (const wrong of ['yesterday', '2h ago', '2026-13-45', '-1', '', 'tomorow'])
      expect(await call(['changes', '--since', wrong]), wrong).toMatchObject({
        status: 2,
        stderr: expect.stringMatching(/2h, 7d/),
      });
  });

  it('fits a narrow terminal as far as names allow', async () => {
    await runs(here, { ...found, riskyChanges: [{ kind: 'build-file', path: 'Makefile' }], riskyChangesTotal: 1 });
    const stdout = new Recorder(true, 40);
    expect(await runCli(['changes', '--all'], testIo({ stdout }))).toBe(1);
    const lines = stdout.text.replaceAll(/\u001b\[\d+m/g, '').split('\n');
    for (const line of lines.filter(one => one.includes(' ') && !one.includes(here)))
      expect(line.length).toBeLessThanOrEqual(40);
  });

  it('settles a scan that went on by the record of its end, and lists it where there is none', async () => {
    const continuing = { changed: counts, scan: 'continuing' } as const;
    await runs(
      here,
      { ...continuing, command: 'calm' },
      { ...continuing, command: 'wild' },
      { ...continuing, command: 'killed' },
      { ...continuing, command: 'lost' },
    );
    const log = open();
    const scan = (id: string, findings: AuditFindings): Promise<unknown> =>
      log.append({
        kind: 'event',
        operation: 'scan',
        event: 'scanned',
        correlationId: id,
        workspace: here,
        sandboxIds: [`sandbox-of-${id}`],
        ...findings,
      });
    await scan('calm', { scan: 'complete', changed: counts });
    await scan('wild', found);
    await scan('killed', { scan: 'incomplete', scanReason: 'its process was ended', changed: counts });
    await log.close();
    const { items } = JSON.parse((await call(['changes', '--json'])).stdout) as { items: object[] };
    expect(items).toMatchObject([
      { command: ['/bin/sh', '-c', 'lost'], scan: 'continuing' },
      { command: ['/bin/sh', '-c', 'killed'], scan: 'incomplete', scanReason: 'its process was ended' },
      { command: ['/bin/sh', '-c', 'wild'], riskyChangesTotal: 7, scan: 'complete' },
    ]);
  });

  it('settles of two commands in one sandbox the one whose scan has ended', async () => {
    const continuing = { changed: counts, scan: 'continuing', sandboxId: 'persistent' } as const;
    await runs(here, { ...continuing, command: 'first' }, { ...continuing, command: 'second' });
    const scan = async (id: string): Promise<string[]> => {
      const log = open();
      await log.append({
        kind: 'event',
        operation: 'scan',
        event: 'scanned',
        correlationId: id,
        workspace: here,
        sandboxIds: ['persistent'],
        correlationIds: [id],
        scan: 'complete',
        changed: counts,
      });
      await log.close();
      const { items } = JSON.parse((await call(['changes', '--json'])).stdout) as { items: { command: string[] }[] };
      return items.map(({ command }) => command.at(-1) ?? '');
    };
    expect(await scan('run-first')).toEqual(['second']);
    expect(await scan('run-second')).toEqual([]);
  });

  it('is what tail and show say of the same records', async () => {
    const [seq = 0] = await runs(here, { ...found, scan: 'incomplete' });
    expect((await call(['audit', 'tail', '-n', '1'])).stdout).toMatch(
      /of \d+: exit 0, 0\.001 s, 7 risky changes, scan incomplete\n$/,
    );
    const { stdout } = await call(['audit', 'show', String(seq + 1)]);
    expect(stdout).toMatch(/riskyChanges +git-settings: '\.husky\/pre-commit␛\[2J⏎Next: all is well'\n/);
    expect(stdout).toMatch(/riskyChangesTotal +7\n/);
  });
});

describe('acode audit verify', () => {
  it('ends with 0, and prints the head that it takes again', async () => {
    const { status, stdout } = await call(['audit', 'verify']);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^No record was changed\n +Records +5 in 1 file\n/);
    const [head = ''] = /5:[0-9a-f]{64}/.exec(stdout) ?? [];
    const again = await call(['audit', 'verify', '--head', head, '--json']);
    expect(JSON.parse(again.stdout)).toMatchObject({ schema: 'acode.audit-verify/1', ok: true, headsFound: 1 });
  });

  it('ends with 125 and names the record that was changed', async () => {
    await writeFile(file, (await readFile(file, 'utf8')).replace('"exitCode":3', '"exitCode":0'));
    const { status, stdout, stderr } = await call(['audit', 'verify']);
    expect({ status, stdout }).toEqual({ status: 125, stdout: '' });
    expect(stderr).toMatch(/audit log was changed: record 2 \(.*000000000001\.jsonl:2\) is edited[^]*ACODE-AUD-002/);
    const json = await call(['audit', 'verify', '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({
      schema: 'acode.error/1',
      code: 'ACODE-AUD-002',
      context: { fault: 'edited', seq: 2, line: 2 },
    });
  });

  it('finds with a head that the log was cut, and without one cannot', async () => {
    const { stdout } = await call(['audit', 'verify']);
    const [head = ''] = /5:[0-9a-f]{64}/.exec(stdout) ?? [];
    const lines = (await readFile(file, 'utf8')).split('\n');
    await writeFile(file, `${lines.slice(0, 3).join('\n')}\n`);
    expect(await call(['audit', 'verify'])).toMatchObject({ status: 0 });
    const cut = await call(['audit', 'verify', '--head', head]);
    expect(cut.status).toBe(125);
    expect(cut.stderr).toMatch(/record 4 .* is truncated/);
  });

  it.each(['5', '5:xyz', `five:${'0'.repeat(64)}`])('takes no head like %s', async head => {
    expect(await call(['audit', 'verify', '--head', head])).toMatchObject({ status: 2 });
  });
});

describe('a log that was emptied or removed beside its key', () => {
  it.each(['emptied', 'removed'])(
    'is a finding where it was %s, and stays one when the next run begins a chain',
    async how => {
      // The control: where nothing was ever recorded, nothing is lost.
      expect(await call(['audit', 'verify'])).toMatchObject({ status: 0 });
      if (how === 'emptied') await writeFile(file, '');
      else await rm(file);
      const gone = await call(['audit', 'verify']);
      expect({ status: gone.status, stdout: gone.stdout }).toEqual({ status: 125, stdout: '' });
      expect(gone.stderr).toMatch(/record 1 .* is lost: there is no record, and key\.pem[^]*ACODE-AUD-002/);
      const log = open();
      expect(await log.append(event('after'))).toMatchObject({ seq: 2 });
      expect(await log.append(event('later'))).toMatchObject({ seq: 3 });
      await log.close();
      expect((await call(['audit', 'tail'])).stdout).toMatch(/\n1 .* event +the records before this one are lost/);
      const after = await call(['audit', 'verify', '--json']);
      expect(after.status).toBe(125);
      expect(JSON.parse(after.stdout)).toMatchObject({ code: 'ACODE-AUD-002', context: { fault: 'lost', seq: 1 } });
      // A change further on is what is told first: it can be looked into.
      await writeFile(
        file,
        (await readFile(file, 'utf8')).replace('"correlationId":"later"', '"correlationId":"other"'),
      );
      expect((await call(['audit', 'verify'])).stderr).toMatch(/record 3 .* is edited/);
    },
  );
});

describe('acode audit export', () => {
  it('prints the lines as they are, or one object', async () => {
    const text = await readFile(file, 'utf8');
    expect((await call(['audit', 'export'])).stdout).toBe(text);
    const some = await call(['audit', 'export', '--from', '2', '--to', '3']);
    expect(some.stdout).toBe(`${text.split('\n').slice(1, 3).join('\n')}\n`);
    await writeFile(file, `${text}damaged\n`);
    const { items } = JSON.parse((await call(['audit', 'export', '--json'])).stdout) as { items: object[] };
    expect(items).toHaveLength(6);
    expect(items.at(-1)).toEqual({ damaged: 'damaged' });
  });
});

describe('on a terminal', () => {
  it('nothing of an export drives it', async () => {
    const log = open();
    await log.append(event('c1-\u009b31m-end'));
    await log.close();
    const stdout = new Recorder(true, 80);
    expect(await runCli(['audit', 'export'], testIo({ stdout }))).toBe(0);
    expect(stdout.text).toContain('c1-');
    expect(stdout.text).not.toMatch(/[\u0080-\u009f]/);
    // The control: a program gets it as it is.
    expect((await call(['audit', 'export'])).stdout).toMatch(/[\u0080-\u009f]/);
  });
});

describe('the built command', () => {
  it('verifies a log and finds what was changed, without an engine', async () => {
    await using bench = await Bench.at({ socket: '/nowhere/docker.sock' });
    const own = join(bench.env['XDG_STATE_HOME'] ?? '', 'acode', 'audit');
    const log = new AuditLog({ directory: own, uid, clock: systemClock });
    for (const id of ['a', 'b', 'c']) await log.append(event(id));
    await log.close();
    expect(await bench.call(['audit', 'verify'])).toMatchObject({ status: 0, stderr: '' });
    const path = join(own, '000000000001.jsonl');
    const lines = (await readFile(path, 'utf8')).split('\n');
    await writeFile(path, lines.toSpliced(1, 1).join('\n'));
    const { status, stderr } = await bench.call(['audit', 'verify']);
    expect(status).toBe(125);
    expect(stderr).toMatch(/record 2 .* is missing/);
  });
});
