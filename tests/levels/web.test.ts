// The entry for browsers, as it is built: it holds nothing of Node’s, and works where there is nothing of Node’s.

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { createContext, runInContext } from 'node:vm';
import { build } from 'esbuild';
import { beforeAll, describe, expect, it } from 'vitest';

const PACKAGE = fileURLToPath(new URL('../../packages/sandbox', import.meta.url));
const SDK = '@webcontainer/api';

/** A bundle for browsers, and every module it leaves to be found by them. */
async function bundled(source: string): Promise<{ code: string; imports: string[] }> {
  const { outputFiles, metafile } = await build({
    stdin: { contents: source, resolveDir: PACKAGE },
    bundle: true,
    platform: 'browser',
    format: 'iife',
    globalName: 'bundle',
    external: [SDK, 'node:*'],
    metafile: true,
    write: false,
    logLevel: 'silent',
  });
  const imports = Object.values(metafile.outputs).flatMap(output => output.imports.map(({ path }) => path));
  return { code: outputFiles[0]?.text ?? '', imports };
}

beforeAll(() => {
  if (!existsSync(`${PACKAGE}/dist/isolation/web/index.js`))
    throw new Error('packages/sandbox is not built: run `npm run build` first');
});

describe('the built entry for browsers', () => {
  it('imports the SDK when it is needed, and nothing of Node', async () => {
    // By its public name, as a page would.
    const { imports } = await bundled(`export * from '@acode/sandbox/web';`);
    expect([...new Set(imports)]).toEqual([SDK]);
    // The control: what is not for browsers is told apart.
    const host = await bundled(
      `export * from './dist/policy/trust.js'; export * from './dist/records/audit/record.js';`,
    );
    expect(host.imports.filter(path => path.startsWith('node:')).length).toBeGreaterThan(0);
  });

  it('runs a command where there is no process, no Buffer and no require', async () => {
    const { code } = await bundled(`export * from '@acode/sandbox/web';`);
    const { AbortController, AbortSignal, TextDecoder, TextEncoder, URL: Url, crypto, performance } = globalThis;
    const page = createContext({
      ...{ AbortController, AbortSignal, TextDecoder, TextEncoder, URL: Url, crypto, performance },
      setTimeout,
      clearTimeout,
    });
    expect(runInContext('typeof process + typeof Buffer + typeof require', page)).toBe('undefined'.repeat(3));
    const program = `${code}
      (async () => {
        const prints = ['from the ', 'page'];
        const read = async () => ({ value: prints[0], done: prints.shift() === undefined });
        const process_ = { exit: Promise.resolve(3), output: { getReader: () => ({ read }) }, kill() {} };
        const instance = { mount: async () => {}, spawn: async () => process_, teardown() {} };
        class WebContainer { static async boot() { return instance; } }
        const options = { network: 'open', load: async () => ({ WebContainer }) };
        const refused = await bundle.WebAcode.open(options).catch(error => error.code);
        const acode = await bundle.WebAcode.open({ ...options, environment: { uiKind: 2 } });
        const { exitCode, stdout, level } = await acode.run(['node', 'a.mjs']);
        await acode.close();
        return JSON.stringify({ refused, exitCode, stdout, level });
      })()`;
    const told = (await runInContext(program, page, { timeout: 10_000 })) as string;
    expect(JSON.parse(told)).toEqual({
      refused: 'ACODE-SBX-012',
      exitCode: 3,
      stdout: 'from the page',
      level: 'web',
    });
  });
});
