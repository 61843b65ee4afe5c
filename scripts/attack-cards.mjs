// Turns report cards of `acode doctor --attack --json` into the table of docs/security.md that shows levels side by side.
//
// Usage: node scripts/attack-cards.mjs <card>…    writes the table from cards, one file for each level
//        node scripts/attack-cards.mjs --check    sees that every attack of the doctor has its line, and holds what is promised
// @ts-check

import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const PAGE = fileURLToPath(new URL('../docs/security.md', import.meta.url));
const PROBES = fileURLToPath(new URL('../packages/sandbox/src/host/doctor/probes', import.meta.url));
const BEGIN = '<!-- cards: begin. Written by scripts/attack-cards.mjs; do not edit. -->';
const END = '<!-- cards: end -->';
const LEVELS = ['docker', 'gvisor', 'bubblewrap', 'ulimit', 'none'];
const MARKS = { pass: '✔', fail: '✘', 'not-applicable': '—', 'not-tried': '?' };
const UNTRIED = '✘ not tried';

// What must never be open at a level, by row.
/** @type {Readonly<Record<string, RegExp>>} */
const PROMISED = { docker: /./, gvisor: /./, bubblewrap: /^(?:A|C|D1$|D2$|D12$|E[123]$|F1$)/ };

/** @typedef {{ id: string, title: string, verdict: 'pass' | 'fail' | 'not-applicable' | 'not-tried', observed: string, control: string }} Probe */
/** @typedef {{ schema: string, backend: { engine: string, version: string, runtime: string, level: string, boundary: boolean, kernel: string }, image: string, grade: string, probes: Probe[], durationMs: number }} Card */

/** @param {string} file */
function cardIn(file) {
  /** @type {Card} */
  const card = JSON.parse(readFileSync(file, 'utf8'));
  if (card.schema !== 'acode.attack/1') throw new Error(`${file} is no report card`);
  return card;
}

/** @param {readonly string[]} files */
function cardsIn(files) {
  const cards = files.map(cardIn);
  return LEVELS.map(level => {
    const found = cards.find(({ backend }) => backend.level === level);
    if (!found) throw new Error(`no card for level ${level}`);
    return found;
  });
}

/** @param {string} text */
function cell(text) {
  return text
    .replaceAll(/\p{Cc}+/gu, ' ')
    .replaceAll('|', '\\|')
    .replaceAll('<', '&lt;');
}

/** @param {readonly (readonly string[])[]} lines */
function table([head = [], ...rest]) {
  return [head, head.map(() => '---'), ...rest].map(line => `| ${line.map(cell).join(' | ')} |`).join('\n');
}

/** @param {Probe | undefined} probe */
function mark(probe) {
  if (!probe) return '?';
  return probe.verdict === 'fail' && probe.control === '' ? UNTRIED : MARKS[probe.verdict];
}

/** @param {readonly Card[]} cards */
function rowsOf(cards) {
  const [first] = cards;
  const rows = (first?.probes ?? []).map(({ id, title }) => [
    id,
    title,
    ...cards.map(({ probes }) => mark(probes.find(probe => probe.id === id))),
  ]);
  return table([['row', 'attack', ...LEVELS], ...rows]);
}

/** @param {readonly Card[]} cards */
function totalsOf(cards) {
  const lines = cards.map(({ backend, grade, probes, durationMs }) => {
    const count = (/** @type {Probe['verdict']} */ verdict) =>
      String(probes.filter(probe => probe.verdict === verdict).length);
    const by = backend.version === '' ? 'no engine' : `${backend.engine} ${backend.version}, ${backend.runtime}`;
    return [
      backend.level,
      by,
      count('pass'),
      count('fail'),
      count('not-applicable'),
      backend.boundary ? grade : `${grade}, no security boundary`,
      (durationMs / 1000).toFixed(1),
    ];
  });
  return table([['level', 'made by', 'blocked', 'open', 'not applicable', 'grade', 'seconds'], ...lines]);
}

/**
 * Rows of a level with one reason, together: most are the same.
 *
 * @param {readonly Card[]} cards
 * @param {(card: Card, probe: Probe) => boolean} wanted
 */
function reasons(cards, wanted) {
  return cards.flatMap(card => {
    /** @type {Map<string, string[]>} */
    const byReason = new Map();
    for (const probe of card.probes.filter(one => wanted(card, one)))
      byReason.set(probe.observed, [...(byReason.get(probe.observed) ?? []), probe.id]);
    return [...byReason].map(([reason, ids]) => `- ${card.backend.level}, ${ids.join(', ')}: ${cell(reason)}`);
  });
}

/** @param {readonly Card[]} cards */
function blockOf(cards) {
  const open = reasons(
    cards,
    (card, { verdict, control }) => verdict === 'fail' && (card.backend.boundary || control === ''),
  );
  return [
    totalsOf(cards),
    '',
    rowsOf(cards),
    '',
    'Open, and why (for levels that are no boundary: what was not tried):',
    '',
    ...open,
    '',
    'Not applicable, and why:',
    '',
    ...reasons(cards, (_, { verdict }) => verdict === 'not-applicable'),
  ].join('\n');
}

/** @param {string} block */
function write(block) {
  const page = readFileSync(PAGE, 'utf8');
  const [before, rest] = page.split(BEGIN);
  const after = rest?.split(END)[1];
  if (after === undefined) throw new Error('docs/security.md has no place for the cards');
  writeFileSync(
    PAGE,
    `${before}${BEGIN}\n\n<!-- prettier-ignore-start -->\n\n${block}\n\n<!-- prettier-ignore-end -->\n\n${END}${after}`,
  );
}

/** The rows that the doctor’s probes name. */
function attacks() {
  const sources = readdirSync(PROBES).map(name => readFileSync(`${PROBES}/${name}`, 'utf8'));
  return [
    ...new Set(sources.flatMap(text => [...text.matchAll(/\bid: '([A-F]\d+[a-z]?)'/g)].map(([, id]) => id ?? ''))),
  ];
}

/**
 * @param {string} id
 * @param {readonly string[]} marks
 */
function problemsOf(id, marks) {
  if (marks.length !== LEVELS.length || marks.includes('?')) return [`${id} was not seen at every level`];
  return LEVELS.filter((level, at) => PROMISED[level]?.test(id) && marks[at]?.startsWith(MARKS.fail)).map(
    level => `${id} is open at level ${level}`,
  );
}

function check() {
  const lines = readFileSync(PAGE, 'utf8').split(BEGIN)[1]?.split(END)[0]?.split('\n') ?? [];
  const ids = attacks();
  const problems = ids.flatMap(id => {
    const line = lines.find(text => text.startsWith(`| ${id} |`));
    if (line === undefined) return [`${id} has no line on the cards`];
    return problemsOf(
      id,
      line
        .split(' | ')
        .slice(2)
        .map(text => text.replace(/ \|$/, '')),
    );
  });
  for (const problem of problems) console.error(problem);
  console.log(`${ids.length} attacks on ${LEVELS.length} levels, ${problems.length} problems`);
  process.exitCode = problems.length > 0 || ids.length === 0 ? 1 : 0;
}

const files = process.argv.slice(2);
if (files.length === 0) throw new Error('usage: attack-cards.mjs <card>… | --check');
if (files[0] !== '--check') write(blockOf(cardsIn(files)));
check();
