// Errors and denials are data: each comes out of JSON as it went in, whatever its details.

import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { denialSchema } from './denial-schema.ts';
import { denialText } from './denial-text.ts';
import { DENIAL_RULES } from './denials.ts';
import type { Denial, DenialEffect, Remedy } from './denials.ts';
import { errorFromJson } from './error-json.ts';
import { ERRORS } from './error-table.ts';
import { AcodeError } from './errors.ts';
import type { ErrorCode, ErrorContexts } from './error-table.ts';

const RUNS = { numRuns: 25 };
const codes = Object.keys(ERRORS) as ErrorCode[];

const number = fc.oneof(
  fc.integer(),
  fc.double({ noNaN: true, noDefaultInfinity: true }).map(value => value + 0),
);
const value = fc.oneof(fc.string(), number.map(plain), fc.boolean(), fc.constant(null));
const sourced = fc.record({
  value,
  layer: fc.constantFrom('built-in' as const, 'machine', 'user', 'repository', 'request'),
  where: fc.oneof(fc.string(), fc.constantFrom('rule', 'default', 'ACODE_MODE', 'policy.limits.pids')),
});
const effect: fc.Arbitrary<DenialEffect> = fc.oneof(
  fc.record({
    kind: fc.constantFrom('command-ended' as const, 'process-killed', 'process-refused', 'network-disconnected'),
  }),
  fc.record({ kind: fc.constant('output-dropped' as const), bytes: fc.nat() }),
  fc.record({ kind: fc.constant('request-ignored' as const), asked: sourced }),
);
const text = fc.string();
const optional = { requiredKeys: ['kind', 'field'] as ('kind' | 'field')[] };
const remedy: fc.Arbitrary<Remedy> = fc.oneof(
  fc.record({
    kind: fc.constantFrom(
      'use-less' as const,
      'provide-offline',
      'work-offline',
      'change-on-host',
      'ask-administrator',
    ),
  }),
  fc.record({ kind: fc.constant('raise-limit' as const), field: text, suggested: fc.nat() }),
  fc.record(
    { kind: fc.constant('change-request' as const), field: text, suggested: text, consent: text },
    { requiredKeys: ['kind', 'field', 'suggested'] },
  ),
  fc.record({ kind: fc.constant('change-setting' as const), field: text, suggested: text, where: text }, optional),
  fc.record({ kind: fc.constant('add-setting' as const), field: text, suggested: text }),
  fc.record({ kind: fc.constant('unset-variable' as const), field: text }),
  fc.record({ kind: fc.constant('choose-image' as const), field: fc.constant('policy.image' as const) }),
  fc.record({ kind: fc.constantFrom('leave-out' as const, 'copy-file'), suggested: text }),
  fc.record({
    kind: fc.constant('write-elsewhere' as const),
    suggested: fc.array(fc.constantFrom('workspace' as const, 'tmp', 'home')),
  }),
);

function denialOf(rule: Denial['rule']): fc.Arbitrary<Denial> {
  return fc.record(
    {
      rule: fc.constant(rule),
      value,
      setBy: sourced,
      effect,
      suspected: text,
      count: fc.integer({ min: 1 }),
      remedies: fc.array(remedy, { minLength: 1, maxLength: 4 }),
    },
    { requiredKeys: ['rule', 'setBy', 'count', 'remedies'] },
  );
}

describe('through JSON', () => {
  it.each(DENIAL_RULES)('a denial by %s comes out as it went in, and says the same', rule => {
    fc.assert(
      fc.property(denialOf(rule), denial => {
        const received = denialSchema.parse(JSON.parse(JSON.stringify(denial)));
        expect(received).toEqual(denial);
        // Called with an index: the way of `map`.
        expect([received, received].map(denialText)).toEqual([denialText(denial), denialText(denial)]);
      }),
      RUNS,
    );
  });

  it.each(codes)('%s comes out as it went in, with its cause', code => {
    const context = like(ERRORS[code].example) as fc.Arbitrary<ErrorContexts[ErrorCode]>;
    fc.assert(
      fc.property(context, text, (details, why) => {
        const error: AcodeError = new AcodeError(code, details, { cause: new TypeError(why) });
        error.correlationId = why;
        expect(fields(errorFromJson(JSON.parse(JSON.stringify(error))))).toEqual(fields(error));
      }),
      RUNS,
    );
  });

  it('the output of a cancelled command comes out byte by byte, and an error as a cause is one again', () => {
    const result = { stdoutBytes: new Uint8Array([0, 255, 128]) } as unknown as NonNullable<
      ErrorContexts['ACODE-SBX-014']['result']
    >;
    const error = new AcodeError(
      'ACODE-SBX-014',
      { result },
      { cause: new AcodeError('ACODE-CTN-005', { name: 'n' }) },
    );
    const received = errorFromJson(JSON.parse(JSON.stringify(error)));
    expect(received?.is('ACODE-SBX-014') && received.context).toEqual({ result });
    expect(received?.cause).toBeInstanceOf(AcodeError);
    expect(received?.cause).toMatchObject({ code: 'ACODE-CTN-005', context: { name: 'n' } });
  });

  it.each([[null], ['x'], [{}], [{ code: 'ACODE-SBX-999', context: {} }], [{ code: 'ACODE-SBX-004', context: {} }]])(
    'what is not an error comes out as null: %j',
    sent => {
      expect(errorFromJson(sent)).toBeNull();
    },
  );

  it('what is not a denial is refused', () => {
    expect(denialSchema.safeParse({ rule: 'limit.luck', count: 1, remedies: [] }).success).toBe(false);
  });
});

function fields(error: AcodeError | null): unknown {
  if (!error) return null;
  const { code, message, hint, exitStatus, context, correlationId, cause } = error;
  const { name: causeName, message: causeMessage } = cause as Error;
  return { code, message, hint, exitStatus, context, correlationId, causeName, causeMessage };
}

// JSON has one zero.
function plain(of: number): number {
  return of === 0 ? 0 : of;
}

// Anything of the same shape.
function like(example: unknown): fc.Arbitrary<unknown> {
  if (typeof example === 'string') return text;
  if (typeof example === 'number') return number.map(plain);
  if (typeof example === 'boolean') return fc.boolean();
  if (Array.isArray(example)) return fc.constant(example);
  if (typeof example !== 'object' || example === null) return fc.constant(example);
  if ('rule' in example && 'remedies' in example) return fc.constantFrom(...DENIAL_RULES).chain(denialOf);
  return fc.record(Object.fromEntries(Object.entries(example).map(([key, item]) => [key, like(item)])));
}
