// What a person checks after installing acode, through the built command: the scenarios of docs/named-tests.md that no other file shows.

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { mainEngine, withoutEngines } from '../support/engines.ts';
import { Bench } from './bench.ts';
import type { Ended } from './bench.ts';

const auditSchema = z.looseObject({ items: z.array(z.looseObject({ kind: z.string() })) });

const out = ({ stdout }: Ended): string => stdout.toString();

describe.skipIf(withoutEngines)('a person who tries acode', () => {
  let bench: Bench;

  beforeAll(async () => {
    bench = await Bench.at(mainEngine);
  });

  afterAll(async () => {
    expect(await bench.left()).toEqual([]);
    await bench[Symbol.asyncDispose]();
  });

  const audited = async (): Promise<string> => {
    const { items } = auditSchema.parse(JSON.parse(out(await bench.call(['audit', 'tail', '--json']))));
    return JSON.stringify(items);
  };

  it('S0-3: reads a file of the project inside, sees its directory as it is, and nothing around it', async () => {
    await writeFile(join(bench.workspace, 'testfile.txt'), 'test content\n');
    await writeFile(join(bench.workspace, '..', 'beside.txt'), 'beside\n');
    expect(out(await bench.exec(['--', 'cat', '/workspace/testfile.txt']))).toBe('test content\n');
    const listing = await bench.exec(['--', 'ls', '-a', '/workspace']);
    expect(out(listing).trim().split('\n')).toEqual(expect.arrayContaining(['.git', 'sub', 'testfile.txt']));
    const around = await bench.exec(['ls /; ls /workspace/..; find / -xdev -name beside.txt']);
    expect(out(around)).not.toContain('beside.txt');
    expect(out(around)).toMatch(/^workspace$/m);
  });

  it('S0-4: has no network until the user’s own file gives one, hears why, and both are on record', async () => {
    const look = ['ls /sys/class/net'];
    const without = await bench.exec(['ls /sys/class/net; nslookup acode.test']);
    expect(out(without)).not.toContain('eth0');
    expect(without.stderr).toMatch(/no network[^]*hint: /);
    await bench.repositoryFile('sandbox:\n  network:\n    mode: bridge\n');
    const untrusted = await bench.exec(look);
    expect({ status: untrusted.status, printed: out(untrusted) }).toEqual({ status: 125, printed: '' });
    await bench.repositoryFile('{}\n');
    await bench.configure({ network: { mode: 'bridge', allow_bridge: true } });
    const withOne = await bench.exec(look);
    expect(out(withOne), withOne.stderr).toContain('eth0');
    await bench.configure({});
    const said = await audited();
    expect(said).toMatch(/"network":"none"/);
    expect(said).toMatch(/"network":"bridge"/);
  });

  it('S0-5: loses a program that takes too much memory, with 137, the limit by name, and nothing left', async () => {
    const hog = 'dd if=/dev/zero of=/dev/null bs=100M count=1';
    const { status, stderr } = await bench.exec(['--memory', '32', hog]);
    expect(status).toBe(137);
    expect(stderr).toMatch(/memory limit of 32 MiB, set by --memory\.\n├▶ code: ACODE-SBX-004\n╰▶ hint: .*--memory 64/);
    expect(await bench.left()).toEqual([]);
    // The control: with room, it ends well.
    expect((await bench.exec(['--memory', '512', hog])).status).toBe(0);
  });

  it('S0-9: is nobody special inside, and a sensitive directory stays outside, which is on record', async () => {
    const inside = out(await bench.exec(['id -u; grep ^Cap /proc/1/status; grep NoNewPrivs /proc/1/status']));
    const [uid, ...capabilities] = inside.trim().split('\n');
    expect(uid).toBe(String(process.getuid?.()));
    expect(capabilities.join('\n').replaceAll(/\s+/g, ' ')).toMatch(/^(?:Cap\w+: 0+ ){5}NoNewPrivs: 1$/);
    const refused = await bench.exec(['--mount', '/etc:/data', 'ls /data']);
    expect({ status: refused.status, printed: out(refused) }).toEqual({ status: 125, printed: '' });
    expect(refused.stderr).toMatch(/\/etc[^]*ACODE-SBX-003[^]*hint: /);
    expect(await audited()).toMatch(/"kind":"refusal"[^]*ACODE-SBX-003/);
  });

  it('SA-1, SA-8: finds no trace of one command in the next, nor a sandbox of one that failed', async () => {
    const first = await bench.call(['run', "echo 'test' > /tmp/marker.txt && cat /tmp/marker.txt"]);
    expect(out(first)).toBe('test\n');
    const second = await bench.call(['run', "cat /tmp/marker.txt 2>&1 || echo 'File does not exist'"]);
    expect(out(second)).toMatch(/No such file[^]*File does not exist\n$/);
    expect((await bench.call(['run', 'exit 1'])).status).toBe(1);
    expect(await bench.left()).toEqual([]);
  });

  it('SA-2, SA-5: is told name and limits with --verbose, and the kernel says the same inside', async () => {
    const limit = 'cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes';
    const given = ['--verbose', '--task', 'build', '--memory', '64'];
    const { stdout, stderr } = await bench.call(['run', ...given, limit]);
    expect(stdout.toString()).toBe(`${64 * 2 ** 20}\n`);
    expect(stderr).toMatch(/"name":"acode-[0-9a-f]{8}-build-001".*"container created"/);
    expect(stderr).toContain('limits: memory=67108864, cpus=');
  });
});
