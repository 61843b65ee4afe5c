import { AcodeError, ERRORS } from '@acode/sandbox';
import type { Denial, ErrorCode } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { denialText, failureOf, toldDenials } from './failure.ts';

const MIB = 1024 ** 2;
const memory = (setBy: Denial['setBy']): Denial => ({
  rule: 'limit.memory',
  value: 64 * MIB,
  setBy,
  effect: { kind: 'process-killed' },
  count: 1,
  remedies: [{ kind: 'use-less' }, { kind: 'raise-limit', field: 'policy.limits.memoryBytes', suggested: 128 * MIB }],
});
const root: Denial = {
  rule: 'read-only.root',
  setBy: { value: null, layer: 'built-in', where: 'rule' },
  suspected: '/etc/x',
  count: 1,
  remedies: [
    { kind: 'write-elsewhere', suggested: ['tmp'] },
    { kind: 'choose-image', field: 'policy.image' },
  ],
};

describe('what to do next that a model is told', () => {
  it.each([
    ['curl', 'not found', /the argument image of run_command/],
    ['npm test', 'not found', /Give a shell line as a text/],
    ['./x.sh', 'not executable', /\["sh", "\.\/script"\]/],
  ] as const)('of a program %s that is %s names no option of a command line', (command, reason, hint) => {
    const failure = failureOf(new AcodeError('ACODE-SBX-015', { command, image: 'busybox', reason }));
    expect(failure.hint).toMatch(hint);
    expect(failure.hint).not.toMatch(/--|acode /);
  });

  it('closes the session’s own sandbox that is in the way, and leaves one of somebody else to the user', () => {
    const detail = '`.vscode`, which acode protects, was created in /p while sandbox a1b2 is running';
    const refused = new AcodeError('ACODE-SBX-010', {
      violation: 'NestedWritableMount',
      detail,
      sandboxes: ['a1b2', 'warm'],
      remedy: 'End it with `acode sandbox kill a1b2`.',
    });
    const own = failureOf(refused, { tool: 'run_command', sandboxes: ['c3d4', 'a1b2'] });
    expect(own.hint).toMatch(/Close this session’s sandbox with close_sandbox a1b2, then call run_command again\./);
    expect(own.hint).not.toMatch(/--|acode /);
    const foreign = failureOf(refused, { tool: 'run_command', sandboxes: ['c3d4'] });
    expect(foreign.hint).toMatch(/Tell the user: .*`acode serve stop` ends it/);
    expect(foreign.hint).not.toContain('close_sandbox');
  });

  it('of a fork that the session’s own sandbox has names the tools that help', () => {
    const busy = new AcodeError('ACODE-FRK-003', { fork: 'abcdefgh', sandbox: 'a1b2' });
    const own = failureOf(busy, { tool: 'run_command', sandboxes: ['a1b2'] });
    expect(own.hint).toMatch(/use run_in_sandbox, .* or close_sandbox first\.$/);
    expect(own.hint).not.toMatch(/--|acode /);
    expect(failureOf(busy, { tool: 'run_command', sandboxes: [] }).hint).toMatch(/^No argument of .* Tell the user/);
  });

  it.each(['ACODE-SBX-008', 'ACODE-SBX-020', 'ACODE-CTN-011', 'ACODE-FRK-001', 'ACODE-MSK-001'] as const)(
    'of %s gives what is for a command line to the user',
    code => {
      const { example } = ERRORS[code];
      const failure = failureOf(new AcodeError<ErrorCode>(code, example));
      expect(failure.hint).toMatch(/^No argument of these tools changes that\. Tell the user, for whom this is: /);
    },
  );

  it('names no option of a command line, and says whom to ask where no tool can do it', () => {
    expect(toldDenials([memory({ value: 64 * MIB, layer: 'user', where: 'c.yml:1:1' })])).toEqual([
      {
        rule: 'limit.memory',
        what: 'a process was killed at the memory limit of 64 MiB',
        setBy: 'your configuration, c.yml:1:1',
        remedy:
          'Use less memory; or tell the user what you need and why, since no argument of these tools raises this limit, and go on without it.',
      },
    ]);
  });

  it('names the argument by which the call set the limit itself', () => {
    const [told] = toldDenials([memory({ value: 1, layer: 'request', where: 'policy.limits.memoryBytes' })]);
    expect(told).toMatchObject({
      setBy: 'the argument memory_mb',
      remedy: expect.stringMatching(/^Use less memory; or give a larger memory_mb, or leave it out/),
    });
  });

  it('names the argument where there is one, and quotes what was inferred last', () => {
    const [told] = toldDenials([root]);
    expect(denialText(told!)).toBe(
      'Denied: the sandbox’s own file system is read-only (set by the built-in rules). Retrying does not help. Write to /tmp; or choose an image that already has what must be installed: the argument image. [suspected write to "/etc/x"]',
    );
  });
});
