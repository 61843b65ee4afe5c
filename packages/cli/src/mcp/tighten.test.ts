// A model can make its sandbox stricter, and never looser than the user’s policy.

import type { EffectivePolicy, Explanation, Level } from '@acode/sandbox';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { boundedBy, plainPolicy, tighteningArguments } from './tighten.ts';
import type { Tightening } from './tighten.ts';

const MIB = 1024 ** 2;

function sourced<Value>(value: Value) {
  return { value, layer: 'user' as const, where: 'config.yml' };
}

function explained(timeoutMs: number, memoryBytes: number, cpus: number, level: Level = 'docker') {
  const limits = { memoryBytes: sourced(memoryBytes), cpus: sourced(cpus) };
  const policy = { timeoutMs: sourced(timeoutMs), limits } as unknown as EffectivePolicy;
  return { policy, level } satisfies Pick<Explanation, 'policy' | 'level'>;
}

function policyFor(asked: Tightening, of = explained(60_000, 512 * MIB, 2)) {
  return boundedBy(asked, plainPolicy(asked), of);
}

describe('what a model asks for', () => {
  it('counts where it is stricter', () => {
    expect(policyFor({ timeout_seconds: 5, memory_mb: 64, cpus: 0.5, level: 'gvisor', network: 'none' })).toEqual({
      policy: {
        askedBy: 'model',
        workspacePath: '/workspace',
        network: 'none',
        level: 'gvisor',
        timeoutMs: 5000,
        limits: { memoryBytes: 64 * MIB, cpus: 0.5 },
      },
      notes: [],
    });
  });

  it('is left to the policy where it is more than that gives, and said so', () => {
    const { policy, notes } = policyFor({ timeout_seconds: 3600, memory_mb: 8192, cpus: 16 });
    expect(policy).toEqual({ askedBy: 'model', workspacePath: '/workspace' });
    const asked = z.object(tighteningArguments).parse({ timeout_seconds: 100_000 });
    expect(policyFor(asked)).toEqual({
      policy: { askedBy: 'model', workspacePath: '/workspace' },
      notes: ['timeout_seconds was lowered from 100000 to 60, the limit of the user’s policy.'],
    });
    expect(notes).toEqual([
      'timeout_seconds was lowered from 3600 to 60, the limit of the user’s policy.',
      'memory_mb was lowered from 8192 to 512, the limit of the user’s policy.',
      'cpus was lowered from 16 to 2, the limit of the user’s policy.',
    ]);
  });

  it.each(['none', 'ulimit', 'bubblewrap'] as const)('is refused as level %s where docker is asked for', level => {
    expect(() => policyFor({ level })).toThrow(expect.objectContaining({ code: 'ACODE-MCP-006' }));
  });

  it('is never looser, whatever it is', () => {
    const number = fc.option(fc.double({ min: 0.02, max: 86_400, noNaN: true }), { nil: undefined });
    fc.assert(
      fc.property(number, number, number, (timeout, memory, cpus) => {
        const asked = {
          ...(timeout === undefined ? {} : { timeout_seconds: timeout }),
          ...(memory === undefined ? {} : { memory_mb: Math.ceil(memory) }),
          ...(cpus === undefined ? {} : { cpus }),
        };
        const { policy } = policyFor(asked);
        expect(policy.timeoutMs ?? 0).toBeLessThanOrEqual(60_000);
        expect(policy.limits?.memoryBytes ?? 0).toBeLessThanOrEqual(512 * MIB);
        expect(policy.limits?.cpus ?? 0).toBeLessThanOrEqual(2);
      }),
    );
  });
});
