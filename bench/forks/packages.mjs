// Figure of an installation: `npm ci` of more than 1,000 packages in a fork, beside a direct mount of the same project.
// @ts-check

import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { closeAll, median, met, run, takeTurns, timed } from './trees.mjs';

/** @typedef {import('../forks.mjs').Bench} Bench */

const GIB = 1024 ** 3;
// About 1,300 packages with what it needs.
const PROJECT = { name: 'project', version: '1.0.0', private: true, dependencies: { 'react-scripts': '5.0.1' } };
const MIN_PACKAGES = 1000;
const INSTALL_MS = 600_000;
const CACHE = '/npm-cache';
const QUIET = ['--ignore-scripts', '--no-audit', '--no-fund', '--no-update-notifier', '--loglevel=error'];

/**
 * The registry is the one that npm is configured with on this machine. It fills the cache; the commands inside have no network.
 *
 * @param {Bench} bench
 */
export async function packages({ context, place, figure, rounds: asked }) {
  const rounds = asked || 4;
  const [direct, forked] = [context.directory('direct'), context.directory('forked')];
  const cache = context.directory('npm-cache');
  context.say('asks the registry for the packages');
  const count = fill(direct, cache);
  cpSync(direct, forked, { recursive: true });
  const image = place.engine ? { image: place.engine.image.replace('busybox', 'debian') } : {};
  const policy = {
    ...image,
    mounts: [{ source: cache, target: CACHE, readOnly: false }],
    limits: { memoryBytes: 3 * GIB, pids: 1024, openFiles: 8192, cpus: 2, tmpBytes: GIB / 4 },
    timeoutMs: INSTALL_MS,
  };
  const { sandbox } = context.optionsAt(place).config ?? {};
  const config = { sandbox: { ...sandbox, mounts: { allowed_host_roots: [cache] } } };
  const hosts = await Promise.all(
    [direct, forked].map(workspace => context.acode(place, { options: { workspace, config } })),
  );
  const [onDirect, onFork] = hosts;
  if (!onDirect || !onFork) throw new Error('two hosts were opened');
  const script = `npm ci --offline --cache ${CACHE} ${QUIET.join(' ')} >/dev/null; ls node_modules | wc -l`;
  const turn = (
    /** @type {typeof onDirect} */ host,
    /** @type {import('@acode/sandbox').PolicyInput} */ mode,
    /** @type {() => Promise<void>} */ clear,
  ) => {
    return async (/** @type {AbortSignal} */ signal) => {
      const took = await timed(async () => {
        const printed = await run(
          host,
          script,
          /** @type {import('@acode/sandbox').PolicyInput} */ ({ ...policy, ...mode }),
          signal,
        );
        if (!(Number(printed) > 100)) throw new Error(`npm ci left ${printed} directories`);
      });
      await host.settled();
      await clear();
      // What one wrote is not to be written to the disk while the other is measured.
      spawnSync('sync', { timeout: 120_000 });
      return took;
    };
  };
  try {
    const took = await takeTurns(
      {
        fork: turn(onFork, { workspace: 'fork', fork: 'npm' }, () => discard(onFork)),
        direct: turn(onDirect, { workspace: 'direct' }, async () =>
          rmSync(join(direct, 'node_modules'), { recursive: true }),
        ),
      },
      { hosts, rounds, signal: context.signal, turnMs: INSTALL_MS },
    );
    const [ofFork, ofDirect] = [took['fork'] ?? [], took['direct'] ?? []];
    const ratio = median(ofFork) / median(ofDirect);
    const seconds = (/** @type {readonly number[]} */ values) => values.map(ms => (ms / 1000).toFixed(1)).join(' ');
    figure(
      `npm ci of ${count.toLocaleString('en')} packages in a fork: ${ratio.toFixed(2)} × a direct mount (p50 of ${rounds}: ${seconds(ofFork)} and ${seconds(ofDirect)} s; asked ≤ 1.15: ${met(ratio, 1.15)})`,
    );
  } finally {
    await closeAll(...hosts);
  }
}

/** @param {import('../candidates/acode.mjs').AcodeCandidate} host */
async function discard(host) {
  await host.acode.forks.discard('npm');
}

/**
 * Writes a project with its lockfile, and fills the cache that the commands inside use.
 *
 * @param {string} workspace
 * @param {string} cache
 */
function fill(workspace, cache) {
  writeFileSync(join(workspace, 'package.json'), JSON.stringify(PROJECT));
  const npm = (/** @type {string[]} */ ...words) =>
    execFileSync('npm', [...words, '--cache', cache, ...QUIET], {
      cwd: workspace,
      timeout: INSTALL_MS,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
  // With its addresses: what is looked up by name is asked for in another way by another version of npm.
  npm('install', '--package-lock-only', '--omit-lockfile-registry-resolved=false');
  npm('ci');
  const lock = JSON.parse(readFileSync(join(workspace, 'package-lock.json'), 'utf8'));
  // What this npm leaves out, another version of npm may install.
  for (const [path, { resolved }] of Object.entries(lock.packages))
    if (resolved !== undefined && !existsSync(join(workspace, path))) npm('cache', 'add', resolved);
  rmSync(join(workspace, 'node_modules'), { recursive: true });
  const count = Object.keys(lock.packages).filter(path => path !== '').length;
  if (count < MIN_PACKAGES) throw new Error(`the project has only ${count} packages`);
  return count;
}
