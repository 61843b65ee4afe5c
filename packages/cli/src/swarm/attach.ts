// `acode swarm attach`: ends the sandbox of a task, and gives the terminal its agent in a sandbox on the same fork, in the same
// session. However the terminal ends, the task goes on without it.

import type { SwarmStore, TaskRecord } from '@acode/swarm';
import { policyFrom } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { preparing } from '../execution/preparing.ts';
import { terminalVariables } from '../execution/terminal-variables.ts';
import { UsageError } from '../failure/usage.ts';
import { oneLine } from '../terminal/text.ts';

const LIFE_MS = 24 * 3600 * 1000;
const STOP_MS = 30_000;
const LOOK_MS = 100;

/** Which task of which swarm. */
export interface Attaching {
  readonly id: string | undefined;
  readonly task: string;
}

/** Opens the agent of a task at the terminal. */
export async function attach(call: Call, { id: reference, task: name }: Attaching): Promise<number> {
  if (call.options.json || call.io.stdin.isTTY !== true || !call.stdout.isTerminal)
    throw new UsageError(
      'Attaching needs a terminal for input and output.',
      `Run it at a terminal. \`acode swarm review ${oneLine(name)} --comment <text>\` tells the agent something without one.`,
    );
  const { SwarmStore: Store, swarmError, taskIn } = await import('@acode/swarm');
  const store = await Store.open({ ...call.io.env });
  const { id } = store.find((await call.place()).root, reference);
  const task = taskIn(store.read(id), name);
  const refuse = (reason: string, remedy: string): Error =>
    swarmError('ACODE-SWM-008', { what: `Attaching to task ${task.id}`, reason, remedy });
  if (task.startedAt === null) throw refuse('it has not begun', '`acode swarm status` shows when it does.');
  if (task.status === 'completed')
    throw refuse('it is completed', `Give it another story: \`acode swarm review ${task.id} --comment <text>\`.`);
  const status = await store.attached(id, task.id, () => attached(call, store, id, task));
  if (status === null) throw refuse('another terminal is attached to it', 'Leave it there first.');
  return status;
}

async function attached(call: Call, store: SwarmStore, id: string, task: TaskRecord): Promise<number> {
  const { ask, goesOn, isListening, swarmError, taskIn } = await import('@acode/swarm');
  const short = id.slice(0, 8);
  const socket = store.socketPath(id);
  const isLive = await isListening(socket);
  if (isLive) {
    const answer = await ask(socket, short, { op: 'attach', task: task.id });
    if (!answer.ok)
      throw swarmError('ACODE-SWM-008', {
        what: `Attaching to task ${task.id}`,
        reason: oneLine(answer.detail),
        remedy: '`acode swarm status` shows the tasks.',
      });
    await call.progress.during('The agent ends its step…', untilStopped(call, store, id, task.id));
    if (taskIn(store.read(id), task.id).status === 'completed') {
      await call.say(`acode: ${task.id} was completed meanwhile: \`acode swarm review ${task.id}\`.\n`);
      return 0;
    }
  }
  const status = await atScreen(call, store, id, task.id);
  if (!isLive) {
    await store.update(id, record => {
      const now = taskIn(record, task.id);
      goesOn(now);
      now.status = 'pending';
    });
    await call.say(`acode: \`acode swarm resume ${short}\` continues ${task.id} with what is in its fork now.\n`);
  } else await call.say(`acode: ${task.id} goes on without this terminal, with what is in its fork now.\n`);
  return status;
}

async function untilStopped(call: Call, store: SwarmStore, id: string, name: string): Promise<void> {
  const { swarmError, taskIn } = await import('@acode/swarm');
  const until = performance.now() + STOP_MS;
  while (taskIn(store.read(id), name).status === 'running') {
    call.interruption.signal.throwIfAborted();
    if (performance.now() > until)
      throw swarmError('ACODE-SWM-009', { swarm: id.slice(0, 8), reason: `task ${name} does not end` });
    await new Promise(resolve => void setTimeout(resolve, LOOK_MS));
  }
}

async function atScreen(call: Call, store: SwarmStore, id: string, name: string): Promise<number> {
  const { SwarmSandboxes, taskIn } = await import('@acode/swarm');
  // Loaded before anything runs: where acode is installed in the workspace, it may put something else in its place.
  const { atTerminal } = await import('../execution/at-terminal.ts');
  const { signal } = call.interruption;
  const record = store.read(id);
  const { config } = call.options;
  const around = { env: call.io.env, ...(config === undefined ? {} : { configFile: config }) };
  return call.withHost(async acode => {
    const start = await new SwarmSandboxes(acode, record, around).atTerminal(taskIn(record, name), signal);
    const { command, env, policy, taskId } = start;
    const creating = acode.create({ policy: policyFrom(policy), taskId, expiresInMs: LIFE_MS, signal });
    await using sandbox = await preparing(call, acode, creating);
    const { size } = call.stdout;
    const handle = await sandbox.commands.terminal([...command], {
      env: { ...terminalVariables(call), ...env },
      signal,
      limited: true,
      ...(size ? { size } : {}),
    });
    await atTerminal(call, handle, { mouse: true });
    return 0;
  });
}
