// The workspace is a project and never the system, the home or acode’s own files, however it is reached.

import { mkdirSync, mkdtempSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { Directories } from '../lifecycle/directories.ts';
import { locateWorkspace, validateWorkspace, workdirFor } from './locate.ts';
import { isWithin } from './file-identity.ts';

let base: string;
let own: Directories;
beforeEach(() => {
  base = realpathSync(mkdtempSync(join(tmpdir(), 'acode-workspace-')));
  const home = join(base, 'home');
  own = {
    home,
    config: join(home, '.config/acode'),
    state: join(home, '.local/state/acode'),
    runtime: join(base, 'run/acode'),
  };
  for (const directory of [
    home,
    own.config,
    own.state,
    own.runtime,
    join(home, 'project/sub'),
    join(home, '.ssh/keys'),
  ])
    mkdirSync(directory, { recursive: true });
});

describe('locateWorkspace', () => {
  it('finds the nearest ancestor with .git or .agent/config.yml, else uses the directory itself', async () => {
    const project = join(own.home, 'project');
    expect(await locateWorkspace(join(project, 'sub'))).toBe(join(project, 'sub'));
    writeFileSync(join(project, '.git'), 'gitdir: elsewhere');
    expect(await locateWorkspace(join(project, 'sub'))).toBe(project);
    mkdirSync(join(project, 'sub/.agent'));
    writeFileSync(join(project, 'sub/.agent/config.yml'), '');
    expect(await locateWorkspace(join(project, 'sub'))).toBe(join(project, 'sub'));
  });
});

describe('validateWorkspace', () => {
  it('takes a project in the home, and remembers which directory it was', async () => {
    const workspace = await validateWorkspace(join(own.home, 'project'), own);
    expect(workspace.root).toBe(join(own.home, 'project'));
    expect(workspace.identity.inode).toBeGreaterThan(0);
  });

  it('holds the place of an agent closed where it really is, also where its name leads up again behind a link', async () => {
    mkdirSync(join(base, 'data/deep/down'), { recursive: true });
    mkdirSync(join(base, 'data/deep/agent'));
    symlinkSync(join(base, 'data/deep/down'), join(base, 'link'));
    const environment = { SSH_AUTH_SOCK: `${base}/link/../agent/socket` };
    await expect(validateWorkspace(join(base, 'data/deep'), own, { environment })).rejects.toMatchObject({
      context: { violation: 'SensitivePathAccess' },
    });
    await expect(validateWorkspace(join(base, 'data/deep'), own)).resolves.toBeDefined();
  });

  it.each([
    '/',
    '/tmp/..',
    '/proc/self/root',
    '/etc',
    '/etc/ssl',
    '/usr',
    '/tmp',
    '/var',
    '/proc/self',
    '/dev/shm',
    '/run/lock',
    '/var/log',
    '/usr/share',
  ])('refuses %s', async path => {
    await expect(validateWorkspace(path, own)).rejects.toMatchObject({ code: 'ACODE-SBX-003' });
  });

  it('refuses the home, what contains it, credentials and acode’s own directories', async () => {
    for (const path of [
      own.home,
      base,
      join(own.home, '.ssh'),
      join(own.home, '.ssh/keys'),
      join(own.home, '.config'),
      own.config,
      own.state,
      join(base, 'run'),
      join(own.home, '.local'),
    ]) {
      await expect(validateWorkspace(path, own)).rejects.toMatchObject({ code: 'ACODE-SBX-003' });
    }
  });

  it('judges what a link leads to, not its name', async () => {
    symlinkSync(join(own.home, '.ssh'), join(own.home, 'innocent'));
    await expect(validateWorkspace(join(own.home, 'innocent'), own)).rejects.toMatchObject({
      context: { violation: 'SensitivePathAccess' },
    });
    symlinkSync(own.home, join(base, 'home-link'));
    await expect(validateWorkspace(own.home, { ...own, home: join(base, 'home-link') })).rejects.toMatchObject({
      context: { violation: 'ForbiddenPath' },
    });
  });

  it('judges by path segments, not by how names begin', async () => {
    mkdirSync(join(own.home, '.ssh-notes'));
    await expect(validateWorkspace(join(own.home, '.ssh-notes'), own)).resolves.toBeDefined();
    mkdirSync(`${own.home}-backup`);
    await expect(validateWorkspace(`${own.home}-backup`, own)).resolves.toBeDefined();
  });

  it('refuses a file and what does not exist', async () => {
    writeFileSync(join(own.home, 'project/file'), '');
    await expect(validateWorkspace(join(own.home, 'project/file'), own)).rejects.toMatchObject({
      context: { violation: 'NotADirectory' },
    });
    await expect(validateWorkspace(join(own.home, 'none'), own)).rejects.toMatchObject({
      context: { violation: 'Missing' },
    });
  });

  it('knows acode’s own directories before they exist', async () => {
    const later = { ...own, state: join(own.home, 'project/state/acode') };
    await expect(validateWorkspace(join(own.home, 'project'), later)).rejects.toMatchObject({
      context: { violation: 'ForbiddenPath' },
    });
  });
});

describe('workdirFor', () => {
  it.each([
    [undefined, '/workspace'],
    ['.', '/workspace'],
    ['a/../b', '/workspace/b'],
    ['..a', '/workspace/..a'],
    ['/workspace/x', '/workspace/x'],
  ])('%s is %s', (cwd, expected) => {
    expect(workdirFor(cwd, '/workspace')).toBe(expected);
  });

  it.each(['..', '../workspace-evil', '/etc', 'a/../../b', '/proc/self/fd/7'])('refuses %s', cwd => {
    expect(() => workdirFor(cwd, '/workspace')).toThrow(expect.objectContaining({ code: 'ACODE-SBX-003' }));
  });

  it('says what a working directory is relative to, and how to get to another directory of the image', () => {
    expect(() => workdirFor('/project', '/workspace')).toThrow(
      expect.objectContaining({ hint: expect.stringMatching(/directory of the workspace.*"cd \/project && …"/) }),
    );
    expect(() => workdirFor('/x;reboot', '/workspace')).toThrow(
      expect.objectContaining({ hint: expect.not.stringContaining('reboot') }),
    );
  });

  it('refuses a NUL', () => {
    expect(() => workdirFor('a\0', '/workspace')).toThrow(expect.objectContaining({ code: 'ACODE-SBX-017' }));
  });
});

describe('isWithin', () => {
  it.each([
    ['/p/proj', '/p/proj', true],
    ['/p/proj/x', '/p/proj', true],
    ['/p/proj-evil', '/p/proj', false],
    ['/p', '/p/proj', false],
    ['/p/proj/..x', '/p/proj', true],
  ])('%s within %s: %s', (path, root, expected) => {
    expect(isWithin(path, root)).toBe(expected);
  });
});
