// Takes each protection out in turn, in a copy of the tree, and sees that an attack test goes red. Writes docs/results/protections.md.
//
// Usage: node scripts/remove-protections.mjs [--only <text>]… [--new] [--fresh] [--check]
// With --new only those run that the table has no row for. A row that is not run again stays, with the commit it is of.
// With --check nothing is run: it only sees that every edit still applies and that every test it names is still there, so that
// a protection which was rewritten is noticed.
// What was shown before is kept in --state (a file outside the tree) and not run again unless --fresh is given or the
// edit has changed. Needs the test engines, and root or the test user.
// @ts-check

import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { PROTECTIONS } from './protections.mjs';

/** @typedef {import('./protections.mjs').Protection} Protection */
/** @typedef {{ name: string, key: string, red: string[], green: number, seconds: number, commit: string, problem?: string }} Shown */

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const TABLE = join(ROOT, 'docs', 'results', 'protections.md');
const DEADLINE_MS = 240_000;
const NOT_RUN = 'not run';
// What stands in the table in place of red tests.
const GREEN = / \| \d+ tests stayed green \| /;
const AS_USER = join(ROOT, '.ci', 'engines', 'as-user');

const { values: options } = parseArgs({
  options: {
    only: { type: 'string', multiple: true },
    new: { type: 'boolean', default: false },
    fresh: { type: 'boolean', default: false },
    check: { type: 'boolean', default: false },
    state: { type: 'string', default: '/var/tmp/acode-protections.json' },
  },
});

/** Only what is tracked, or would be: what a clone would have. */
function copyTree() {
  const copy = mkdtempSync('/var/tmp/acode-protections-');
  const names = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], { cwd: ROOT });
  const archive = execFileSync('tar', ['--null', '--ignore-failed-read', '-T', '-', '-cf', '-'], {
    cwd: ROOT,
    input: names,
    maxBuffer: 1024 ** 3,
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  execFileSync('tar', ['-xf', '-'], { cwd: copy, input: archive });
  linkModules(copy);
  // What the tests of the command start is built; once is enough, since an edit to the command bundles it again.
  execFileSync('npm', ['run', '--silent', 'build'], { cwd: copy, stdio: ['ignore', 'ignore', 'inherit'] });
  handToTestUser(copy);
  return copy;
}

/**
 * A directory of links rather than one link: vitest writes into node_modules, and the packages of the copy are those of the copy.
 *
 * @param {string} copy
 */
function linkModules(copy) {
  const [from, to] = [join(ROOT, 'node_modules'), join(copy, 'node_modules')];
  mkdirSync(join(to, '@acode'), { recursive: true });
  for (const name of readdirSync(from)) {
    if (name === '@acode' || name === 'acode' || name.startsWith('.vite')) continue;
    symlinkSync(join(from, name), join(to, name));
  }
  for (const name of readdirSync(join(copy, 'packages'))) {
    const manifest = join(copy, 'packages', name, 'package.json');
    if (!existsSync(manifest)) continue;
    symlinkSync(join(copy, 'packages', name), join(to, JSON.parse(readFileSync(manifest, 'utf8')).name));
  }
}

/**
 * Tests run as the test user, and write beside what they test.
 *
 * @param {string} copy
 */
function handToTestUser(copy) {
  execFileSync('chmod', ['-R', 'a+rX', copy]);
  if (process.getuid?.() !== 0) return;
  const user = execFileSync(AS_USER, ['--', 'id', '-u'], { encoding: 'utf8' }).trim();
  execFileSync('chown', ['-R', '-h', user, copy]);
}

/**
 * @param {string} copy
 * @param {Protection} protection
 */
function apply(copy, { name, edits }) {
  const originals = new Map();
  for (const { file, find, put } of edits) {
    const path = join(copy, file);
    const text = readFileSync(path, 'utf8');
    if (!originals.has(path)) originals.set(path, text);
    const count = text.split(find).length - 1;
    if (count !== 1) {
      undo(originals);
      throw new Error(`“${name}” does not apply any more: ${count} places in ${file} read ${JSON.stringify(find)}`);
    }
    // A function, since `$` means something in a replacement text.
    writeFileSync(
      path,
      text.replace(find, () => put),
    );
  }
  return originals;
}

/** @param {Map<string, string>} originals */
function undo(originals) {
  for (const [path, text] of originals) writeFileSync(path, text);
}

/** @param {string} copy */
function bundle(copy) {
  // The command starts the programs of the fleet as they were compiled.
  execFileSync(join(copy, 'node_modules', '.bin', 'tsc'), ['-b', 'packages/fleet'], { cwd: copy, stdio: 'ignore' });
  handToTestUser(join(copy, 'packages', 'fleet', 'dist'));
  execFileSync(process.execPath, [join(copy, 'scripts', 'bundle-cli.mjs')], { cwd: copy, stdio: 'ignore' });
  handToTestUser(join(copy, 'packages', 'cli', 'bin'));
}

/** @param {string} file */
function testFile(file) {
  if (file.startsWith('packages/')) return file;
  return file.includes('/') ? `tests/${file}` : `tests/attacks/${file}`;
}

/**
 * Runs tests in the copy as the test user, and gives what failed and how much passed.
 *
 * @param {string} copy
 * @param {[file: string, pattern: string][]} tests
 * @param {number} deadlineMs
 * @returns {Promise<{ red: string[], green: number }>}
 */
async function run(copy, tests, deadlineMs) {
  const red = [];
  let green = 0;
  const end = Date.now() + deadlineMs;
  for (const [file, pattern] of tests) {
    const report = join(
      '/var/tmp',
      `acode-protections-report-${process.pid}-${Math.random().toString(36).slice(2)}.json`,
    );
    const named = `(?:^| )(?:${pattern.replaceAll(/ *\| */g, '|').trim()})(?![A-Za-z0-9])`;
    const vitest = [
      join(copy, 'node_modules', 'vitest', 'vitest.mjs'),
      'run',
      testFile(file),
      '-t',
      named,
      '--reporter=json',
      `--outputFile=${report}`,
    ];
    const words =
      process.getuid?.() === 0 ? [AS_USER, '--', process.execPath, ...vitest] : [process.execPath, ...vitest];
    // One engine is enough, but for what is about another.
    const engines = pattern.includes('Podman') ? 'docker28,podman' : 'docker28';
    const late = await finished(words, copy, engines, end - Date.now());
    const before = red.length + green;
    if (existsSync(report)) {
      const results = JSON.parse(readFileSync(report, 'utf8')).testResults;
      const all = results.flatMap(result => result.assertionResults);
      red.push(...all.filter(({ status }) => status === 'failed').map(({ title }) => title));
      green += all.filter(({ status }) => status === 'passed').length;
      // A suite that could not even be set up has no failed test of its own.
      if (all.every(({ status }) => status !== 'failed') && results.some(({ status }) => status === 'failed'))
        red.push(`${file}: could not be set up`);
      rmSync(report, { force: true });
    }
    // A test that never ends is not green: with the protection each of them takes seconds.
    if (late) return { red: [...red, `${pattern.trim()}: did not end in time`], green };
    // Nothing that was run is nothing that was shown.
    if (red.length + green === before) throw new Error(`no test of ${file} was run for “${pattern.trim()}”`);
  }
  return { red, green };
}

/**
 * What is red although nothing was taken out: it shows nothing about a protection.
 *
 * @param {string} copy
 * @param {Protection[]} protections
 */
async function redAnyway(copy, protections) {
  /** @type {Map<string, Set<string>>} */
  const files = new Map();
  for (const [file, pattern] of protections.flatMap(({ tests }) => tests))
    files.set(file, (files.get(file) ?? new Set()).add(pattern.trim()));
  const { red } = await run(
    copy,
    [...files].map(([file, patterns]) => [file, [...patterns].join('|')]),
    files.size * DEADLINE_MS,
  );
  return new Set(red);
}

/**
 * @param {string[]} words
 * @param {string} cwd
 * @param {string} engines
 * @param {number} deadlineMs
 * @returns {Promise<boolean>} whether it had to be stopped
 */
function finished([program = '', ...words], cwd, engines, deadlineMs) {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, ACODE_TEST_ENGINES: engines, ACODE_TEST_TARGETS: 'all' };
    const child = spawn(program, words, { cwd, env, stdio: 'ignore', detached: true });
    let late = false;
    const timer = setTimeout(
      () => {
        late = true;
        // Its own process group, so that workers that hang go with it.
        if (child.pid) process.kill(-child.pid, 'SIGKILL');
      },
      Math.max(1000, deadlineMs),
    );
    child.once('error', reject);
    child.once('close', () => {
      clearTimeout(timer);
      resolve(late);
    });
  });
}

/** @param {Protection} protection */
function keyOf(protection) {
  return createHash('sha256').update(JSON.stringify(protection)).digest('hex');
}

/** @returns {Map<string, Shown>} */
function earlier() {
  if (options.fresh || !existsSync(options.state)) return new Map();
  return new Map(JSON.parse(readFileSync(options.state, 'utf8')).map(shown => [shown.key, shown]));
}

/**
 * @param {string} copy
 * @param {Protection} protection
 * @param {Set<string>} before
 * @returns {Promise<Shown>}
 */
async function show(copy, protection, before) {
  const { name, tests, command, deadlineMs = DEADLINE_MS } = protection;
  const began = Date.now();
  const originals = apply(copy, protection);
  try {
    if (command) bundle(copy);
    const { red: all, green } = await run(copy, tests, deadlineMs);
    const red = all.filter(title => !before.has(title));
    const seconds = Math.round((Date.now() - began) / 1000);
    const problem = red.length > 0 ? undefined : `${green} tests stayed green`;
    return { name, key: keyOf(protection), red, green, seconds, commit: COMMIT, ...(problem ? { problem } : {}) };
  } finally {
    undo(originals);
    if (command) bundle(copy);
  }
}

/** @returns {Map<string, string>} The rows of the table as it is, by the name of the protection. */
function tableRows() {
  const rows = existsSync(TABLE) ? readFileSync(TABLE, 'utf8').split('\n') : [];
  const shown = rows.filter(row => /^\| (?!what was removed |---)/.test(row) && !row.includes(` | ${NOT_RUN} | `));
  return new Map(shown.map(row => [row.split(' | ')[0]?.slice(2) ?? '', row]));
}

/** @param {Shown[]} all */
function table(all) {
  const earlierRows = tableRows();
  const rows = PROTECTIONS.map(protection => {
    const shown = all.find(({ key }) => key === keyOf(protection));
    const before = earlierRows.get(protection.name);
    if (!shown && before) return before;
    const files = [...new Set(protection.edits.map(({ file }) => file.replace('packages/sandbox/src/', '')))];
    const outcome = shown ? (shown.problem ?? shown.red.join('; ')) : NOT_RUN;
    return `| ${protection.name} | ${protection.layers} | ${files.map(file => `\`${file}\``).join(', ')} | ${outcome.replaceAll('|', '\\|')} | ${shown?.seconds ?? ''} | ${shown?.commit ?? ''} |`;
  });
  const open = rows.filter(row => row.includes(` | ${NOT_RUN} | `) || GREEN.test(row));
  return [
    '# Each protection removed in turn',
    '',
    'Written by `node scripts/remove-protections.mjs`: each edit of `scripts/protections.mjs` is made in a copy of the tree, and',
    'the attack tests named there run on Docker 28 with runc. Where two layers protect (the engine request, and the verification',
    'that compares engine and kernel with the plan), both were taken out. Each row names the commit it was shown for.',
    '',
    `${rows.length - open.length} of ${PROTECTIONS.length} turned at least one attack test red.`,
    '',
    '| what was removed | layers | edited | attack tests that went red | s | commit |',
    '| --- | --- | --- | --- | --- | --- |',
    ...rows,
    '',
  ].join('\n');
}

/**
 * The tests that are named and no longer there, by the text of the file and of those beside it, which have the titles of some.
 * What only looks as if it were there is an error when it is run.
 */
function missingTests() {
  return PROTECTIONS.flatMap(({ name, tests }) =>
    tests.flatMap(([file, pattern]) => {
      const path = join(ROOT, testFile(file));
      if (!existsSync(path)) return [`“${name}” names ${file}, which is not there any more`];
      const beside = readdirSync(dirname(path)).filter(other => other.endsWith('.ts'));
      const text = beside.map(other => readFileSync(join(dirname(path), other), 'utf8')).join('\n');
      return pattern
        .split('|')
        .filter(title => !new RegExp(title.trim()).test(text))
        .map(title => `“${name}” names a test that is not in ${file} any more: ${title.trim()}`);
    }),
  );
}

/** The edits that fit the tree no longer. */
function misfits() {
  return PROTECTIONS.flatMap(({ name, edits }) =>
    edits
      .filter(({ file, find }) => readFileSync(join(ROOT, file), 'utf8').split(find).length !== 2)
      .map(({ file, find }) => `“${name}” does not apply any more to ${file}: ${JSON.stringify(find)}`),
  );
}

if (options.check) {
  const [edits, tests] = [misfits(), missingTests()];
  for (const misfit of [...edits, ...tests]) console.error(misfit);
  console.log(
    `${PROTECTIONS.length} protections, ${edits.length} edits that do not apply, ${tests.length} tests that are not there`,
  );
  process.exit(edits.length + tests.length === 0 ? 0 : 1);
}

// Below `--check`, which also runs in a copy without a repository.
const COMMIT = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { cwd: ROOT, encoding: 'utf8' }).trim();
const known = earlier();
const inTable = tableRows();
const wanted = PROTECTIONS.filter(({ name }) => options.only?.some(text => name.includes(text)) ?? true).filter(
  ({ name }) => !options.new || !inTable.has(name),
);
const waiting = wanted.filter(
  protection =>
    options.only !== undefined ||
    known.get(keyOf(protection))?.red.length === undefined ||
    known.get(keyOf(protection))?.problem,
);
const copy = waiting.length > 0 ? copyTree() : null;
let failed = 0;
try {
  const before = copy ? await redAnyway(copy, waiting) : new Set();
  for (const title of before) console.log(`red without any edit, so not counted: ${title}`);
  for (const protection of waiting) {
    try {
      const shown = await show(/** @type {string} */ (copy), protection, before);
      known.set(shown.key, shown);
      writeFileSync(options.state, JSON.stringify([...known.values()]));
      console.log(
        `${shown.problem ? 'GREEN' : 'red  '} ${shown.seconds} s  ${shown.name}: ${shown.problem ?? shown.red.join('; ')}`,
      );
    } catch (error) {
      failed += 1;
      console.error(`ERROR ${error instanceof Error ? error.message : String(error)}`);
    }
  }
} finally {
  if (copy) rmSync(copy, { recursive: true, force: true });
}
const current = PROTECTIONS.map(protection => known.get(keyOf(protection))).filter(shown => shown !== undefined);
writeFileSync(TABLE, table(current));
const green = current.filter(({ problem }) => problem);
console.log(
  `${tableRows().size} of ${PROTECTIONS.length} protections in the table, ${current.length - green.length} red, ${green.length} without a red test, ${failed} errors`,
);
process.exitCode =
  failed > 0 || green.length > 0 || (options.only === undefined && tableRows().size < PROTECTIONS.length) ? 1 : 0;
