// Program of a gate: what `acode gate` starts. It tells the command what went wrong over its channel, and logs JSON lines.

import { userInfo } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { AcodeError, directoriesOf, homeOf } from '@acode/sandbox';
import type { Logger } from '@acode/sandbox';
import { openEngine } from '../connect/open-engine.ts';
import { readGateFile } from './file.ts';
import { Gate } from './gate.ts';

const FAILED = 125;

function line(level: string, fields: Readonly<Record<string, unknown>>, message: string): void {
  process.stderr.write(`${JSON.stringify({ at: new Date().toISOString(), level, ...fields, message })}\n`);
}

const logger: Logger = {
  debug: () => undefined,
  info: (fields, message) => line('info', fields, message),
  warn: (fields, message) => line('warn', fields, message),
  error: (fields, message) => line('error', fields, message),
};

async function serve(path: string | undefined): Promise<void> {
  const { config } = directoriesOf({ env: process.env, home: homeOf(process.env), uid: userInfo().uid });
  const file = await readGateFile(path ?? join(config, 'tenants', 'gate.yml'));
  const stop = new AbortController();
  let gate: Gate | null = null;
  const signalled = (): void => {
    stop.abort(new Error('stopped'));
    void gate?.close().then(() => process.exit(0));
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, signalled);
  const engine = await openEngine(file, stop.signal);
  gate = await Gate.start({ file, engine, logger });
  logger.info({ gate: gate.id, pools: file.pools, tenants: file.tenants().size }, 'the gate is open');
}

try {
  const { values } = parseArgs({ options: { file: { type: 'string' } } });
  await serve(values.file);
} catch (error) {
  const told =
    error instanceof AcodeError ? error.toJSON() : { message: error instanceof Error ? error.message : String(error) };
  if (process.connected) process.send?.(told, undefined, undefined, () => process.exit(FAILED));
  else {
    line('error', { ...told }, 'the gate could not start');
    process.exitCode = FAILED;
  }
}
// The channel is for errors of the start: it keeps no gate alive, nor does its end stop one.
if (process.connected) process.channel?.unref();
