// Doc comments of the public surface: every export, and every field of every type a caller can reach from one. Every entry
// point has an example, and every example compiles.
// @ts-check

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript-6';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const INDEX = join(ROOT, 'packages/sandbox/src/index.ts');
// The entry for browsers. What only it exports is imported by the example that uses it.
const WEB = join(ROOT, 'packages/sandbox/src/isolation/web/index.ts');
const E2B = join(ROOT, 'packages/sandbox/src/e2b/index.ts');
const FLEET = join(ROOT, 'packages/fleet/src/index.ts');
const ENTRIES = [INDEX, WEB, E2B, FLEET];
const SOURCES = ['packages/sandbox/src/', 'packages/fleet/src/'].map(path => join(ROOT, path));
// Examples are compiled as if they stood here: inside the repository, so that packages resolve as they do for a user.
const EXAMPLES = join(ROOT, 'node_modules/.cache/acode-examples');

/** Where a reader begins; each must show how it is used. */
const ENTRY_POINTS = ['Acode', 'Acode.run', 'Acode.spawn', 'Acode.create', 'Sandbox', 'WebAcode'];

/** What examples may use without saying where it comes from. */
const PRELUDE = `
import type { Acode, Sandbox } from '@acode/sandbox';
declare global {
  const acode: Acode;
  const sandbox: Sandbox;
  const pino: typeof import('pino').pino;
  const signal: AbortSignal;
  const id: string;
  const imageId: string;
  function alert(message: string): void;
}
`;

/**
 * @typedef {{ place: string, code: string, names: readonly string[], from: string }} Example
 *   `from` is the module whose exports (`names`) the code may use besides the public ones.
 */

/** @type {string[]} */
const complaints = [];

/** @param {ts.Node} node */
function placeOf(node) {
  const source = node.getSourceFile();
  const { line } = source.getLineAndCharacterOfPosition(node.getStart(source));
  return `${relative(ROOT, source.fileName)}:${line + 1}`;
}

/** @returns {ts.CompilerOptions} */
function compilerOptions() {
  const { config } = ts.readConfigFile(join(ROOT, 'tsconfig.base.json'), path => readFileSync(path, 'utf8'));
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, ROOT, {
    noEmit: true,
    composite: false,
    incremental: false,
    declaration: false,
    allowImportingTsExtensions: true,
    rewriteRelativeImportExtensions: false,
    // Examples import everything they might use in one line, types and values alike.
    verbatimModuleSyntax: false,
    isolatedModules: false,
    paths: { '@acode/sandbox': [INDEX], '@acode/sandbox/web': [WEB], '@acode/fleet': [FLEET] },
  });
  return options;
}

/**
 * A compiler host that also knows files which are nowhere on disk.
 *
 * @param {ts.CompilerOptions} options
 * @param {ReadonlyMap<string, string>} files
 */
function hostWith(options, files) {
  const disk = ts.createCompilerHost(options);
  return {
    ...disk,
    /** @param {string} path */
    fileExists: path => files.has(path) || disk.fileExists(path),
    /** @param {string} path */
    readFile: path => files.get(path) ?? disk.readFile(path),
    /** @type {ts.CompilerHost['getSourceFile']} */
    getSourceFile: (path, ...rest) => {
      const text = files.get(path);
      if (text === undefined) return disk.getSourceFile(path, ...rest);
      return ts.createSourceFile(path, text, ts.ScriptTarget.ES2022);
    },
  };
}

/**
 * What was checked: every declaration once, however many types lead to it.
 *
 * @type {Set<ts.Declaration>}
 */
const seen = new Set();
/** @type {Set<string>} */
const narrowed = new Set();
let fields = 0;

/** @param {ts.Declaration} declaration */
function isOurs(declaration) {
  return SOURCES.some(path => declaration.getSourceFile().fileName.startsWith(path));
}

/**
 * @param {ts.TypeChecker} checker
 * @param {ts.Symbol} symbol
 */
function isDocumented(checker, symbol) {
  return ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim() !== '';
}

/**
 * @param {ts.TypeChecker} checker
 * @param {ts.Symbol} symbol
 * @param {string} name
 */
function checkSymbol(checker, symbol, name) {
  const own = (symbol.declarations ?? []).filter(isOurs);
  const [declaration] = own;
  if (!declaration || seen.has(declaration)) return;
  for (const each of own) seen.add(each);
  const place = placeOf(declaration);
  if (!isDocumented(checker, symbol)) complaints.push(`${place} ${name} has no doc comment`);
  const shown = symbol.getJsDocTags(checker).some(tag => tag.name === 'example');
  if (ENTRY_POINTS.includes(name) && !shown) complaints.push(`${place} ${name} has no @example`);
  for (const each of own) checkInside(checker, each, name);
}

/**
 * The fields of one declaration, and those of every type that it names: a caller can reach these too.
 *
 * @param {ts.TypeChecker} checker
 * @param {ts.Node} declaration
 * @param {string} name
 */
function checkInside(checker, declaration, name) {
  // A schema is not a place for a reader: a type that is inferred from one shows no comments.
  if (ts.isTypeAliasDeclaration(declaration) && isInferred(declaration))
    complaints.push(
      `${placeOf(declaration)} ${name} is inferred from a schema: write it out, with a comment on each field`,
    );
  /** @param {ts.Node} node */
  const visit = node => {
    if (isHidden(node) || ts.isBlock(node) || ts.isConstructorDeclaration(node)) return;
    if (isField(node)) return checkField(checker, node, name);
    if (ts.isTypeReferenceNode(node)) checkNamed(checker, node.typeName);
    if (ts.isExpressionWithTypeArguments(node)) checkNamed(checker, node.expression);
    // What a value is, its initialiser says to the program and its type to the reader.
    if (!ts.isExpression(node) || ts.isExpressionWithTypeArguments(node)) ts.forEachChild(node, visit);
  };
  ts.forEachChild(declaration, visit);
}

/** @param {ts.TypeAliasDeclaration} declaration */
function isInferred({ type }) {
  return /\bz\.(?:input|infer|output)</.test(type.getText());
}

/** @param {ts.Node} node */
function isHidden(node) {
  const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
  const isPrivateName = ts.isClassElement(node) && node.name !== undefined && ts.isPrivateIdentifier(node.name);
  return isPrivateName || (ts.isClassElement(node) && (ts.getCombinedModifierFlags(node) & hidden) !== 0);
}

/**
 * @param {ts.Node} node
 * @returns {node is ts.TypeElement | ts.ClassElement}
 */
function isField(node) {
  // Well-known symbols such as `[Symbol.asyncDispose]` explain themselves.
  return (ts.isTypeElement(node) || ts.isClassElement(node)) && node.name !== undefined && ts.isIdentifier(node.name);
}

/**
 * @param {ts.TypeChecker} checker
 * @param {ts.TypeElement | ts.ClassElement} field
 * @param {string} name
 */
function checkField(checker, field, name) {
  const symbol = field.name && checker.getSymbolAtLocation(field.name);
  if (!symbol) return;
  // Forbidden in this combination: the field is documented where it is allowed.
  if (ts.isPropertySignature(field) && field.type?.kind === ts.SyntaxKind.NeverKeyword) return;
  const path = `${name}.${symbol.name}`;
  const own = (symbol.declarations ?? []).every(each => !seen.has(each));
  // Overloads and members of a union repeat a field to narrow it: the first one has the comment.
  const place = `${field.getSourceFile().fileName} ${path}`;
  if (!own || (narrowed.has(place) && !isDocumented(checker, symbol))) return;
  narrowed.add(place);
  fields += 1;
  checkSymbol(checker, symbol, path);
}

/**
 * @param {ts.TypeChecker} checker
 * @param {ts.Node} named
 */
function checkNamed(checker, named) {
  const symbol = checker.getSymbolAtLocation(named);
  if (!symbol) return;
  const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  if (target.flags & ts.SymbolFlags.TypeParameter) return;
  checkSymbol(checker, target, target.name);
}

/**
 * The examples in the doc comments of one source file.
 *
 * @param {ts.TypeChecker} checker
 * @param {ts.SourceFile} source
 * @returns {Example[]}
 */
function examplesOf(checker, source) {
  const module = checker.getSymbolAtLocation(source);
  const names = module ? checker.getExportsOfModule(module).map(symbol => symbol.name) : [];
  /** @type {Example[]} */
  const examples = [];
  /** @param {ts.Node} node */
  const visit = node => {
    for (const tag of ts.getJSDocTags(node)) {
      if (tag.tagName.text !== 'example' || tag.parent.parent !== node) continue;
      const code = (ts.getTextOfJSDocComment(tag.comment) ?? '').replaceAll(/^```\w*$/gm, '');
      examples.push({ place: placeOf(tag), code, names, from: source.fileName });
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return examples;
}

/**
 * The TypeScript blocks of one page.
 *
 * @param {string} file
 * @returns {Example[]}
 */
function examplesOfPage(file) {
  const text = readFileSync(join(ROOT, file), 'utf8');
  return [...text.matchAll(/^```(?:ts|typescript)\n([\s\S]*?)^```$/gm)].map(block => ({
    place: `${file}:${text.slice(0, block.index).split('\n').length}`,
    code: block[1] ?? '',
    names: [],
    from: '',
  }));
}

function pages() {
  const docs = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' }).map(name => join('docs', name));
  return ['README.md', ...docs].filter(file => file.endsWith('.md') && existsSync(join(ROOT, file)));
}

/**
 * An example as a module. What it does not import or declare itself is imported for it, all on the first line.
 *
 * @param {Example} example
 * @param {readonly string[]} surface
 */
function moduleOf(example, surface) {
  const own = declaredIn(example.code);
  const missing = surface.filter(name => !own.has(name));
  const inner = example.names.filter(name => !own.has(name) && !surface.includes(name));
  const imports = [
    `import { ${missing.join(', ')} } from '@acode/sandbox';`,
    inner.length > 0 ? `import { ${inner.join(', ')} } from '${example.from}';` : '',
  ];
  return `${imports.join(' ')} export {};\n${example.code}`;
}

/** @param {string} code */
function declaredIn(code) {
  const source = ts.createSourceFile('example.ts', code, ts.ScriptTarget.ES2022);
  return new Set(source.statements.flatMap(statement => namesDeclaredBy(statement)));
}

/**
 * @param {ts.Statement} statement
 * @returns {string[]}
 */
function namesDeclaredBy(statement) {
  if (ts.isImportDeclaration(statement)) {
    const bindings = statement.importClause?.namedBindings;
    return bindings && ts.isNamedImports(bindings) ? bindings.elements.map(({ name }) => name.text) : [];
  }
  const named = ts.isClassDeclaration(statement) || ts.isFunctionDeclaration(statement);
  return named && statement.name ? [statement.name.text] : [];
}

/**
 * @param {ts.Program} program
 * @param {string} entry
 */
function exportsOf(program, entry) {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(entry);
  const module = source && checker.getSymbolAtLocation(source);
  if (!module) throw new Error(`${entry} is not a module`);
  return checker.getExportsOfModule(module);
}

/** @param {ts.Program} program */
function checkSurface(program) {
  const checker = program.getTypeChecker();
  const exported = exportsOf(program, INDEX);
  for (const symbol of ENTRIES.flatMap(entry => exportsOf(program, entry))) {
    const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    checkSymbol(checker, target, symbol.name);
  }
  const examples = program
    .getSourceFiles()
    .filter(({ fileName }) => SOURCES.some(path => fileName.startsWith(path)))
    .flatMap(source => examplesOf(checker, source));
  return { names: exported.map(({ name }) => name), examples };
}

/**
 * @param {ts.CompilerOptions} options
 * @param {readonly Example[]} examples
 * @param {readonly string[]} surface
 * @param {ts.Program} before
 */
function checkExamples(options, examples, surface, before) {
  const files = new Map([[join(EXAMPLES, 'prelude.ts'), PRELUDE]]);
  const origins = new Map(examples.map((example, index) => [join(EXAMPLES, `example-${index}.ts`), example]));
  for (const [path, example] of origins) files.set(path, moduleOf(example, surface));
  const host = hostWith(options, files);
  // Parsed sources of the first program are used again.
  const program = ts.createProgram([...files.keys()], options, host, before);
  for (const path of files.keys()) {
    const source = program.getSourceFile(path);
    const found = [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)];
    for (const { start, messageText } of found) {
      const line = start === undefined ? 1 : (source?.getLineAndCharacterOfPosition(start).line ?? 1);
      const message = ts.flattenDiagnosticMessageText(messageText, ' ');
      complaints.push(`${origins.get(path)?.place ?? 'prelude'} example, line ${line}: ${message}`);
    }
  }
}

const options = compilerOptions();
const program = ts.createProgram(ENTRIES, options);
const { names, examples } = checkSurface(program);
const all = [...examples, ...pages().flatMap(examplesOfPage)];
checkExamples(options, all, names, program);

for (const complaint of complaints) console.error(complaint);
if (complaints.length > 0) process.exitCode = 1;
else
  console.log(
    `doc comments: ${names.length} exports and ${fields} fields, all documented; ${all.length} examples compiled`,
  );
