// Logging in with what is the user’s own: real files, real programs, and whatever untrusted code could have written refused.

import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../lifecycle/clock.ts';
import { loginFor } from './login.ts';

const REGISTRY = 'reg.example:5000';
const SECRET = 'correct-horse-battery';
const uid = process.getuid?.() ?? 0;

let top = '';
beforeEach(() => {
  // Not in a directory that everybody can write: that is refused, and has a test of its own.
  top = mkdtempSync(join(tmpdir(), 'login-'));
  for (const name of ['home/.docker', 'workspace', 'bin']) mkdirSync(join(top, name), { recursive: true, mode: 0o755 });
});
afterEach(() => rmSync(top, { recursive: true, force: true }));

interface Given {
  readonly config?: unknown;
  readonly env?: Record<string, string>;
  readonly mode?: number;
  readonly as?: number;
}

const signal = AbortSignal.timeout(600_000);

function ask({ config, env = {}, mode = 0o600, as = uid }: Given, clock = systemClock) {
  const file = join(top, 'home', '.docker', 'config.json');
  if (config !== undefined) {
    writeFileSync(file, JSON.stringify(config));
    chmodSync(file, mode);
  }
  const around = {
    env: { PATH: `${join(top, 'bin')}:/usr/bin:/bin`, HOME: join(top, 'home'), ...env },
    home: join(top, 'home'),
    uid: as,
    workspace: join(top, 'workspace'),
    clock,
  };
  return loginFor(REGISTRY, around, signal);
}

function helper(script: string, directory = 'bin', mode = 0o755): string {
  const path = join(top, directory, 'docker-credential-mine');
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, mode);
  return path;
}

const auths = { [REGISTRY]: { auth: Buffer.from(`me:${SECRET}`).toString('base64') } };
const answer = `echo '{"ServerURL":"x","Username":"me","Secret":"${SECRET}"}'`;
const refused = (part: string) =>
  expect.objectContaining({
    code: 'ACODE-SBX-013',
    message: expect.stringContaining(part) as string,
    hint: expect.stringContaining('docs/images.md') as string,
  });

describe('the file', () => {
  it('of the user is read; without one the pull is anonymous', async () => {
    await expect(ask({})).resolves.toEqual({ login: null, source: 'anonymous' });
    const found = await ask({ config: { auths } });
    expect(found.login).toMatchObject({ username: 'me', password: SECRET });
    expect(found.source).toBe(join(top, 'home', '.docker', 'config.json'));
  });

  it('may be where DOCKER_CONFIG says', async () => {
    mkdirSync(join(top, 'elsewhere'));
    writeFileSync(join(top, 'elsewhere', 'config.json'), JSON.stringify({ auths }), { mode: 0o600 });
    await expect(ask({ env: { DOCKER_CONFIG: join(top, 'elsewhere') } })).resolves.toMatchObject({
      login: { password: SECRET },
    });
  });

  it('is refused in the workspace, also by way of a link, and where DOCKER_CONFIG is relative', async () => {
    const inside = join(top, 'workspace', 'config.json');
    writeFileSync(inside, JSON.stringify({ auths }), { mode: 0o600 });
    await expect(ask({ env: { DOCKER_CONFIG: join(top, 'workspace') } })).rejects.toEqual(
      refused('lies in the workspace'),
    );
    symlinkSync(inside, join(top, 'home', '.docker', 'config.json'));
    await expect(ask({})).rejects.toEqual(refused('lies in the workspace'));
    await expect(ask({ env: { DOCKER_CONFIG: '.docker' } })).rejects.toEqual(refused('absolute path'));
  });

  it('is refused where others can write it', async () => {
    await expect(ask({ config: { auths }, mode: 0o666 })).rejects.toEqual(refused('others can write it'));
    await expect(ask({ config: { auths }, mode: 0o644 })).resolves.toMatchObject({ login: { password: SECRET } });
  });

  it('that cannot be read as one is refused without a word of it', async () => {
    writeFileSync(join(top, 'home', '.docker', 'config.json'), `{"auths": ${SECRET}`, { mode: 0o600 });
    const error: unknown = await ask({}).catch((thrown: unknown) => thrown);
    expect(error).toEqual(refused('is not a docker configuration'));
    expect(JSON.stringify(error, Object.getOwnPropertyNames(error))).not.toContain(SECRET);
  });
});

describe('a helper', () => {
  const config = { credsStore: 'mine' };

  it('is asked on its standard input, with little of our environment', async () => {
    helper(`cat > ${join(top, 'asked')}; env > ${join(top, 'env')}; ${answer}`);
    const found = await ask({ config, env: { AWS_SECRET: 'not for helpers' } });
    expect(found).toEqual({
      login: { username: 'me', password: SECRET, serveraddress: REGISTRY },
      source: 'docker-credential-mine',
    });
    expect(readFileSync(join(top, 'asked'), 'utf8')).toBe(`${REGISTRY}\n`);
    const passed = readFileSync(join(top, 'env'), 'utf8');
    expect(passed).toContain(`HOME=${join(top, 'home')}`);
    expect(passed).not.toContain('AWS_SECRET');
  });

  it('that knows of none leaves what is written in the file, or nothing', async () => {
    helper('echo "credentials not found in native keychain"; exit 1');
    await expect(ask({ config })).resolves.toMatchObject({ login: null });
    await expect(ask({ config: { ...config, auths } })).resolves.toMatchObject({ login: { password: SECRET } });
  });

  it.each([
    [`echo ${SECRET}; exit 3`, 'ended with 3'],
    [`head -c 100000 /dev/zero; sleep 20`, 'more than 64 KiB'],
    [`echo ${SECRET}`, 'no credentials that can be read'],
  ])('that fails is a refusal which says nothing of what it printed: %s', async (script, part) => {
    helper(script);
    const error: unknown = await ask({ config }).catch((thrown: unknown) => thrown);
    expect(error).toEqual(refused(part));
    expect(JSON.stringify(error, Object.getOwnPropertyNames(error))).not.toContain(SECRET);
  });

  it('that hangs is ended at the deadline, with what it started', async () => {
    const child = join(top, 'child');
    helper(`sleep 300 & echo $! > ${child}; wait`);
    // The deadline comes as soon as the helper has started what it leaves behind.
    const hasStarted = (): boolean => existsSync(child) && readFileSync(child, 'utf8').endsWith('\n');
    const soon = {
      ...systemClock,
      after: (ms: number, action: () => void) => {
        if (ms !== 10_000) return systemClock.after(ms, action);
        const timer = setInterval(() => void (hasStarted() && action()), 20);
        return () => clearInterval(timer);
      },
    };
    await expect(ask({ config }, soon)).rejects.toEqual(refused('did not answer in 10 s'));
    const pid = Number(readFileSync(child, 'utf8'));
    await expect.poll(() => existsSync(`/proc/${pid}`) && !isZombie(pid)).toBe(false);
  });

  it('is never taken from the workspace, nor by a link into it', async () => {
    const ran = join(top, 'ran');
    const inside = helper(`touch ${ran}; ${answer}`, 'workspace');
    const env = { PATH: `${join(top, 'workspace')}:${join(top, 'bin')}:/usr/bin:/bin` };
    await expect(ask({ config, env })).rejects.toEqual(refused('is in no directory of PATH'));
    symlinkSync(inside, join(top, 'bin', 'docker-credential-mine'));
    await expect(ask({ config, env })).rejects.toEqual(refused('is in no directory of PATH'));
    expect(existsSync(ran)).toBe(false);
    // The control: the same program where only the user can write.
    rmSync(join(top, 'bin', 'docker-credential-mine'));
    helper(`touch ${ran}; ${answer}`);
    await expect(ask({ config, env })).resolves.toMatchObject({ login: { password: SECRET } });
    expect(existsSync(ran)).toBe(true);
  });

  it('is not taken where another user could have put it', async () => {
    helper(answer, 'bin', 0o777);
    await expect(ask({ config })).rejects.toEqual(refused('is in no directory of PATH'));
    helper(answer);
    chmodSync(join(top, 'bin'), 0o1777);
    await expect(ask({ config })).rejects.toEqual(refused('is in no directory of PATH'));
    chmodSync(join(top, 'bin'), 0o755);
    await expect(ask({ config })).resolves.toMatchObject({ login: { password: SECRET } });
  });

  it('is not taken where a group of the user’s could exchange a directory above it', async () => {
    // A group’s directory of root’s is root’s own choice, so as root, the caller counts as another user.
    const as = uid === 0 ? 4242 : uid;
    for (const name of ['shared', 'shared/mine', 'shared/mine/bin']) {
      mkdirSync(join(top, name), { mode: 0o755 });
      chownSync(join(top, name), as, process.getgid?.() ?? 0);
    }
    helper(answer, 'shared/mine/bin');
    const env = { PATH: `${join(top, 'shared/mine/bin')}:/usr/bin:/bin` };
    const allowed = expect.objectContaining({ source: 'docker-credential-mine' }) as unknown;
    await expect(ask({ config, env, as })).resolves.toEqual(allowed);
    for (const open of ['shared', 'shared/mine', 'shared/mine/bin']) {
      chmodSync(join(top, open), 0o775);
      await expect(ask({ config, env, as })).rejects.toEqual(refused('is in no directory of PATH'));
      chmodSync(join(top, open), 0o755);
    }
    // In a directory where no one can remove another user’s file.
    chmodSync(join(top, 'shared'), 0o1775);
    await expect(ask({ config, env, as })).resolves.toEqual(allowed);
  });

  it('is not searched in relative directories', async () => {
    await expect(ask({ config, env: { PATH: '.:bin::' } })).rejects.toEqual(refused('is in no directory of PATH'));
  });
});

function isZombie(pid: number): boolean {
  return /^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
}
