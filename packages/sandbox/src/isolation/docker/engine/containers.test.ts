// Shows that what engines leave out or send as null is understood, and that nothing they add is lost.
import { describe, expect, it } from 'vitest';
import { createdReply, detailsReply, exitOf, exitReply, summaryOf, summaryReply } from './containers.ts';

describe('replies', () => {
  it('a create may have no warnings', () => {
    expect(createdReply.parse({ Id: 'a', Warnings: null })).toEqual({ Id: 'a', Warnings: null });
    expect(createdReply.parse({ Id: 'a' })).toEqual({ Id: 'a' });
    expect(createdReply.safeParse({ Id: '' }).success).toBe(false);
  });

  it('an exit has a message only when something went wrong', () => {
    expect(exitOf(exitReply.parse({ StatusCode: 3, Error: null }))).toEqual({ statusCode: 3 });
    expect(exitOf(exitReply.parse({ StatusCode: 0, Error: { Message: 'gone' } }))).toEqual({
      statusCode: 0,
      error: 'gone',
    });
  });

  it('a name in a list has no slash in front', () => {
    const reply = { Id: 'a', Image: 'i', ImageID: 's', Created: 1, State: 'running', Status: 'Up' };
    expect(summaryOf(summaryReply.parse(reply))).toMatchObject({ names: [], labels: {} });
    expect(summaryOf(summaryReply.parse({ ...reply, Names: ['/x'], Labels: { k: 'v' } }))).toMatchObject({
      names: ['x'],
      labels: { k: 'v' },
    });
  });

  it('a mount counts as writable unless the engine says that it is not', () => {
    const reply = { Id: 'a', Image: 'i', ImageID: 's', Created: 1, State: 'running', Status: 'Up' };
    const Mounts = [
      { Type: 'bind', Source: '/w', Destination: '/workspace', RW: true },
      { Type: 'bind', Source: '/w/.git', RW: false },
      { Type: 'bind', Source: '/unknown' },
      { Type: 'volume', Source: '/v', RW: true },
    ];
    expect(summaryOf(summaryReply.parse({ ...reply, Mounts }))).toMatchObject({
      writableSources: ['/w', '/unknown'],
      readOnlySources: ['/w/.git'],
      sourceAt: { '/workspace': '/w' },
    });
  });

  it('details keep every key, since a verifier compares what it does not expect too', () => {
    const details = {
      Id: 'a',
      Name: '/x',
      Image: 'sha256:1',
      Created: '',
      State: {
        Status: 'created',
        Running: false,
        Pid: 0,
        ExitCode: 0,
        OOMKilled: false,
        Dead: false,
        StartedAt: '',
        FinishedAt: '',
        New: 1,
      },
      Config: { Image: 'i', Env: null, Cmd: null, Volumes: null, New: 1 },
      HostConfig: { Privileged: false, New: { deep: [1] } },
      Mounts: [{ Type: 'bind', Destination: '/w', RW: true, New: 1 }],
      NetworkSettings: { Networks: null, New: 1 },
      New: 1,
    };
    expect(detailsReply.parse(details)).toEqual(details);
  });
});
