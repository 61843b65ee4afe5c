// Bundles the acode command into packages/cli/bin: one package without dependencies, commands loaded when they are used.

import { createHash } from 'node:crypto';
import { chmod, copyFile, mkdir, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, transform } from 'esbuild';
import { PROGRAM_MODULE, egressProgram } from './egress-program.mjs';
import { ADAPTER_MODULE, swarmAdapter } from './swarm-adapter.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const cli = join(root, 'packages', 'cli');
const bin = join(cli, 'bin');

const MAX_START = 228 * 1024;
const MAX_CLIENT = 24 * 1024;

// A third of the library would be zod’s messages in languages that acode does not speak.
const englishOnly = {
  name: 'english-only',
  setup({ onLoad }) {
    onLoad({ filter: /zod\/v4\/locales\/index\.js$/ }, ({ path }) => ({
      contents: "export { default as en } from './en.js';",
      resolveDir: dirname(path),
    }));
  },
};

// zod writes a program of its own for each schema at its first use. That pays for itself after many uses; a command has one or two
// of each.
const withoutCompiling = {
  name: 'without-compiling',
  setup({ onLoad }) {
    onLoad({ filter: /zod\/v4\/core\/core\.js$/ }, async ({ path }) => {
      const text = await readFile(path, 'utf8');
      if (!text.includes('export const globalConfig')) throw new Error('zod keeps its configuration elsewhere by now');
      return { contents: `${text}\nglobalConfig.jitless = true;\n`, resolveDir: dirname(path) };
    });
  },
};

// From its sources, as the library is.
const agentsFromSources = {
  name: 'agents-from-sources',
  setup({ onResolve }) {
    onResolve({ filter: /^@acode\/agents$/ }, () => ({ path: join(root, 'packages', 'agents', 'src', 'index.ts') }));
  },
};

// The programs that a reaper, a keeper and a refresher become are handed over as text: here they are a part of the bundle, and no files.
const programsInside = {
  name: 'programs-inside',
  setup({ onLoad, onEnd }) {
    let replaced = false;
    onEnd(() => (replaced ? {} : { errors: [{ text: 'no module lifecycle/reaper-program.ts was bundled' }] }));
    onLoad({ filter: /lifecycle\/reaper-program\.ts$/ }, async () => {
      replaced = true;
      const texts = await Promise.all(['reaper', 'keeper', 'refresher'].map(programText));
      return { contents: texts.join('\n'), loader: 'js' };
    });
  },
};

// The worker thread of the egress proxy is a program of its own, beside the bundle: only a command with an allow-list loads it.
const workerBeside = {
  name: 'worker-beside',
  setup({ onLoad }) {
    onLoad({ filter: PROGRAM_MODULE }, () => {
      const path = JSON.stringify(`./${egressFile}`);
      return {
        contents: `export function egressProgram() { return new URL(${path}, import.meta.url); }`,
        loader: 'js',
      };
    });
  },
};

// Neither is the forwarder a file of its own in the bundle.
const forwardersInside = {
  name: 'forwarders-inside',
  setup({ onLoad, onEnd }) {
    let replaced = false;
    onEnd(() => (replaced ? {} : { errors: [{ text: 'no module egress/relay/forwarder-program.ts was bundled' }] }));
    onLoad({ filter: /egress\/relay\/forwarder-program\.ts$/ }, async () => {
      replaced = true;
      const directory = join(root, 'packages', 'sandbox', 'forwarder');
      const names = (await readdir(directory)).filter(name => /^forwarder-\w+$/.test(name));
      const texts = await Promise.all(names.map(async name => [name, await readFile(join(directory, name), 'base64')]));
      const contents = `const FILES = ${JSON.stringify(Object.fromEntries(texts))};
        export async function forwarderFile(name) { return Buffer.from(FILES[name] ?? '', 'base64'); }`;
      return { contents, loader: 'js' };
    });
  },
};

// Nor is the adapter, which the command writes into the store of programs when a swarm first needs it.
const adapterInside = {
  name: 'adapter-inside',
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /^@acode\/swarm$/ }, () => ({ path: join(root, 'packages', 'swarm', 'src', 'index.ts') }));
    onLoad({ filter: ADAPTER_MODULE }, () => ({
      contents: `export async function adapterProgram() { return ${JSON.stringify(adapter.text)}; }`,
      loader: 'js',
    }));
  },
};

async function programText(name) {
  const program = await readFile(join(root, 'packages', 'sandbox', 'reaper', `${name}.mjs`), 'utf8');
  const { code } = await transform(program, { loader: 'js', format: 'esm', target: 'node20', minify: true });
  return `export async function ${name}Program() { return ${JSON.stringify(code)}; }`;
}

// The command and what it loads when it is used.
const COMMAND = 'acode-command';
const common = { absWorkingDir: root, outdir: bin, bundle: true, platform: 'node', target: 'node20', minify: true };

await rm(bin, { recursive: true, force: true });
await mkdir(bin);
const egress = await egressProgram('cjs');
const egressFile = `acode-egress-${createHash('sha256').update(egress.text).digest('hex').slice(0, 16)}.js`;
await writeFile(join(bin, egressFile), egress.text);
const adapter = await swarmAdapter();
const command = await build({
  ...common,
  plugins: [
    libraryByNeed(join(root, 'packages', 'sandbox', 'src', 'index.ts')),
    agentsFromSources,
    englishOnly,
    withoutCompiling,
    programsInside,
    workerBeside,
    forwardersInside,
    adapterInside,
  ],
  entryPoints: { [COMMAND]: join(cli, 'src', 'cli.ts') },
  splitting: true,
  format: 'esm',
  outExtension: { '.js': '.mjs' },
  chunkNames: 'acode-[hash]',
  legalComments: 'none',
  metafile: true,
  write: false,
});
const { outputs } = command.metafile;
const first = staticallyLoaded(path => path.endsWith(`/${COMMAND}.mjs`));
const library = staticallyLoaded(path => outputs[path].entryPoint?.endsWith('sandbox/src/index.ts'));
const PARTS = ['start', 'library', 'commands'];
const parts = await Promise.all(PARTS.map((name, part) => writePart(name, path => partOf(path) === part)));
// The entry is small: where a server does the work it is all that is loaded.
const entry = await build({
  ...common,
  plugins: [commandInParts(parts)],
  entryPoints: { acode: join(cli, 'src', 'main.ts') },
  format: 'cjs',
  define: { 'import.meta.url': 'acodeUrl' },
  // Both a shell script and a program of Node.js, for the `--`: without it, Node.js 20 itself obeys `--env-file` wherever it stands,
  // and with it the NODE_OPTIONS of a file that a command in a sandbox may have written.
  banner: {
    js: '#!/usr/bin/env sh\n\':\' //; exec node -- "$0" "$@"\nconst acodeUrl = require(\'node:url\').pathToFileURL(__filename).href;',
  },
  metafile: true,
});

assertQuickStart(entry.metafile);
await chmod(join(bin, 'acode.js'), 0o755);
await writeFile(join(bin, 'package.json'), '{ "type": "commonjs" }\n');
const bundled = { ...command.metafile.inputs, ...entry.metafile.inputs, ...egress.inputs, ...adapter.inputs };
await writeFile(join(bin, 'THIRD-PARTY-LICENSES.txt'), await licences(Object.keys(bundled)));

// Hints cite pages by name, such as docs/caches.md: the installed package has them too.
const pages = join(cli, 'docs');
await rm(pages, { recursive: true, force: true });
await mkdir(pages);
for (const name of await readdir(join(root, 'docs')))
  if (name.endsWith('.md') && name !== 'requirements.md') await copyFile(join(root, 'docs', name), join(pages, name));

const sizes = [...parts, ...Object.values(entry.metafile.outputs)].map(({ bytes }) => bytes);
console.log(`packages/cli/bin: ${sizes.map(size => `${Math.round(size / 1024)} KiB`).join(', ')}`);

/**
 * One file that holds modules as functions, by name: a script that V8 compiles as a whole and from which each module is run when
 * it is first needed. A module that awaited at its top would not be CommonJS, and fails to be written here.
 */
async function writePart(name, isIn) {
  const files = command.outputFiles.filter(({ path }) => isIn(relative(root, path)));
  const modules = await Promise.all(
    files.map(async ({ path, text }) => `"${idOf(relative(root, path))}":${await moduleOf(text)}`),
  );
  const text = `/*${modules.length}*/({${modules.join(',\n')}})\n`;
  const file = `acode-${name}-${createHash('sha256').update(text).digest('hex').slice(0, 16)}.js`;
  await writeFile(join(bin, file), text);
  return { file, bytes: text.length };
}

// Every call loads the start, every command that needs an engine the library; the rest is for single commands.
function partOf(path) {
  if (first.has(path)) return 0;
  return library.has(path) ? 1 : 2;
}

// A module is named by its part and its file, so that the loader opens no part in vain.
function idOf(path) {
  return `./${partOf(path)}/${basename(path)}`;
}

async function moduleOf(text) {
  const ids = new Map(Object.keys(outputs).map(path => [`"./${basename(path)}"`, `"${idOf(path)}"`]));
  const named = text.replaceAll(/"\.\/acode-\w+\.mjs"/g, name => ids.get(name) ?? name);
  const { code } = await transform(named, {
    format: 'cjs',
    platform: 'node',
    target: 'node20',
    minify: true,
    define: { 'import.meta.url': 'acodeUrl' },
    // Not the loader of modules: `require`, when it is needed.
    supported: { 'dynamic-import': false },
  });
  return `function(exports,require,module,acodeUrl){"use strict";${ascii(code)}}`;
}

// The files are read as Latin-1, which is quicker. esbuild leaves other characters in regular expressions, where they can be
// escaped, and in raw templates, where they cannot.
function ascii(code) {
  if (/raw`[^`]*[^\0-\x7f]/.test(code)) throw new Error('a raw template has a character that is not ASCII');
  return code.replaceAll(/[^\0-\x7f]/g, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

// The library from its sources, so that a stale build of it can never be bundled; and in two parts. The whole of it loads
// when a command needs an engine. The few names that every call needs (errors, sizes) come from a copy of its index without
// the host and without schemas: esbuild puts whatever a module imports into the chunk that loads first, used or not.
function libraryByNeed(index) {
  return {
    name: 'library-by-need',
    setup({ onResolve, onLoad }) {
      // A swarm needs the host in any case.
      onResolve({ filter: /^@acode\/sandbox$/ }, ({ kind, importer }) =>
        kind === 'dynamic-import' || importer.startsWith(join(root, 'packages', 'swarm'))
          ? { path: index }
          : { path: index, suffix: '?names', sideEffects: false },
      );
      onLoad({ filter: /index\.ts$/ }, async ({ path, suffix }) => {
        if (path !== index || suffix !== '?names') return undefined;
        const contents = (await readFile(path, 'utf8')).replace(
          /^export \{ (?:(?:Acode|denialSchema|errorFromJson) \} .*|.* from '\.\/lifecycle\/.*)$/gm,
          '',
        );
        return { contents, loader: 'ts', resolveDir: dirname(path) };
      });
    },
  };
}

// The entry loads the command when it needs it, from the files that the other build made.
function commandInParts(written) {
  const files = JSON.stringify(written.map(({ file }) => file));
  return {
    name: 'command-in-parts',
    setup({ onLoad }) {
      onLoad({ filter: /cli\/src\/cli\.ts$/ }, ({ path }) => ({
        contents: `import { bundledCommand } from './start/bundle.ts';
          export const { runCli, lastWords } = bundledCommand({ url: import.meta.url, files: ${files}, first: './0/${COMMAND}.mjs' });`,
        resolveDir: dirname(path),
      }));
    },
  };
}

// These files of the command and what they import, other than when it is used.
function staticallyLoaded(isFirst) {
  const found = new Set(Object.keys(outputs).filter(isFirst));
  if (found.size !== 1) throw new Error(`${found.size} files where one is expected`);
  for (const path of found)
    for (const { path: next, kind, external } of outputs[path].imports)
      if (kind === 'import-statement' && !external) found.add(next);
  return found;
}

// Counted as esbuild writes it, before the part adds names to each import. More would be felt at each keystroke of a completion.
function assertQuickStart({ outputs: entries }) {
  const sum = (of, paths) => paths.reduce((bytes, path) => bytes + of[path].bytes, 0);
  assertSize(sum(entries, Object.keys(entries)), MAX_CLIENT);
  assertSize(sum(outputs, [...first]), MAX_START);
}

function assertSize(bytes, largest) {
  if (bytes > largest) throw new Error(`every call would load ${bytes} bytes, more than ${largest}`);
}

// Bundled code is redistributed code: the licences of its authors go with it.
async function licences(inputs) {
  const packages = new Set(inputs.map(packageOf).filter(path => path !== null));
  const texts = await Promise.all([...packages].sort((a, b) => a.localeCompare(b)).map(licenceOf));
  return texts.join('\n\n');
}

function packageOf(input) {
  const names = relative(root, join(root, input)).split(sep);
  const at = names.lastIndexOf('node_modules');
  if (at < 0) return null;
  return names.slice(0, at + (names[at + 1]?.startsWith('@') ? 3 : 2)).join(sep);
}

async function licenceOf(path) {
  const directory = join(root, path);
  const manifest = JSON.parse(await readFile(join(directory, 'package.json'), 'utf8'));
  const file = (await readdir(directory)).find(name => /^(?:licen[cs]e|copying)/i.test(name));
  const text = file ? await readFile(join(directory, file), 'utf8') : 'No licence file in the package.';
  return `${manifest.name} ${manifest.version} (${manifest.license})\n${'='.repeat(60)}\n${text.trim()}\n`;
}
