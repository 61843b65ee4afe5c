// A program of its own that uses persistent sandboxes, so that it can be killed, or be gone when the sandbox still is not.
// @ts-check

import { Acode } from '../../packages/sandbox/dist/index.js';

/** @typedef {{ socket: string, workspace: string, image: string, what: 'hold' | 'keep' | 'use' | 'join', sandbox?: string, expiresInMs?: number, extendMs?: number, command?: string, commands?: string[], kill?: boolean, stay?: boolean,
 *   until?: string, write?: string, signal?: string, leave?: boolean }} Task */

/** @type {Task} */
const task = JSON.parse(process.argv[2] ?? '{}');
const { socket, workspace, image } = task;

/** @param {object} said */
const say = said => void process.stdout.write(`${JSON.stringify(said)}\n`);

const acode = await Acode.open({
  engine: { socket },
  workspace,
  config: { sandbox: { images: { default: image } } },
});

async function hold() {
  const sandbox = await acode.create();
  for (const command of task.commands ?? []) await sandbox.commands.run(command, { background: true });
  say({ id: sandbox.id, containerId: sandbox.containerId });
  await new Promise(resolve => void setTimeout(resolve, 600_000));
}

async function keep() {
  const { expiresInMs } = task;
  /** @type {import('../../packages/sandbox/dist/index.js').CommandHandle[]} */
  const own = [];
  const sandbox = await acode.create({ keep: true, ...(expiresInMs === undefined ? {} : { expiresInMs }) });
  await sandbox.commands.run('echo kept > /tmp/mine');
  for (const command of task.commands ?? []) own.push(await sandbox.commands.run(command, { background: true }));
  say({ id: sandbox.id, containerId: sandbox.containerId, name: sandbox.name, expiresAt: sandbox.expiresAt });
  if (task.stay) await new Promise(resolve => void setTimeout(resolve, 600_000));
  for (const { result } of own) await result;
}

// Another process's command: what it prints, until it has printed what is waited for, and what becomes of it.
async function join() {
  const sandbox = await acode.connect(task.sandbox ?? '');
  const commands = await sandbox.commands.list();
  const handle = await sandbox.commands.connect(commands[0]?.pid ?? 0);
  let seen = '';
  for await (const chunk of handle.stdout) {
    seen += Buffer.from(chunk).toString('latin1');
    if (task.until !== undefined && seen.includes(task.until)) break;
  }
  say({ id: sandbox.id, commands, seen: seen.slice(-200), seenBytes: seen.length });
  if (task.write !== undefined) await handle.write(task.write).then(() => handle.closeStdin());
  if (task.signal !== undefined) await handle.kill(task.signal);
  if (task.leave) return handle.disconnect();
  const { exitCode, stdout, stderr, stdoutBytes } = await handle.wait();
  say({ exitCode, stdout: stdout.slice(-200), stderr, bytes: stdoutBytes?.length });
}

async function use() {
  const { extendMs, command } = task;
  const sandbox = await acode.connect(task.sandbox ?? '');
  const expiresAt = extendMs === undefined ? sandbox.expiresAt : await sandbox.extend(extendMs);
  const result = command === undefined ? null : await sandbox.commands.run(command);
  if (task.kill) await sandbox.kill();
  say({ id: sandbox.id, kept: sandbox.kept, expiresAt, stdout: result?.stdout, exitCode: result?.exitCode });
}

try {
  await { hold, keep, use, join }[task.what]();
} catch (error) {
  say({ error: error instanceof Error && 'code' in error ? error.code : String(error), message: String(error) });
} finally {
  await acode.close();
}
