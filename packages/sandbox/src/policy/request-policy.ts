// Requested policy: the check of what a caller asks for, before any layer is merged. Pure.

import type { z } from 'zod';
import { AcodeError } from '../contract/errors.ts';
import { policyInputSchema } from '../contract/policy-schema.ts';
import type { PolicyFields } from '../contract/policy.ts';
import { formatBytes } from '../contract/units.ts';
import { text } from '../contract/wording.ts';
import type { Text } from '../contract/wording.ts';
import { issueText } from './config/issue-text.ts';
import { keysOf, nearestField } from './config/keys.ts';
import { shapeFault } from './config/shape.ts';
import { LEAST_MEMORY, NONSENSE_BYTES } from './config/values.ts';

// Enough for most programs, to suggest.
const SOME_MEMORY = 256 * 1024 ** 2;

/** A request without special settings. */
export const NOTHING: PolicyFields = Object.freeze({});

const LIMIT_FIELDS = new Set<PropertyKey>(['limits', 'timeoutMs']);

/** The policy of a request, checked against its schema and against sizes that cannot be meant. */
export function checkedPolicy(input: PolicyFields): PolicyFields {
  if (input === NOTHING) return input;
  const fault = shapeFault(input);
  if (fault) throw invalid(['policy', ...fault.path].join('.'), fault.reason);
  const parsed = policyInputSchema.safeParse(input, { error: issueText });
  if (!parsed.success) throw issueError(parsed.error.issues[0]);
  checkSizes(parsed.data);
  return parsed.data;
}

function issueError(issue: z.core.$ZodIssue | undefined): AcodeError {
  if (!issue) return invalid('policy', 'is not valid');
  const field = ['policy', ...issue.path].join('.');
  if (issue.code === 'unrecognized_keys') return unknownField(issue.keys, issue.path.join('.'));
  return LIMIT_FIELDS.has(issue.path[0] ?? '') ? nonsense(field, issue.message) : invalid(field, issue.message);
}

function unknownField(keys: readonly string[], section: string): AcodeError {
  const inside = section === '' ? '' : `${section}.`;
  const near = nearestField(`${inside}${keys[0] ?? ''}`, keysOf(policyInputSchema));
  // In the same section the name is enough.
  const meant = near?.startsWith(inside) ? near.slice(inside.length) : `policy.${near}`;
  return invalid(
    `policy${section === '' ? '' : `.${section}`}`,
    `${keys.join(', ')} is not a known field${near === null ? '' : ` (did you mean ${meant}?)`}`,
  );
}

function checkSizes({ limits = {} }: PolicyFields): void {
  for (const [name, value] of Object.entries(limits)) {
    if (name.endsWith('Bytes') && value !== undefined && value > NONSENSE_BYTES)
      throw nonsense(`policy.limits.${name}`, `must be at most ${formatBytes(NONSENSE_BYTES)}`);
  }
  if (limits.memoryBytes !== undefined && limits.memoryBytes < LEAST_MEMORY)
    throw nonsense(
      'policy.limits.memoryBytes',
      `${formatBytes(limits.memoryBytes)} is too little: the minimum is ${formatBytes(LEAST_MEMORY)}`,
      text`Give it more, such as ${{ field: 'policy.limits.memoryBytes', value: SOME_MEMORY }}, or, if you meant GiB, ${{ field: 'policy.limits.memoryBytes', value: 1024 ** 3 }}.`,
    );
}

function nonsense(field: string, reason: string, remedy?: Text): AcodeError {
  const cause = new AcodeError('ACODE-CTN-007', { limit: field, reason });
  return new AcodeError('ACODE-SBX-017', { field, reason, ...(remedy === undefined ? {} : { remedy }) }, { cause });
}

/** The error for a field of a request. */
export function invalid(field: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', { field, reason });
}
