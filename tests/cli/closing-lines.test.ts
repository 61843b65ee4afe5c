// What is said after a run: what it was denied and what to do next, what it left behind; never on standard output.

import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines, withoutEngines } from '../support/engines.ts';
import { Bench } from './bench.ts';

describe.skipIf(withoutEngines).each(engines)('after a run on $name', engine => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.at(engine);
    await writeFile(join(bench.workspace, '.git', 'config'), '[core]\n');
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  it('a workspace that is read-only is told with the option that made it so', async () => {
    const { stderr } = await bench.exec(['--readonly', 'echo x > ./made']);
    expect(stderr).toMatch(
      /acode: denied: the workspace is read-only \(set by --readonly\)\.\n├▶ rule: read-only\.workspace\n[^]*╰▶ hint: .*leave --readonly out/,
    );
  });

  it('a protected path is named, and a write elsewhere in the workspace prints nothing', async () => {
    const { stderr } = await bench.exec(['echo x >> .git/config; echo fine > other']);
    expect(stderr).toMatch(/acode: denied: \.git is read-only in a sandbox/);
    expect((await bench.exec(['echo fine > other'])).stderr).toBe('');
  });

  const firstChunk = async (child: ChildProcess): Promise<Buffer> => {
    for await (const chunk of child.stdout ?? []) return chunk as Buffer;
    return Buffer.alloc(0);
  };

  it('what was left behind is told though the reader of the output has gone, as after `| head -1`', async () => {
    // One that was given up is scanned when it has ended, and the next command says what was found.
    const late = await bench.exec(['mkdir -p late; echo x > late/Makefile; yes'], { read: firstChunk });
    expect([late.status, late.stderr]).toEqual([141, '']);
    await bench.scanned();
    expect((await bench.call(['audit', 'tail'])).stderr).toContain('late/Makefile');
    // One that has ended by itself when nobody reads any more is scanned.
    const log = join(bench.env['XDG_STATE_HOME'] ?? '', 'acode', 'audit', '000000000001.jsonl');
    const recorded = (): string => readFileSync(log, 'utf8');
    const planted = 'mkdir t; echo x > t/Makefile; head -c 4000000 /dev/zero';
    const scanned = await bench.exec([planted], {
      read: async child => {
        await expect.poll(recorded).toContain('t/Makefile"}');
        child.stdout?.destroy();
        return Buffer.alloc(0);
      },
    });
    expect(scanned.status).toBe(141);
    expect(scanned.stderr).toContain('t/Makefile');
    // The control: nothing can be left where nothing can be written, and so nothing is said.
    const harmless = await bench.exec(['--readonly', 'yes'], { read: firstChunk });
    expect({ status: harmless.status, stderr: harmless.stderr }).toEqual({ status: 141, stderr: '' });
  });

  it('what was left behind is listed by kind, drives no terminal, and is whole in JSON', async () => {
    const leave = String.raw`mkdir -p "$1" && cd "$1" && ln -s /etc/passwd out && printf '{"scripts":{"postinstall":"x"}}' > package.json && mkfifo "$(printf 'a\033[2J.env')" .env`;
    const { status, stdout, stderr } = await bench.exec(['--', 'sh', '-c', leave, 'sh', 'left']);
    expect({ status, stdout: stdout.toString() }).toEqual({ status: 0, stdout: '' });
    expect(stderr).toMatch(/^acode: check the workspace before you use it/);
    expect(stderr).toMatch(/symlink-out \(.*\): left\/out/);
    expect(stderr).toMatch(/package-scripts \(.*\): left\/package\.json/);
    expect(stderr).not.toContain('\u001b');
    const json = await bench.exec(['--json', '--', 'sh', '-c', leave, 'sh', 'left-again']);
    const { schema, riskyChanges } = JSON.parse(json.stdout.toString()) as {
      schema: string;
      riskyChanges: { path: string; kind: string }[];
    };
    expect(schema).toBe('acode.run/1');
    expect(riskyChanges).toContainEqual(expect.objectContaining({ path: 'left-again/out', kind: 'symlink-out' }));
    expect((await bench.exec(['touch harmless'])).stderr).toBe('');
  });

  it('has left nothing on the engine', async () => {
    expect(await bench.left()).toEqual([]);
  });
});

describe.skipIf(withoutEngines)('a repository that asks for more', () => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.at(engines[0] ?? { socket: '' });
    await mkdir(join(bench.workspace, '.agent'), { recursive: true });
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  const FILE = 'sandbox:\n  defaults:\n    memory_mb: 96\n  network:\n    mode: bridge\n';

  it('is refused with key, place and `acode trust`, until it is trusted', async () => {
    await bench.configure({ network: { allow_bridge: true } });
    await bench.repositoryFile(FILE);
    const refused = await bench.exec(['echo ran']);
    expect({ status: refused.status, stdout: refused.stdout.length }).toEqual({ status: 125, stdout: 0 });
    expect(refused.stderr).toMatch(/sandbox\.network\.mode[^]*config\.yml:5:5[^]*ACODE-SBX-020[^]*hint: .*acode trust/);

    const shown = await bench.call(['trust', '--show', '--json']);
    expect(JSON.parse(shown.stdout.toString())).toMatchObject({ schema: 'acode.trust/1', trusted: false });
    expect((await bench.exec(['echo ran'])).status).toBe(125);

    const granted = await bench.call(['trust', '--yes']);
    expect(granted.status).toBe(0);
    expect(granted.stdout.toString()).toMatch(/^Trusted until its content changes\n[^]*sandbox\.network\.mode/);
    const { status, stdout } = await bench.exec(['ls /sys/class/net']);
    expect({ status, net: stdout.toString() }).toEqual({ status: 0, net: expect.stringContaining('eth0') });
  });

  it('is shown by explain with its layer, file and line', async () => {
    const { stdout } = await bench.call(['explain', '--', 'true']);
    expect(stdout.toString()).toMatch(/memory +96 MiB +repository +\S*config\.yml:3:5/);
    expect(stdout.toString()).toMatch(/network +bridge +repository +\S*config\.yml:5:5/);
  });

  it('is refused again when its content changed, and after --revoke', async () => {
    await bench.repositoryFile(`${FILE}# changed\n`);
    expect((await bench.exec(['true'])).status).toBe(125);
    await bench.repositoryFile(FILE);
    expect((await bench.exec(['true'])).status).toBe(0);
    expect((await bench.call(['trust', '--revoke'])).status).toBe(0);
    expect((await bench.exec(['true'])).status).toBe(125);
  });

  it('is trusted no longer after --revoke, also where its file cannot be read any more', async () => {
    expect((await bench.call(['trust', '--yes'])).status).toBe(0);
    await bench.repositoryFile(`${FILE}  nonsense: 1\n`);
    const { status, stdout } = await bench.call(['trust', '--revoke']);
    expect([status, stdout.toString()]).toEqual([0, expect.stringMatching(/nonsense[^]*The trust was ended/)]);
    await bench.repositoryFile(FILE);
    expect((await bench.exec(['true'])).status).toBe(125);
  });

  it('tightens without trust', async () => {
    await bench.repositoryFile('sandbox:\n  defaults:\n    pids_limit: 32\n');
    const { status, stdout } = await bench.call(['explain', '--json', '--', 'true']);
    expect(status).toBe(0);
    expect(JSON.parse(stdout.toString())).toMatchObject({
      policy: { limits: { pids: { value: 32, layer: 'repository' } } },
    });
  });
});
