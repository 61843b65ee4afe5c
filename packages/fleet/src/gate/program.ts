// Program of a gate: what `acode gate` starts.

import { userInfo } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { directoriesOf, homeOf } from '@acode/sandbox';
import { serveFigures } from '../connect/metrics-page.ts';
import { openEngine } from '../connect/open-engine.ts';
import { logger, onStopSignals, startService } from '../connect/service-program.ts';
import { readGateFile } from './file.ts';
import { Gate } from './gate.ts';

async function serve(path: string | undefined, metricsPort: number | null): Promise<void> {
  const { config } = directoriesOf({ env: process.env, home: homeOf(process.env), uid: userInfo().uid });
  const file = await readGateFile(path ?? join(config, 'tenants', 'gate.yml'));
  const stop = new AbortController();
  let gate: Gate | null = null;
  onStopSignals(() => {
    stop.abort(new Error('stopped'));
    void gate?.close().then(() => process.exit(0));
  });
  const engine = await openEngine(file, stop.signal);
  gate = await Gate.start({ file, engine, logger });
  const opened = gate;
  if (metricsPort !== null) await serveFigures(metricsPort, () => Promise.resolve(opened.figures()));
  const { id, httpPort } = opened;
  logger.info({ gate: id, pools: file.pools, tenants: file.tenants().size, httpPort }, 'the gate is open');
}

await startService('gate', () => {
  const { file, metrics } = parseArgs({ options: { file: { type: 'string' }, metrics: { type: 'string' } } }).values;
  return serve(file, metrics === undefined ? null : Number(metrics));
});
