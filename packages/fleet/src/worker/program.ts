// Program of a worker: what `acode worker` starts.

import { hostname, tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { openEngine } from '../connect/open-engine.ts';
import { logger, onStopSignals, startService } from '../connect/service-program.ts';
import { makeKeys } from '../tasks/signature.ts';
import { readWorkerFile } from './file.ts';
import { WorkerMetrics } from './metrics.ts';
import { Worker } from './worker.ts';

const { env } = process;

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
  onStopSignals(signalled);
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

await startService('worker', main);
