// What cannot be written is refused, with the reason, and never half written; nothing is followed or overwritten.

import { execFileSync, spawnSync } from 'node:child_process';
import { chmod, mkdir, readFile, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { verifyLog } from '../../packages/sandbox/src/records/audit/verify.ts';
import { Place, event, uid, writer } from './log.ts';

const WRITER = fileURLToPath(new URL('./writer.mjs', import.meta.url));
const FIRST = '000000000001.jsonl';

/** Whether this user may make a file system of their own to fill. */
const mounts = spawnSync('unshare', ['-rm', 'true']).status === 0;

/** What a record is refused with, in time to be told. */
async function refusal(place: Place): Promise<string> {
  const log = place.log();
  const error: unknown = await log.append(event('refused')).catch((failure: unknown) => failure);
  expect(error).toMatchObject({ code: 'ACODE-AUD-001', exitStatus: 125 });
  await log.close();
  return error instanceof Error ? error.message : '';
}

/** The number of a record that is written. */
async function accepted(place: Place): Promise<number> {
  const log = place.log();
  const { seq } = await log.append(event('accepted'));
  expect(log.head()?.seq).toBe(seq);
  await log.close();
  return seq;
}

describe('a directory', () => {
  it('is made for its owner alone, with everything in it', async () => {
    await using place = await Place.make();
    expect(await accepted(place)).toBe(1);
    expect((await stat(place.directory)).mode & 0o777).toBe(0o700);
    const names = await readdir(place.directory);
    expect(names.sort()).toEqual([FIRST, 'key.pem', 'key.pub']);
    for (const name of names) expect((await stat(join(place.directory, name))).mode & 0o777).toBe(0o600);
  });

  it.skipIf(uid === 0)('that is read-only refuses, and does not when it is writable again', async () => {
    await using place = await Place.make();
    expect(await accepted(place)).toBe(1);
    await chmod(place.directory, 0o500);
    expect(await refusal(place)).toMatch(/fail-closed: .*permission denied/);
    await chmod(place.directory, 0o700);
    expect(await accepted(place)).toBe(2);
  });

  it.skipIf(uid === 0)('of another user refuses', async () => {
    await using place = await Place.make();
    await symlink('/usr/share', join(place.top, 'elsewhere'));
    const log = place.log({ directory: '/usr/share' });
    await expect(log.append(event('x'))).rejects.toMatchObject({
      code: 'ACODE-AUD-001',
      message: expect.stringContaining('not a directory of the current user'),
    });
    const linked = place.log({ directory: join(place.top, 'elsewhere') });
    await expect(linked.append(event('x'))).rejects.toMatchObject({ code: 'ACODE-AUD-001' });
  });
});

describe('something else in the place of a file', () => {
  it('is not followed where it is a link', async () => {
    await using place = await Place.make();
    await mkdir(place.directory, { mode: 0o700 });
    const victim = join(place.top, 'victim');
    await writeFile(victim, 'mine\n');
    await symlink(victim, join(place.directory, FIRST));
    expect(await refusal(place)).toMatch(/symbolic link/);
    expect(await readFile(victim, 'utf8')).toBe('mine\n');
    await rm(join(place.directory, FIRST));
    expect(await accepted(place)).toBe(1);
  });

  it('is not waited for where it is a FIFO', async () => {
    await using place = await Place.make();
    await mkdir(place.directory, { mode: 0o700 });
    execFileSync('mkfifo', [join(place.directory, FIRST)]);
    expect(await refusal(place)).toMatch(/ordinary file/);
  });

  it('is not continued where its last record is damaged', async () => {
    await using place = await Place.make();
    expect(await accepted(place)).toBe(1);
    const file = join(place.directory, FIRST);
    const text = await readFile(file, 'utf8');
    await writeFile(file, text.replace('accepted', 'Accepted'));
    expect(await refusal(place)).toMatch(/last record is damaged/);
    await writeFile(file, text);
    expect(await accepted(place)).toBe(2);
  });

  it('is passed over where a writer died before the first line of a file, or in it', async () => {
    for (const torn of ['', '{"half":']) {
      await using place = await Place.make();
      expect(await accepted(place)).toBe(1);
      await writeFile(join(place.directory, '000000000002.jsonl'), torn, { mode: 0o600 });
      const log = place.log();
      await expect(log.append(event('next'))).resolves.toMatchObject({ seq: 3 });
      await log.close();
      expect(await place.lines()).toHaveLength(3);
      expect(await verifyLog(place.directory)).toMatchObject({ ok: true, checkpoints: 1, files: 2 });
    }
  });

  it('is not signed for where the key is gone', async () => {
    await using place = await Place.make();
    expect(await accepted(place)).toBe(1);
    const key = join(place.directory, 'key.pem');
    const text = await readFile(key);
    await rm(key);
    const log = place.log({ checkpointEvery: 2 });
    await expect(log.append(event('x'))).rejects.toMatchObject({
      code: 'ACODE-AUD-001',
      message: expect.stringContaining('key that signs it is missing'),
    });
    await writeFile(key, text, { mode: 0o600 });
    await expect(log.append(event('x'))).resolves.toMatchObject({ seq: 3 });
    await log.close();
  });
});

describe('a limit on the size of files', () => {
  it('refuses the record that would pass it, and leaves no half of it', async () => {
    await using place = await Place.make();
    const one = await writer(place.directory, 60, 'limited', {}, ['prlimit', '--fsize=10000']);
    one.begin();
    await one.ended;
    const errors = one.printed().filter(line => line.startsWith('error'));
    expect(errors.length).toBeGreaterThan(10);
    for (const line of errors) expect(line).toMatch(/ACODE-AUD-001 fail-closed: .*(larger than this process|no space)/);
    expect((await readFile(join(place.directory, FIRST), 'utf8')).endsWith('\n')).toBe(true);
    expect(await verifyLog(place.directory)).toMatchObject({ ok: true, unfinished: false });
    expect(await place.lines()).toHaveLength(one.printed().length - errors.length);
  });
});

describe.skipIf(!mounts)('a full disk', () => {
  it('refuses, leaves no half of a record, and the chain goes on when there is room', async () => {
    await using place = await Place.make();
    const inside = join(place.top, 'disk');
    await mkdir(inside);
    const write = (count: number, name: string): string =>
      `echo go | "${process.execPath}" "${WRITER}" "${inside}/audit" ${count} ${name}`;
    const script = [
      `mount -t tmpfs -o size=128k tmpfs "${inside}"`,
      `head -c 90000 /dev/zero > "${inside}/filling"`,
      write(200, 'full'),
      'echo next',
      `rm "${inside}/filling"`,
      write(20, 'room'),
      `cp -r "${inside}/audit" "${place.directory}"`,
    ].join(' && ');
    const printed = execFileSync('unshare', ['-rm', 'sh', '-c', script], { encoding: 'utf8', timeout: 30_000 });
    const [full = '', room = ''] = printed.split('next\n');
    expect(full).toMatch(/^\d+:[0-9a-f]{64} full-0$/m);
    expect(full).toMatch(/error ACODE-AUD-001 fail-closed: .*no space left on the disk/);
    expect(room).not.toContain('error');
    const written = printed.match(/^\d+:[0-9a-f]{64} /gm)?.length ?? 0;
    expect(await verifyLog(place.directory)).toMatchObject({ ok: true, records: written, unfinished: false });
  });
});

describe('an entry', () => {
  it('takes one line whatever is in its command, and shows no secret of it', async () => {
    await using place = await Place.make();
    const log = place.log();
    const intent = {
      kind: 'intent',
      operation: 'run',
      correlationId: 'c',
      sandbox_level: 'docker',
      policyHash: 'p',
      commandHash: 'c',
      cwd: '.',
      stdin: 'none',
      decision: 'allowed',
      env: ['API_TOKEN=hunter2', 'CI'],
      command: [
        'sh',
        '-c',
        'echo "\n{"v":1}\n"\u2028\u0000',
        '--password=hunter2',
        '--token',
        'hunter2',
        'https://me:hunter2@example.org/',
        'MY_TOKEN=hunter2',
        'Authorization: Bearer hunter2hunter2',
        '\ud800',
      ],
    } as const;
    await log.append(intent);
    await log.append(event('after'));
    await log.close();
    expect(await place.lines()).toHaveLength(2);
    const text = await readFile(join(place.directory, FIRST), 'utf8');
    expect(text).not.toContain('hunter2');
    // The control: the words around the secrets are there.
    const { command, env } = JSON.parse((await place.lines())[0] ?? '') as { command: string[]; env: string[] };
    expect(command.slice(0, 4)).toEqual(['sh', '-c', 'echo "\n{"v":1}\n"\u2028\u0000', '--password=[redacted]']);
    expect(env).toEqual(['API_TOKEN', 'CI']);
    expect(await verifyLog(place.directory)).toMatchObject({ ok: true, records: 2 });
  });

  it('that was cancelled is not written', async () => {
    await using place = await Place.make();
    const log = place.log();
    const gone = new Error('gone');
    await expect(log.append(event('x'), AbortSignal.abort(gone))).rejects.toBe(gone);
    await expect(log.append(event('y'))).resolves.toMatchObject({ seq: 1 });
    await log.close();
  });
});
