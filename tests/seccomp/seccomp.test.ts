// The system call filter, by what raw calls come to inside: denied with it, let through without it, and the ordinary
// neighbours of each work.

import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { Bench } from '../engine-client/engines.ts';
import { TestHost, everyEngine, images, withoutEngines } from '../support/engines.ts';

const outcomes = z.record(z.string(), z.record(z.string(), z.string()));
type Outcomes = z.infer<typeof outcomes>;

const script = readFileSync(new URL('calls.py', import.meta.url), 'utf8');
const run = ['python3', '/workspace/calls.py', '/tmp'];

// Root with the capabilities that the calls would need. The kernel refuses an ordinary user many of them anyway, so only
// here can it be seen that the filter does as well. No argument is one that a call could do harm with.
const CAPABLE = {
  User: '0:0',
  HostConfig: {
    CapDrop: ['ALL'],
    CapAdd: [
      ...'SYS_ADMIN SYS_MODULE SYS_BOOT SYS_CHROOT SYS_NICE SYS_PACCT SYS_PTRACE SYS_RAWIO'.split(' '),
      ...'SYS_TIME SYSLOG MKNOD NET_RAW NET_ADMIN DAC_OVERRIDE DAC_READ_SEARCH'.split(' '),
    ],
    ReadonlyRootfs: true,
    Tmpfs: { '/tmp': 'rw,exec,nosuid,nodev,mode=1777' },
  },
};

describe.skipIf(withoutEngines).each(everyEngine)('the system call filter on $name $version', engine => {
  let host: TestHost;
  let sandbox: Outcomes;
  let filtered: Outcomes;
  let open: Outcomes;

  // What is really sent: the text that `explain` shows.
  const ownOption = async (): Promise<string> => {
    const { engineRequest } = await host.acode.explain(['true']);
    const { HostConfig } = z
      .looseObject({ HostConfig: z.looseObject({ SecurityOpt: z.array(z.string()) }) })
      .parse(engineRequest);
    return HostConfig.SecurityOpt.find(option => option.startsWith('seccomp=')) ?? '';
  };

  const capable = async (option: string): Promise<Outcomes> => {
    await using bench = await Bench.at(engine);
    const { HostConfig, ...rest } = CAPABLE;
    const id = await bench.container('', {
      ...rest,
      Image: images.debian,
      Cmd: run,
      HostConfig: {
        ...HostConfig,
        SecurityOpt: ['no-new-privileges', option],
        Mounts: [{ Type: 'bind', Source: host.workspace, Target: '/workspace', ReadOnly: true }],
      },
    });
    const { stdout, stderr } = await bench.run(id);
    if (stderr !== '') throw new Error(stderr);
    return outcomes.parse(JSON.parse(stdout));
  };

  beforeAll(async () => {
    host = await TestHost.open(engine);
    writeFileSync(host.file('calls.py'), script, { mode: 0o644 });
    const option = await ownOption();
    const { stdout, stderr } = await host.acode.run(run, { policy: { image: images.debian } });
    if (stderr !== '') throw new Error(stderr);
    sandbox = outcomes.parse(JSON.parse(stdout));
    [filtered, open] = [await capable(option), await capable('seccomp=unconfined')];
  });
  afterAll(() => host[Symbol.asyncDispose]());

  const all = (group: Outcomes[string] | undefined, outcome: string): Record<string, string> =>
    Object.fromEntries(Object.keys(group ?? {}).map(name => [name, outcome]));

  it('denies each dangerous call with EPERM, to a sandbox and to a capable root alike', () => {
    expect(Object.keys(sandbox['denied'] ?? {}).length).toBeGreaterThan(60);
    expect(sandbox['denied']).toEqual(all(sandbox['denied'], 'EPERM'));
    expect(filtered['denied']).toEqual(all(sandbox['denied'], 'EPERM'));
  });

  it('is what denies them: without it none gets EPERM', () => {
    expect(Object.entries(open['denied'] ?? {}).filter(([, outcome]) => outcome === 'EPERM')).toEqual([]);
    expect(open['denied']).toMatchObject({
      unshare: 'ok',
      'clone: new namespace': 'ok',
      'setuid: openat': 'ok',
      'setuid: fchmod': 'ok',
      'device: block': 'ok',
    });
  });

  it('says “no such call” to what libraries fall back from', () => {
    expect(sandbox['absent']).toEqual(all(sandbox['absent'], 'ENOSYS'));
    expect(Object.values(open['absent'] ?? {})).not.toContain('ENOSYS');
  });

  it('ends who calls by another architecture’s numbers', () => {
    expect(sandbox['killed']).toEqual(all(sandbox['killed'], 'SIGSYS'));
    expect(Object.values(open['killed'] ?? {})).not.toContain('SIGSYS');
    if (process.arch === 'x64') expect(open['killed']).toMatchObject({ 'i386: getpid': 'ok' });
  });

  it('lets ordinary work through', () => {
    expect(Object.keys(sandbox['allowed'] ?? {}).length).toBeGreaterThan(20);
    expect(sandbox['allowed']).toEqual(all(sandbox['allowed'], 'ok'));
    expect(open['allowed']).toEqual(all(sandbox['allowed'], 'ok'));
  });
});
