// Which log lines are written, and how they look.

import { describe, expect, it } from 'vitest';
import { UsageError } from './failure/usage.ts';
import { logLevel, noticesOnly } from './log.ts';
import { structuredLog } from './structured-log.ts';
import { lookOf } from './terminal/look.ts';
import { Output } from './terminal/output.ts';
import { Recorder } from './test-process.ts';

describe('the level of logs', () => {
  it.each([
    [true, undefined, 'debug'],
    [true, 'error', 'debug'],
    [false, 'WARN', 'warn'],
    [false, '', null],
    [false, undefined, null],
  ] as const)('with --verbose %j and ACODE_LOG_LEVEL %j is %j', (verbose, variable, level) => {
    expect(logLevel(verbose, variable)).toBe(level);
  });

  it('is refused where it is none', () => {
    expect(() => logLevel(false, 'loud')).toThrow(UsageError);
  });
});

describe('log lines', () => {
  const written = (terminal: boolean): string => {
    const stream = new Recorder(terminal);
    const output = new Output(stream);
    const log = structuredLog('info', output, lookOf(output, { env: {}, now: () => 0 }, false));
    log.debug({}, 'not asked for');
    log.info({ socket: '/run/docker.sock', argv: ['a b'], level: 'docker', ms: 1.26 }, 'found\u001b]0;pwned\u0007');
    log.warn({}, 'careful');
    log.error({}, 'broken');
    return stream.text;
  };

  it('are JSON where a program reads', () => {
    const lines = written(false).trimEnd().split('\n');
    expect(lines.map(line => JSON.parse(line) as unknown)).toMatchObject([
      { level: 'info', isolation: 'docker', socket: '/run/docker.sock', time: expect.stringMatching(/^\d{4}-/) },
      { level: 'warn', msg: 'careful' },
      { level: 'error', msg: 'broken' },
    ]);
  });

  it('are readable and harmless where a person does', () => {
    const [first] = written(true).split('\n');
    expect(first).toMatch(
      /^[\d:.]{12} INFO {2}found␛\]0;pwned␇ socket=\/run\/docker\.sock argv=\["a b"\] ms=1\.3 isolation=docker$/,
    );
  });

  it('are only warnings where no logs were asked for, without what the closing lines say', () => {
    const stream = new Recorder();
    const output = new Output(stream);
    const log = noticesOnly(output, lookOf(output, { env: {}, now: () => 0 }, false));
    log.debug({}, 'x');
    log.info({}, 'x');
    log.error({}, 'x');
    log.warn({ limit: 'memory' }, 'limit exceeded: memory');
    log.warn({ rule: 'the sandbox has no network' }, 'denied: the sandbox has no network');
    log.warn({ riskyChanges: [] }, 'risky changes');
    log.warn({}, 'the process limit was lowered from 9000 to 2048');
    expect(stream.text).toBe('acode: warning: the process limit was lowered from 9000 to 2048\n');
  });
});
