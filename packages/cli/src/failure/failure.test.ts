// Failure reports have a code and what to do next, and never a stack trace.

import { AcodeError } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { lookOf } from '../terminal/look.ts';
import { Output } from '../terminal/output.ts';
import { Recorder } from '../test-process.ts';
import { renderFailure, reportOn } from './report.ts';
import { UsageError } from './usage.ts';

const look = lookOf(new Output(new Recorder()), { env: {}, now: () => 0 }, false);

describe('a failure', () => {
  it('of the library shows code, what the message leaves out, and hint; the correlation id only with --verbose', () => {
    const error = new AcodeError('ACODE-SBX-011', { uid: 0 });
    error.correlationId = 'c-1';
    expect(renderFailure(reportOn(error), look, false)).toBe(
      ['acode: acode must not run as root/Administrator.', '├▶ code: ACODE-SBX-011', `╰▶ hint: ${error.hint}`, ''].join(
        '\n',
      ),
    );
    expect(renderFailure(reportOn(error), look, true)).toContain('\n├▶ correlation id: c-1\n');
  });

  it('names options, not fields of the policy', () => {
    const error = new AcodeError('ACODE-SBX-017', { field: 'policy.limits.memoryBytes', reason: 'is too small' });
    const text = renderFailure(reportOn(error), look, false);
    expect(text).toContain('acode: --memory: is too small.');
    expect(text).not.toContain('policy.');
  });

  it('tells its causes only when asked, and never a stack', () => {
    const error = new AcodeError(
      'ACODE-SBX-009',
      { image: 'x' },
      { cause: new AcodeError('ACODE-CTN-011', { image: 'x' }, { cause: new Error('HTTP 404') }) },
    );
    expect(renderFailure(reportOn(error), look, false)).not.toContain('cause');
    const verbose = renderFailure(reportOn(error), look, true);
    expect(verbose).toContain('├▶ cause: ACODE-CTN-011: The engine has no image x.\n├▶ cause: HTTP 404\n');
    expect(verbose).not.toMatch(/\n\s+at /);
  });

  it('of the caller ends with 2', () => {
    expect(reportOn(new UsageError('No.', 'Do.'))).toMatchObject({ code: 'ACODE-CLI-001', exitStatus: 2, hint: 'Do.' });
  });

  it.each([new TypeError('x is not a function'), 'a string'])('that is unexpected is one sentence too: %s', error => {
    const report = reportOn(error);
    expect(report).toMatchObject({ code: 'ACODE-CLI-002', exitStatus: 125 });
    expect(renderFailure(report, look, false).split('\n')).toHaveLength(4);
  });

  it('drives no terminal with what untrusted code chose', () => {
    const error = new AcodeError('ACODE-SBX-009', { image: 'x\u001b]0;pwned\u0007\ny' });
    expect(renderFailure(reportOn(error), look, false)).not.toMatch(/\u001b|\u0007/);
  });

  it('with a circle of causes is shown once', () => {
    const error = new Error('a');
    error.cause = error;
    expect(reportOn(error).causes.length).toBeLessThanOrEqual(10);
  });
});
