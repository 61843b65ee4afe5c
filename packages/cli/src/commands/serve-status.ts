// `acode serve status` and `acode serve stop`: show and stop the server of a workspace.

import type { ServeSetting } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import { identityOf, inheritedTraits, runtimeDirectory } from '../serve/identity.ts';
import type { ServerState } from '../serve/state.ts';
import { oneLine } from '../terminal/text.ts';
import type { ServeStatus } from './serve-status-view.ts';

const NOT_RUNNING = 1;
// Its sandboxes are removed by then, unless the engine takes long; and it may wait for commands that run in it.
const STOP_MS = 15_000;

/** `acode serve status`. */
export function serveStatusCommand(perform: Perform) {
  return new Command('status')
    .description('Show whether a server and a warm sandbox are ready for the workspace, and if not, why')
    .addHelpText('after', '\nExit status: 0 if a server runs, 1 if none does.')
    .action((_, command) => perform(command, status));
}

/** `acode serve stop`. */
export function serveStopCommand(perform: Perform) {
  return new Command('stop')
    .description('Stop the server of the workspace and remove its warm sandboxes')
    .action((_, command) => perform(command, stop));
}

async function status(call: Call): Promise<number> {
  const [found, { renderServeStatus }] = await Promise.all([statusOf(call), import('./serve-status-view.ts')]);
  await call.print('acode.serve-status/1', found, look => renderServeStatus(found, look));
  return found.server === null ? NOT_RUNNING : 0;
}

async function statusOf(call: Call): Promise<ServeStatus> {
  const { root: workspace } = await call.place();
  const setting = await call.withObserver(observer => observer.serveSetting());
  const about = { workspace, setting };
  const spot = await spotOf(call);
  const answer = await ask(spot);
  if (answer === 'silent') return { ...about, state: 'silent', reason: 'it does not answer', server: null };
  if (answer === null)
    return { ...about, state: 'not running', reason: await whyNone(call, setting, spot), server: null };
  const { state, reason, ...server } = answer;
  return { ...about, state: state === 'ready' ? 'ready' : 'running', reason, server };
}

async function stop(call: Call): Promise<number> {
  const { root: workspace } = await call.place();
  const spot = await spotOf(call);
  const answer = await ask(spot);
  const tell = async (stopped: boolean, text: string, exit: number): Promise<number> => {
    await call.print('acode.serve-stop/1', { workspace, stopped, reason: text }, () => `${text}\n`);
    return exit;
  };
  if (answer === null) return tell(true, `No server runs for ${oneLine(workspace)}.`, 0);
  if (answer === 'silent')
    return tell(false, 'The server does not answer. Find it with `pgrep -af "acode.* serve"`, and kill it.', 1);
  const { stopServer } = await import('../serve/state.ts');
  const isGone = await call.progress.during(
    'Removing the sandboxes…',
    withSocket(spot, path => stopServer(path, answer, STOP_MS)),
  );
  if (isGone !== false) return tell(true, `Stopped the server of ${oneLine(workspace)} (process ${answer.pid}).`, 0);
  return tell(
    false,
    `The server (process ${answer.pid}) accepts no new commands and ends when the running ones have ended.`,
    0,
  );
}

/** Where the server of a call’s workspace listens. */
interface Spot {
  readonly directory: string;
  readonly name: string;
  readonly uid: number;
}

async function spotOf(call: Call): Promise<Spot> {
  const uid = process.getuid?.() ?? -1;
  const { root, here } = await call.place();
  const { env } = call.io;
  const { socketName: name } = identityOf({ ...call.options, root, cwd: here, env, uid, inherited: inheritedTraits() });
  const directory = runtimeDirectory(env, uid);
  return { directory, name, uid };
}

// Only a socket that is this user’s alone is asked anything.
async function withSocket<Value>(
  { directory, name, uid }: Spot,
  use: (path: string) => Promise<Value>,
): Promise<Value | null> {
  const { SocketDirectory } = await import('../serve/socket-path.ts');
  const place = SocketDirectory.open(directory, uid);
  if ('unsafe' in place) return null;
  using held = place;
  return held.whyUnsafe(name, uid) === null ? await use(held.path(name)) : null;
}

async function ask(spot: Spot): Promise<ServerState | 'silent' | null> {
  const { stateOf } = await import('../serve/state.ts');
  return withSocket(spot, stateOf);
}

async function whyNone(call: Call, setting: ServeSetting, { directory, name, uid }: Spot): Promise<string> {
  const [{ SocketDirectory }, { obstacleOf, surroundingsOf }, { endedRecently }] = await Promise.all([
    import('../serve/socket-path.ts'),
    import('../serve/obstacles.ts'),
    import('../serve/recent.ts'),
  ]);
  const { root } = await call.place();
  const obstacle = obstacleOf(surroundingsOf(call.io, { root, written: [], program: call.program, setting }));
  if (obstacle !== null) return obstacle;
  if (setting.value === 'always') return 'it starts after the next command';
  const place = SocketDirectory.open(directory, uid);
  if ('unsafe' in place) return 'no command has run yet; it starts after two commands within ten minutes';
  using held = place;
  return endedRecently(held, name, call.io.now())
    ? 'it starts after the next command'
    : 'it starts after two commands within ten minutes';
}
