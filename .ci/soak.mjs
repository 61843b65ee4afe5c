// Runs many commands one after another through the built library and reports whether anything grows or is left.
// Usage: node --expose-gc soak.mjs SOCKET COUNT

import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { Acode } from '@acode/sandbox';

const [socket, count] = [process.argv[2], Number(process.argv[3])];
const workspace = mkdtempSync('/var/tmp/acode-soak-');
const config = { sandbox: { images: { default: 'acode-test/busybox:1' }, output: { save: false } } };
const acode = await Acode.open({ engine: { socket }, workspace, config });

const descriptors = () => readdirSync('/proc/self/fd').length;
const samples = [];
const times = [];
let wrong = 0;
for (let n = 0; n < count; n += 1) {
  const before = performance.now();
  const result = await acode.run(['sh', '-c', `echo ${n}; exit ${n % 100}`]);
  times.push(performance.now() - before);
  if (result.stdout !== `${n}\n` || result.exitCode !== n % 100) wrong += 1;
  if (n % 10 === 9) {
    globalThis.gc?.();
    samples.push({ rss: process.memoryUsage().rss, fds: descriptors() });
  }
}
const { sandboxes } = await acode.status();
await acode.close();
const observer = await Acode.observe({ engine: { socket }, workspace });
const left = (await observer.list()).filter(({ labels }) => labels['acode.uid'] === String(process.getuid())).length;
await observer.close();
rmSync(workspace, { recursive: true, force: true });

const tenth = Math.max(1, Math.floor(samples.length / 10));
const mean = (list, key) => list.reduce((sum, sample) => sum + sample[key], 0) / list.length;
const [first, last] = [samples.slice(0, tenth), samples.slice(-tenth)];
const megabytes = bytes => (bytes / 1024 ** 2).toFixed(1);
times.sort((a, b) => a - b);
const at = quantile => times[Math.floor(times.length * quantile)].toFixed(0);
console.log(
  `FIGURE ${wrong} wrong, ${left} left, RSS ${megabytes(mean(first, 'rss'))} → ${megabytes(mean(last, 'rss'))} MB, ` +
    `descriptors ${mean(first, 'fds').toFixed(1)} → ${mean(last, 'fds').toFixed(1)}, run p50 ${at(0.5)} / p95 ${at(0.95)} ms`,
);
const grown = mean(last, 'rss') - mean(first, 'rss') > 30 * 1024 ** 2 || mean(last, 'fds') - mean(first, 'fds') > 5;
process.exitCode = wrong > 0 || left > 0 || grown ? 1 : 0;
if (process.exitCode) console.log(JSON.stringify({ wrong, left, sandboxes, grown }));
