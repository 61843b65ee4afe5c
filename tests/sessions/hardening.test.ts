// Commands in a persistent sandbox are held as the one of a run is, seen as effects; beside each, a container without the wall.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Sandbox } from '@acode/sandbox';
import { runWeakened } from '../attacks/weakened.ts';
import { openHost } from '../conformance/host.ts';
import type { ConformanceHost } from '../conformance/host.ts';
import { images, withoutEngines } from '../support/engines.ts';
import { everyPlace } from './places.ts';

const MEBIBYTE = 1024 ** 2;
const STATUS = 'grep -E "^(Cap|NoNewPrivs|Seccomp:)" /proc/self/status';
const HELD = {
  CapInh: '0000000000000000',
  CapPrm: '0000000000000000',
  CapEff: '0000000000000000',
  CapBnd: '0000000000000000',
  CapAmb: '0000000000000000',
  NoNewPrivs: '1',
  Seccomp: '2',
};

function fields(text: string): Record<string, string> {
  return Object.fromEntries(
    text
      .trim()
      .split(/\r?\n/)
      .map(line => line.split(/:\s+/)),
  );
}

describe.skipIf(withoutEngines).each(everyPlace)('a command in a persistent sandbox on $name', place => {
  let host: ConformanceHost;
  let sandbox: Sandbox;
  const sh = (script: string) => sandbox.commands.run(['sh', '-c', script]);
  const control = async (script: string, of: object = {}) =>
    runWeakened(place.engine, { command: ['sh', '-c', script], ...of });
  beforeAll(async () => {
    host = await openHost(place);
    sandbox = await host.acode.create();
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it.runIf(place.lacks['kernel walls'] === undefined)(
    'has no capability, no new privileges and a system call filter',
    async () => {
      expect(fields((await sh(STATUS)).stdout)).toEqual(HELD);
      const bare = fields((await control(STATUS, { host: { SecurityOpt: ['seccomp=unconfined'] } })).stdout);
      expect(bare).toMatchObject({ NoNewPrivs: '0', Seccomp: '0' });
      expect(bare['CapEff']).not.toBe(HELD.CapEff);
    },
  );

  it.runIf(place.lacks['kernel walls'] === undefined)(
    'has them with a terminal and in the background too',
    async () => {
      await using background = await sandbox.commands.run(STATUS, { background: true });
      expect(fields((await background.wait()).stdout)).toEqual(HELD);
      await using terminal = await sandbox.commands.terminal(STATUS);
      expect(fields((await terminal.wait()).stdout)).toEqual(HELD);
    },
  );

  it('runs as the caller, in no other group', async () => {
    const own = `${process.getuid?.()} ${process.getgid?.()}`;
    expect((await sh('echo $(id -u) $(id -g) $(id -G)')).stdout).toBe(`${own} ${process.getgid?.()}\n`);
    await using terminal = await sandbox.commands.terminal('echo $(id -u) $(id -g)');
    expect((await terminal.wait()).stdout.trim()).toBe(own);
    expect((await control('id -u')).stdout).toBe('0\n');
  });

  it('cannot write its root, and can write /tmp and home', async () => {
    const script = 'for d in / /etc /bin; do touch $d/x 2>/dev/null && echo wrote $d; done; true';
    expect((await sh(script)).stdout).toBe('');
    expect((await control(script)).stdout).toBe('wrote /\nwrote /etc\nwrote /bin\n');
    expect((await sh('for d in /tmp "$HOME"; do touch $d/x && echo wrote; done')).stdout).toBe('wrote\nwrote\n');
  });

  it('has no network but its own loopback', async () => {
    const script = 'tail -n +3 /proc/net/dev | cut -d: -f1; tail -n +2 /proc/net/route | wc -l';
    expect((await sh(script)).stdout.trim().split(/\s+/)).toEqual(['lo', '0']);
    const open = await control(script, { host: { NetworkMode: 'bridge' } });
    expect(open.stdout.trim().split(/\s+/)).toContain('eth0');
  });

  it('cannot read what only root may, and gets nothing of it', async () => {
    await using debian = await host.acode.create({ policy: { image: images.debian } });
    const { stdout, exitCode } = await debian.commands.run(['cat', '/etc/shadow']);
    expect({ stdout, exitCode }).toEqual({ stdout: '', exitCode: 1 });
    expect((await control('cat /etc/shadow', { image: images.debian })).stdout).toContain('root:');
  });

  it('sees the processes of its sandbox alone', async () => {
    const script = 'ls /proc | grep -c "^[0-9]"';
    expect(Number((await sh(script)).stdout)).toBeLessThan(12);
    if (place.level === 'gvisor') return;
    const open = await control(script, { host: { PidMode: 'host' } });
    expect(Number(open.stdout)).toBeGreaterThan(20);
  });

  it.runIf(place.lacks['process limit'] === undefined)('is held to the processes of the whole sandbox', async () => {
    await using small = await host.acode.create({ policy: { limits: { pids: 24 } } });
    const script = 'i=0; while [ $i -lt 40 ]; do sleep 2 & i=$((i+1)); done; echo all; wait';
    const { stdout, exitCode } = await small.commands.run(script);
    expect({ reached: stdout.includes('all'), failed: exitCode !== 0 }).toEqual({ reached: false, failed: true });
    expect((await control(script)).stdout).toBe('all\n');
  });

  it.runIf(place.lacks['memory limit'] === undefined)(
    'is held to the memory of the whole sandbox, and the lack of it is said',
    async () => {
      await using small = await host.acode.create({ policy: { limits: { memoryBytes: 32 * MEBIBYTE } } });
      const script = 'x=$(head -c 100000000 /dev/zero | tr "\\0" x); echo ${#x}';
      const result = await small.commands.run(['sh', '-c', script]).catch((error: unknown) => error);
      // Podman does not say so where the kernel took the shell as well.
      if (place.engine.name === 'podman') expect(result).toMatchObject({ exitCode: 137 });
      else if (place.level !== 'gvisor') expect(result).toMatchObject({ oomKilled: true, limitExceeded: 'memory' });
      expect((await control(script, { host: { Memory: 512 * MEBIBYTE } })).stdout).toBe('100000000\n');
    },
  );

  it.runIf(place.lacks['memory limit'] === undefined)('fills /tmp up to its size only', async () => {
    await using small = await host.acode.create({ policy: { limits: { tmpBytes: 4 * MEBIBYTE } } });
    const script = 'head -c 16000000 /dev/zero > /tmp/fill; s=$?; wc -c < /tmp/fill; exit $s';
    const { exitCode, stdout } = await small.commands.run(script);
    expect(exitCode).not.toBe(0);
    expect(Number(stdout)).toBeLessThanOrEqual(4 * MEBIBYTE);
    expect((await control(script)).stdout.trim()).toBe('16000000');
  });

  it('cannot be root, by policy', async () => {
    await expect(host.acode.create({ policy: { user: '0:0' } })).rejects.toMatchObject({ code: 'ACODE-SBX-010' });
  });
});
