// Requirements trace: every requirement stands in docs/requirements.md once, with evidence that `.ci/run` executes, or as pending.
//
// With --write, the numbers of rows in README.md and docs/requirements.md are brought up to date.
// @ts-check

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { idsFile } from './requirement-ids.mjs';

const ROOT = new URL('..', import.meta.url);
const PAGE = 'docs/requirements.md';
const IDS = 'docs/requirements.ids';
const TESTS = 'vitest.config.ts';
const README = 'README.md';
const ID = /^(?:(?:FR|NFR|AC)-\d{3}[A-Z]?-\d{2,3}|SBX-[LGDW]-\d{2})$/;
/** Requirements of the product that the catalogue points to: they stand on the page too, shown, and are not counted. */
const PRODUCT = ['1_PRD-REQ-GOAL-008', '1_PRD-REQ-MET-009'];
/** The page of the tests and scenarios that were asked for by name. */
const NAMED = 'docs/named-tests.md';
/** How many tests each suite of the two designs has. */
const NAMED_TESTS = {
  DockerSandboxTests: 8,
  MountManagerTests: 8,
  ResourceLimiterTests: 8,
  DockerSandboxIntegrationTests: 3,
  ContainerConfigTests: 6,
  ContainerNameGeneratorTests: 7,
  ContainerLifecycleManagerTests: 17,
  ImageManagerTests: 9,
  OrphanCleanupServiceTests: 7,
  ResourceLimitValidatorTests: 5,
  ContainerLifecycleIntegrationTests: 9,
  OrphanCleanupIntegrationTests: 4,
  ParallelContainerTests: 4,
  DockerSandboxE2ETests: 7,
};
/** How many scenarios each of them has, by the letters before their numbers. */
const SCENARIOS = { S0: 10, SA: 8 };
/** A decision or a list that changes what requirements say. It may stand beside them, and is not counted. */
const DECISION = /^(?:A-\d{3}|B-\d{1,2})$/;

const HEADING = /^\|\s*(?:id\(s\)|suite|scenario)\s*\|/;

/** What a pending requirement waits for, by its one name. */
const PENDING = [
  // Parts that are not built.
  'swarm',
  'fleet',
  'forks of the workspace',
  'workspace path',
  'disk limits',
  'daily use',
  'periodic sweep',
  'engine health',
  'agents',
  // Built, or partly, and shown by nothing that `.ci/run` executes.
  'a test in .ci/run',
];

/** @typedef {{ line: number, ids: readonly string[], requirement: string, shownBy: readonly string[] }} Row */
/** @typedef {'shown' | 'superseded' | 'pending'} Standing */

/** @type {string[]} */
const complaints = [];

/** @param {string} path */
function read(path) {
  return readFileSync(new URL(path, ROOT), 'utf8');
}

/** @param {string} path */
function isFile(path) {
  const inside = fileURLToPath(new URL(path, ROOT)).startsWith(fileURLToPath(ROOT));
  return inside && /\.\w+$/.test(path) && existsSync(new URL(path, ROOT));
}

/** The test files that `.ci/run` leaves out, as the configuration of the tests has them: names with `{a,b}` and `*`. */
function leftOut() {
  const list = /const PATIENT = [^[]*\[\]\s*:\s*\[([^\]]*)\]/.exec(read(TESTS))?.[1];
  if (list === undefined) complaints.push(`${TESTS} has no list PATIENT of tests that .ci/run leaves out`);
  return [...(list ?? '').matchAll(/'([^']+)'/g)].map(([, glob = '']) => {
    const parts = glob
      .replaceAll('.', String.raw`\.`)
      .replaceAll(/\*+\/?/g, stars => (stars.length > 1 ? '.*' : '[^/]*'));
    return new RegExp(`^${parts.replaceAll('{', '(?:').replaceAll('}', ')').replaceAll(',', '|')}$`);
  });
}

const longOnly = leftOut();

/**
 * The rows of every table on a page, without headings and rulers.
 *
 * @param {string} page
 */
function rowsOf(page) {
  return read(page)
    .split('\n')
    .map((text, index) => ({ text, line: index + 1 }))
    .filter(({ text }) => text.startsWith('|') && !/^\|[\s:|-]+\|$/.test(text) && !HEADING.test(text))
    .map(({ text, line }) => rowOf(page, text, line));
}

/**
 * @param {string} page
 * @param {string} text
 * @param {number} line
 * @returns {Row}
 */
function rowOf(page, text, line) {
  // A bar inside a cell is escaped, also in code.
  const cells = text
    .trim()
    .slice(1, -1)
    .split(/(?<!\\)\|/)
    .map(cell => cell.replaceAll(String.raw`\|`, '|').trim());
  if (cells.length !== 3) complaints.push(`${page}:${line} has ${cells.length} cells, not 3`);
  const [ids = '', requirement = '', shownBy = ''] = cells;
  return {
    line,
    ids: ids.split(/[\s,]+/).filter(id => id !== ''),
    requirement,
    shownBy: shownBy
      .split(/<br\s*\/?>/)
      .map(entry => entry.trim())
      .filter(entry => entry !== ''),
  };
}

/**
 * What an entry of the last column says, and what is wrong with it.
 *
 * @param {string} entry
 * @returns {{ standing: Standing, fault: string | null }}
 */
function judge(entry) {
  const superseded = /^superseded: design §\d+(?:\.\d+)?(.*)$/s.exec(entry);
  if (superseded) {
    const reason = (superseded[1] ?? '').replaceAll(/\[[^\]]*\]\([^)]*\)|[^\p{L}]+/gu, ' ').trim();
    return { standing: 'superseded', fault: reason.split(' ').length >= 3 ? null : 'gives no reason' };
  }
  const pending = /^pending: (.+)$/.exec(entry);
  if (pending) {
    const known = PENDING.includes(pending[1] ?? '');
    return { standing: 'pending', fault: known ? null : `waits for none of: ${PENDING.join(', ')}` };
  }
  return { standing: 'shown', fault: faultOfEvidence(entry) };
}

/** @param {string} entry */
function faultOfEvidence(entry) {
  const code = /^(`+) ?(.+?) ?\1$/s.exec(entry)?.[2];
  if (code === undefined) return 'is neither evidence in code marks, nor superseded, nor pending';
  const script = /^script: (\S+)(?: › (.+))?$/.exec(code);
  if (script) return faultOfScript(script[1] ?? '', script[2]);
  const test = /^(\S+\.ts) › (.+)$/s.exec(code);
  return test ? faultOfTest(test[1] ?? '', test[2] ?? '') : 'is no `file › title` and no `script: file`';
}

/**
 * @param {string} file
 * @param {string | undefined} holds
 */
function faultOfScript(file, holds) {
  if (!isFile(file)) return `names ${file}, which does not exist`;
  return holds === undefined || read(file).includes(holds)
    ? null
    : `says that ${file} holds ${holds}, which it does not`;
}

/**
 * @param {string} file
 * @param {string} title
 */
function faultOfTest(file, title) {
  if (!isFile(file)) return `names ${file}, which does not exist`;
  if (longOnly.some(pattern => pattern.test(file))) return `names a test that .ci/run leaves out (${TESTS})`;
  return titlesIn(file).has(title) ? null : `names a test that ${file} does not have`;
}

/** @type {Map<string, ReadonlySet<string>>} */
const titles = new Map();

/**
 * The titles of all tests in a file, as written: placeholders are not filled in.
 *
 * @param {string} file
 */
function titlesIn(file) {
  const known = titles.get(file) ?? findTitles(tokensOf(read(file)));
  titles.set(file, known);
  return known;
}

/** @typedef {{ kind: 'word' | 'text' | 'mark', value: string }} Token */

/** @type {Token} */
const END = { kind: 'mark', value: '' };

/** @param {readonly Token[]} tokens */
function findTitles(tokens) {
  /** @type {Set<string>} */
  const found = new Set();
  tokens.forEach((_, index) => {
    const title = beginsTest(tokens, index) ? titleAfter(tokens, index + 1) : undefined;
    if (title !== undefined) found.add(title);
  });
  return found;
}

/**
 * Whether a test begins there that is run.
 *
 * @param {readonly Token[]} tokens
 * @param {number} index
 */
function beginsTest(tokens, index) {
  const [before, word, , modifier] = [-1, 0, 1, 2].map(step => tokens[index + step]?.value ?? '');
  const named =
    tokens[index]?.kind === 'word' && (word === 'it' || word === 'itWhere' || word === 'test') && before !== '.';
  return named && !/^(?:skip|todo|fails)$/.test(modifier ?? '');
}

/**
 * Goes along `it`, `it.each([…])`, `it.each<…>([…])`, `it.skipIf(…)` to the call whose first argument is text.
 *
 * @param {readonly Token[]} tokens
 * @param {number} from
 */
function titleAfter(tokens, from) {
  let at = from;
  for (;;) {
    const { kind, value } = tokens[at] ?? END;
    if (kind !== 'mark') return undefined;
    if (value === '.') at += 2;
    else if (value === '<') at = afterGroup(tokens, at, '>');
    else if (value !== '(') return undefined;
    else if (textAt(tokens, at + 1) === undefined) at = afterGroup(tokens, at, ')');
    else return textAt(tokens, at + 1);
  }
}

/**
 * @param {readonly Token[]} tokens
 * @param {number} at
 */
function textAt(tokens, at) {
  const { kind, value } = tokens[at] ?? END;
  return kind === 'text' ? value : undefined;
}

/**
 * Behind the bracket that closes the one that stands at `from`.
 *
 * @param {readonly Token[]} tokens
 * @param {number} from
 * @param {string} closing
 */
function afterGroup(tokens, from, closing) {
  const opening = tokens[from]?.value;
  let depth = 0;
  let at = from;
  do {
    const { kind, value } = tokens[at] ?? END;
    if (kind === 'mark' && value === opening) depth += 1;
    if (kind === 'mark' && value === closing) depth -= 1;
    at += 1;
  } while (depth > 0 && at < tokens.length);
  return at;
}

const LEXEMES = [
  /** @type {const} */ (['skip', /\s+|\/\/[^\n]*|\/\*[\s\S]*?\*\//y]),
  /** @type {const} */ (['word', /[\p{L}\p{N}_$#]+/uy]),
  // One mark, or the arrow of a type would close a bracket.
  /** @type {const} */ (['mark', /=>/y]),
  /** @type {const} */ (['text', /'(?:[^'\\\n]|\\[\s\S])*'|"(?:[^"\\\n]|\\[\s\S])*"/y]),
];
const REGULAR_EXPRESSION = /\/(?![*/])(?:[^[/\\\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y;
const CLOSING = /^[)\]}]$/;
const BEFORE_VALUE = /^(?:return|typeof|case|of|in|await|yield|void|delete)$/;

/**
 * The words, texts and marks of a source file: enough of its grammar to tell a title from a comment.
 *
 * @param {string} source
 */
function tokensOf(source) {
  /** @type {Token[]} */
  const tokens = [];
  let at = 0;
  while (at < source.length) {
    const [kind, lexeme] = lexemeAt(source, at, tokens.at(-1));
    at += lexeme.length;
    if (kind === 'text') tokens.push({ kind, value: plain(lexeme) });
    else if (kind !== 'skip') tokens.push({ kind, value: lexeme });
  }
  return tokens;
}

/**
 * @param {string} source
 * @param {number} at
 * @param {Token | undefined} before
 * @returns {readonly ['skip' | 'word' | 'text' | 'mark', string]}
 */
function lexemeAt(source, at, before) {
  for (const [kind, pattern] of LEXEMES) {
    const lexeme = matchAt(pattern, source, at);
    if (lexeme) return [kind, lexeme];
  }
  if (source[at] === '`') return ['text', source.slice(at, endOfTemplate(source, at))];
  const expression = endsValue(before) ? undefined : matchAt(REGULAR_EXPRESSION, source, at);
  return expression ? ['word', expression] : ['mark', source[at] ?? ''];
}

/**
 * Whether a token can be the end of a value, so that a slash after it divides.
 *
 * @param {Token | undefined} token
 */
function endsValue({ kind, value } = END) {
  return kind === 'mark' ? CLOSING.test(value) : !BEFORE_VALUE.test(value);
}

/**
 * @param {RegExp} pattern
 * @param {string} source
 * @param {number} at
 */
function matchAt(pattern, source, at) {
  pattern.lastIndex = at;
  return pattern.exec(source)?.[0];
}

/**
 * @param {string} source
 * @param {number} from
 */
function endOfTemplate(source, from) {
  let depth = 0;
  for (let at = from + 1; at < source.length; at += 1) {
    if (source[at] === '\\') at += 1;
    else if (source.startsWith('${', at)) depth += 1;
    else if (source[at] === '}' && depth > 0) depth -= 1;
    else if (source[at] === '`' && depth === 0) return at + 1;
    else if (source[at] === '`') at = endOfTemplate(source, at) - 1;
  }
  return source.length;
}

/**
 * The text that a literal stands for; what a template fills in stays as it is written.
 *
 * @param {string} literal
 */
function plain(literal) {
  return literal
    .slice(1, -1)
    .replaceAll(/\\u\{([0-9a-f]+)\}|\\u([0-9a-f]{4})|\\x([0-9a-f]{2})/gi, (_, ...codes) =>
      String.fromCodePoint(
        Number.parseInt(
          codes.slice(0, 3).find(code => typeof code === 'string'),
          16,
        ),
      ),
    )
    .replaceAll('\\n', '\n')
    .replaceAll(/\\([^])/g, '$1');
}

/**
 * @param {readonly Row[]} rows
 * @param {ReadonlySet<string>} wanted
 */
function checkIds(rows, wanted) {
  /** @type {Map<string, number>} */
  const places = new Map();
  for (const { line, ids: inRow } of rows) {
    if (inRow.length === 0) complaints.push(`${PAGE}:${line} has no id`);
    for (const id of inRow) {
      if (!wanted.has(id) && !DECISION.test(id)) complaints.push(`${PAGE}:${line} ${id} is not an id of ${IDS}`);
      else if (places.has(id)) complaints.push(`${PAGE}:${line} ${id} stands in line ${places.get(id)} too`);
      else places.set(id, line);
    }
  }
  for (const id of wanted) if (!places.has(id)) complaints.push(`${PAGE} ${id} is missing`);
}

/**
 * The standing of a row of the page: what waits for anything is not shown, and evidence counts before a decision against.
 *
 * @param {Row} row
 * @returns {Standing}
 */
function standingOf({ line, requirement, shownBy }) {
  if (requirement === '') complaints.push(`${PAGE}:${line} says nothing of what is required`);
  if (shownBy.length === 0) complaints.push(`${PAGE}:${line} is shown by nothing`);
  const judged = shownBy.map(entry => ({ entry, ...judge(entry) }));
  for (const { entry, fault } of judged) if (fault !== null) complaints.push(`${PAGE}:${line} ${entry}: ${fault}`);
  return worst(judged.map(({ standing }) => standing));
}

/** @param {readonly Standing[]} standings */
function worst(standings) {
  if (standings.includes('pending')) return 'pending';
  return standings.includes('shown') ? 'shown' : 'superseded';
}

/**
 * The tests that were asked for, each once, beside requirements that are shown or superseded.
 *
 * @param {readonly Row[]} table
 * @param {ReadonlyMap<string, { standing: Standing }>} requirements
 */
function checkNamedTests(table, requirements) {
  /** @type {string[]} */
  const named = [];
  for (const { line, ids, requirement, shownBy } of table) {
    named.push(...[...requirement.matchAll(/`(\w+)`/g)].map(([, test]) => `${ids[0]}.${test}`));
    for (const id of shownBy.flatMap(list => list.split(/,\s*/))) {
      const standing = requirements.get(id)?.standing;
      if (standing === undefined) complaints.push(`${NAMED}:${line} ${id} is not on ${PAGE}`);
      if (standing === 'pending') complaints.push(`${NAMED}:${line} ${id} is pending`);
    }
  }
  expectCounts([...new Set(named)], NAMED_TESTS, name => name.split('.')[0] ?? '');
}

/**
 * The scenarios that were asked for, each with evidence.
 *
 * @param {readonly Row[]} table
 */
function checkScenarios(table) {
  for (const { line, ids, shownBy } of table) {
    if (shownBy.length === 0) complaints.push(`${NAMED}:${line} ${ids[0]} is shown by nothing`);
    for (const entry of shownBy) {
      const { standing, fault } = judge(entry);
      if (fault !== null) complaints.push(`${NAMED}:${line} ${entry}: ${fault}`);
      else if (standing !== 'shown') complaints.push(`${NAMED}:${line} ${entry}: is no evidence`);
    }
  }
  expectCounts([...new Set(table.map(({ ids }) => ids[0] ?? ''))], SCENARIOS, id => id.split('-')[0] ?? '');
}

/**
 * @param {readonly string[]} names
 * @param {Readonly<Record<string, number>>} expected
 * @param {(name: string) => string} groupOf
 */
function expectCounts(names, expected, groupOf) {
  for (const name of names)
    if (!(groupOf(name) in expected)) complaints.push(`${NAMED} has ${name}, which nobody asked for`);
  for (const [group, number] of Object.entries(expected)) {
    const found = names.filter(name => groupOf(name) === group).length;
    if (found !== number) complaints.push(`${NAMED} has ${found} of the ${number} of ${group}`);
  }
}

/** The rows of the catalogue, each with its ids. A file that was changed by hand is a complaint. */
function catalogue() {
  const text = read(IDS);
  const rows = text.split('\n').filter(line => line !== '' && !line.startsWith('#'));
  if (text !== idsFile(rows)) complaints.push(`${IDS} was changed by hand: write it with scripts/requirement-ids.mjs`);
  const ids = rows.flatMap(row => row.split(' '));
  for (const id of ids) if (!ID.test(id)) complaints.push(`${IDS} ${id} has not the form of an id`);
  for (const id of new Set(ids.filter((one, at) => ids.indexOf(one) !== at))) complaints.push(`${IDS} has ${id} twice`);
  return rows.map(row => row.split(' '));
}

const wanted = catalogue();
const rows = rowsOf(PAGE);
checkIds(rows, new Set([...wanted.flat(), ...PRODUCT]));
/** @type {Map<string, { row: Row, standing: Standing }>} */
const places = new Map();
for (const row of rows) {
  const standing = standingOf(row);
  for (const id of row.ids) places.set(id, { row, standing });
}
const asked = rowsOf(NAMED);
const isScenario = (/** @type {Row} */ { ids }) => /^S[0A]-\d+$/.test(ids[0] ?? '');
checkNamedTests(
  asked.filter(row => !isScenario(row)),
  places,
);
checkScenarios(asked.filter(isScenario));
for (const id of PRODUCT) if (places.get(id)?.standing !== 'shown') complaints.push(`${PAGE} ${id} is not shown`);
const standings = wanted.map(ids => worst(ids.map(id => places.get(id)?.standing ?? 'pending')));
/** @param {Standing} standing */
const count = standing => standings.filter(one => one === standing).length;
const total = `${wanted.length} rows: ${count('shown')} shown, ${count('superseded')} superseded, ${count('pending')} pending`;
const TOTAL = /\d+\s+rows:\s+\d+\s+shown,\s+\d+\s+superseded,\s+\d+\s+pending/;
for (const page of [README, PAGE]) {
  const said = TOTAL.exec(read(page))?.[0];
  if (said?.replaceAll(/\s+/g, ' ') === total) continue;
  if (said !== undefined && process.argv.includes('--write')) {
    writeFileSync(new URL(page, ROOT), read(page).replace(TOTAL, total));
  } else complaints.push(`${page} does not say “${total}”: run \`npm run docs:requirements\``);
}

/** @type {Map<string, string[]>} */
const waiting = new Map();
wanted.forEach((ids, index) => {
  if (standings[index] !== 'pending') return;
  const reasons = ids.flatMap(id => places.get(id)?.row.shownBy ?? []).filter(entry => entry.startsWith('pending: '));
  for (const reason of new Set(reasons)) waiting.set(reason, [...(waiting.get(reason) ?? []), ids[0] ?? '']);
});
for (const [reason, first] of waiting) console.log(`${reason} (${first.length}): ${first.join(', ')}`);
for (const complaint of complaints) console.error(complaint);
if (complaints.length > 0) process.exitCode = 1;
console.log(`requirements: ${total}`);
