// The options of a run that choose limits, mounts, networks and runtimes, by what they change inside.

import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engines, everyEngine, withoutEngines } from '../support/engines.ts';
import { Bench } from './bench.ts';
import type { Ended } from './bench.ts';

function out({ status, stdout, stderr }: Ended): string {
  expect({ status, stderr }).toMatchObject({ status: 0 });
  return stdout.toString();
}

describe.skipIf(withoutEngines).each(engines)('an option on $name', engine => {
  let bench: Bench;
  let outside = '';

  beforeAll(async () => {
    bench = await Bench.at(engine);
    outside = join(bench.workspace, '..', 'shared:data');
    await mkdir(outside);
    await writeFile(join(outside, 'given'), 'given\n');
    await bench.configure({
      mounts: { allowed_host_roots: [join(bench.workspace, '..', 'shared:data')] },
      network: { allow_bridge: true },
    });
  });

  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  it('--mount gives one more directory, read-only, also with `:` in its name', async () => {
    const asked = ['--mount', `${outside}:/data`];
    expect(out(await bench.exec([...asked, 'cat /data/given']))).toBe('given\n');
    const { status, stderr } = await bench.exec([...asked, 'echo changed > /data/given']);
    expect(status).not.toBe(0);
    expect(stderr).toMatch(/Read-only file system/);
    await expect(readFile(join(outside, 'given'), 'utf8')).resolves.toBe('given\n');
    // Without the option there is nothing.
    expect((await bench.exec(['test -e /data'])).status).toBe(1);
  });

  it('--mount …:rw gives it writable', async () => {
    out(await bench.exec(['--mount', `${outside}:/data:rw`, 'echo made > /data/made']));
    await expect(readFile(join(outside, 'made'), 'utf8')).resolves.toBe('made\n');
  });

  it('--mount takes a relative path from where the user stands', async () => {
    await writeFile(join(bench.workspace, 'sub', 'here'), 'here\n');
    const { status, stdout } = await bench.exec(['--mount', '.:/data', 'cat /data/here'], {
      cwd: join(bench.workspace, 'sub'),
    });
    expect({ status, stdout: stdout.toString() }).toEqual({ status: 0, stdout: 'here\n' });
  });

  it('--mount of what the user did not allow is refused with the key that would', async () => {
    const { status, stdout, stderr } = await bench.exec(['--mount', '/usr/share:/data', 'ls /data']);
    expect({ status, stdout: stdout.length }).toEqual({ status: 125, stdout: 0 });
    expect(stderr).toMatch(/\/usr\/share[^]*ACODE-SBX-003[^]*hint: /);
  });

  it('--tmp, --open-files and --pids are what the command finds', async () => {
    const script = "df -k /tmp | awk 'END { print $2 }'; ulimit -n; cat /proc/self/limits | grep -c 'open files'";
    const limits = ['--tmp', '2m', '--open-files', '77'];
    expect(
      out(await bench.exec([...limits, script]))
        .split('\n')
        .slice(0, 2),
    ).toEqual(['2048', '77']);
    expect(
      out(await bench.exec(['--profile', 'exec', script]))
        .split('\n')
        .slice(0, 2),
    ).toEqual([String(64 * 1024), '1024']);
  });

  it('--profile and --swap reach the engine', async () => {
    const { stdout } = await bench.call(['explain', '--json', '--profile', 'task', '--swap', '64', '--', 'true']);
    expect(JSON.parse(stdout.toString())).toMatchObject({
      policy: {
        profile: { value: 'task', layer: 'request' },
        limits: { cpus: { value: 0.5, layer: 'built-in' }, swapBytes: { value: 64 * 1024 ** 2, layer: 'request' } },
      },
    });
    expect(stdout.toString()).toContain(`"MemorySwap":${(512 + 64) * 1024 ** 2}`);
    expect(out(await bench.exec(['--swap', '64', 'echo runs']))).toBe('runs\n');
  });

  it('--network needs the user’s consent for a bridge, and says where to give it', async () => {
    await using careful = await Bench.at(engine);
    const { status, stdout, stderr } = await careful.exec(['--network', 'bridge', 'echo ran']);
    expect({ status, stdout: stdout.length }).toEqual({ status: 125, stdout: 0 });
    expect(stderr).toMatch(/ACODE-SBX-005[^]*hint: .*allow_bridge/);
    expect(await careful.left()).toEqual([]);
  });

  it('--network bridge gives an interface, and nothing else does', async () => {
    expect(out(await bench.exec(['--network', 'bridge', 'ls /sys/class/net']))).toContain('eth0');
    expect(out(await bench.exec(['ls /sys/class/net']))).not.toContain('eth0');
  });

  it('--dns reaches the engine', async () => {
    const asked = ['--network', 'bridge', '--dns', '192.0.2.53', '--dns', '2001:db8::53'];
    const { stdout } = await bench.call(['explain', '--json', ...asked, '--', 'true']);
    expect(stdout.toString()).toContain('"Dns":["192.0.2.53","2001:db8::53"]');
    expect(out(await bench.exec([...asked, 'echo ran']))).toBe('ran\n');
  });

  it('--publish says on standard error where the port is', async () => {
    const asked = ['--network', 'bridge', '--publish', '3000', '--publish', '5353/udp'];
    const { status, stdout, stderr } = await bench.exec([...asked, 'echo ran']);
    expect({ status, stdout: stdout.toString() }).toEqual({ status: 0, stdout: 'ran\n' });
    expect(stderr).toMatch(
      /^acode: port 3000\/tcp is at 127\.0\.0\.1:\d+\.\nacode: port 5353\/udp is at 127\.0\.0\.1:\d+\.\n/,
    );
    const json = await bench.exec(['--json', ...asked, 'echo ran']);
    expect(JSON.parse(json.stdout.toString())).toMatchObject({
      schema: 'acode.run/1',
      ports: [
        { container: 3000, protocol: 'tcp' },
        { container: 5353, protocol: 'udp' },
      ],
    });
  });

  it('--publish and --dns without a network are refused by their names', async () => {
    for (const asked of [
      ['--publish', '3000'],
      ['--dns', '1.1.1.1'],
    ]) {
      const { status, stderr } = await bench.exec([...asked, 'true']);
      expect(status).toBe(125);
      expect(stderr).toMatch(new RegExp(`^acode: ${asked[0]}: `));
    }
  });

  it('--runtime that the engine does not have is refused', async () => {
    const { status, stdout, stderr } = await bench.exec(['--runtime', 'none-such', 'echo ran']);
    expect({ status, stdout: stdout.length }).toEqual({ status: 125, stdout: 0 });
    expect(stderr).toMatch(/none-such[^]*hint: /);
  });

  it('has left nothing after all of that', async () => {
    expect(await bench.left()).toEqual([]);
  });
});

const withGvisor = everyEngine.find(({ runtimes }) => Array.isArray(runtimes) && runtimes.includes('runsc'));

it.skipIf(withoutEngines || !withGvisor)('--runtime runsc runs in gVisor', async () => {
  await using bench = await Bench.at(withGvisor ?? { socket: '' });
  const kernel = 'cat /proc/version';
  expect(out(await bench.exec(['--runtime', 'runsc', kernel]))).not.toBe(out(await bench.exec([kernel])));
});
