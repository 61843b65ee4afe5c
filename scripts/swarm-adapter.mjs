// Bundles the adapter of a swarm’s sandboxes into one file, for the package, for the command and for tests on sources.
// @ts-check

import { dirname, join } from 'node:path';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** The module that has the adapter’s text: bundling replaces it. */
export const ADAPTER_MODULE = /swarm[\\/](?:src|dist)[\\/]adapter-program\.(?:ts|js)$/;

// zod’s messages in every language, and the schemas that it compiles, are more than the adapter itself.
const slim = {
  name: 'slim',
  /** @param {import('esbuild').PluginBuild} plugin */
  setup(plugin) {
    plugin.onLoad({ filter: /zod\/v4\/locales\/index\.js$/ }, ({ path }) => ({
      contents: "export { default as en } from './en.js';",
      resolveDir: dirname(path),
    }));
    plugin.onLoad({ filter: /zod\/v4\/core\/core\.js$/ }, async ({ path }) => ({
      contents: `${await readFile(path, 'utf8')}\nglobalConfig.jitless = true;\n`,
      resolveDir: dirname(path),
    }));
  },
};

/** The adapter, as an ES module that needs nothing but Node.js 18. */
export async function swarmAdapter() {
  const { outputFiles, metafile } = await build({
    absWorkingDir: ROOT,
    entryPoints: [join(ROOT, 'packages', 'swarm', 'src', 'adapter', 'main.ts')],
    plugins: [slim],
    bundle: true,
    platform: 'node',
    target: 'node18',
    minify: true,
    format: 'esm',
    legalComments: 'none',
    write: false,
    metafile: true,
  });
  return { text: outputFiles[0]?.text ?? '', inputs: metafile.inputs };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { mkdir, writeFile } = await import('node:fs/promises');
  const directory = join(ROOT, 'packages', 'swarm', 'dist');
  await mkdir(directory, { recursive: true });
  const { text } = await swarmAdapter();
  await writeFile(join(directory, 'adapter.mjs'), text);
  console.log(`${Math.round(text.length / 1024)} KiB`);
}
