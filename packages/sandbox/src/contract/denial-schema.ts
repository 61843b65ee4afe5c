// The schema of denials that come from elsewhere, such as over a wire. Apart from the types, so that the start of the command
// does not load the schema library.

import * as z from 'zod';
import { DENIAL_RULES } from './denials.ts';
import type { Denial, DenialEffect, Remedy } from './denials.ts';

const value = z.union([z.string(), z.number(), z.boolean(), z.null()]);

const sourced = z.strictObject({
  value,
  layer: z.enum(['built-in', 'machine', 'team', 'user', 'repository', 'request']),
  where: z.string(),
});

const effect: z.ZodType<DenialEffect> = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.enum(['command-ended', 'process-killed', 'process-refused', 'network-disconnected']) }),
  z.strictObject({ kind: z.literal('output-dropped'), bytes: z.number() }),
  z.strictObject({ kind: z.literal('request-ignored'), asked: sourced }),
]);

const remedy: z.ZodType<Remedy> = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.enum(['use-less', 'provide-offline', 'work-offline', 'change-on-host', 'free-space', 'ask-administrator']),
  }),
  z.strictObject({ kind: z.literal('raise-limit'), field: z.string(), suggested: z.number() }),
  z.strictObject({
    kind: z.literal('change-request'),
    field: z.string(),
    suggested: z.string(),
    consent: z.string().exactOptional(),
  }),
  z.strictObject({
    kind: z.literal('change-setting'),
    field: z.string(),
    suggested: z.string().exactOptional(),
    where: z.string().exactOptional(),
  }),
  z.strictObject({ kind: z.literal('add-setting'), field: z.string(), suggested: z.string() }),
  z.strictObject({ kind: z.literal('unset-variable'), field: z.string() }),
  z.strictObject({
    kind: z.literal('choose-image'),
    field: z.literal('policy.image'),
    image: z.string().exactOptional(),
  }),
  z.strictObject({ kind: z.enum(['leave-out', 'copy-file']), suggested: z.string() }),
  z.strictObject({ kind: z.literal('write-elsewhere'), suggested: z.array(z.enum(['workspace', 'tmp', 'home'])) }),
]);

/** The schema of a denial that came from elsewhere, such as over a wire. */
export const denialSchema: z.ZodType<Denial> = z.strictObject({
  rule: z.enum(DENIAL_RULES),
  value: value.exactOptional(),
  setBy: sourced,
  effect: effect.exactOptional(),
  suspected: z.string().exactOptional(),
  count: z.int().positive(),
  remedies: z.array(remedy).min(1),
});
