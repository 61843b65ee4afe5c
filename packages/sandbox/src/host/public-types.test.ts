// Public types: the compiler holds each to its schema, and refuses combinations that acode refuses at run time.

import { describe, expect, expectTypeOf, it } from 'vitest';
import type * as z from 'zod';
import type { policyInputSchema } from '../contract/policy-schema.ts';
import type { configSchema } from '../policy/config/schema.ts';
import type { commandRequestSchema, createSchema, requestSchema } from '../run/run.ts';
import { createRequestFrom, policyFrom } from '../index.ts';
import type {
  CommandRequest,
  ConfigInput,
  CreateFields,
  CreateRequest,
  PolicyFields,
  PolicyInput,
  RunRequest,
} from '../index.ts';

/** Without the difference between an absent field and one that is undefined: a schema knows none. */
type Present<Type> = { [Name in keyof Type]-?: Exclude<Type[Name], undefined> };
// Checked on their own: a policy by its own schema, and what no schema can describe.
type Apart = 'policy' | 'stdin' | 'onStdout' | 'onStderr' | 'signal';
type Rest<Type> = Present<Omit<Type, Apart>>;

describe('public types', () => {
  it('are what their schemas accept, in both directions', () => {
    expectTypeOf<PolicyFields>().toEqualTypeOf<z.input<typeof policyInputSchema>>();
    expectTypeOf<ConfigInput>().toEqualTypeOf<z.input<typeof configSchema>>();
    expectTypeOf<keyof RunRequest>().toEqualTypeOf<keyof z.input<typeof requestSchema>>();
    expectTypeOf<Rest<RunRequest>>().toEqualTypeOf<Rest<z.input<typeof requestSchema>>>();
    expectTypeOf<keyof CreateFields>().toEqualTypeOf<keyof z.input<typeof createSchema>>();
    expectTypeOf<Rest<CreateFields>>().toEqualTypeOf<Rest<z.input<typeof createSchema>>>();
    expectTypeOf<keyof CommandRequest>().toEqualTypeOf<keyof z.input<typeof commandRequestSchema>>();
    expectTypeOf<Rest<CommandRequest>>().toEqualTypeOf<Rest<z.input<typeof commandRequestSchema>>>();
    // Every request is one of these, so that the restrictions add no field that the schema does not know.
    expectTypeOf<keyof PolicyInput>().toEqualTypeOf<keyof PolicyFields>();
    expectTypeOf<keyof CreateRequest>().toEqualTypeOf<keyof CreateFields>();
  });

  it('take every field that a later version fills in', () => {
    expectTypeOf<{ network: { allow: readonly string[] } }>().toExtend<PolicyInput>();
    expectTypeOf<{ workspace: 'fork'; fork: 'new'; disk: { bytes: number; hard: true } }>().toExtend<PolicyInput>();
    expectTypeOf<{ services: { db: 'postgres:16' } }>().toExtend<PolicyInput>();
    expectTypeOf<{ keep: true; policy: { workspace: 'fork' } }>().toExtend<CreateRequest>();
  });

  it('refuse ports and name servers without a network, and take them with one', () => {
    expectTypeOf<{ network: 'bridge'; ports: { container: number }[]; dns: string[] }>().toExtend<PolicyInput>();
    expectTypeOf<{ network: { name: string }; ports: { container: number }[] }>().toExtend<PolicyInput>();
    // The user’s file may give one.
    expectTypeOf<{ ports: { container: number }[] }>().toExtend<PolicyInput>();
    expectTypeOf<{ network: 'none'; ports: [] }>().toExtend<PolicyInput>();
    expectTypeOf<{ network: 'none'; ports: { container: number }[] }>().not.toExtend<PolicyInput>();
    expectTypeOf<{ network: 'none'; dns: string[] }>().not.toExtend<PolicyInput>();
    expectTypeOf<{ network: { allow: string[] }; ports: { container: number }[] }>().not.toExtend<PolicyInput>();
  });

  it('refuse an image or a runtime at a level without an engine, and take them at any other', () => {
    expectTypeOf<{ level: 'docker' | 'gvisor' | 'microvm' | 'auto'; image: string }>().toExtend<PolicyInput>();
    expectTypeOf<{ level: 'bubblewrap' | 'ulimit' | 'none'; timeoutMs: number }>().toExtend<PolicyInput>();
    expectTypeOf<{ level: 'bubblewrap'; image: string }>().not.toExtend<PolicyInput>();
    expectTypeOf<{ level: 'ulimit'; image: string }>().not.toExtend<PolicyInput>();
    expectTypeOf<{ level: 'none'; runtime: string }>().not.toExtend<PolicyInput>();
  });

  it('refuse caches and the bridge in a sandbox that outlives its session, and take them in any other', () => {
    expectTypeOf<{ policy: { caches: ['npm']; network: 'bridge' } }>().toExtend<CreateRequest>();
    expectTypeOf<{ keep: false; policy: { caches: { fill: ['npm'] } } }>().toExtend<CreateRequest>();
    expectTypeOf<{ keep: true; policy: { caches: false; network: { name: string } } }>().toExtend<CreateRequest>();
    expectTypeOf<{ keep: true; policy: { caches: ['npm'] } }>().not.toExtend<CreateRequest>();
    expectTypeOf<{ keep: true; policy: { caches: { fill: ['npm'] } } }>().not.toExtend<CreateRequest>();
    expectTypeOf<{ keep: true; policy: { network: 'bridge' } }>().not.toExtend<CreateRequest>();
  });

  it('let a program hand on what it read at run time, unchanged', () => {
    const fields: PolicyFields = { level: 'bubblewrap', image: 'node:20-alpine' };
    expect(policyFrom(fields)).toBe(fields);
    const create: CreateFields = { keep: true, policy: { caches: ['npm'] } };
    expect(createRequestFrom(create)).toBe(create);
  });
});
