// `acode swarm stop`, `pause`, `continue`, `retry`, `add`, `repair` and `discard`.

import type { Call } from '../call.ts';
import { NOBODY_TO_ASK } from '../consent.ts';
import { UsageError } from '../failure/usage.ts';
import { ask as question, canAsk } from '../terminal/ask.ts';
import { oneLine } from '../terminal/text.ts';
import { through } from './run.ts';

const NOT_DONE = 1;
const MAX_INPUT = 1024 * 1024;

/** Asks the orchestrator of a swarm; a task that has ended is begun again without one, too. */
export async function askSwarm(
  call: Call,
  op: 'stop' | 'pause' | 'continue' | 'retry',
  { id: reference, task }: { readonly id: string | undefined; readonly task: string | undefined },
): Promise<number> {
  const { SwarmStore, ask, isListening, again, taskIn, swarmError } = await import('@acode/swarm');
  const store = await SwarmStore.open({ ...call.io.env });
  const { id } = store.find((await call.place()).root, reference);
  if (task !== undefined) taskIn(store.read(id), task);
  if (!(await isListening(store.socketPath(id)))) {
    if (op !== 'retry' || task === undefined)
      throw swarmError('ACODE-SWM-009', { swarm: id.slice(0, 8), reason: 'it has ended' });
    await store.update(id, record => {
      const found = taskIn(record, task);
      again(found);
      found.status = 'pending';
    });
    return through(call, store, id, true);
  }
  const answer = await ask(store.socketPath(id), id.slice(0, 8), { op, ...(task === undefined ? {} : { task }) });
  await call.print('acode.swarm-answer/1', answer, () => `${oneLine(answer.detail)}\n`);
  return answer.ok ? 0 : NOT_DONE;
}

/** Adds a task file from standard input. */
export async function add(call: Call, name: string): Promise<number> {
  const { addTask } = await import('@acode/swarm');
  const { root } = await call.place();
  if (call.io.stdin.isTTY) await call.say('acode: Type the task, then Ctrl+D. docs/swarm.md describes it.\n');
  let text = '';
  for await (const chunk of call.io.stdin) {
    text += Buffer.isBuffer(chunk) ? chunk.toString('utf8') : String(chunk);
    if (text.length > MAX_INPUT) break;
  }
  const task = addTask(root, name, text);
  await call.print('acode.swarm-task/1', task, () => `Added ${task.file}: \`acode swarm run ${task.id}\` runs it.\n`);
  return 0;
}

/** Writes the readable copy again. */
export async function repair(call: Call, reference: string | undefined): Promise<number> {
  const { SwarmStore, STATE_FILE } = await import('@acode/swarm');
  const store = await SwarmStore.open({ ...call.io.env });
  const { root } = await call.place();
  const { id } = store.find(root, reference);
  const { state } = store.copyState(root);
  await store.repair(id);
  await call.print(
    'acode.swarm-repair/1',
    { id, file: STATE_FILE, before: state },
    () => `${STATE_FILE} is of swarm ${id.slice(0, 8)} again.\n`,
  );
  return 0;
}

/** Removes a swarm with its forks. */
export async function discard(call: Call, reference: string | undefined, yes: boolean): Promise<number> {
  const { SwarmStore, swarmError, isListening, discardForks } = await import('@acode/swarm');
  const store = await SwarmStore.open({ ...call.io.env });
  const record = store.find((await call.place()).root, reference);
  const { id } = record;
  const short = id.slice(0, 8);
  if (await isListening(store.socketPath(id)))
    throw swarmError('ACODE-SWM-008', {
      what: 'Removing it',
      reason: `swarm ${short} is running`,
      remedy: 'Stop it first: `acode swarm stop`.',
    });
  if (!yes && (!canAsk(call.io) || call.options.json))
    throw new UsageError(
      'Removing the forks of a swarm removes work, and there is no terminal to ask at.',
      NOBODY_TO_ASK,
    );
  if (
    !yes &&
    !(await question(
      call.io,
      `acode: Remove swarm ${short} with its forks? Its branches stay.`,
      call.interruption.signal,
    ))
  )
    return NOT_DONE;
  const removed = await call.withHost(acode => discardForks(acode, record));
  store.remove(id);
  await call.print(
    'acode.swarm-discard/1',
    { id, forks: removed },
    () => `Swarm ${short} was removed, with ${removed.length} forks.\n`,
  );
  return 0;
}
