// Turns the results of the attack tests into the table of docs/security.md.
//
// Usage: node scripts/attack-table.mjs <results>     writes the table from the file that ACODE_ATTACK_RESULTS named
//        node scripts/attack-table.mjs --check       sees that every row of the corpus has its line, and that none failed
// @ts-check

import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { transform } from 'esbuild';

const PAGE = fileURLToPath(new URL('../docs/security.md', import.meta.url));
const REGISTRY = new URL('../tests/attacks/rows.ts', import.meta.url);
const BEGIN = '<!-- attacks: begin. Written by scripts/attack-table.mjs; do not edit. -->';
const END = '<!-- attacks: end -->';
const TARGETS = ['docker28/runc', 'docker20/runc', 'docker20/runsc'];

/** @typedef {{ id: string, title: string, group: string, showing: { by: string, engineSensitive?: boolean, gvisor?: true | string, subject?: string, reason?: string } }} Row */
/** @typedef {{ id: string, target: string, verdict: 'pass' | 'fail', observed: string, control: string }} Outcome */

/** @returns {Promise<Row[]>} The registry is TypeScript without imports, which this Node may not read itself. */
async function registry() {
  const { code } = await transform(readFileSync(REGISTRY, 'utf8'), { loader: 'ts', format: 'esm' });
  const { ROWS } = await import(`data:text/javascript;base64,${Buffer.from(code).toString('base64')}`);
  return ROWS;
}

/**
 * The last outcome of each row on each target counts: a file may hold several runs.
 *
 * @param {string} file
 * @returns {Map<string, Outcome>}
 */
function outcomes(file) {
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean);
  return new Map(lines.map(line => JSON.parse(line)).map(outcome => [`${outcome.id} ${outcome.target}`, outcome]));
}

/**
 * @param {Row} row
 * @param {Map<string, Outcome>} found
 */
function lineOf({ id, title, showing }, found) {
  if (showing.by === 'pending') return [id, title, ...TARGETS.map(() => 'pending'), `waits for ${showing.subject}`, ''];
  if (showing.by === 'other level') return [id, title, ...TARGETS.map(() => 'other level'), showing.reason ?? '', ''];
  const verdicts = TARGETS.map(target => verdict(showing, target, found.get(`${id} ${target}`)));
  const main = TARGETS.map(target => found.get(`${id} ${target}`)).find(Boolean);
  return [id, title, ...verdicts, main?.observed ?? '', main?.control ?? ''];
}

/**
 * @param {Row['showing']} showing
 * @param {string} target
 * @param {Outcome | undefined} outcome
 */
function verdict({ gvisor }, target, outcome) {
  if (outcome) return outcome.verdict === 'pass' ? 'blocked' : '**failed**';
  if (target.endsWith('/runsc') && gvisor !== true) return 'not faced';
  return 'not run';
}

/** @param {string} text */
function cell(text) {
  // One line, no table syntax, nothing that a terminal or a renderer would act on.
  const plain = text
    .replaceAll(/\p{Cc}+/gu, ' ')
    .replaceAll('|', '\\|')
    .replaceAll('<', '&lt;');
  return plain.length > 240 ? `${plain.slice(0, 239)}…` : plain;
}

/**
 * @param {Row[]} rows
 * @param {Map<string, Outcome>} found
 */
function tableOf(rows, found) {
  const head = [
    'id',
    'attack',
    ...TARGETS.map(target => target.replace('/', ' ')),
    'seen (first column with a result)',
    'without the protection',
  ];
  const lines = [head, head.map(() => '---'), ...rows.map(row => lineOf(row, found).map(cell))];
  const reasons = rows.flatMap(({ id, showing: { by, gvisor } }) =>
    by === 'test' && gvisor !== true ? [`${id}: ${gvisor}`] : [],
  );
  return [
    ...lines.map(line => `| ${line.join(' | ')} |`),
    '',
    'Not faced by gVisor, and why:',
    '',
    ...reasons.map(reason => `- ${reason}`),
  ].join('\n');
}

/** @param {string} table */
function write(table) {
  const page = readFileSync(PAGE, 'utf8');
  const [before, rest] = page.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error('docs/security.md has no place for the table');
  // Cells of very different lengths: aligned by the formatter, most of the page would be spaces.
  writeFileSync(
    PAGE,
    `${before}${BEGIN}\n\n<!-- prettier-ignore-start -->\n\n${table}\n\n<!-- prettier-ignore-end -->\n\n${END}${after}`,
  );
}

/** @param {Row[]} rows */
function check(rows) {
  const lines = readFileSync(PAGE, 'utf8').split(BEGIN)[1]?.split(END)[0]?.split('\n') ?? [];
  const problems = rows.flatMap(({ id, showing }) => {
    const line = lines.find(text => text.startsWith(`| ${id} |`));
    if (!line) return [`${id} has no line`];
    if (line.includes('**failed**')) return [`${id} failed`];
    if (showing.by === 'test' && !line.includes('| blocked |')) return [`${id} was never shown`];
    if (showing.by === 'test' && showing.engineSensitive && line.includes('| not run |'))
      return [`${id} was not shown everywhere`];
    return [];
  });
  for (const problem of problems) console.error(problem);
  console.log(`${rows.length} rows, ${problems.length} problems`);
  process.exitCode = problems.length > 0 ? 1 : 0;
}

const rows = await registry();
const [argument] = process.argv.slice(2);
if (argument === undefined) throw new Error('usage: attack-table.mjs <results> | --check');
if (argument !== '--check') write(tableOf(rows, outcomes(argument)));
check(rows);
