// Fetches the programs of the presets from npm into a store that tests take them from: hundreds of megabytes, once for a machine.
// Usage: programs-of-presets.mjs DIRECTORY [agent…]
// @ts-check

import { join, resolve } from 'node:path';

const [directory = 'programs', ...names] = process.argv.slice(2);
process.env['XDG_STATE_HOME'] = resolve(directory);
process.env['DOCKER_HOST'] ??= 'unix:///run/acode-engines/docker28/docker.sock';
const { PRESETS, addProgram, platformsOf } = await import('../../packages/agents/dist/index.js');
const { Acode } = await import('../../packages/sandbox/dist/index.js');

const acode = await Acode.open({ workspace: process.cwd(), pool: false });
try {
  for (const preset of PRESETS.filter(({ name }) => names.length === 0 || names.includes(name)))
    for (const platform of platformsOf(preset).filter(
      ({ arch, libc }) => arch === process.arch && (libc === 'glibc' || names.includes('musl')),
    )) {
      const started = Date.now();
      const { id } =
        (await addProgram(acode, preset, {
          platform,
          env: process.env,
          workspace: process.cwd(),
          signal: AbortSignal.timeout(600_000),
        })) ?? {};
      console.log(`${join(directory, 'acode/programs', id ?? '')}: ${((Date.now() - started) / 1000).toFixed(1)} s`);
    }
} finally {
  await acode.close();
}
