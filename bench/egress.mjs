// `npm run bench:egress`: what the proxy of an allow-list costs beside a direct connection, interleaved with it in the same run, with
// the same program on the same server. Prints a line `FIGURE …` for each. Run it as an ordinary user, after `npm run build`.
// @ts-check

import { execFile, spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { fileURLToPath } from 'node:url';
import { Acode } from '../packages/sandbox/dist/index.js';
import { readArguments } from './arguments.mjs';
import { percentile } from './figures.mjs';
import { cpuTime, placesHere, stolenSince } from './places.mjs';
import { interleave, reasonOf } from './rounds.mjs';

/** @typedef {import('./places.mjs').Place} Place */
/** @typedef {'direct' | 'inside' | 'pass-through' | 'brokered'} Way */

/**
 * @typedef {object} Bench
 * @property {Place} place
 * @property {number} rounds
 * @property {(line: string) => void} figure Prints a figure.
 * @property {(way: Way, job: object) => Promise<number[]>} client Runs the client in one of the ways.
 * @property {(policy?: object) => Promise<void>} empty Runs `true`.
 * @property {Acode} acode
 * @property {object} listed The policy with the allow-list.
 */

const NAME = 'one.acode.test';
// `inside` has client and server in one sandbox: what a sandbox costs without a proxy.
const WAYS = /** @type {const} */ (['direct', 'pass-through', 'brokered']);
const WITH_INSIDE = /** @type {const} */ (['direct', 'inside', 'pass-through', 'brokered']);
const MAX_MS = 3_600_000;
const TURN_MS = 120_000;
const MEMORY_SANDBOXES = 20;
const MB = 1024 ** 2;
// Node.js needs its libraries.
const DEBIAN = 'acode-test/debian:1';
const PROXY = 'packages/sandbox/dist/egress/proxy';
const PHASES = ['name', 'TCP', 'TLS', 'answer'];
const SETTLE_MS = 700;
const MEASUREMENTS = { kept, fresh, phases, stream, many, warm, memory };

const USAGE = `npm run bench:egress -- NAME… [options]

  NAME              ${Object.keys(MEASUREMENTS).join(', ')}
  --place NAME      docker28, docker20, "docker20 gvisor", podman or bubblewrap (docker28)
  --rounds N        rounds (5)`;

process.exitCode = await main().catch(error => {
  console.error(`bench: ${reasonOf(error)}`);
  return 2;
});

async function main() {
  const { values: asked, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      help: { type: 'boolean', default: false },
      place: { type: 'string', default: 'docker28' },
      rounds: { type: 'string', default: '5' },
    },
  });
  const names = Object.keys(MEASUREMENTS);
  if (asked.help || positionals.length === 0 || positionals.some(name => !names.includes(name))) {
    console.log(USAGE);
    return asked.help ? 0 : 2;
  }
  if (process.getuid?.() === 0)
    throw new Error('acode never runs as root: use `.ci/engines/as-user -- npm run bench:egress`');
  if (!readFileSync('/etc/hosts', 'utf8').includes(NAME))
    throw new Error(`${NAME} is not in /etc/hosts: \`npm run engines:up\` writes it`);
  const [place] = placesHere(readArguments(['--only', asked.place])).filter(({ name }) => name === asked.place);
  if (!place) throw new Error(`nothing here has the name ${asked.place}`);
  const cpu = cpuTime();
  await measure(place, positionals, Number(asked.rounds));
  console.log(`FIGURE CPU steal ${Math.round(stolenSince(cpu) * 100)} %`);
  return 0;
}

/**
 * @param {Place} place
 * @param {readonly string[]} names
 * @param {number} rounds
 */
async function measure(place, names, rounds) {
  const top = mkdtempSync('/var/tmp/acode-bench-egress-');
  const server = spawn(process.execPath, [fileURLToPath(new URL('egress/server.mjs', import.meta.url)), NAME], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  try {
    const { port, pem } = await firstLine(server.stdout);
    // Where every engine sees them.
    const tools = join(top, 'tools');
    mkdirSync(join(top, 'workspace'));
    mkdirSync(join(tools, 'bench/egress'), { recursive: true });
    mkdirSync(join(tools, PROXY), { recursive: true });
    copyFileSync(realpathSync(process.execPath), join(tools, 'node'));
    const programs = {
      client: new URL('egress/client.mjs', import.meta.url),
      server: new URL('egress/server.mjs', import.meta.url),
      inside: new URL('egress/inside.mjs', import.meta.url),
    };
    for (const [name, from] of Object.entries(programs))
      copyFileSync(fileURLToPath(from), join(tools, `bench/egress/${name}.mjs`));
    copyFileSync(
      fileURLToPath(new URL(`../${PROXY}/certificates.js`, import.meta.url)),
      join(tools, PROXY, 'certificates.js'),
    );
    writeFileSync(join(tools, 'package.json'), '{"type":"module"}');
    writeFileSync(join(top, 'ca.pem'), pem);
    const direct = { env: { ...process.env, NODE_EXTRA_CA_CERTS: join(top, 'ca.pem') } };
    process.env['ACODE_BENCH_KEY'] = 'key-of-the-bench-0123456789';
    /** @type {Acode[]} */
    const hosts = [];
    /** @param {Record<string, unknown>} credentials */
    const open = async credentials => {
      const acode = await Acode.open({
        workspace: join(top, 'workspace'),
        engine: { socket: place.engine?.socket ?? '/nonexistent/docker.sock' },
        config: {
          sandbox: {
            ...(place.level === 'bubblewrap'
              ? { level: 'bubblewrap', bubblewrap: { accept_process_limits: true }, require_for: [] }
              : {}),
            ...(place.level === 'gvisor' ? { runtime: 'runsc' } : {}),
            ...(place.level === 'bubblewrap' ? {} : { images: { default: DEBIAN } }),
            mounts: { allowed_host_roots: [tools] },
            network: { private_hosts: [NAME], ca_file: join(top, 'ca.pem'), ...credentials },
          },
        },
        pool: names.includes('warm') ? { min: 2, max: 2 } : false,
        maxConcurrent: MEMORY_SANDBOXES + 4,
      });
      hosts.push(acode);
      return acode;
    };
    const plain = await open({});
    const brokering = await open({
      credentials: { bench: { hosts: [`${NAME}:${port}`], from: { env: 'ACODE_BENCH_KEY' } } },
    });
    const mounts = [{ source: tools, target: '/tools', readOnly: true }];
    // As many CPUs as the direct client has.
    const limits = { cpus: Math.min(2, cpus().length) };
    const listed = { network: { allow: [`${NAME}:${port}`] }, mounts, limits, timeoutMs: TURN_MS };
    /** @type {Bench['client']} */
    const client = async (way, job) => {
      const asked = JSON.stringify({ host: NAME, port, ...job });
      if (way === 'direct') {
        const words = [join(tools, 'bench/egress/client.mjs'), asked];
        return JSON.parse((await promisify(execFile)(join(tools, 'node'), words, direct)).stdout);
      }
      const host = way === 'brokered' ? brokering : plain;
      // By name: what the proxy variables do is the same and one request more.
      const program = `/tools/bench/egress/${way === 'inside' ? 'inside' : 'client'}.mjs`;
      const { stdout, stderr, exitCode } = await host.run(['/tools/node', program, asked], {
        policy: way === 'inside' ? { mounts, limits, timeoutMs: TURN_MS } : listed,
      });
      if (exitCode !== 0) throw new Error(`the client ended with ${exitCode}: ${stderr.slice(-500)}`);
      return JSON.parse(stdout);
    };
    const empty = async (policy = {}) => {
      const { exitCode } = await plain.run(['true'], { policy: { mounts, ...policy } });
      if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
    };
    const figure = (/** @type {string} */ line) => console.log(`FIGURE ${line} (${place.name})`);
    try {
      for (const [name, work] of Object.entries(MEASUREMENTS))
        if (names.includes(name)) await work({ place, rounds, figure, client, empty, acode: plain, listed });
    } finally {
      for (const host of hosts) await host.close();
    }
  } finally {
    server.stdin.end();
    rmSync(top, { recursive: true, force: true });
  }
}

/** @param {NodeJS.ReadableStream} output */
async function firstLine(output) {
  let text = '';
  for await (const chunk of output) {
    text += String(chunk);
    if (text.includes('\n')) break;
  }
  return JSON.parse(text);
}

/**
 * All values of each way, rounds interleaved.
 *
 * @param {Bench} bench
 * @param {object} job
 * @param {readonly Way[]} [ways]
 */
async function values({ client, rounds }, job, ways = WAYS) {
  const contenders = ways.map(name => ({ name, turn: () => client(name, job), settled: async () => {} }));
  const turns = await interleave(contenders, {
    rounds,
    signal: AbortSignal.timeout(MAX_MS),
    turnMs: TURN_MS,
    warmUp: false,
  });
  for (const [name, { errors }] of turns) if (errors.length > 0) throw new Error(`${name}: ${errors.join('; ')}`);
  return Object.fromEntries([...turns].map(([name, one]) => [name, one.values.flat()]));
}

/** @param {number} value @param {number} most */
function met(value, most) {
  return value <= most ? 'met' : '**not met**';
}

/**
 * @param {Bench} bench
 * @param {string} what
 * @param {object} job
 * @param {Record<'pass-through' | 'brokered', number>} targets
 */
async function latency(bench, what, job, targets) {
  const all = await values(bench, job);
  const base = percentile(all['direct'] ?? [], 0.5);
  for (const way of /** @type {const} */ (['pass-through', 'brokered'])) {
    const own = all[way] ?? [];
    const [p50, p99, max] = [percentile(own, 0.5) - base, percentile(own, 0.99), Math.max(...own)];
    bench.figure(
      `${what}, ${way}: p50 +${p50.toFixed(2)} ms beyond ${base.toFixed(2)} direct (≤ ${targets[way]}: ${met(p50, targets[way])}), p99 ${p99.toFixed(1)} (≤ 20: ${met(p99, 20)}), slowest ${max.toFixed(0)} of ${own.length} (≤ 1000: ${met(max, 1000)})`,
    );
  }
}

/** @param {Bench} bench */
async function kept(bench) {
  await latency(
    bench,
    'request of a connection that is kept alive',
    { mode: 'kept', count: 1000 },
    { 'pass-through': 0.5, brokered: 1 },
  );
}

/** @param {Bench} bench */
async function fresh(bench) {
  const isGvisor = bench.place.level === 'gvisor';
  await latency(
    bench,
    'request with a new connection',
    { mode: 'fresh', count: 200 },
    isGvisor ? { 'pass-through': 5, brokered: 5 } : { 'pass-through': 2, brokered: 3 },
  );
}

/**
 * Where the time of a new connection goes.
 *
 * @param {Bench} bench
 */
async function phases(bench) {
  const all = await values(bench, { mode: 'phases', count: 200 }, WITH_INSIDE);
  for (const way of WITH_INSIDE) {
    const parts = PHASES.map((name, at) => {
      const own = (all[way] ?? []).filter((_, index) => index % PHASES.length === at);
      return `${name} ${percentile(own, 0.5).toFixed(2)}`;
    });
    const sums = Array.from({ length: (all[way] ?? []).length / PHASES.length }, (_, index) =>
      (all[way] ?? []).slice(index * PHASES.length, (index + 1) * PHASES.length).reduce((sum, part) => sum + part, 0),
    );
    bench.figure(
      `parts of a new connection in ms (p50), ${way}: ${parts.join(', ')}; together ${percentile(sums, 0.5).toFixed(2)}`,
    );
  }
}

/** @param {Bench} bench */
async function stream(bench) {
  const all = await values(bench, { mode: 'stream', bytes: 500_000_000 });
  const isGvisor = bench.place.level === 'gvisor';
  const targets = { 'pass-through': isGvisor ? 50 : 250, brokered: isGvisor ? 50 : 100 };
  for (const way of /** @type {const} */ (['pass-through', 'brokered'])) {
    const own = percentile(all[way] ?? [], 0.5);
    const direct = percentile(all['direct'] ?? [], 0.5);
    bench.figure(
      `one stream, ${way}: ${own.toFixed(0)} MB/s (≥ ${targets[way]}: ${met(targets[way], own)}), direct ${direct.toFixed(0)}`,
    );
  }
}

/** @param {Bench} bench */
async function many(bench) {
  const all = await values(bench, { mode: 'many', count: 200 });
  for (const way of WAYS)
    bench.figure(
      `200 connections at once, ${way}: ${Math.max(...(all[way] ?? []))} failed (0: ${met(Math.max(...(all[way] ?? [])), 0)})`,
    );
}

/** @param {Bench} bench */
async function warm({ empty, listed, acode, rounds, figure }) {
  const { network } = /** @type {{ network: object }} */ (listed);
  const timed = async (/** @type {object} */ policy) => {
    while (
      !(await acode.explain(['true'], { policy: { mounts: /** @type {any} */ (listed).mounts, ...policy } })).warm
    ) {
      await empty(policy);
      await new Promise(resolve => setTimeout(resolve, 50));
    }
    // What the turn before took from the pool is being made again: that is not a part of this one.
    await new Promise(resolve => setTimeout(resolve, SETTLE_MS));
    const began = performance.now();
    await empty(policy);
    return [performance.now() - began];
  };
  const contenders = [
    { name: 'without', turn: () => timed({}), settled: async () => {} },
    { name: 'with', turn: () => timed({ network }), settled: async () => {} },
  ];
  const turns = await interleave(contenders, {
    rounds: Math.max(rounds, 25),
    signal: AbortSignal.timeout(MAX_MS),
    turnMs: TURN_MS,
  });
  const of = (/** @type {string} */ name) => percentile(turns.get(name)?.values.flat() ?? [], 0.5);
  const more = of('with') - of('without');
  figure(
    `a command in a warm sandbox with an allow-list: ${of('with').toFixed(1)} ms, ${more.toFixed(1)} more than without (≤ 10: ${met(more, 10)})`,
  );
}

/** @param {Bench} bench */
async function memory({ acode, listed, figure }) {
  const rss = async () => {
    await new Promise(resolve => setTimeout(resolve, 2000));
    globalThis.gc?.();
    return process.memoryUsage().rss;
  };
  await (await acode.create({ policy: listed })).kill();
  const before = await rss();
  const sandboxes = [];
  for (let at = 0; at < MEMORY_SANDBOXES; at += 1)
    sandboxes.push(await acode.create({ policy: { ...listed, limits: { memoryBytes: 64 * MB } } }));
  const each = ((await rss()) - before) / MEMORY_SANDBOXES / MB;
  for (const sandbox of sandboxes) await sandbox.kill();
  figure(
    `memory of this process for each of ${MEMORY_SANDBOXES} idle sandboxes: ${each.toFixed(1)} MiB (≤ 15: ${met(each, 15)})`,
  );
}
