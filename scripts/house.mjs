// Figures of the code base: code lines, entries and import graph of the library, and what one command crosses.
//
//     node scripts/house.mjs          code lines, entries, import graph
//     node scripts/house.mjs --run    and one `acode run -- true`: needs a build, a test engine (DOCKER_HOST), an ordinary user
//     node scripts/house.mjs --names  the same, with the names behind the figures
//
// Code lines are lines with a token on them: no blank lines, no comments. Tests are *.test.ts and everything in tests/.
//
// A room is an entry of packages/sandbox/src: a directory, or a loose file. The depth of the graph is the number of rooms on the
// longest way along imports, types and `import()` included; rooms of one circle count as one step. Circles are between files.
//
// One command: the compiled files are loaded with a counter at the beginning of each function. A file is entered when one of its
// functions is called. An entry is a function called from another file, counted once for each calling file. The first entry of a
// file leads into it, all others are re-entries. Calls from Node’s event loop have no calling file and are not counted.
//
// Hops of a removal: each function passes on, also to what it calls later, through which files it was reached. Counted is how often
// the file changes on the way from the disposal of the sandbox to the request that deletes its container.
//
// Figures of commit 7cb6126 (docker28, Node.js 20), which later ones are compared with: 48,929 code lines of source and 47,142 of
// tests; 81 entries, 63 rooms, 18 of them on the longest way; two circles in the library and two in the command; one command enters
// 188 files of the library with 416 entries and 228 re-entries, and 68 files of the command with 99 and 31; 13 hops.
// @ts-check

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript-6';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SANDBOX = 'packages/sandbox/src';
const CLI = 'packages/cli/src';
const COMPILED = /\/packages\/(?:cli|sandbox)\/dist\/.*\.js$/;

/**
 * @param {string} directory
 * @returns {string[]}
 */
function filesIn(directory) {
  return readdirSync(join(ROOT, directory), { recursive: true, encoding: 'utf8' })
    .map(name => `${directory}/${name.split(sep).join('/')}`)
    .filter(name => /\.[cm]?[jt]sx?$/.test(name))
    .sort();
}

/** @param {string} file */
function isTest(file) {
  return file.endsWith('.test.ts') || file.startsWith('tests/');
}

/** @param {string} file */
function parsed(file) {
  return ts.createSourceFile(file, readFileSync(join(ROOT, file), 'utf8'), ts.ScriptTarget.Latest, true);
}

/**
 * Lines that a token stands on. Of a text over several lines, every line counts.
 *
 * @param {string} file
 */
function codeLines(file) {
  const source = parsed(file);
  /** @type {Set<number>} */
  const lines = new Set();
  /** @param {ts.Node} node */
  const visit = node => {
    const children = node.getChildren(source);
    if (children.length > 0 || node.getWidth(source) === 0) {
      for (const child of children) if (!ts.isJSDoc(child)) visit(child);
      return;
    }
    const last = source.getLineAndCharacterOfPosition(node.getEnd()).line;
    for (let line = source.getLineAndCharacterOfPosition(node.getStart(source)).line; line <= last; line += 1)
      lines.add(line);
  };
  visit(source);
  return lines.size;
}

/** @param {readonly string[]} files */
function sumOfLines(files) {
  return files.reduce((sum, file) => sum + codeLines(file), 0);
}

/** @type {Map<string, ReadonlySet<string>>} */
const imports = new Map();

/**
 * Files of the same package that a file imports, also for types only, and with `import()`.
 *
 * @param {string} file
 */
function importsOf(file) {
  const found = imports.get(file) ?? readImports(file);
  imports.set(file, found);
  return found;
}

/** @param {string} file */
function readImports(file) {
  /** @type {Set<string>} */
  const found = new Set();
  /** @param {ts.Node} node */
  const visit = node => {
    const name = moduleNamedBy(node);
    if (name && ts.isStringLiteralLike(name) && name.text.startsWith('.')) {
      found.add(
        relative(ROOT, resolve(ROOT, dirname(file), name.text))
          .split(sep)
          .join('/'),
      );
    }
    ts.forEachChild(node, visit);
  };
  visit(parsed(file));
  return found;
}

/**
 * @param {ts.Node} node
 * @returns {ts.Node | undefined}
 */
function moduleNamedBy(node) {
  if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return node.moduleSpecifier;
  if (ts.isImportTypeNode(node)) return ts.isLiteralTypeNode(node.argument) ? node.argument.literal : undefined;
  const loads = ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword;
  return loads ? node.arguments[0] : undefined;
}

/** @typedef {ReadonlyMap<string, ReadonlySet<string>>} Graph */

/**
 * The graph of imports between what `nodeOf` makes of files.
 *
 * @param {readonly string[]} files
 * @param {(file: string) => string} nodeOf
 * @returns {Graph}
 */
function graphOf(files, nodeOf) {
  /** @type {Map<string, Set<string>>} */
  const graph = new Map(files.map(file => [nodeOf(file), new Set()]));
  for (const file of files) {
    for (const other of importsOf(file)) {
      if (files.includes(other) && nodeOf(other) !== nodeOf(file)) graph.get(nodeOf(file))?.add(nodeOf(other));
    }
  }
  return graph;
}

/**
 * Groups of nodes that reach each other, each after all groups that it reaches (Tarjan).
 *
 * @param {Graph} graph
 */
function groupsOf(graph) {
  /** @type {Map<string, number>} */
  const order = new Map();
  /** @type {Map<string, number>} */
  const lowest = new Map();
  /** @type {string[]} */
  const open = [];
  /** @type {string[][]} */
  const groups = [];
  /** @param {string} node */
  const visit = node => {
    order.set(node, order.size);
    lowest.set(node, order.size - 1);
    open.push(node);
    for (const next of graph.get(node) ?? []) {
      if (!order.has(next)) visit(next);
      if (open.includes(next)) lowest.set(node, Math.min(lowest.get(node) ?? 0, lowest.get(next) ?? 0));
    }
    if (lowest.get(node) === order.get(node)) groups.push(open.splice(open.indexOf(node)));
  };
  for (const node of graph.keys()) if (!order.has(node)) visit(node);
  return groups;
}

/** @param {Graph} graph */
function depthOf(graph) {
  /** @type {Map<string, number>} */
  const depth = new Map();
  for (const group of groupsOf(graph)) {
    const below = group.flatMap(node => [...(graph.get(node) ?? [])].map(next => depth.get(next) ?? 0));
    for (const node of group) depth.set(node, 1 + Math.max(0, ...below));
  }
  return Math.max(0, ...depth.values());
}

/** @param {readonly string[]} files */
function circlesOf(files) {
  return groupsOf(graphOf(files, file => file))
    .filter(group => group.length > 1)
    .map(group => group.sort().join(' '));
}

// The counter: this module is also the loader that Node asks for each compiled file.

/**
 * Node’s hook: compiled files of ours get a counter at the beginning of each function.
 *
 * @param {string} url
 * @param {object} context
 * @param {(url: string, context: object) => Promise<{ format: string, source?: unknown }>} next
 */
export async function load(url, context, next) {
  const loaded = await next(url, context);
  if (!COMPILED.test(url)) return loaded;
  return { ...loaded, source: counted(url, readFileSync(fileURLToPath(url), 'utf8')) };
}

/**
 * The body of a function becomes a function that the counter calls. Generators and constructors cannot be wrapped: they are counted
 * only.
 *
 * @param {string} url
 * @param {string} text
 */
function counted(url, text) {
  const source = ts.createSourceFile(url, text, ts.ScriptTarget.Latest, true, ts.ScriptKind.JS);
  const file = JSON.stringify(sourceOf(url));
  /** @type {{ at: number, text: string }[]} */
  const insertions = [];
  /** @param {ts.Node} node */
  const visit = node => {
    if (ts.isFunctionLike(node) && 'body' in node && node.body) {
      const body = /** @type {ts.Node} */ (node.body);
      const [from, to] = [body.getStart(source), body.getEnd()];
      const call = `(${file}, ${JSON.stringify(`${nameOf(node)}@${node.getStart(source)}`)}`;
      const later = ts.getCombinedModifierFlags(node) & ts.ModifierFlags.Async ? 'async ' : '';
      if (ts.isConstructorDeclaration(node) || ('asteriskToken' in node && node.asteriskToken)) {
        insertions.push({ at: from + 1, text: `globalThis.acodeEntered${call});` });
      } else if (ts.isBlock(body)) {
        insertions.push({ at: from + 1, text: `return globalThis.acodeWithin${call}, ${later}() => {` });
        insertions.push({ at: to - 1, text: '\n});' });
      } else {
        insertions.push({ at: from, text: `globalThis.acodeWithin${call}, ${later}() => (` }, { at: to, text: '))' });
      }
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  const first = source.statements.find(one => !ts.isImportDeclaration(one));
  if (first) insertions.push({ at: first.getFullStart(), text: ';globalThis.acodeLoading(1);' });
  insertions.push({ at: text.length, text: '\n;globalThis.acodeLoading(-1);' });
  // From the end to the beginning. Of two at one place the inner one was found later, and stands first.
  const sorted = insertions
    .map((one, index) => ({ ...one, index }))
    .sort((one, other) => other.at - one.at || one.index - other.index);
  return sorted.reduce((result, { at, text: added }) => result.slice(0, at) + added + result.slice(at), text);
}

/** @param {ts.SignatureDeclaration} node */
function nameOf(node) {
  if (node.name) return node.name.getText();
  const { parent } = node;
  return parent && 'name' in parent && parent.name ? /** @type {ts.Node} */ (parent.name).getText() : '';
}

/** @param {string} url */
function sourceOf(url) {
  return url.replace(/^.*\/packages\/(cli|sandbox)\/dist\/(.*)\.js$/, 'packages/$1/src/$2.ts');
}

/**
 * What runs in the counted process before anything of ours is loaded.
 *
 * @param {string} report
 */
function counter(report) {
  return `
    import { AsyncLocalStorage } from 'node:async_hooks';
    import { register, syncBuiltinESMExports } from 'node:module';
    import http from 'node:http';
    import { writeFileSync } from 'node:fs';
    register(${JSON.stringify(import.meta.url)});
    const COMPILED = ${String(COMPILED)};
    const sourceOf = ${String(sourceOf)};
    const functions = new Map();
    const requests = [];
    const way = new AsyncLocalStorage();
    // What modules do while they are loaded is no part of the command.
    let loading = 0;
    globalThis.acodeLoading = change => void (loading += change);
    function callingFile() {
      const { prepareStackTrace, stackTraceLimit } = Error;
      Error.prepareStackTrace = (_, sites) => sites.filter(site => !site.isAsync()).map(site => site.getFileName() ?? '');
      Error.stackTraceLimit = 24;
      const files = new Error().stack.filter(name => COMPILED.test(name)).map(sourceOf);
      Object.assign(Error, { prepareStackTrace, stackTraceLimit });
      // The first is the function that was entered.
      return files[1] ?? '';
    }
    globalThis.acodeEntered = (file, name) => {
      if (loading > 0) return;
      const key = file + '#' + name;
      functions.set(key, (functions.get(key) ?? new Set()).add(callingFile()));
    };
    globalThis.acodeWithin = (file, name, body) => {
      acodeEntered(file, name);
      return way.run({ file, name, before: way.getStore() }, body);
    };
    const { request } = http;
    http.request = (...given) => {
      const { method = '', path = '' } = given.find(one => one?.path !== undefined) ?? {};
      const files = [];
      for (let at = way.getStore(); at; at = at.before) files.unshift([at.name, at.file]);
      requests.push({ request: method + ' ' + path, way: files });
      return request(...given);
    };
    syncBuiltinESMExports();
    process.on('exit', () => {
      const entered = [...functions].map(([name, from]) => [name, [...from]]);
      writeFileSync(${JSON.stringify(report)}, JSON.stringify({ entered, requests }));
    });`;
}

/** @typedef {readonly (readonly [name: string, file: string])[]} Way */
/** @typedef {{ entered: readonly (readonly [name: string, from: readonly string[]])[], requests: readonly { request: string, way: Way }[] }} Counts */

/** @returns {Counts} */
function oneCommand() {
  const main = join(ROOT, 'packages/cli/dist/main.js');
  if (!existsSync(main)) throw new Error('the command is not built: run `npm run build` first');
  const home = mkdtempSync(join(tmpdir(), 'acode-house-'));
  try {
    const workspace = join(home, 'workspace');
    mkdirSync(workspace);
    const report = join(home, 'report.json');
    const start = `data:text/javascript,${encodeURIComponent(counter(report))}`;
    const argv = ['--import', start, main, 'run', '--image', 'acode-test/busybox:1', '--', 'true'];
    const env = {
      ...process.env,
      HOME: home,
      XDG_CONFIG_HOME: '',
      XDG_STATE_HOME: '',
      XDG_RUNTIME_DIR: '',
      TMPDIR: home,
    };
    const { status, stderr } = spawnSync(process.execPath, argv, {
      cwd: workspace,
      env,
      encoding: 'utf8',
      timeout: 120_000,
    });
    if (status !== 0) throw new Error(`the command ended with ${status}: ${stderr}`);
    return JSON.parse(readFileSync(report, 'utf8'));
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

/**
 * The files on the way from the disposal of the command’s sandbox to the request that deletes its container.
 *
 * @param {Counts} counts
 */
function removalOf({ requests }) {
  const start = /^POST .*\/containers\/([^/?]+)\/start/;
  const id = requests.map(({ request }) => start.exec(request)?.[1]).findLast(one => one !== undefined) ?? '';
  const way = requests.find(({ request }) => request.startsWith('DELETE ') && request.includes(id))?.way ?? [];
  const disposal = way.findIndex(([name]) => name.startsWith('[Symbol.asyncDispose]'));
  const files = way.slice(Math.max(0, disposal)).map(([, file]) => file);
  return files.filter((file, index) => file !== files[index - 1]);
}

/**
 * What one command crosses in a package.
 *
 * @param {Counts} counts
 * @param {string} source
 */
function crossed({ entered }, source) {
  const own = entered
    .map(([name, from]) => ({ file: name.split('#', 1)[0] ?? '', from }))
    .filter(({ file }) => file.startsWith(source));
  const pairs = own.flatMap(({ file, from }) =>
    from.filter(one => one !== '' && one !== file).map(one => `${one} ${file}`),
  );
  return { files: [...new Set(own.map(({ file }) => file))].sort(), entries: [...new Set(pairs)].sort() };
}

const named = process.argv.includes('--names');

/**
 * @param {string} what
 * @param {readonly string[] | number} figure
 */
function print(what, figure) {
  console.log(`${String(typeof figure === 'number' ? figure : figure.length).padStart(7)}  ${what}`);
  if (named && typeof figure !== 'number') for (const name of figure) console.log(`           ${name}`);
}

/** @param {string} file */
function roomOf(file) {
  return relative(SANDBOX, file).split('/')[0] ?? '';
}

function printTree() {
  const [library, command] = [SANDBOX, CLI].map(source => filesIn(source).filter(file => !isTest(file)));
  const all = [SANDBOX, CLI, 'tests'].flatMap(filesIn);
  print('code lines of source', sumOfLines(all.filter(file => !isTest(file))));
  print('code lines of tests', sumOfLines(all.filter(isTest)));
  print(`entries of ${SANDBOX}, tests included`, readdirSync(join(ROOT, SANDBOX)));
  print('rooms', [...new Set(library.map(roomOf))]);
  print('rooms on the longest way of imports', depthOf(graphOf(library, roomOf)));
  print('directories on it', depthOf(graphOf(library, file => (dirname(file) === SANDBOX ? file : dirname(file)))));
  print('files on it', depthOf(graphOf(library, file => file)));
  print('circles in the library', circlesOf(library));
  print('circles in the command', circlesOf(command));
}

function printRun() {
  const counts = oneCommand();
  for (const [name, source] of [
    ['library', SANDBOX],
    ['command', CLI],
  ]) {
    const { files, entries } = crossed(counts, source ?? '');
    print(`files of the ${name} entered by one command`, files);
    print('entries', entries);
    print('re-entries', entries.length - files.length);
  }
  const removal = removalOf(counts);
  print('hops of the removal of its container', removal.length - 1);
  console.log(`         ${removal.map(file => relative(SANDBOX, file)).join(' → ')}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  printTree();
  if (process.argv.includes('--run')) printRun();
}
