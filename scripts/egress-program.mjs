// Bundles the program of the egress proxy’s worker thread, for the command and for tests on sources.
// @ts-check

import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** The module that says where the program is: bundling replaces it. */
export const PROGRAM_MODULE = /egress[\\/]proxy[\\/]program\.ts$/;

/** @param {'cjs' | 'esm'} format */
export async function egressProgram(format) {
  const { outputFiles, metafile } = await build({
    absWorkingDir: ROOT,
    entryPoints: [join(ROOT, 'packages', 'sandbox', 'src', 'egress', 'proxy', 'worker.ts')],
    bundle: true,
    platform: 'node',
    target: 'node20',
    minify: true,
    format,
    legalComments: 'none',
    write: false,
    metafile: true,
  });
  return { text: outputFiles[0]?.text ?? '', inputs: metafile.inputs };
}
