// Persistent sandboxes, from the command line: each call is a process of its own, and finds the same sandbox.

import { execFileSync } from 'node:child_process';
import { get } from 'node:http';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { EXAMPLES } from '../../packages/cli/src/examples.ts';
import { Bench } from '../cli/bench.ts';
import type { Ended } from '../cli/bench.ts';
import { engines, images, withoutEngines } from '../support/engines.ts';

const factsSchema = z.looseObject({
  schema: z.string(),
  sandboxId: z.string(),
  expiresAt: z.string(),
  kept: z.boolean(),
});
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const HOUR_MS = 3_600_000;

describe.skipIf(withoutEngines).each(engines)('persistent sandboxes on $name', engine => {
  let bench: Bench;
  let id: string;

  beforeAll(async () => {
    bench = await Bench.at(engine);
    const { status, stdout, stderr } = await bench.call(['sandbox', 'create', '--memory', '96']);
    expect(status, stderr).toBe(0);
    expect(stderr).toMatch(/it expires in 1 hour, at \d{4}-/);
    expect(stderr).toContain('a command in it may run until the sandbox ends');
    id = stdout.toString().trim();
    expect(id).toMatch(UUID);
  });

  afterAll(async () => {
    await bench.call(['sandbox', 'kill', id]);
    const left = await bench.left();
    // What a test that failed has left stays for nobody.
    await bench.call(['sandbox', 'cleanup', '--force']);
    await bench[Symbol.asyncDispose]();
    expect(left).toEqual([]);
  });

  const within = (...argv: string[]): Promise<Ended> => bench.exec(['--in', id, ...argv]);

  it('take one command after the other, and keep what they left', async () => {
    expect((await within('echo kept > /tmp/note')).status).toBe(0);
    const { status, stdout } = await within(
      '--env',
      'A=b',
      '--workdir',
      'sub',
      '--',
      'sh',
      '-c',
      'cat /tmp/note; echo $A; pwd; exit 7',
    );
    expect({ status, stdout: stdout.toString() }).toEqual({ status: 7, stdout: 'kept\nb\n/workspace/sub\n' });
    const short = await bench.exec(['--in', id.slice(0, 8), 'echo out; echo err >&2; cat'], {
      stdin: Buffer.from('in'),
    });
    expect({ ...short, stdout: short.stdout.toString(), ms: 0 }).toEqual({
      status: 0,
      stdout: 'out\nin',
      stderr: 'err\n',
      ms: 0,
    });
  });

  it('are named before `--` as well, and a word there that is no sandbox is refused with the way on', async () => {
    const { status, stdout } = await bench.exec([id, '--', 'cat', '/tmp/note']);
    expect({ status, stdout: stdout.toString() }).toEqual({ status: 0, stdout: 'kept\n' });
    // A quoted line after the name is one for its shell.
    expect((await bench.exec([id, 'cat /tmp/note | tr a-z A-Z'])).stdout.toString()).toBe('KEPT\n');
    const line = await bench.exec(['nothing', 'ls | cat']);
    expect(line.stderr).toMatch(/ACODE-CTN-012[^]*`acode sandbox exec -- nothing 'ls \| cat'`/);
    expect((await bench.exec(['nothing', 'ls'])).status).toBe(2);
    const none = await bench.exec(['nothing', '--', 'ls']);
    expect(none.status).toBe(125);
    expect(none.stderr).toMatch(/ACODE-CTN-012[^]*`acode sandbox exec -- nothing ls`/);
  });

  it('get variables of the caller and of a file, whose values are on no command line', async () => {
    await writeFile(join(bench.workspace, 'a.env'), '# c\nFROM_FILE=a b\nTOKEN\n');
    const shown = 'echo "$FROM_FILE,$TOKEN,$OTHER,$HIDDEN"';
    const env = { TOKEN: 'secret-1', OTHER: 'secret-2', HIDDEN: 'not asked for' };
    const argv = ['--env-file', 'a.env', '--env', 'OTHER', shown];
    for (const call of [bench.exec(['--in', id, ...argv], { env }), bench.exec(argv, { env })])
      expect((await call).stdout.toString()).toBe('a b,secret-1,secret-2,\n');
    const refused = await bench.exec(['--env', 'NODE_OPTIONS', 'true'], { env: { NODE_OPTIONS: '--no-warnings' } });
    expect(refused.status).toBe(125);
    expect(refused.stderr).toContain('DangerousEnvironment');
  });

  it('have a name of their own where one was given, and no other may take it', async () => {
    const named = await bench.call(['sandbox', 'create', '--name', 'web-server', '--memory', '64']);
    expect(named.status, named.stderr).toBe(0);
    expect((await bench.exec(['web-server', '--', 'echo', 'hi'])).stdout.toString()).toBe('hi\n');
    expect((await bench.exec(['web-server', 'echo a; echo b'])).stdout.toString()).toBe('a\nb\n');
    const taken = await bench.call(['sandbox', 'create', '--name', 'web-server']);
    expect({ status: taken.status, stdout: taken.stdout.length }).toEqual({ status: 125, stdout: 0 });
    expect(taken.stderr).toMatch(
      /--name: web-server is the name of another sandbox[^]*`acode sandbox kill web-server`/,
    );
    for (const name of ['Web', 'cafe', 'acode-web', 'x'.repeat(41)])
      expect((await bench.call(['sandbox', 'create', '--name', name])).stderr).toContain('acode: --name: must');
    const { stdout } = await bench.call(['sandbox', 'list']);
    expect(stdout.toString()).toMatch(
      new RegExp(`web-server +${images.busybox} +persistent +${bench.workspace}`.replaceAll('/', String.raw`\/`)),
    );
    const killed = await bench.call(['sandbox', 'kill', 'web-server']);
    expect([killed.status, killed.stdout.toString()]).toEqual([0, named.stdout.toString()]);
    expect((await bench.call(['sandbox', 'inspect', 'web-server'])).status).toBe(125);
  });

  it('give the statuses of a run', async () => {
    expect((await within('--', 'no-such-program')).status).toBe(127);
    const late = await within('--timeout', '1', 'sleep 9');
    expect(late.status).toBe(124);
    expect(late.stderr).toMatch(/time limit of 1 s, set by --timeout/);
    const json = await within('--json', 'echo hi; exit 3');
    expect(json.status).toBe(3);
    expect(JSON.parse(json.stdout.toString())).toMatchObject({
      schema: 'acode.run/1',
      sandboxId: id,
      stdout: 'hi\n',
      exitCode: 3,
    });
  });

  it('refuse what counts only when they are made', async () => {
    const { status, stderr } = await within('--memory', '1g', 'true');
    expect(status).toBe(2);
    expect(stderr).toMatch(/--memory counts when a sandbox is created[^]*acode sandbox create --memory/);
  });

  it.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('outlive a command that %s ended', async (signal, expected) => {
    const { status, stdout } = await bench.exec(['--in', id, 'echo started; sleep 4711'], {
      onOutput: child => child.kill(signal),
    });
    expect({ status, stdout: stdout.toString() }).toEqual({ status: expected, stdout: 'started\n' });
    expect((await within('ps')).stdout.toString()).not.toContain('sleep 4711');
  });

  it('stay longer when they are told to, and are listed with their time', async () => {
    const { stdout } = await bench.call(['--json', 'sandbox', 'keep', id, '--for', '2h']);
    const facts = factsSchema.parse(JSON.parse(stdout.toString()));
    expect(facts).toMatchObject({ schema: 'acode.sandbox/1', sandboxId: id, kept: true });
    expect(Math.abs(Date.parse(facts.expiresAt) - Date.now() - 2 * HOUR_MS)).toBeLessThan(60_000);
    const listed = await bench.call(['--json', 'sandbox', 'list']);
    expect(JSON.parse(listed.stdout.toString())).toMatchObject({
      schema: 'acode.list/1',
      items: expect.arrayContaining([expect.objectContaining({ sandboxId: id, expiresAt: facts.expiresAt })]),
    });
    expect((await bench.call(['sandbox', 'list'])).stdout.toString()).toMatch(/EXPIRES\n[^]*in 2h$/m);
    const inspected = await bench.call(['--json', 'sandbox', 'inspect', id]);
    expect(JSON.parse(inspected.stdout.toString())).toMatchObject({ sandboxId: id, expiresAt: facts.expiresAt });
    const most = await bench.call(['sandbox', 'keep', id, '--for', '3d']);
    expect(most.stderr).toContain('a sandbox expires at most 24 hours after its creation');
    expect(most.stderr).not.toContain('stay longer');
  });

  it('go by themselves when their time is over, and not before another process extended it', async () => {
    const extended = async (seconds: number): Promise<{ short: string; status: number | null; stdout: string }> => {
      const made = await bench.call(['sandbox', 'create', '--for', `${seconds}s`]);
      const short = made.stdout.toString().trim();
      // A command that was begun before does not end it at the old time.
      const line = `echo begun; sleep ${seconds + 3}; echo still here`;
      const { status, stdout } = await bench.exec(['--in', short, line], {
        onOutput: () => void bench.call(['sandbox', 'keep', short, '--for', `${seconds + 8}s`]),
      });
      return { short, status, stdout: stdout.toString() };
    };
    let outcome = await extended(4);
    // A busy machine may need longer than that to extend it.
    if (outcome.status !== 0) outcome = await extended(30);
    const { short, ...result } = outcome;
    expect(result).toEqual({ status: 0, stdout: 'begun\nstill here\n' });
    const gone = await bench.exec(['--in', short, 'echo begun; sleep 60']);
    expect(gone.status).toBe(125);
    expect(gone.stderr).toMatch(/ACODE-SBX-025|ACODE-CTN-012/);
  });

  it('are reached through a port of this machine, until Ctrl-C', async () => {
    const serve = 'mkdir -p /tmp/www; echo served > /tmp/www/index.html; httpd -p 127.0.0.1:8099 -h /tmp/www';
    expect((await within(serve)).status).toBe(0);
    const { child, ended } = bench.start(['sandbox', 'forward', id, '8099'], {});
    const first = await new Promise<string>(resolve =>
      child.stdout?.once('data', (data: Buffer) => resolve(data.toString())),
    );
    const [, port = ''] = /^127\.0\.0\.1:(\d+)\n$/.exec(first) ?? [];
    expect(await body(Number(port))).toBe('served\n');
    child.kill('SIGINT');
    expect((await ended).status).toBe(130);
    await expect(body(Number(port))).rejects.toThrow(/./);
    expect((await within('true')).status).toBe(0);
  });

  it('say once that nothing listens on a port yet', async () => {
    const { child, ended } = bench.start(['sandbox', 'forward', id, '8098'], {});
    const first = await new Promise<string>(resolve =>
      child.stdout?.once('data', (data: Buffer) => resolve(data.toString())),
    );
    const port = Number(/:(\d+)\n$/.exec(first)?.[1]);
    for (let attempt = 0; attempt < 2; attempt++) await expect(body(port)).rejects.toThrow(/./);
    child.kill('SIGINT');
    expect((await ended).stderr.match(/nothing listens on port 8098 inside yet/g)).toHaveLength(1);
  });

  it('cannot be used, and can be ended, when what your configuration allows has changed', async () => {
    const made = (await bench.call(['sandbox', 'create', '--image', images.busybox])).stdout.toString().trim();
    const inspected = JSON.parse(
      (await bench.call(['--json', 'sandbox', 'inspect', made])).stdout.toString(),
    ) as unknown;
    expect(inspected).toMatchObject({ image: images.busybox, imageId: expect.stringMatching(/^sha256:/) });
    const listed = JSON.parse((await bench.call(['--json', 'sandbox', 'list'])).stdout.toString()) as {
      items: { sandboxId: string }[];
    };
    const item = listed.items.find(({ sandboxId }) => sandboxId === made);
    expect(item).toMatchObject({ image: images.busybox, expiresAt: expect.any(String) });
    // Its label is the latest it could ever be extended to, which is another time.
    for (const one of [item, inspected]) expect(one).not.toHaveProperty(['labels', 'acode.expires']);
    await bench.configure({ defaults: { memory_mb: 80 } });
    const refused = await bench.exec(['--in', made, 'true']);
    const ended = await bench.call(['--json', 'sandbox', 'kill', made, 'no-such-one']);
    await bench.configure({});
    expect(refused.status).toBe(125);
    expect(refused.stderr).toContain('ACODE-SBX-026');
    expect(refused.stderr).toMatch(new RegExp(`hint: [^]*acode sandbox kill ${made}`));
    expect(ended.status).toBe(125);
    expect(JSON.parse(ended.stdout.toString())).toMatchObject({
      schema: 'acode.kill/1',
      removed: [{ sandboxId: made }],
      failed: [{ reference: 'no-such-one', code: 'ACODE-CTN-012' }],
    });
  });

  it('cannot be used from another directory, and say which one is theirs', async () => {
    const other = join(bench.workspace, 'other');
    await mkdir(other, { recursive: true });
    const { status, stderr } = await bench.call(['--workspace', other, 'sandbox', 'exec', '--in', id, '--', 'true']);
    expect({ status, stderr }).toEqual({
      status: 125,
      stderr: expect.stringContaining(`\`cd ${bench.workspace}\`; or name it: \`--workspace ${bench.workspace}\``),
    });
  });

  it('of another process that lives are not ended by anybody else', async () => {
    const { child, ended } = bench.start(['run', 'echo mine; sleep 60']);
    await new Promise(resolve => child.stdout?.once('data', resolve));
    const { stdout } = await bench.call(['--json', 'sandbox', 'list']);
    const { items } = z
      .looseObject({ items: z.array(z.looseObject({ sandboxId: z.string(), containerId: z.string() })) })
      .parse(JSON.parse(stdout.toString()));
    const left = await bench.left();
    const mine = items.find(({ sandboxId, containerId }) => sandboxId !== id && left.includes(containerId));
    const refused = await bench.call(['sandbox', 'kill', mine?.sandboxId ?? '']);
    expect(refused.status).toBe(125);
    expect(refused.stderr).toMatch(/ACODE-SBX-026[^]*/);
    child.kill('SIGINT');
    expect((await ended).status).toBe(130);
  });

  it('do what the examples in the help texts say', async () => {
    await writeFile(join(bench.workspace, 'build.sh'), 'echo built\n');
    const tried = Object.values(EXAMPLES).flatMap(list => list.filter(({ stays, terminal }) => stays && !terminal));
    const other = (await bench.call(['sandbox', 'create'])).stdout.toString().trim();
    for (const { type } of tried) {
      const words = execFileSync('xargs', ['-n1'], { input: type.replaceAll('a1b2c3d4', other), encoding: 'utf8' });
      const { status, stdout, stderr } = await bench.call(words.trimEnd().split('\n').slice(1));
      expect(status, `${type}: ${stderr}`).toBe(0);
      if (!type.includes(' create')) continue;
      const [made] = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/.exec(stdout.toString()) ?? [];
      await bench.call(['sandbox', 'kill', made ?? '']);
    }
    expect(await readFile(join(bench.workspace, 'copy'), 'utf8')).toBe('echo built\n');
  });
});

function body(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = get({ host: '127.0.0.1', port, path: '/', agent: false, timeout: 5000 }, reply => {
      let text = '';
      reply.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      reply.on('end', () => resolve(text));
    });
    asked.on('error', reject);
  });
}
