// Runs many commands one after another through the built library, on an engine that fails one in twenty creations and removals for
// a moment, and fails if one was not made or not removed in the end, if one went wrong, or if anything grows or is left.
// Usage: node --expose-gc soak.mjs SOCKET COUNT

import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createConnection, createServer } from 'node:net';
import { join } from 'node:path';
import { Acode } from '@acode/sandbox';

const [socket, count] = [process.argv[2], Number(process.argv[3])];
const EVERY = 20;
const FAULTS = ['lost before', 'lost after', 'refused'];
const CREATE = /^POST \S*\/containers\/create/;
const REMOVE = /^DELETE \S*\/containers\//;
const BUSY =
  'HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 22\r\nConnection: close\r\n\r\n{"message":"too busy"}';

const workspace = mkdtempSync('/var/tmp/acode-soak-');
// Not in the workspace: one that holds a socket is refused.
const sockets = mkdtempSync('/var/tmp/acode-soak-');
const config = {
  sandbox: { images: { default: 'acode-test/busybox:1' }, output: { save: false }, retry: { base_ms: 1 } },
};

/** The engine with faults: every so many calls of a kind, one is lost before it, lost after it, or refused. */
async function faulty(everyCreate, everyRemove) {
  const path = join(sockets, 'engine.sock');
  const counted = { create: 0, remove: 0, faults: 0 };
  const faultOf = text => {
    const [kind, every] = CREATE.test(text)
      ? ['create', everyCreate]
      : REMOVE.test(text)
        ? ['remove', everyRemove]
        : [];
    if (kind === undefined) return undefined;
    counted[kind] += 1;
    return counted[kind] % every === 0 ? FAULTS[counted.faults++ % FAULTS.length] : undefined;
  };
  const connections = new Set();
  const server = createServer({ allowHalfOpen: true }, client => {
    const engine = createConnection({ path: socket, allowHalfOpen: true });
    const cut = () => (client.destroy(), engine.destroy());
    connections.add(client.once('close', () => connections.delete(client)));
    let isLost = false;
    for (const one of [client, engine]) one.on('error', cut).on('close', cut);
    client.on('data', chunk => {
      const fault = faultOf(chunk.toString('latin1', 0, 200));
      if (fault === 'lost before') return cut();
      if (fault === 'refused') return client.end(BUSY, cut);
      isLost ||= fault === 'lost after';
      return engine.write(chunk);
    });
    engine.on('data', chunk => (isLost ? cut() : client.write(chunk)));
    client.on('end', () => engine.end());
    engine.on('end', () => client.end());
  });
  await once(server.listen(path), 'listening');
  const close = async () => {
    for (const one of connections) one.destroy();
    await new Promise(resolve => server.close(resolve));
  };
  return { path, counted, close };
}

/** What became of so many commands on the engine with faults, the sandboxes counted by what is said of them. */
async function soak(runs, { everyCreate, everyRemove, sample = () => undefined }) {
  // Other sessions of this user may work on the same engine: what is left is counted by the session’s own label.
  const sessionId = `soak-${process.pid}-${everyCreate}-${everyRemove}`;
  const engine = await faulty(everyCreate, everyRemove);
  const acode = await Acode.open({ engine: { socket: engine.path }, workspace, config, sessionId, pool: false });
  const made = new Set();
  const removed = new Set();
  acode.events.on('ContainerCreated', ({ containerId }) => made.add(containerId));
  acode.events.on('ContainerRemoved', ({ containerId }) => removed.add(containerId));
  let [wrong, notCreated] = [0, 0];
  for (let n = 0; n < runs; n += 1) {
    const before = performance.now();
    const result = await acode.run(['sh', '-c', `echo ${n}; exit ${n % 100}`]).catch(() => null);
    if (result === null) notCreated += 1;
    else if (result.stdout !== `${n}\n` || result.exitCode !== n % 100) wrong += 1;
    sample(n, performance.now() - before);
  }
  await acode.close();
  await engine.close();
  const observer = await Acode.observe({ engine: { socket }, workspace });
  const left = (await observer.list()).filter(({ labels }) => labels['acode.session'] === sessionId);
  await observer.close();
  const notRemoved = [...made].filter(id => !removed.has(id)).length;
  return { wrong, notCreated, notRemoved, made: made.size, left, ...engine.counted };
}

const isGood = ({ wrong, notCreated, notRemoved, left }) => wrong + notCreated + notRemoved + left.length === 0;

const descriptors = () => readdirSync('/proc/self/fd').length;
const samples = [];
const times = [];
const done = await soak(count, {
  everyCreate: EVERY,
  everyRemove: EVERY,
  sample: (n, ms) => {
    times.push(ms);
    if (n % 10 !== 9) return;
    globalThis.gc?.();
    samples.push({ rss: process.memoryUsage().rss, fds: descriptors() });
  },
});

// The control: where every creation fails, and where every removal does, this very count says so.
const uncreated = await soak(1, { everyCreate: 1, everyRemove: Infinity });
const unremoved = await soak(1, { everyCreate: Infinity, everyRemove: 1 });
const isSeen = uncreated.notCreated === 1 && unremoved.notRemoved === 1;
const { left: stuck } = unremoved;
const cleaner = await Acode.open({ engine: { socket }, workspace, config });
await cleaner.cleanup({ force: true });
await cleaner.close();
for (const directory of [workspace, sockets]) rmSync(directory, { recursive: true, force: true });

const tenth = Math.max(1, Math.floor(samples.length / 10));
const mean = (list, key) => list.reduce((sum, one) => sum + one[key], 0) / list.length;
const [first, last] = [samples.slice(0, tenth), samples.slice(-tenth)];
const megabytes = bytes => (bytes / 1024 ** 2).toFixed(1);
times.sort((a, b) => a - b);
const at = quantile => times[Math.floor(times.length * quantile)].toFixed(0);
console.log(
  `FIGURE ${count} runs, ${done.faults} faults in ${done.create} creations and ${done.remove} removals: ` +
    `${done.notCreated} not created, ${done.notRemoved} not removed, ${done.wrong} wrong, ${done.left.length} left, ` +
    `RSS ${megabytes(mean(first, 'rss'))} → ${megabytes(mean(last, 'rss'))} MB, ` +
    `descriptors ${mean(first, 'fds').toFixed(1)} → ${mean(last, 'fds').toFixed(1)}, run p50 ${at(0.5)} / p95 ${at(0.95)} ms`,
);
const grown = mean(last, 'rss') - mean(first, 'rss') > 30 * 1024 ** 2 || mean(last, 'fds') - mean(first, 'fds') > 5;
const isTried = done.faults >= Math.floor(count / EVERY);
process.exitCode = isGood(done) && isTried && isSeen && !grown ? 0 : 1;
if (process.exitCode) console.log(JSON.stringify({ done, uncreated, unremoved, stuck, isSeen, isTried, grown }));
