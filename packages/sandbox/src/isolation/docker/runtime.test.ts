import { describe, expect, it } from 'vitest';
import { parseSeen, runtimeKind, type HostKernel } from './runtime.ts';

const HOST: HostKernel = { release: '6.18.0', bootId: 'aaaa' };
const HOST_VERSION = 'Linux version 6.18.0 (builder@host) (gcc) #1 SMP';
const GVISOR_VERSION = 'Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016';
const IDENTITY = '         0          0 4294967295';

function seen(version: string, boot = 'aaaa', uidMap = IDENTITY, log = '') {
  return parseSeen(`${version}\n${boot}\n${uidMap}\n${log}\n`);
}

describe('runtimeKind', () => {
  it.each([
    ['runc', 'docker', true],
    ['crun', 'docker', true],
    ['io.containerd.runc.v2', 'docker', true],
    ['runsc', 'gvisor', false],
    ['runsc-kvm', 'gvisor', false],
    ['io.containerd.runsc.v1', 'gvisor', false],
    ['kata', 'microvm', false],
    ['kata-qemu', 'microvm', false],
    ['io.containerd.kata.v2', 'microvm', false],
    ['sysbox-runc', 'docker', true],
  ])('%s is for level %s', (name, level, hostKernel) => {
    expect(runtimeKind(name)).toMatchObject({ level, hostKernel });
  });

  it('asks no proof of ordinary runtimes', () => {
    expect(runtimeKind('runc').proof).toBeNull();
    expect(runtimeKind('crun').proof).toBeNull();
  });
});

describe('the proof', () => {
  const proves = (name: string, what: ReturnType<typeof seen>, host = HOST) => runtimeKind(name).proof?.(what, host);

  it('of gVisor is its own kernel, in the log or in the version', () => {
    expect(proves('runsc', seen(GVISOR_VERSION))).toBe(true);
    expect(proves('runsc', seen('Linux version 9', '', IDENTITY, '[ 0.0] Starting gVisor...'))).toBe(true);
    expect(proves('runsc', seen(HOST_VERSION))).toBe(false);
    expect(proves('runsc', seen(''))).toBe(false);
    // On a host whose own kernel is that old, the version proves nothing.
    expect(proves('runsc', seen(GVISOR_VERSION), { release: '4.4.0', bootId: null })).toBe(false);
  });

  it('of Kata is another kernel, by release or by boot', () => {
    expect(proves('kata', seen('Linux version 6.1.62'))).toBe(true);
    expect(proves('kata', seen(HOST_VERSION, 'bbbb'))).toBe(true);
    expect(proves('kata', seen(HOST_VERSION, 'aaaa'))).toBe(false);
    expect(proves('kata', seen(HOST_VERSION, 'bbbb'), { release: '6.18.0', bootId: null })).toBe(false);
    expect(proves('kata', seen('', '', ''))).toBe(false);
  });

  it('of Sysbox is a map of users that is not the identity', () => {
    expect(proves('sysbox-runc', seen(HOST_VERSION, 'aaaa', '0 165536 65536'))).toBe(true);
    expect(proves('sysbox-runc', seen(HOST_VERSION))).toBe(false);
    expect(proves('sysbox-runc', seen('', '', ''))).toBe(false);
  });
});
