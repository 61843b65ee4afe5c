// The three ways a check comes out.

import type { Check } from '../report.ts';

/** Nothing to do. */
export function ok(id: string, title: string, seen: string): Check {
  return { id, title, status: 'ok', seen };
}

/** It works, and something should be done. */
export function warn(id: string, title: string, seen: string, remedy: string): Check {
  return { id, title, status: 'warn', seen, remedy };
}

/** Commands cannot be run, or not safely. */
export function fail(id: string, title: string, seen: string, remedy: string): Check {
  return { id, title, status: 'fail', seen, remedy };
}
