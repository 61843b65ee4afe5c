// Program of a worker: what `acode worker` starts. It tells the command what went wrong over its channel, and logs JSON lines.

import { hostname, tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { AcodeError } from '@acode/sandbox';
import type { Logger } from '@acode/sandbox';
import { openEngine } from '../connect/open-engine.ts';
import { makeKeys } from '../tasks/signature.ts';
import { readWorkerFile } from './file.ts';
import { WorkerMetrics } from './metrics.ts';
import { Worker } from './worker.ts';

const FAILED = 125;
const { env } = process;

function line(level: string, fields: Readonly<Record<string, unknown>>, message: string): void {
  process.stderr.write(`${JSON.stringify({ at: new Date().toISOString(), level, ...fields, message })}\n`);
}

const logger: Logger = {
  debug: () => undefined,
  info: (fields, message) => line('info', fields, message),
  warn: (fields, message) => line('warn', fields, message),
  error: (fields, message) => line('error', fields, message),
};

function directories(): { readonly config: string; readonly root: string; readonly runtime: string } {
  const { homedir, uid } = userInfo();
  const { XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR } = env;
  return {
    config: join(XDG_CONFIG_HOME ?? join(homedir, '.config'), 'acode', 'worker.yml'),
    root: join(XDG_STATE_HOME ?? join(homedir, '.local', 'state'), 'acode-worker'),
    // Sockets are in it: its path has to be short.
    runtime: join(XDG_RUNTIME_DIR ?? join(tmpdir(), `acode-worker-${uid}`), 'acode-worker'),
  };
}

async function work(path: string | undefined, metricsPort: number | null): Promise<void> {
  const { config, root, runtime } = directories();
  const file = await readWorkerFile(path ?? config, hostname());
  const stop = new AbortController();
  let isStopping = false;
  let worker: Worker | null = null;
  const signalled = (): void => {
    // A second signal ends what runs; the first one lets it end.
    const again = isStopping;
    isStopping = true;
    stop.abort(new Error('stopped'));
    void worker?.close(again ? 0 : undefined).then(() => process.exit(0));
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, signalled);
  const engine = await openEngine(file, stop.signal);
  const metrics = new WorkerMetrics(file, engine);
  const observe = metrics.observe.bind(metrics);
  // Before it takes tasks: a port that is taken is said at once.
  if (metricsPort !== null) await metrics.listen(metricsPort);
  worker = await Worker.start({ file, engine, root, runtime, logger, onDrain: signalled, observe });
  const { name, pool, slots, tenants } = file;
  logger.info(
    { worker: worker.id, name, pool, slots, tenants: tenants.size, key: worker.publicKey },
    'the worker takes tasks',
  );
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { file: { type: 'string' }, keys: { type: 'boolean', default: false }, metrics: { type: 'string' } },
  });
  if (values.keys) process.stdout.write(`${JSON.stringify(makeKeys())}\n`);
  else await work(values.file, values.metrics === undefined ? null : Number(values.metrics));
}

try {
  await main();
} catch (error) {
  const told =
    error instanceof AcodeError ? error.toJSON() : { message: error instanceof Error ? error.message : String(error) };
  if (process.connected) process.send?.(told, undefined, undefined, () => process.exit(FAILED));
  else {
    line('error', { ...told }, 'the worker could not start');
    process.exitCode = FAILED;
  }
}
// The channel is for errors of the start: it keeps no worker alive, nor does its end stop one.
if (process.connected) process.channel?.unref();
