// Control groups: where this process is in them, and what is written and read in the words of each version.

import { chmodSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseMountinfo } from '../kernel.ts';
import { ControlGroup, counted, delegationAt, placesOf, settingsFor, sweepControlGroups } from './control-group.ts';

const MIB = 1024 ** 2;
const limits = {
  memoryBytes: 64 * MIB + 5,
  swapBytes: 0,
  cpus: 1.5,
  pids: 64,
  openFiles: 256,
  tmpBytes: MIB,
  outputBytes: MIB,
};

describe('where a process is', () => {
  it('in version 2 is below the one mount', () => {
    const mounts = parseMountinfo('30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n');
    const own = '0::/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope\n';
    expect(placesOf(own, mounts)).toEqual({
      unified: {
        directory: '/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope',
        top: '/sys/fs/cgroup',
      },
      separate: new Map(),
    });
  });

  it('in version 1 is below a mount for each controller, also where two share one', () => {
    const mounts = parseMountinfo(
      [
        '31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory',
        '32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct',
        '33 24 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids',
      ].join('\n'),
    );
    const own = '4:memory:/a\n3:cpu,cpuacct:/b\n2:pids:/\n1:name=systemd:/\n';
    expect(placesOf(own, mounts)).toEqual({
      unified: null,
      separate: new Map([
        ['memory', '/sys/fs/cgroup/memory/a'],
        ['cpu', '/sys/fs/cgroup/cpu,cpuacct/b'],
        ['cpuacct', '/sys/fs/cgroup/cpu,cpuacct/b'],
        ['pids', '/sys/fs/cgroup/pids'],
      ]),
    });
  });

  it('in a container is counted from the root of the mount, and is nowhere if it lies outside', () => {
    const mounts = parseMountinfo('30 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n');
    expect(placesOf('0::/docker/abc/x\n', mounts).unified?.directory).toBe('/sys/fs/cgroup/x');
    expect(placesOf('0::/elsewhere\n', mounts).unified).toBeNull();
  });
});

describe('what may be divided', () => {
  let top: string;
  beforeEach(() => void (top = mkdtempSync(join(tmpdir(), 'groups-'))));
  afterEach(() => rmSync(top, { recursive: true, force: true }));
  const group = (path: string, handed: string): string => {
    const directory = join(top, path);
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, 'cgroup.subtree_control'), `${handed}\n`);
    writeFileSync(join(directory, 'cgroup.procs'), '');
    return directory;
  };

  it('in version 2 is the nearest group above that hands memory and processes on', async () => {
    group('', 'cpu memory pids');
    const slice = group('app.slice', 'memory pids');
    const directory = group('app.slice/term.scope', '');
    const found = await delegationAt({ unified: { directory, top }, separate: new Map() });
    expect(found).toEqual({ version: 2, directories: { memory: slice, pids: slice } });
  });

  it('in version 2 is nothing where no group hands both on', async () => {
    group('', 'cpu pids');
    const directory = group('a', 'memory');
    expect(await delegationAt({ unified: { directory, top }, separate: new Map() })).toBeNull();
    expect(await delegationAt({ unified: null, separate: new Map() })).toBeNull();
  });

  it.skipIf(process.getuid?.() === 0)('is nothing that this user may not write', async () => {
    const directory = group('', 'memory pids');
    chmodSync(join(directory, 'cgroup.procs'), 0o444);
    expect(await delegationAt({ unified: { directory, top }, separate: new Map() })).toBeNull();
  });

  it('in version 1 is the own group of each controller, with memory and processes among them', async () => {
    const [memory, pids] = [group('memory/a', ''), group('pids/b', '')];
    const all = new Map([
      ['memory', memory],
      ['pids', pids],
    ]);
    expect(await delegationAt({ unified: null, separate: all })).toEqual({ version: 1, directories: { memory, pids } });
    expect(await delegationAt({ unified: null, separate: new Map([['memory', memory]]) })).toBeNull();
  });

  it('leaves nothing where a limit cannot be written', async () => {
    const directory = group('', 'memory pids');
    const before = readdirSync(directory);
    // A directory that is no control group has no such files.
    const making = ControlGroup.make({ version: 2, directories: { memory: directory, pids: directory } }, limits);
    await expect(making).rejects.toThrow('ENOENT');
    expect(readdirSync(directory)).toEqual(before);
  });

  it('loses the groups of processes that are gone, and no others', async () => {
    const directory = group('', 'memory pids');
    const own = readFileSync(`/proc/${process.pid}/stat`, 'utf8').split(') ')[1]?.split(' ')[19] ?? '';
    for (const name of [
      `acode-${process.pid}-${own}-00000000`,
      'acode-1-1-00000000',
      'acode-4000000-7-00000000',
      'other',
    ])
      mkdirSync(join(directory, name));
    await sweepControlGroups({ version: 2, directories: { memory: directory, pids: directory } });
    const left = readdirSync(directory).filter(name => !name.startsWith('cgroup.'));
    expect(left.sort()).toEqual([`acode-${process.pid}-${own}-00000000`, 'other'].sort());
  });
});

describe('the limits of a group', () => {
  const written = (version: 1 | 2): Record<string, string> =>
    Object.fromEntries(settingsFor(version, limits).map(({ file, value }) => [file, value]));

  it('in version 2', () => {
    expect(written(2)).toEqual({
      'memory.max': String(64 * MIB),
      'memory.swap.max': '0',
      'pids.max': '65',
      'cpu.max': '150000 100000',
    });
  });

  it('in version 1, memory before memory and swap together', () => {
    expect(written(1)).toEqual({
      'memory.limit_in_bytes': String(64 * MIB),
      'memory.memsw.limit_in_bytes': String(64 * MIB),
      'pids.max': '65',
      'cpu.cfs_period_us': '100000',
      'cpu.cfs_quota_us': '150000',
    });
    expect(Object.keys(written(1)).indexOf('memory.limit_in_bytes')).toBe(0);
  });
});

describe('what a group has counted', () => {
  const from = (files: Record<string, string>) => async (_: string, file: string) => files[file] ?? null;

  it('in version 2', async () => {
    const files = {
      'memory.events': 'low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n',
      'memory.peak': '4096\n',
      'pids.events': 'max 3\n',
      'cpu.stat': 'usage_usec 2500\nthrottled_usec 500\n',
    };
    expect(await counted(2, from(files))).toEqual({
      oomKills: 1,
      pidsRefused: 3,
      usage: { peakMemoryBytes: 4096, cpuMs: 2.5, throttledMs: 0.5 },
    });
  });

  it('in version 1', async () => {
    const files = {
      'memory.oom_control': 'oom_kill_disable 0\nunder_oom 0\noom_kill 2\n',
      'memory.max_usage_in_bytes': '8192\n',
      'pids.events': 'max 0\n',
      'cpu.stat': 'nr_periods 1\nthrottled_time 3000000\n',
      'cpuacct.usage': '5000000\n',
    };
    expect(await counted(1, from(files))).toEqual({
      oomKills: 2,
      pidsRefused: 0,
      usage: { peakMemoryBytes: 8192, cpuMs: 5, throttledMs: 3 },
    });
  });

  it('is nothing where the kernel says nothing', async () => {
    expect(await counted(2, from({}))).toEqual({ oomKills: 0, pidsRefused: 0 });
  });
});
