// Turns the results of the conformance suite into the table of docs/levels.md: each behaviour of its sources on each target.
//
// Usage: node scripts/conformance-table.mjs <results>     writes the table from the file that ACODE_CONFORMANCE_RESULTS named
//        node scripts/conformance-table.mjs --check       sees that the table is the one in which everything passed
// @ts-check

import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { transform } from 'esbuild';
import ts from 'typescript-6';

const PAGE = fileURLToPath(new URL('../docs/levels.md', import.meta.url));
const SUITE = new URL('../tests/conformance/', import.meta.url);
const BEGIN = '<!-- conformance: begin. Written by scripts/conformance-table.mjs; do not edit. -->';
const END = '<!-- conformance: end -->';
// The order of the suite; what is in no file of these comes after them.
const FILES = ['commands.ts', 'output.ts', 'limits.ts', 'hardening.ts', 'lifecycle.ts'];

// Where the suite has to have run, by the names that targets have in the results, and what kind of place each is.
const COLUMNS = [
  { name: 'docker28/runc', kind: 'docker/runc' },
  { name: 'docker20/runc', kind: 'docker/runc' },
  { name: 'docker20/runsc', kind: 'docker/runsc' },
  { name: 'podman/runc', kind: 'podman/runc' },
  { name: 'bubblewrap in a control group', kind: 'bubblewrap in a control group' },
  { name: 'bubblewrap', kind: 'bubblewrap' },
  { name: 'ulimit', kind: 'ulimit' },
  { name: 'none', kind: 'none' },
];

/** @typedef {{ group: string, title: string, needs: readonly string[] }} Behaviour */
/** @typedef {{ name: string, kind: string }} Column */
/** @typedef {Record<string, Record<string, string | undefined>>} Lacks */
/** @typedef {{ target: string, group: string, title: string, verdict: 'pass' | 'fail' }} Outcome */
/** @typedef {'passed' | 'failed' | 'not run'} Verdict */
/** @typedef {(behaviour: Behaviour, target: string) => Verdict} Judge */

/** @returns {Promise<Lacks>} What each kind lacks. TypeScript without imports, which this Node may not read itself. */
async function lacksOfKinds() {
  const { code } = await transform(readFileSync(new URL('kinds.ts', SUITE), 'utf8'), { loader: 'ts', format: 'esm' });
  const { LACKS } = await import(`data:text/javascript;base64,${Buffer.from(code).toString('base64')}`);
  return LACKS;
}

/** Every behaviour that the sources of the suite define, with what it needs. */
function behaviours() {
  const place = (/** @type {string} */ file) => (FILES.includes(file) ? FILES.indexOf(file) : FILES.length);
  return readdirSync(SUITE)
    .filter(file => file.endsWith('.ts') && !file.endsWith('.test.ts'))
    .sort((a, b) => place(a) - place(b) || a.localeCompare(b))
    .flatMap(file => behavioursIn(file));
}

/**
 * @param {string} file
 * @returns {Behaviour[]}
 */
function behavioursIn(file) {
  const source = ts.createSourceFile(file, readFileSync(new URL(file, SUITE), 'utf8'), ts.ScriptTarget.Latest);
  /** @type {Behaviour[]} */
  const found = [];
  /**
   * @param {ts.Node} node
   * @param {Behaviour} around
   */
  const visit = (node, around) => {
    const defined = definitionAt(node);
    if (defined?.test) found.push({ ...around, title: defined.title, needs: [...around.needs, ...defined.needs] });
    const inside = defined && !defined.test ? { group: defined.title, title: '', needs: defined.needs } : around;
    ts.forEachChild(node, child => visit(child, inside));
  };
  visit(source, { group: '', title: '', needs: [] });
  return found;
}

/**
 * What `it('…')`, `it.each([…])('…')`, `itWhere(target, '…')('…')`, and the same of `describe`, define.
 *
 * @param {ts.Node} node
 */
function definitionAt(node) {
  if (!ts.isCallExpression(node)) return null;
  const [title] = node.arguments;
  const by = ts.isCallExpression(node.expression) ? node.expression : null;
  const name = nameOf(by ? by.expression : node.expression);
  if (!title || !ts.isStringLiteralLike(title) || !/^(?:it|describe)(?:Where)?$/.test(name)) return null;
  const words = name.endsWith('Where') ? [...(by?.arguments ?? [])] : [];
  const needs = words.flatMap(word => (ts.isStringLiteralLike(word) ? [word.text] : []));
  return { test: name.startsWith('it'), title: title.text, needs };
}

/** @param {ts.Expression} called */
function nameOf(called) {
  const name = ts.isPropertyAccessExpression(called) ? called.expression : called;
  return ts.isIdentifier(name) ? name.text : '';
}

/**
 * Judges by results. The last outcome of each test on each target counts: a file may hold several runs. A title with
 * placeholders stands for several tests, which must all have passed.
 *
 * @param {string} file
 * @returns {Judge}
 */
function judgeBy(file) {
  const lines = readFileSync(file, 'utf8').split('\n').filter(Boolean);
  /** @type {Map<string, Outcome>} */
  const last = new Map(
    lines
      .map(line => /** @type {Outcome} */ (JSON.parse(line)))
      .map(outcome => [[outcome.target, outcome.group, outcome.title].join('\n'), outcome]),
  );
  return ({ group, title }, target) => {
    const words = title.split('%s').map(text => text.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`));
    const pattern = new RegExp(`^${words.join('.+')}$`);
    const found = [...last.values()].filter(
      outcome => outcome.target === target && outcome.group === group && pattern.test(outcome.title),
    );
    if (found.length === 0) return 'not run';
    return found.every(({ verdict }) => verdict === 'pass') ? 'passed' : 'failed';
  };
}

/**
 * @param {readonly Behaviour[]} all
 * @param {Lacks} lacks
 * @param {Judge} judge
 */
function tableOf(all, lacks, judge) {
  /** @type {string[]} */
  const reasons = [];
  /**
   * @param {Behaviour} behaviour
   * @param {Column} column
   */
  const cellOf = (behaviour, { name, kind }) => {
    const reason = behaviour.needs.map(trait => lacks[kind]?.[trait]).find(Boolean);
    if (reason === undefined)
      return { passed: '✔', failed: '**failed**', 'not run': '**not run**' }[judge(behaviour, name)];
    if (!reasons.includes(reason)) reasons.push(reason);
    return `— ${reasons.indexOf(reason) + 1}`;
  };
  const rows = all.map(behaviour => [
    `${behaviour.group} **${behaviour.title.replaceAll('%s', '…')}**`.replaceAll('|', String.raw`\|`),
    ...COLUMNS.map(column => cellOf(behaviour, column)),
  ]);
  const head = ['behaviour', ...COLUMNS.map(({ name }) => name.replace('/', ' '))];
  return [
    ...[head, head.map(() => '---'), ...rows].map(cells => `| ${cells.join(' | ')} |`),
    '',
    'Where a behaviour does not apply, and why:',
    '',
    ...reasons.map((reason, index) => `${index + 1}. ${reason}`),
  ].join('\n');
}

/** @param {string} table */
function write(table) {
  const page = readFileSync(PAGE, 'utf8');
  const [before, rest] = page.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error('docs/levels.md has no place for the table');
  // Aligned by the formatter, most of the table would be spaces.
  const kept = `<!-- prettier-ignore-start -->\n\n${table}\n\n<!-- prettier-ignore-end -->`;
  writeFileSync(PAGE, `${before}${BEGIN}\n\n${kept}\n\n${END}${after}`);
}

/**
 * The table must be the one in which every behaviour that applies has passed on every target.
 *
 * @param {readonly Behaviour[]} all
 * @param {string} wanted
 */
function check(all, wanted) {
  const block = readFileSync(PAGE, 'utf8').split(BEGIN)[1]?.split(END)[0] ?? '';
  const there = block.split('\n').filter(line => line !== '' && !line.startsWith('<!--'));
  const expected = wanted.split('\n').filter(line => line !== '');
  const problems = [
    ...expected.filter(line => !there.includes(line)).map(line => `missing: ${line}`),
    ...there.filter(line => !expected.includes(line)).map(line => `not so:  ${line}`),
  ];
  if (problems.length === 0 && there.join('\n') !== expected.join('\n')) problems.push('the lines are not in order');
  if (all.length === 0) problems.push('the suite has no behaviours');
  for (const problem of problems) console.error(problem);
  console.log(`conformance: ${all.length} behaviours, ${problems.length} problems`);
  process.exitCode = problems.length > 0 ? 1 : 0;
}

const all = behaviours();
const lacks = await lacksOfKinds();
const [argument] = process.argv.slice(2);
if (argument === undefined) throw new Error('usage: conformance-table.mjs <results> | --check');
if (argument !== '--check') write(tableOf(all, lacks, judgeBy(argument)));
check(
  all,
  tableOf(all, lacks, () => 'passed'),
);
