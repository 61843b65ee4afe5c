// Package of the fleet, which acode does not bring: where its programs are, and its errors.

import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { errorOfOtherTable } from '@acode/sandbox';
import type { AcodeError } from '@acode/sandbox';
import * as z from 'zod';
import { UsageError } from '../failure/usage.ts';

const PACKAGE = '@acode/fleet';
/** The status of a program of the package that ended without a word. */
export const FAILED = 125;

const failureSchema = z.object({
  code: z.string().default('ACODE-FLT-001'),
  message: z.string(),
  hint: z.string().default('Run the same with --verbose and report what it prints.'),
  exitStatus: z.int().default(FAILED),
  context: z.record(z.string(), z.unknown()).default({}),
});

/** A program of the package; says how to install the package where it is missing. */
export function programOfFleet(what: string, ...names: readonly string[]): string {
  try {
    const manifest = createRequire(import.meta.url).resolve(`${PACKAGE}/package.json`);
    return join(dirname(manifest), 'dist', ...names);
  } catch {
    throw new UsageError(
      `${what} needs the package ${PACKAGE}, which is not installed.`,
      'Install it beside acode, in a clone of its repository: `node scripts/install.mjs --fleet`.',
    );
  }
}

/** The error that a program of the package told. */
export function errorOfFleet(failure: unknown): AcodeError {
  return errorOfOtherTable(failureSchema.parse(failure));
}
