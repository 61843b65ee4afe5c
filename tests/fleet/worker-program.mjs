// A worker as a process of its own, with a lease that is short: for tests that kill it.
import { NatsEngine, Worker, workerFileFrom } from '../../packages/fleet/dist/index.js';

const { file, root, runtime, engine } = JSON.parse(process.argv[2] ?? '{}');
await Worker.start({
  file: workerFileFrom(file, 'child'),
  engine: await NatsEngine.open(engine),
  root,
  runtime,
  lease: { leaseMs: 5000, renewMs: 1000, marginMs: 2000 },
});
process.stdout.write('started\n');
