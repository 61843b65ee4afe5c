// `acode swarm status`, `list` and `logs`: what a person, or a program, sees of swarms.

import { createReadStream, existsSync } from 'node:fs';
import type { CopyState, SwarmStore } from '@acode/swarm';
import { TerminalSanitiser } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { age } from '../terminal/age.ts';
import { table } from '../terminal/table.ts';
import { fitted } from '../terminal/wrap.ts';
import { renderSwarm, shownState } from './render.ts';
import { through } from './run.ts';

/** Prints the tasks of a swarm; with `follow`, what happens from now on too. */
export async function showStatus(call: Call, reference: string | undefined, isFollowed: boolean): Promise<number> {
  const { SwarmStore: Store, isListening } = await import('@acode/swarm');
  const store = await Store.open({ ...call.io.env });
  const { root } = await call.place();
  await sayCopy(call, store, root);
  const record = store.find(root, reference);
  const isLive = await isListening(store.socketPath(record.id));
  if (isFollowed && isLive) return through(call, store, record.id, false);
  const { state } = store.copyState(root);
  await call.print('acode.swarm/1', { ...shownState(record), live: isLive, copy: state }, look => {
    const lost = !isLive && record.tasks.some(({ status }) => status === 'running' || status === 'pending');
    const note = lost
      ? fitted('No orchestrator runs: `acode swarm resume` continues the tasks that have not ended.\n', look)
      : '';
    return `${renderSwarm(record, look)}${note}`;
  });
  return 0;
}

const COPY: Readonly<Partial<Record<CopyState, string>>> = {
  foreign: 'is of a swarm that you did not run on this machine',
  changed: 'was changed by another program',
  corrupt: 'is not what acode writes',
};

// It is only ever reported: whatever it says, nothing is done because of it.
async function sayCopy(call: Call, store: SwarmStore, root: string): Promise<void> {
  const problem = COPY[store.copyState(root).state];
  if (problem !== undefined)
    await call.say(
      `acode: .agent/swarm-state.json ${problem}. acode does not use it; \`acode swarm repair\` writes it again.\n`,
    );
}

/** Prints the swarms of a workspace, or of all. */
export async function listSwarms(call: Call, all: boolean): Promise<number> {
  const { SwarmStore: Store, isListening } = await import('@acode/swarm');
  const store = await Store.open({ ...call.io.env });
  const { root } = await call.place();
  const records = store.list(all ? undefined : root);
  const items = await Promise.all(
    records.map(async record => ({
      id: record.id,
      workspace: record.workspace,
      createdAt: record.createdAt,
      state: record.state,
      live: await isListening(store.socketPath(record.id)),
      tasks: record.tasks.length,
      completed: record.tasks.filter(({ status }) => status === 'completed').length,
    })),
  );
  await call.print('acode.swarm-list/1', { items }, look => {
    if (items.length === 0) return 'There is no swarm. `acode swarm run` runs the task files of this workspace.\n';
    const rows = items.map(({ id, createdAt, state, live, tasks, completed, workspace }) => [
      id.slice(0, 8),
      live || state === 'finished' ? state : 'interrupted',
      `${completed}/${tasks}`,
      age(createdAt, call.io.now()),
      workspace,
    ]);
    return table(['SWARM', 'STATE', 'COMPLETED', 'AGE', 'WORKSPACE'], rows, look, ['WORKSPACE']);
  });
  return 0;
}

/** Prints the log of a task: harmless on a terminal, as it is elsewhere. */
export async function showLog(call: Call, reference: string | undefined, task: string): Promise<number> {
  const { SwarmStore: Store, taskIn } = await import('@acode/swarm');
  const store = await Store.open({ ...call.io.env });
  const record = store.find((await call.place()).root, reference);
  const name = task === 'setup' ? task : taskIn(record, task).id;
  const file = store.logFile(record.id, name);
  if (!existsSync(file)) {
    await call.say('acode: Nothing was printed.\n');
    return 0;
  }
  const sanitiser = new TerminalSanitiser();
  for await (const chunk of createReadStream(file)) {
    if (!Buffer.isBuffer(chunk)) continue;
    await call.stdout.write(call.look.terminal ? sanitiser.push(chunk) : chunk, call.interruption.signal);
  }
  if (call.look.terminal) await call.stdout.write(sanitiser.end(), call.interruption.signal);
  return 0;
}
