// `acode fleet create`, `exec`, `list` and `kill`: persistent sandboxes of this user on the fleet.

import { packWorkspace } from '../client/pack.ts';
import { present } from '../connect/open-engine.ts';
import type { RequestOf, Terminal } from './requests.ts';
import { opened, pipedInput, policyOf, statusOf } from './tasks.ts';

/** `acode fleet create`: it exists until it expires, is unused for too long, or is killed. */
export async function create(request: RequestOf<'create'>, terminal: Terminal): Promise<number> {
  const { workspace, id, pool, priority, env, expiresInMs, idleMs } = request;
  const { signal } = terminal;
  await using fleet = await opened(request.file, signal);
  const packed = workspace === null ? {} : { workspace: await packWorkspace(workspace) };
  const asked = { ...packed, ...present({ id, pool, priority, env, expiresInMs, idleMs }) };
  const { info } = await fleet.create({ ...asked, policy: policyOf(request), signal });
  terminal.value('acode.fleet-sandbox/1', info);
  return 0;
}

/** `acode fleet exec`: as if it ran here. A signal ends the command, and not the sandbox. */
export async function exec(request: RequestOf<'exec'>, terminal: Terminal): Promise<number> {
  const { command, env, timeoutMs, stdin } = request;
  const { signal } = terminal;
  await using fleet = await opened(request.file, signal);
  await using sandbox = await fleet.connect(request.sandbox, signal);
  // One piece after the other, in the order in which they came.
  let printing: Promise<void> = Promise.resolve();
  const printed = (stream: 1 | 2) => (bytes: Uint8Array) => {
    printing = printing.then(() => terminal.output(stream, bytes));
  };
  const result = await sandbox.run(command, {
    signal,
    ...present({ env, timeoutMs }),
    ...(stdin ? { stdin: pipedInput() } : {}),
    onStdout: printed(1),
    onStderr: printed(2),
  });
  await printing;
  terminal.value('acode.fleet-exec/1', { sandbox: sandbox.id, result });
  return statusOf(result);
}

/** `acode fleet list`. */
export async function list({ file }: RequestOf<'list'>, terminal: Terminal): Promise<number> {
  await using fleet = await opened(file, terminal.signal);
  terminal.value('acode.fleet-list/1', { items: await fleet.sandboxes(terminal.signal) });
  return 0;
}

/** `acode fleet kill`. Nothing is killed unless all of them exist. */
export async function kill({ file, sandboxes }: RequestOf<'kill'>, terminal: Terminal): Promise<number> {
  await using fleet = await opened(file, terminal.signal);
  const found = await Promise.all([...new Set(sandboxes)].map(id => fleet.connect(id, terminal.signal)));
  await Promise.all(found.map(sandbox => sandbox.kill()));
  terminal.value('acode.fleet-kill/1', { removed: found.map(({ id }) => id) });
  return 0;
}
