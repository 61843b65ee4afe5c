// Writes what the tests of the coding agents reported as tables of a page. A table of which nothing was reported stays as it is.
// Usage: table.mjs RESULTS COMMIT FILE
// @ts-check

import { existsSync, readFileSync, writeFileSync } from 'node:fs';

const [results = '', commit = '', file = ''] = process.argv.slice(2);
/** @typedef {{ agent: string, row: string, value: string, table: string }} Report */
/** @type {Report[]} */
const reports = readFileSync(results, 'utf8')
  .split('\n')
  .filter(line => line !== '')
  .map(line => JSON.parse(line));

const HEAD = '# Coding agents\n';
/** @type {Readonly<Record<string, readonly [title: string, text: string]>>} */
const TABLES = {
  works: [
    'What works',
    `Written by \`npm run ci:long agents\`: the real programs from npm, with a scripted model in place of a real one, call the tools of
\`acode mcp\`, and run in a sandbox as a whole, on a real engine (\`tests/agents\`). A cell that was not reached says so.`,
  ],
  costs: [
    'What it costs',
    `The same programs and model. From nothing to a reviewed apply: what a person types of the first page of docs/agents.md, at a terminal.
Limit: 60 s.`,
  ],
};

/** @param {string} name */
function tableOf(name) {
  const own = reports.filter(({ table }) => table === name);
  const agents = [...new Set(own.map(({ agent }) => agent))];
  const rows = [...new Set(own.map(({ row }) => row))];
  const valueOf = (/** @type {string} */ row, /** @type {string} */ agent) =>
    own.findLast(one => one.row === row && one.agent === agent)?.value ?? '**failed**';
  return [
    `| | ${agents.join(' | ')} |`,
    `|---|${agents.map(() => '---').join('|')}|`,
    ...rows.map(row => `| ${row} | ${agents.map(agent => valueOf(row, agent)).join(' | ')} |`),
  ].join('\n');
}

const before = existsSync(file) ? readFileSync(file, 'utf8') : '';
const sections = Object.entries(TABLES).map(([name, [title, text]]) => {
  if (reports.some(({ table }) => table === name))
    return `## ${title}\n\n${text}\n\nCommit ${commit}.\n\n${tableOf(name)}\n`;
  const [kept = ''] = new RegExp(`^## ${title}\n[^]*?(?=^## |$(?![^]))`, 'm').exec(before) ?? [];
  return kept.trim() === '' ? '' : `${kept.trim()}\n`;
});
const page = [HEAD, ...sections.filter(section => section !== '')].join('\n');
if (file === '') process.stdout.write(page);
else writeFileSync(file, page);
