// Programs written for E2B, through its own SDK as npm has it, against `acode fleet serve --e2b` on a real engine: only variables are set.

import { once } from 'node:events';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  AuthenticationError,
  CommandExitError,
  FileNotFoundError,
  InvalidArgumentError,
  RateLimitError,
  Sandbox,
  SandboxNotFoundError,
  TimeoutError,
} from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Bench } from '../cli/bench.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';

const FIRST_MS = 120_000;
const ACME = `e2b_${'a'.repeat(40)}`;
const OTHER = `e2b_${'b'.repeat(40)}`;

interface Started {
  readonly url: string;
  readonly child: ReturnType<Bench['start']>['child'];
  readonly ended: ReturnType<Bench['start']>['ended'];
}

async function started(bench: Bench, ...more: readonly string[]): Promise<Started> {
  const argv = ['fleet', 'serve', '--e2b', '--json', '--port', '0', '--image', images.busybox, ...more];
  const { child, ended } = bench.start(argv);
  const failed = ended.then(({ stderr, stdout }) =>
    Promise.reject(new Error(`it ended: ${stderr}${stdout.toString()}`)),
  );
  failed.catch(() => undefined);
  const first = new Promise<string>(resolve => {
    let text = '';
    child.stdout?.on('data', chunk => {
      text += String(chunk);
      if (text.endsWith('\n')) resolve(text);
    });
  });
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  const { url } = JSON.parse(await Promise.race([first, failed])) as { readonly url: string };
  return { url, child, ended };
}

// The command line starts the program that serves.
function programOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ')[0]);
}

describe.skipIf(withoutEngines)('a program written for E2B, over HTTP', () => {
  let bench: Bench;
  let server: Started;
  const before = { ...process.env };
  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
    const keys = join(bench.workspace, 'keys.yml');
    writeFileSync(
      keys,
      `shared_kernel: true\ntenants: { acme: { keys: ['${ACME}'] }, other: { keys: ['${OTHER}'], sandboxes: 1 } }\n`,
      { mode: 0o600 },
    );
    server = await started(bench, '--image', `debian=${images.debian}`, '--keys', keys, '--memory', '128');
    Object.assign(process.env, { E2B_API_URL: server.url, E2B_SANDBOX_URL: server.url, E2B_API_KEY: ACME });
  }, FIRST_MS);
  afterAll(async () => {
    process.env = before;
    server?.child.kill('SIGTERM');
    await server?.ended;
    expect(await bench?.left()).toEqual([]);
    await bench?.[Symbol.asyncDispose]();
  });

  it('creates a sandbox, runs commands, streams, and reads how they ended', async () => {
    const sandbox = await Sandbox.create({ envs: { FROM: 'create' }, metadata: { run: 'seven' }, timeoutMs: 60_000 });
    const { stdout, stderr, exitCode } = await sandbox.commands.run('pwd; echo "$FROM $HERE $HOME" >&2', {
      envs: { HERE: 'run' },
    });
    expect({ stdout, stderr, exitCode }).toEqual({
      stdout: '/home/user\n',
      stderr: 'create run /home/user\n',
      exitCode: 0,
    });
    const failed = await sandbox.commands.run('echo half; exit 3').catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(CommandExitError);
    expect(failed).toMatchObject({ exitCode: 3, stdout: 'half\n' });
    const seen: string[] = [];
    const background = await sandbox.commands.run('echo one; read line; echo "got $line"; sleep 600', {
      background: true,
      stdin: true,
      timeoutMs: 0,
      onStdout: data => void seen.push(data),
    });
    await until(() => seen.join('') === 'one\n');
    expect(await sandbox.commands.list()).toMatchObject([{ pid: background.pid, cmd: '/bin/bash' }]);
    const heard: string[] = [];
    const second = await sandbox.commands.connect(background.pid, { onStdout: data => void heard.push(data) });
    await background.sendStdin('it\n');
    await until(() => seen.join('') === 'one\ngot it\n' && heard.join('') === 'got it\n');
    expect(await background.kill()).toBe(true);
    expect(await second.wait().catch((error: unknown) => error)).toBeInstanceOf(CommandExitError);
    expect(await sandbox.commands.list()).toEqual([]);
    expect(await sandbox.commands.kill(background.pid)).toBe(false);
    await expect(sandbox.commands.run('sleep 60', { timeoutMs: 500 })).rejects.toThrow(TimeoutError);
    await until(async () => (await sandbox.commands.list()).length === 0);
    const cat = await sandbox.commands.run('cat', { background: true, stdin: true });
    await cat.sendStdin('to the end');
    await cat.closeStdin();
    expect(await cat.wait()).toMatchObject({ stdout: 'to the end' });
    expect(await sandbox.kill()).toBe(true);
    expect(await sandbox.kill()).toBe(false);
    expect(await sandbox.isRunning()).toBe(false);
  });

  it('runs bash where the image has it, and has a terminal', async () => {
    const sandbox = await Sandbox.create('debian');
    expect(await sandbox.commands.run('[[ abc == a* ]] && echo "$BASH"')).toMatchObject({ stdout: '/bin/bash\n' });
    let screen = '';
    const terminal = await sandbox.pty.create({
      cols: 93,
      rows: 20,
      timeoutMs: 0,
      onData: data => void (screen += Buffer.from(data).toString()),
    });
    await sandbox.pty.sendInput(terminal.pid, Buffer.from('stty size; exit 4\n'));
    await terminal.wait().catch(() => undefined);
    expect(screen).toContain('20 93');
    expect(terminal.exitCode).toBe(4);
    await sandbox.kill();
  });

  it('has files of its own: text, bytes, streams, many at once, folders, links and changes', async () => {
    const sandbox = await Sandbox.create();
    const { files } = sandbox;
    expect(await files.list('.')).toEqual([]);
    expect(await files.write('notes/a.txt', 'one ä\n')).toMatchObject({
      path: '/home/user/notes/a.txt',
      name: 'a.txt',
    });
    expect(await files.read('notes/a.txt')).toBe('one ä\n');
    const bytes = Uint8Array.from({ length: 300_000 }, (_, at) => at % 251);
    await files.write('/home/user/bytes', bytes.buffer);
    expect(Buffer.compare(await files.read('bytes', { format: 'bytes' }), bytes)).toBe(0);
    expect(await files.read('bytes', { format: 'bytes', gzip: true })).toHaveLength(bytes.length);
    await files.write('compressed', 'much '.repeat(1000), { gzip: true });
    expect(await files.read('compressed')).toHaveLength(5000);
    await files.write('streamed', new Blob([bytes]).stream(), { useOctetStream: true });
    let streamed = 0;
    for await (const piece of await files.read('streamed', { format: 'stream' })) streamed += piece.length;
    expect(streamed).toBe(bytes.length);
    await files.write('empty', '');
    expect(await files.read('empty')).toBe('');
    const two = await files.write([
      { path: 'm/1', data: '1' },
      { path: '/tmp/2', data: '2' },
    ]);
    expect(two.map(({ path }) => path)).toEqual(['/home/user/m/1', '/tmp/2']);
    expect(await files.makeDir('m')).toBe(false);
    expect(await files.makeDir('x/y/z')).toBe(true);
    expect(await files.rename('m/1', 'x/y/one')).toMatchObject({ path: '/home/user/x/y/one', type: 'file', size: 1 });
    expect(await files.exists('m/1')).toBe(false);
    await sandbox.commands.run('ln -s a.txt notes/link && chmod 640 notes/a.txt');
    const listed = await files.list('/home/user', { depth: 2 });
    expect(listed.map(({ path }) => path.slice('/home/user/'.length)).sort()).toEqual(
      ['bytes', 'compressed', 'empty', 'm', 'notes', 'notes/a.txt', 'notes/link', 'streamed', 'x', 'x/y'].sort(),
    );
    expect(listed.find(({ name }) => name === 'a.txt')).toMatchObject({
      permissions: 'rw-r-----',
      owner: 'user',
      size: 7,
    });
    expect(listed.find(({ name }) => name === 'link')).toMatchObject({ type: 'symlink', symlinkTarget: 'a.txt' });
    await files.remove('x');
    expect(await files.exists('x')).toBe(false);
    await expect(files.read('nowhere')).rejects.toThrow(FileNotFoundError);
    await expect(files.getInfo('nowhere')).rejects.toThrow(FileNotFoundError);
    const events: string[] = [];
    const watch = await files.watchDir('notes', ({ name, type }) => void events.push(`${type} ${name}`));
    await until(async () => {
      await files.write('notes/b.txt', 'b');
      return events.some(event => event.endsWith(' b.txt'));
    });
    await watch.stop();
    const link = await sandbox.downloadUrl('notes/a.txt', { useSignatureExpiration: 60 });
    expect(await (await fetch(link)).text()).toBe('one ä\n');
    const other = link.replace('a.txt', 'b.txt');
    expect((await fetch(other)).status).toBe(401);
    const form = new FormData();
    form.append('file', new Blob(['up']), 'ignored');
    expect((await fetch(await sandbox.uploadUrl('up.txt'), { method: 'POST', body: form })).status).toBe(200);
    expect(await files.read('up.txt')).toBe('up');
    // Nothing of it is where the server was started.
    expect(readdirSync(bench.workspace).sort()).toEqual(['.git', 'keys.yml', 'sub']);
    await sandbox.kill();
  });

  it('is listed by its metadata, found again, given more time, and expires', async () => {
    const [one, two] = await Promise.all(
      ['one', 'two'].map(name => Sandbox.create({ metadata: { name, kind: 'a b&c' } })),
    );
    if (!one || !two) throw new Error('there are two');
    const listed = Sandbox.list({ query: { metadata: { name: 'two', kind: 'a b&c' } } });
    expect(await listed.nextItems()).toMatchObject([
      { sandboxId: two.sandboxId, state: 'running', memoryMB: 128, templateId: 'base' },
    ]);
    expect(listed.hasNext).toBe(false);
    const paged = Sandbox.list({ limit: 1 });
    const pages = [await paged.nextItems(), await paged.nextItems()].flat().map(({ sandboxId }) => sandboxId);
    expect(pages.sort()).toEqual([one.sandboxId, two.sandboxId].sort());
    expect(paged.hasNext).toBe(false);
    await one.files.write('kept', 'by one');
    const again = await Sandbox.connect(one.sandboxId);
    expect(await again.files.read('kept')).toBe('by one');
    const { endAt, metadata } = await again.getInfo();
    expect(metadata).toEqual({ name: 'one', kind: 'a b&c' });
    await again.setTimeout(3_600_000);
    expect((await one.getInfo()).endAt.getTime()).toBeGreaterThan(endAt.getTime() + 1_000_000);
    await one.setTimeout(1000);
    await until(async () => !(await one.isRunning()));
    await expect(Sandbox.connect(one.sandboxId)).rejects.toThrow(SandboxNotFoundError);
    await expect(one.commands.run('true')).rejects.toThrow(/not running anymore|not found|timeout/i);
    expect(await two.isRunning()).toBe(true);
    await expect(Sandbox.create('unknown')).rejects.toThrow(/unknown.*ACODE-FLT-043/s);
    await expect(two.pause()).rejects.toThrow('ACODE-FLT-046');
    await expect(two.commands.run('true', { user: 'root' })).rejects.toThrow(InvalidArgumentError);
    await two.kill();
  });

  it('reaches nothing of another tenant, of another sandbox, or of this machine', async () => {
    const mine = await Sandbox.create();
    const theirs = await Sandbox.create({ apiKey: OTHER });
    await expect(Sandbox.create({ apiKey: OTHER })).rejects.toThrow(RateLimitError);
    await theirs.files.write('secret', 'theirs');
    // Another tenant’s sandbox is as unknown as none.
    await expect(Sandbox.connect(theirs.sandboxId)).rejects.toThrow(SandboxNotFoundError);
    await expect(Sandbox.getInfo(theirs.sandboxId)).rejects.toThrow(SandboxNotFoundError);
    await expect(Sandbox.setTimeout(theirs.sandboxId, 1000)).rejects.toThrow(SandboxNotFoundError);
    expect(await Sandbox.kill(theirs.sandboxId)).toBe(false);
    expect((await Sandbox.list().nextItems()).map(({ sandboxId }) => sandboxId)).toEqual([mine.sandboxId]);
    await expect(Sandbox.list({ apiKey: `${ACME}x` }).nextItems()).rejects.toThrow(AuthenticationError);
    // Its token opens one sandbox, and no other.
    const token = Reflect.get(mine, 'envdAccessToken');
    const read = (id: string, headers: Record<string, string>, path = 'secret'): Promise<Response> =>
      fetch(`${server.url}/files?path=${encodeURIComponent(path)}`, { headers: { 'e2b-sandbox-id': id, ...headers } });
    const rightToken = String(Reflect.get(theirs, 'envdAccessToken'));
    expect((await read(theirs.sandboxId, { 'x-access-token': String(token) })).status).toBe(401);
    expect((await read(theirs.sandboxId, { 'x-api-key': OTHER })).status).toBe(401);
    const start = await fetch(`${server.url}/process.Process/Start`, {
      method: 'POST',
      headers: {
        'e2b-sandbox-id': theirs.sandboxId,
        'x-access-token': String(token),
        'content-type': 'application/connect+json',
      },
      body: Buffer.concat([Buffer.from([0, 0, 0, 0, 25]), Buffer.from('{"process":{"cmd":"true"}}').subarray(0, 25)]),
    });
    expect(start.status).toBe(401);
    // Control.
    expect(await (await read(theirs.sandboxId, { 'x-access-token': rightToken })).text()).toBe('theirs');
    // Paths lead to files of the sandbox, whatever they say.
    const outside = mkdtempSync('/var/tmp/acode-outside-');
    await mkdir(join(outside, 'deep'));
    await writeFile(join(outside, 'marker'), 'of the host');
    await mine.commands.run(`ln -s ${outside} out; ln -s / root`);
    for (const path of [
      join(outside, 'marker'),
      `../../..${outside}/marker`,
      'out/marker',
      `root${outside}/marker`,
      `/proc/1/root${outside}/marker`,
    ])
      await expect(mine.files.read(path), path).rejects.toThrow(FileNotFoundError);
    await expect(mine.files.write('out/made', 'x')).rejects.toThrow(/ACODE|E[A-Z]+/);
    expect(readdirSync(outside).sort()).toEqual(['deep', 'marker']);
    expect((await read(mine.sandboxId, { 'x-access-token': String(token) }, 'a\0b')).status).toBe(400);
    rmSync(outside, { recursive: true });
    await Promise.all([mine.kill(), theirs.kill()]);
  });

  it('takes no body beyond its limits into memory or a file', async () => {
    const sandbox = await Sandbox.create();
    const token = String(Reflect.get(sandbox, 'envdAccessToken'));
    const form = new FormData();
    form.append('file', new Blob([new Uint8Array(65 * 1024 ** 2)]), 'large');
    const headers = { 'e2b-sandbox-id': sandbox.sandboxId, 'x-access-token': token };
    const large = await fetch(`${server.url}/files?path=large`, { method: 'POST', headers, body: form }).catch(
      () => null,
    );
    // The connection may end before all of it was sent.
    if (large) expect(large.status).toBe(413);
    expect(await sandbox.files.exists('large')).toBe(false);
    // Control: the same bytes as a stream.
    const source = new Blob([new Uint8Array(65 * 1024 ** 2)]).stream();
    await sandbox.files.write('large', source, { useOctetStream: true });
    expect(await sandbox.files.getInfo('large')).toMatchObject({ size: 65 * 1024 ** 2 });
    await sandbox.kill();
  });

  it('leaves no sandbox when the server is killed, and no file of one after the next start', async () => {
    const own = await Bench.at(mainEngine);
    const first = await started(own);
    const top = join(own.env['XDG_STATE_HOME'] ?? '', 'acode-e2b');
    const apiKey = readFileSync(join(top, 'api-key'), 'utf8').trim();
    const options = { apiKey, apiUrl: first.url, sandboxUrl: first.url };
    const sandbox = await Sandbox.create(options);
    await sandbox.files.write('left', 'x');
    expect(await own.left()).toHaveLength(1);
    process.kill(programOf(first.child.pid ?? 0), 'SIGKILL');
    await once(first.child, 'exit');
    await until(async () => (await own.left()).length === 0);
    const directories = readdirSync(top, { withFileTypes: true }).filter(entry => entry.isDirectory());
    expect(directories).toHaveLength(1);
    const second = await started(own);
    await until(() => readdirSync(top, { withFileTypes: true }).filter(entry => entry.isDirectory()).length === 1);
    expect(
      await fetch(`${second.url}/v2/sandboxes`, { headers: { 'x-api-key': apiKey } }).then(sent => sent.json()),
    ).toEqual([]);
    const forks = await own.call(['fork', 'list', '--all', '--json']);
    expect(JSON.parse(forks.stdout.toString())).toMatchObject({ items: [] });
    second.child.kill('SIGTERM');
    await second.ended;
    expect(readdirSync(top).sort()).toEqual(['api-key']);
    await own[Symbol.asyncDispose]();
  });
});
