// Writes what the tests of the coding agents reported as a table of docs/results/.
// Usage: table.mjs RESULTS COMMIT FILE
// @ts-check

import { readFileSync, writeFileSync } from 'node:fs';

const [results = '', commit = '', file = ''] = process.argv.slice(2);
/** @type {{ agent: string, row: string, value: string }[]} */
const reports = readFileSync(results, 'utf8')
  .split('\n')
  .filter(line => line !== '')
  .map(line => JSON.parse(line));
const agents = [...new Set(reports.map(({ agent }) => agent))];
const rows = [...new Set(reports.map(({ row }) => row))];

/** @param {string} row @param {string} agent */
const valueOf = (row, agent) => reports.findLast(one => one.row === row && one.agent === agent)?.value ?? '**failed**';
const lines = [
  '# Coding agents',
  '',
  'Written by `npm run ci:long agents`: the real programs from npm, with a scripted model in place of a real one, call the tools of',
  '`acode mcp`, and run in a sandbox as a whole, on a real engine (`tests/agents`). A cell that was not reached says so.',
  '',
  `Commit ${commit}.`,
  '',
  `| | ${agents.join(' | ')} |`,
  `|---|${agents.map(() => '---').join('|')}|`,
  ...rows.map(row => `| ${row} | ${agents.map(agent => valueOf(row, agent)).join(' | ')} |`),
];
writeFileSync(file, `${lines.join('\n')}\n`);
