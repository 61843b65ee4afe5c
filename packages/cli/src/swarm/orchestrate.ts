// Orchestrator process: started by `acode swarm run` and `resume`, in the background. Its ends are the file of events and a socket.

import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { SwarmStore } from '@acode/swarm';
import type { Call } from '../call.ts';

const START_MS = 30_000;
const ASK_MS = 100;
const MORE_SLOTS = 4;

/** Is the orchestrator of a swarm until its tasks have ended. */
export async function orchestrate(call: Call, id: string): Promise<number> {
  const [{ Acode }, { Orchestrator, SwarmStore: Store, readSettings }] = await Promise.all([
    import('@acode/sandbox'),
    import('@acode/swarm'),
  ]);
  const store = await Store.open();
  const { root } = await call.place();
  const { id: full, parallel } = store.find(root, id);
  const settings = readSettings(call.io.env, root);
  const options = await call.hostOptions();
  const acode = await Acode.open({ ...options, profile: 'swarm', maxConcurrent: parallel + MORE_SLOTS });
  try {
    const { config: configFile } = call.options;
    const agents = { env: call.io.env, ...(configFile === undefined ? {} : { configFile }) };
    const { signal } = call.interruption;
    const record = await Orchestrator.run({ acode, store, id: full, agents, settings, signal });
    return record.tasks.every(({ status }) => status === 'completed') ? 0 : 1;
  } finally {
    await acode.close();
  }
}

/** Starts the orchestrator of a swarm, and waits until it answers. */
export async function startOrchestrator(call: Call, store: SwarmStore, id: string): Promise<void> {
  const { isListening, swarmError } = await import('@acode/swarm');
  const short = id.slice(0, 8);
  const { program } = call;
  if (!program) throw swarmError('ACODE-SWM-009', { swarm: short, reason: 'this process cannot start one' });
  const { root } = await call.place();
  const { config, socket } = call.options;
  const here = call.io.cwd();
  const argv = [
    '--',
    program.entry,
    'swarm',
    'orchestrate',
    id,
    '--workspace',
    root,
    ...(config === undefined ? [] : ['--config', resolve(here, config)]),
    ...(socket === undefined ? [] : ['--socket', resolve(here, socket)]),
  ];
  const log = openSync(join(store.directory(id), 'orchestrator.log'), 'a', 0o600);
  try {
    const child = spawn(process.execPath, argv, {
      cwd: root,
      env: { ...call.io.env },
      detached: true,
      stdio: ['ignore', log, log],
    });
    const ended = new Promise<'ended'>(done => {
      child.once('exit', () => done('ended'));
      child.once('error', () => done('ended'));
    });
    child.unref();
    const until = performance.now() + START_MS;
    while (performance.now() < until) {
      if (await isListening(store.socketPath(id))) return;
      const found = await Promise.race([ended, new Promise<null>(done => void setTimeout(() => done(null), ASK_MS))]);
      // A swarm that is done at once leaves nobody to answer.
      if (found === 'ended') return;
    }
  } finally {
    closeSync(log);
  }
  throw swarmError('ACODE-SWM-009', {
    swarm: short,
    reason: `it did not start; ${join(store.directory(id), 'orchestrator.log')} may say why`,
  });
}
