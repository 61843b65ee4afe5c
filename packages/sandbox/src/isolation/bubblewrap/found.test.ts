// Finding bubblewrap, and why a host forbids it: each answer says what to change.

import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findBubblewrap, isNewEnough, whyTooOld } from './backend.ts';
import { whyForbidden } from './probe.ts';
import { readHostView } from './host-view.ts';
import { limitDifferences, limitVariables, madeFiles, resourceLimits } from './start.ts';

describe('findBubblewrap', () => {
  it('says how to install it where it is nowhere', async () => {
    const found = await findBubblewrap(['/nonexistent/bwrap']);
    expect(found).toEqual({ reason: expect.stringMatching(/not installed .*apt install bubblewrap/) as string });
  });

  it('does not trust one that somebody else could have put there', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'bwrap-'));
    const program = join(directory, 'bwrap');
    writeFileSync(program, '#!/bin/sh\necho bubblewrap 9.9.9\n');
    chmodSync(program, 0o777);
    try {
      expect(await findBubblewrap([program])).toEqual({ reason: expect.stringContaining('is not trusted') as string });
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  it.each([
    ['bubblewrap 0.4.1', /version 0\.4\.1, and at least 0\.8 is needed; .*apt install/],
    ['something else', /does not say its version/],
    ['bubblewrap 0.9.0', null],
  ])('one that says %j', async (says, expected) => {
    const directory = mkdtempSync(join(tmpdir(), 'bwrap-'));
    const program = join(directory, 'bwrap');
    writeFileSync(program, `#!/bin/sh\necho ${says}\n`, { mode: 0o700 });
    try {
      expect(await whyTooOld(program)).toEqual(expected && (expect.stringMatching(expected) as string));
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  it('wants a version that keeps user namespaces out', () => {
    expect(['0.3.0', '0.7.0', '0.8.0', '0.11.2', '1.0'].map(isNewEnough)).toEqual([false, false, true, true, true]);
  });
});

describe('whyForbidden', () => {
  it.each([
    ['unprivileged_userns_clone', '0', 'kernel.unprivileged_userns_clone=1'],
    ['max_user_namespaces', '0', 'user.max_user_namespaces=15000'],
    ['apparmor_restrict_unprivileged_userns', '1', 'AppArmor profile'],
  ])('names %s and what to change', async (setting, value, remedy) => {
    const reasons = await whyForbidden(async file => (file.endsWith(setting) ? `${value}\n` : null));
    expect(reasons.length).toBe(1);
    expect(reasons[0]).toContain(setting);
    expect(reasons[0]).toContain(remedy);
  });

  it('names nothing where nothing forbids', async () => {
    expect(await whyForbidden(async file => (file.includes('apparmor') ? '0\n' : '15000\n'))).toEqual([]);
  });
});

describe('the view of the host', () => {
  it('has programs, and nothing that people or services keep', () => {
    const { system } = readHostView();
    const paths = system.map(({ path }) => path);
    expect(paths).toContain('/usr');
    const sources = system.map(place => ('source' in place ? place.source : place.to));
    for (const path of [...paths, ...sources])
      expect(path).not.toMatch(
        /^\/(?:$|home|root|run|var|tmp|opt|srv|mnt|media|sys|proc|boot|etc$|etc\/(?:shadow|passwd|ssh|ssl\/private))/,
      );
  });

  it('has users and names of its own', () => {
    const user = { user: { uid: 1234, gid: 5678 }, home: '/home/sandbox' };
    const files = madeFiles({ ...user, network: { kind: 'none' }, mounts: [] });
    const all = files.map(({ content }) => content).join('');
    expect(files.map(({ path }) => path)).toEqual(['/etc/passwd', '/etc/group', '/etc/nsswitch.conf', '/etc/hosts']);
    expect(all).toContain('sandbox:x:1234:5678:sandbox:/home/sandbox:/bin/sh\n');
    expect(all).not.toContain(process.env['USER'] === 'root' ? 'acode' : (process.env['USER'] ?? 'acode'));
  });
});

describe('limits that processes carry themselves', () => {
  const limits = { memoryBytes: 1_000_000, swapBytes: 0, cpus: 1, pids: 7, openFiles: 99, tmpBytes: 1, outputBytes: 1 };
  const table = (files: string, processes: string, data: string): string =>
    [
      'Limit                     Soft Limit           Hard Limit           Units     ',
      'Max file size             68719476736          68719476736          bytes     ',
      'Max core file size        0                    0                    bytes     ',
      `Max data size             ${data.padEnd(20)} ${data.padEnd(20)} bytes     `,
      `Max processes             ${processes.padEnd(20)} ${processes.padEnd(20)} processes `,
      `Max open files            ${files.padEnd(20)} ${files.padEnd(20)} files     `,
    ].join('\n');

  it('are numbers for a shell', () => {
    expect(limitVariables(resourceLimits(limits, true))).toEqual({
      _acode_n: '99',
      _acode_f: '134217728',
      _acode_u: '7',
      _acode_d: '977',
    });
    expect(limitVariables(resourceLimits(limits, false))).toMatchObject({ _acode_u: '', _acode_d: '' });
  });

  it('are compared with what the kernel says', () => {
    const planned = resourceLimits(limits, true);
    expect(limitDifferences(planned, table('99', '7', '1000448'))).toEqual([]);
    expect(limitDifferences(planned, table('99', 'unlimited', '1000448'))).toEqual([
      'Max processes: planned 7, found Infinity',
    ]);
    expect(limitDifferences(planned, table('100', '7', '1000448'))).toEqual(['Max open files: planned 99, found 100']);
    expect(limitDifferences(planned, '').length).toBe(5);
    expect(limitDifferences(resourceLimits(limits, false), table('99', 'unlimited', 'unlimited'))).toEqual([]);
  });
});
