// Runs a program in TypeScript with what was built: bundled into one file, with packages left out.
// Usage: run-typescript.mjs FILE [argument…]
// @ts-check

import { mkdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const [file = '', ...rest] = process.argv.slice(2);
const outfile = join(ROOT, 'node_modules', '.cache', 'acode', `${basename(file, '.ts')}-${process.pid}.mjs`);

mkdirSync(join(outfile, '..'), { recursive: true });
await build({
  absWorkingDir: ROOT,
  entryPoints: [file],
  outfile,
  bundle: true,
  packages: 'external',
  platform: 'node',
  target: 'node20',
  format: 'esm',
  // What only tests need of a module that both use.
  plugins: [
    {
      name: 'without-vitest',
      setup: plugin =>
        plugin.onResolve({ filter: /^vitest$/ }, ({ path }) => ({ path, external: true, sideEffects: false })),
    },
  ],
});
process.argv.splice(1, process.argv.length - 1, outfile, ...rest);
await import(outfile);
