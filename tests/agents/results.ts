// What the tests of coding agents report for the tables in docs/results/agents.md, where the long test suite asks for it.

import { appendFileSync } from 'node:fs';

const RESULTS = process.env['ACODE_AGENTS_RESULTS'];

/** Reports a cell of a table: the agent by its title, the row, and what is in it. */
export function report(agent: string, row: string, value: string, table: 'works' | 'costs' = 'works'): void {
  if (RESULTS !== undefined) appendFileSync(RESULTS, `${JSON.stringify({ agent, row, value, table })}\n`);
}
