// Where no background process is started, and on which disks.

import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { diskOf } from './file-system.ts';
import { userConfigFile } from './identity.ts';
import { longestIdle, servedEnvironment } from './serve-calls.ts';
import { obstacleOf } from './obstacles.ts';
import type { Surroundings } from './obstacles.ts';

const GIB = 1024 ** 3;
const fine: Surroundings = {
  platform: 'linux',
  uid: 1000,
  env: { PATH: '/usr/bin' },
  setting: { value: 'auto', setBy: null },
  availableBytes: 2 * GIB,
  disk: 'local',
  installedInside: false,
};

describe('a background process', () => {
  it.each<readonly [string, Partial<Surroundings>, string | null]>([
    ['an ordinary machine', {}, null],
    ['CI=false', { env: { CI: 'false' } }, null],
    ['an empty CI', { env: { CI: '' } }, null],
    ['CI', { env: { CI: 'true' } }, 'CI is set (true)'],
    ['Azure Pipelines', { env: { TF_BUILD: 'True' } }, 'TF_BUILD is set (True)'],
    ['Jenkins', { env: { JENKINS_URL: 'http://ci.example/' } }, 'JENKINS_URL is set'],
    ['a build of Jenkins', { env: { BUILD_ID: '7' } }, 'BUILD_ID is set (7)'],
    ['TeamCity', { env: { TEAMCITY_VERSION: '2024.1' } }, 'TEAMCITY_VERSION is set'],
    ['CodeBuild, although CI=false', { env: { CI: 'false', CODEBUILD_BUILD_ID: 'a:1' } }, 'CODEBUILD_BUILD_ID is set'],
    ['never', { setting: { value: 'never', setBy: 'c.yml:2:3' } }, 'sandbox.serve is never (c.yml:2:3)'],
    ['always', { setting: { value: 'always', setBy: 'c.yml:2:3' } }, null],
    ['always, and CI', { env: { CI: '1' }, setting: { value: 'always', setBy: 'c.yml:2:3' } }, 'CI is set (1)'],
    ['root', { uid: 0 }, 'you are root'],
    ['little memory', { availableBytes: 2 * GIB - 1 }, '2.0 GiB of memory are available; it needs 2 GiB'],
    ['unknown memory', { availableBytes: null }, 'how much memory'],
    ['a network', { disk: 'network' }, 'network file system'],
    ['a stick', { disk: 'removable' }, 'removable disk'],
    ['an unknown disk', { disk: 'unknown' }, 'what kind of disk'],
    ['an installation in the workspace', { installedInside: true }, 'installed inside the workspace'],
    ['another system', { platform: 'darwin' }, 'darwin'],
  ])('with %s', (_what, given, reason) => {
    const found = obstacleOf({ ...fine, ...given });
    if (reason === null) expect(found).toBeNull();
    else expect(found).toContain(reason);
  });

  it('may be idle for ten minutes, and shorter where a variable says so', () => {
    const idle = ['', '2', '0.5', '601', '86400', '0', '-1', 'x', 'Infinity'].map(ACODE_SERVE_IDLE_SECONDS =>
      longestIdle({ ACODE_SERVE_IDLE_SECONDS }),
    );
    const most = 600_000;
    expect([longestIdle({}), ...idle]).toEqual([most, most, 2000, 500, most, most, most, most, most, most]);
  });
});

describe('the disk of a workspace', () => {
  const top = mkdtempSync(join(tmpdir(), 'acode-disk-'));
  afterAll(() => rmSync(top, { recursive: true }));
  const devices = join(top, 'dev');
  const mountinfo = join(top, 'mountinfo');
  const disk = (device: string, path: string, removable: string | null, slaves: readonly string[] = []): void => {
    const directory = join(top, 'devices', path);
    mkdirSync(join(directory, 'slaves'), { recursive: true });
    if (removable !== null) writeFileSync(join(directory, 'removable'), `${removable}\n`);
    for (const slave of slaves) symlinkSync(join(top, 'devices', slave), join(directory, 'slaves', 'one'));
    mkdirSync(devices, { recursive: true });
    symlinkSync(directory, join(devices, device));
  };
  disk('8:0', 'pci/sda', '0');
  disk('8:1', 'pci/sda/sda1', null);
  disk('8:16', 'pci/sdb', '1');
  disk('8:17', 'pci/sdb/sdb1', null);
  disk('8:33', 'pci/usb2/2-1/sdc/sdc1', null);
  disk('253:0', 'virtual/dm-0', '0', ['pci/sdb/sdb1']);
  disk('253:1', 'virtual/dm-1', '0', ['pci/sda/sda1']);
  writeFileSync(
    mountinfo,
    [
      '22 1 8:1 / / rw - ext4 /dev/sda1 rw',
      '23 22 8:17 / /media/stick rw shared:1 - vfat /dev/sdb1 rw',
      '24 22 8:33 / /media/with\\040blank rw - ext4 /dev/sdc1 rw',
      '25 22 253:0 / /crypt rw - ext4 /dev/mapper/x rw',
      '26 22 253:1 / /home rw - ext4 /dev/mapper/y rw',
      '27 26 0:50 / /home/me/far rw - nfs4 host:/export rw',
      '28 26 0:51 / /home/me/ssh rw - fuse.sshfs me@host: rw',
      '29 22 0:52 / /tmp rw - tmpfs tmpfs rw',
      '30 22 0:53 / /over rw - nfs host:/x rw',
      '31 30 0:54 / /over rw - tmpfs none rw',
      '32 22 0:55 / /mnt/c rw - 9p drvfs rw',
      '33 22 259:9 / /unlisted rw - ext4 /dev/nvme9 rw',
    ].join('\n'),
  );

  it.each([
    ['/srv/project', 'local'],
    ['/media/stick', 'removable'],
    ['/media/stick/project', 'removable'],
    ['/media/sticky', 'local'],
    ['/media/with blank/project', 'removable'],
    ['/crypt/project', 'removable'],
    ['/home/me/project', 'local'],
    ['/home/me/far/project', 'network'],
    ['/home/me/ssh', 'network'],
    ['/tmp/project', 'local'],
    ['/over/project', 'local'],
    ['/mnt/c/Users', 'network'],
    ['/unlisted/project', 'local'],
  ])('%s is %s', (directory, kind) => {
    expect(diskOf(directory, { mountinfo, devices })).toBe(kind);
  });

  it('is unknown where the kernel does not tell', () => {
    expect(diskOf('/x', { mountinfo: join(top, 'none'), devices })).toBe('unknown');
  });
});

describe('a call that a server runs', () => {
  it('has the directories of the user as its client has them, and its own look', () => {
    const own = { HOME: '/h', XDG_CONFIG_HOME: '/x', TERM: 'dumb', SECRET: 's' };
    const env = servedEnvironment(own, { TERM: 'xterm' });
    expect(env).toEqual({ HOME: '/h', XDG_CONFIG_HOME: '/x', TERM: 'xterm' });
    expect(userConfigFile(env)).toBe('/x/acode/config.yml');
  });
});
