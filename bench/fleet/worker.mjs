// Worker of the fleet's benches, as a process of its own: a pool whose tasks do nothing, and one with sandboxes where there is an engine.
// @ts-check

import { NatsEngine, PostgresEngine, Worker, workerFileFrom } from '@acode/fleet';

/** @typedef {ReturnType<NonNullable<import('@acode/fleet').WorkerOptions['runner']>>['run']} Run */

const { name, address, workers } = JSON.parse(process.argv[2] ?? '{}');

const open = () => ('url' in address ? PostgresEngine.open(address) : NatsEngine.open(address));

const TICK_MS = 50;

/**
 * A command `['nothing', '200']` takes 200 ms and does nothing; `['prints', '1000', '5']` prints 1,000 bytes a second for five seconds.
 *
 * @param {Parameters<Run>[0]} task
 * @returns {ReturnType<Run>}
 */
async function nothing({ id, command, signal, onOutput }) {
  if (command[0] === 'prints') {
    const bytes = (Number(command[1]) * TICK_MS) / 1000;
    const began = performance.now();
    for (let tick = 1; tick <= (Number(command[2]) * 1000) / TICK_MS && !signal.aborted; tick += 1) {
      onOutput(1, Buffer.alloc(bytes, `${tick}\n`));
      await new Promise(resolve => void setTimeout(resolve, began + tick * TICK_MS - performance.now()));
    }
  }
  const ms = command[0] === 'nothing' ? Number(command[1] ?? 0) : 0;
  if (ms > 0)
    await new Promise(resolve => {
      const timer = setTimeout(resolve, ms);
      signal.addEventListener('abort', () => resolve(clearTimeout(timer)), { once: true });
    });
  if (signal.aborted) return {};
  const result = { exitCode: 0, timedOut: false, stdout: `${id}\n`, stderr: '', dropped: { stdout: 0, stderr: 0 } };
  // @ts-expect-error A result has more fields; nobody reads them of a command that did nothing.
  return { result: { ...result, denials: [], riskyChanges: [] } };
}

/** @param {string} level */
const told = level => (/** @type {object} */ fields, /** @type {string} */ message) =>
  void process.stderr.write(`${new Date().toISOString()} ${level} ${message} ${JSON.stringify(fields)}\n`);
const logger = { debug: () => undefined, info: () => undefined, warn: told('warn'), error: told('error') };

/** @type {Worker[]} */
const started = [];
for (const { file, root, runtime, isFake } of workers) {
  const fake = { run: nothing, keep: async () => ({}), alive: () => undefined, end: async () => undefined };
  const runner = isFake ? { runner: () => fake } : {};
  started.push(
    await Worker.start({ file: workerFileFrom(file, name), engine: await open(), root, runtime, logger, ...runner }),
  );
}
process.on('SIGTERM', () => {
  void Promise.all(started.map(worker => worker.close(0))).then(() => process.exit(0));
});
process.stdout.write('started\n');
