// Bundles the acode command into packages/cli/bin: one package without dependencies, commands loaded when they are used.

import { chmod, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const cli = join(root, 'packages', 'cli');
const bin = join(cli, 'bin');

// CommonJS packages inside an ES module still call `require` for what is built into Node.
const REQUIRE =
  "import { createRequire as acodeCreateRequire } from 'node:module'; const require = acodeCreateRequire(import.meta.url);";

await rm(bin, { recursive: true, force: true });
const { metafile } = await build({
  absWorkingDir: root,
  // From the sources of the library, so that a stale build of it can never be bundled.
  alias: { '@acode/sandbox': join(root, 'packages', 'sandbox', 'src', 'index.ts') },
  entryPoints: { acode: join(cli, 'src', 'main.ts') },
  outdir: bin,
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  chunkNames: 'acode-[hash]',
  minifySyntax: true,
  minifyWhitespace: true,
  legalComments: 'none',
  banner: { js: REQUIRE },
  metafile: true,
});

const entry = join(bin, 'acode.js');
await writeFile(entry, `#!/usr/bin/env node\n${await readFile(entry, 'utf8')}`);
await chmod(entry, 0o755);
await writeFile(join(bin, 'THIRD-PARTY-LICENSES.txt'), await licences(Object.keys(metafile.inputs)));

const sizes = Object.values(metafile.outputs).map(({ bytes }) => bytes);
console.log(
  `packages/cli/bin: ${sizes.length} files, ${Math.round(sizes.reduce((sum, size) => sum + size, 0) / 1024)} KiB`,
);

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
