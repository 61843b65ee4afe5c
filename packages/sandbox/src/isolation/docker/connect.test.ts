// The remedy fits the reason why an engine cannot be used.

import { describe, expect, it } from 'vitest';
import { connectEngine, failureRemedy, isAbsent, refusalRemedy } from './connect.ts';
import { EngineError } from './engine/protocol.ts';

const failure = (kind: 'refused' | 'unreachable' | 'timeout') =>
  new EngineError({ kind, operation: 'GET /_ping', detail: 'no' });

describe('the remedy', () => {
  it('for another machine is a local socket, and not to start anything', async () => {
    const asked = connectEngine('tcp://127.0.0.1:2375', AbortSignal.timeout(30_000));
    await expect(asked).rejects.toMatchObject({
      code: 'ACODE-SBX-008',
      hint: expect.stringMatching(/unix:\/\/.* An engine on another machine .* cannot mount/),
    });
    expect(refusalRemedy({ source: 'DOCKER_HOST', reason: 'not-a-unix-socket', subject: 'x' })).toContain(
      'Unset DOCKER_HOST',
    );
  });

  it.each(['not-absolute', 'context-missing', 'unreadable'] as const)('for %s names what to correct', reason => {
    expect(refusalRemedy({ source: 'context', reason, subject: 'x' })).not.toContain('Start Docker');
  });

  it('for a socket without its scheme is the same with it, and no talk of other machines', () => {
    const remedy = refusalRemedy({ source: 'DOCKER_HOST', reason: 'no-scheme', subject: '/run/docker.sock' });
    expect(remedy).toBe('Write it so in DOCKER_HOST: unix:///run/docker.sock.');
  });

  it('for a socket without permission is its group', async () => {
    expect(await failureRemedy('/dev/null/none', failure('refused'))).toContain('usermod -aG docker');
  });

  it('for a socket where nobody listens is to start Docker', async () => {
    expect(await failureRemedy('/x', failure('unreachable'))).toBeUndefined();
    const asked = connectEngine('/nonexistent/docker.sock', AbortSignal.timeout(30_000));
    await expect(asked).rejects.toMatchObject({ hint: expect.stringMatching(/^Start Docker/) });
  });

  it('for one that was named is that name, and not a variable which comes after it', async () => {
    const asked = connectEngine('/nonexistent/docker.sock', AbortSignal.timeout(30_000));
    await expect(asked).rejects.toMatchObject({ hint: expect.stringMatching(/^(?!.*DOCKER_HOST).*--socket/) });
    expect(await failureRemedy('/x', failure('unreachable'), 'DOCKER_HOST')).toBeUndefined();
  });

  it('for something that is not a socket says so, and speaks of no group', async () => {
    const asked = connectEngine('/etc/passwd', AbortSignal.timeout(30_000));
    await expect(asked).rejects.toMatchObject({
      message: expect.stringContaining('/etc/passwd is not a socket'),
      hint: expect.stringMatching(/^Name the socket of an engine.*--socket/),
    });
    expect(await failureRemedy('/etc', failure('refused'), 'DOCKER_HOST')).toMatch(/^Name the socket.*in DOCKER_HOST/);
  });

  it('for something that hangs is its log', async () => {
    expect(await failureRemedy('/x', failure('timeout'))).toContain('log');
  });
});

describe('isAbsent', () => {
  const nothing = (): 'absent' => 'absent';
  const at =
    (place: string, state: 'there' | 'unknown') =>
    (path: string): 'there' | 'absent' | 'unknown' =>
      path === place ? state : 'absent';

  it('is certain only where nothing can have hidden an engine', () => {
    expect(isAbsent({ env: {}, uid: 1000 }, ['/var/run/docker.sock'], nothing)).toBe(true);
    expect(isAbsent({ env: {}, uid: undefined }, ['/var/run/docker.sock'], nothing)).toBe(true);
  });

  it.each([
    ['a context was named', { DOCKER_CONTEXT: 'default' }, nothing],
    ['the configuration is elsewhere', { DOCKER_CONFIG: '/nonexistent' }, nothing],
    [
      'a rootless engine is where it always is',
      { XDG_RUNTIME_DIR: '/elsewhere' },
      at('/run/user/1000/docker.sock', 'there'),
    ],
    ['Podman is', {}, at('/run/user/1000/podman/podman.sock', 'there')],
    ['a place cannot be looked at', {}, at('/var/run/docker.sock', 'unknown')],
  ])('is not where %s', (_, env, look) => {
    expect(isAbsent({ env, uid: 1000 }, ['/var/run/docker.sock'], look)).toBe(false);
  });
});
