// Figures of the disk limit of forks: by how much a command exceeds it before it is ended, for each way to write.
// @ts-check

import { existsSync, readdirSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { closeAll, met, usage } from './trees.mjs';

/** @typedef {import('../forks.mjs').Bench} Bench */

const MB = 1e6;
const LIMIT_MB = 100;
const MAX_WRITES_MB = 64;
const LARGE_MB = 700;
const END = 'sleep 180; echo survived';

/**
 * What a writer does, at most 8 GB of it whatever becomes of the limit, and by how much it may exceed the limit on runc.
 *
 * @type {Record<string, { script: string, most: number }>}
 */
const WRITERS = {
  'one writer': { script: `dd if=/dev/zero of=one bs=1M count=4096; ${END}`, most: MAX_WRITES_MB },
  'two writers': {
    script: `dd if=/dev/zero of=one bs=1M count=4096 & dd if=/dev/zero of=two bs=1M count=4096; wait; ${END}`,
    most: MAX_WRITES_MB,
  },
  'files of 4 KiB': { script: `head -c 4000000000 /dev/zero | split -b 4096 -a 6 - f; ${END}`, most: MAX_WRITES_MB },
  [`copy-up of ${LARGE_MB} MB`]: { script: `echo x >> large; ${END}`, most: LARGE_MB },
  fallocate: { script: `for n in 1 2 3 4 5 6 7 8; do fallocate -l 1g held$n; done; sleep 3`, most: 0 },
};

/**
 * The least free space of a file system while work goes on, in a thread of its own: the limit is watched in this one.
 *
 * @param {string} directory
 */
function watchSpace(directory) {
  const code = `const { statfsSync } = require('node:fs');
    const { directory, least } = require('node:worker_threads').workerData;
    const numbers = new Float64Array(least);
    setInterval(() => {
      const { bfree, bsize } = statfsSync(directory);
      numbers[0] = Math.min(numbers[0], bfree * bsize);
    }, 4);`;
  const { bfree, bsize } = statfsSync(directory);
  const least = new Float64Array(new SharedArrayBuffer(8)).fill(bfree * bsize);
  const worker = new Worker(code, { eval: true, workerData: { directory, least: least.buffer } });
  return {
    /** The bytes by which free space dropped. */
    async stop() {
      await worker.terminate();
      return bfree * bsize - (least[0] ?? Number.NaN);
    },
  };
}

/**
 * By how much each writer exceeds the limit, and that what it left can be removed.
 *
 * @param {Bench} bench
 */
export async function overshoot({ context, place, figure, rounds: asked }) {
  const rounds = asked || 3;
  const workspace = context.directory('overshoot');
  writeFileSync(join(workspace, 'large'), Buffer.alloc(LARGE_MB * MB, 1));
  Object.assign(process.env, context.environment());
  const store = join(process.env['XDG_STATE_HOME'] ?? '', 'acode', 'f');
  const host = await context.acode(place, { options: { workspace } });
  const image = place.engine ? { image: place.engine.image.replace('busybox', 'debian') } : {};
  const isGvisor = place.level === 'gvisor';

  const once = async (/** @type {string} */ script) => {
    const space = watchSpace(workspace);
    const { limitExceeded, stdout, stderr } = await host.run(['sh', '-c', script], {
      policy: {
        ...image,
        workspace: 'fork',
        fork: 'writer',
        disk: { bytes: LIMIT_MB * MB },
        // Small files take long where other work has the CPUs.
        timeoutMs: 120_000,
      },
      risk: 'low',
    });
    await host.settled();
    const peak = (await space.stop()) / MB - LIMIT_MB;
    const left = usage(store) / MB - LIMIT_MB;
    await discardAll(host, store);
    if (stdout.includes('survived')) throw new Error('a command went on beyond the limit');
    return { left, peak, isEnded: limitExceeded === 'disk', refused: /Operation not supported/.test(stderr) };
  };

  try {
    for (const [name, { script, most }] of Object.entries(WRITERS)) {
      const results = [];
      for (let round = 0; round < rounds; round += 1) results.push(await once(script));
      const worst = Math.max(...results.map(({ left }) => left));
      const peak = Math.max(...results.map(({ peak: one }) => one));
      const how = results.every(({ refused }) => refused)
        ? 'fails with EOPNOTSUPP'
        : `${Math.max(0, worst).toFixed(0)} MB on disk afterwards, free space dropped by at most ${Math.max(0, peak).toFixed(0)} MB more`;
      const verdict = isGvisor ? 'nothing is promised' : `asked ≤ ${most}: ${met(worst, most)}`;
      if (name !== 'fallocate' && !results.every(({ isEnded }) => isEnded))
        throw new Error(`${name}: not ended by the limit`);
      figure(`overshoot of a disk limit of ${LIMIT_MB} MB, ${name}: ${how} (worst of ${rounds}; ${verdict})`);
    }
    figure(`what the writers left was removed ${rounds * Object.keys(WRITERS).length} times of as many`);
  } finally {
    await closeAll(host);
  }
}

/**
 * @param {import('../candidates/acode.mjs').AcodeCandidate} host
 * @param {string} store
 */
async function discardAll(host, store) {
  const all = await host.acode.forks.list();
  for (const { id } of all) await host.acode.forks.discard(id);
  const left = existsSync(store) ? readdirSync(store).filter(name => all.some(({ id }) => name.includes(id))) : [];
  if (left.length > 0) throw new Error(`left behind: ${left.join(', ')}`);
}
