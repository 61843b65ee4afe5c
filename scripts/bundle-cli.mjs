// Bundles the acode command into packages/cli/bin: one package without dependencies, commands loaded when they are used.

import { chmod, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, transform } from 'esbuild';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const cli = join(root, 'packages', 'cli');
const bin = join(cli, 'bin');

// CommonJS packages inside an ES module still call `require` for what is built into Node.
const REQUIRE =
  "import { createRequire as acodeCreateRequire } from 'node:module'; const require = acodeCreateRequire(import.meta.url);";

const LARGEST_START = 200 * 1024;
const LARGEST_CLIENT = 24 * 1024;

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

// The programs that a reaper and a keeper become are handed over as text: here they are a part of the bundle, and no files.
const programsInside = {
  name: 'programs-inside',
  setup({ onLoad }) {
    onLoad({ filter: /lifecycle\/reaper-program\.ts$/ }, async () => {
      const texts = await Promise.all(['reaper', 'keeper'].map(programText));
      return { contents: texts.join('\n'), loader: 'js' };
    });
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
const command = await build({
  ...common,
  plugins: [
    libraryByNeed(join(root, 'packages', 'sandbox', 'src', 'index.ts')),
    englishOnly,
    withoutCompiling,
    programsInside,
  ],
  entryPoints: { [COMMAND]: join(cli, 'src', 'cli.ts') },
  splitting: true,
  format: 'esm',
  outExtension: { '.js': '.mjs' },
  chunkNames: 'acode-[hash]',
  legalComments: 'none',
  banner: { js: REQUIRE },
  metafile: true,
});
// The entry is a file by itself, and no module: where a server does the work it is all that is loaded, and the loader of
// modules would take longer than everything else in it.
const entry = await build({
  ...common,
  plugins: [commandOutside()],
  entryPoints: { acode: join(cli, 'src', 'main.ts') },
  format: 'cjs',
  define: { 'import.meta.url': 'acodeUrl' },
  banner: { js: "#!/usr/bin/env node\nconst acodeUrl = require('node:url').pathToFileURL(__filename).href;" },
  metafile: true,
});

assertQuickStart(command.metafile, entry.metafile);
await chmod(join(bin, 'acode.js'), 0o755);
await writeFile(join(bin, 'package.json'), '{ "type": "commonjs" }\n');
const metafile = {
  inputs: { ...command.metafile.inputs, ...entry.metafile.inputs },
  outputs: { ...command.metafile.outputs, ...entry.metafile.outputs },
};
await writeFile(join(bin, 'THIRD-PARTY-LICENSES.txt'), await licences(Object.keys(metafile.inputs)));

const sizes = Object.values(metafile.outputs).map(({ bytes }) => bytes);
console.log(
  `packages/cli/bin: ${sizes.length} files, ${Math.round(sizes.reduce((sum, size) => sum + size, 0) / 1024)} KiB`,
);

// The library from its sources, so that a stale build of it can never be bundled; and in two parts. The whole of it loads
// when a command needs an engine. The few names that every call needs (errors, sizes) come from a copy of its index without
// the host: esbuild puts whatever a module imports into the chunk that loads first, used or not.
function libraryByNeed(index) {
  return {
    name: 'library-by-need',
    setup({ onResolve, onLoad }) {
      onResolve({ filter: /^@acode\/sandbox$/ }, ({ kind }) =>
        kind === 'dynamic-import' ? { path: index } : { path: index, suffix: '?names', sideEffects: false },
      );
      onLoad({ filter: /index\.ts$/ }, async ({ path, suffix }) => {
        if (path !== index || suffix !== '?names') return undefined;
        const contents = (await readFile(path, 'utf8')).replace(/^export \{ Acode \} .*$/m, '');
        return { contents, loader: 'ts', resolveDir: dirname(path) };
      });
    },
  };
}

// The entry loads the command when it needs it, as the file that the other build makes.
function commandOutside() {
  return {
    name: 'command-outside',
    setup({ onResolve }) {
      onResolve({ filter: /\/cli\.ts$/ }, () => ({ path: `./${COMMAND}.mjs`, external: true }));
    },
  };
}

// What every call loads before it knows what is asked of it. More would be felt at each keystroke of a completion.
function assertQuickStart({ outputs }, { outputs: entries }) {
  const client = Object.values(entries).reduce((sum, { bytes }) => sum + bytes, 0);
  assertSize(client, LARGEST_CLIENT);
  const first = new Set(Object.keys(outputs).filter(path => path.endsWith(`/${COMMAND}.mjs`)));
  for (const path of first)
    for (const { path: next, kind, external } of outputs[path].imports)
      if (kind === 'import-statement' && !external) first.add(next);
  assertSize(
    [...first].reduce((sum, path) => sum + outputs[path].bytes, client),
    LARGEST_START,
  );
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
  const parts = relative(root, join(root, input)).split(sep);
  const at = parts.lastIndexOf('node_modules');
  if (at < 0) return null;
  return parts.slice(0, at + (parts[at + 1]?.startsWith('@') ? 3 : 2)).join(sep);
}

async function licenceOf(path) {
  const directory = join(root, path);
  const manifest = JSON.parse(await readFile(join(directory, 'package.json'), 'utf8'));
  const file = (await readdir(directory)).find(name => /^(?:licen[cs]e|copying)/i.test(name));
  const text = file ? await readFile(join(directory, file), 'utf8') : 'No licence file in the package.';
  return `${manifest.name} ${manifest.version} (${manifest.license})\n${'='.repeat(60)}\n${text.trim()}\n`;
}
