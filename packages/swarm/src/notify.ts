// Telling a person of a change of state: an event as JSON on the standard input of the user’s own program, or to the user’s address.

import { spawn } from 'node:child_process';
import { TerminalSanitiser } from '@acode/sandbox';
import type { SwarmRecord, TaskRecord } from './record.ts';
import type { NotifySettings, Told } from './settings.ts';

// What waits to be told. What comes beyond it is dropped: a task that changes its state for ever fills no memory.
const MAX_WAITING = 200;
const MAX_TEXT = 500;
const CLOSE_MS = 15_000;
// eslint-disable-next-line no-control-regex
const COLOURS = /\u001b\[[0-9;]*m/g;
// What a program needs to reach a person at this machine; keys and tokens are not among them.
const VARIABLES = [
  'DBUS_SESSION_BUS_ADDRESS',
  'DISPLAY',
  'HOME',
  'LANG',
  'LC_ALL',
  'LOGNAME',
  'PATH',
  'USER',
  'WAYLAND_DISPLAY',
  'XAUTHORITY',
  'XDG_RUNTIME_DIR',
];

/** What a person is told. All text of a task in it is harmless on a terminal. */
export interface Notice {
  readonly schema: 'acode.swarm-notice/1';
  readonly at: string;
  readonly swarm: string;
  readonly workspace: string;
  readonly state: Told;
  /** Absent for the swarm itself. */
  readonly task?: string;
  readonly title?: string;
  readonly reason?: string | null;
  readonly detail?: string;
  readonly branch?: string;
  /** Hosts that a person could grant: `acode egress allow <id>`. */
  readonly waitsFor?: readonly {
    readonly id: string;
    readonly host: string;
    readonly port: number;
    readonly entry: string;
  }[];
  /** How the tasks of a finished swarm ended. */
  readonly tasks?: Readonly<Record<string, string>>;
}

/** One line of text that drives no terminal. */
export function plainText(text: string, most = MAX_TEXT): string {
  const sanitiser = new TerminalSanitiser();
  const safe = sanitiser.push(Buffer.from(text.slice(0, 4 * most))) + sanitiser.end();
  return safe.replaceAll(COLOURS, '').replaceAll(/\s+/g, ' ').trim().slice(0, most);
}

/** What a person sees as the state of a task. */
export function stateOf({ attention, status }: Pick<TaskRecord, 'attention' | 'status'>): Told | 'pending' {
  return status === 'failed' ? status : (attention ?? status);
}

/** The notice of a task. */
export function noticeOf({ id, workspace }: SwarmRecord, task: TaskRecord, state: Told): Notice {
  return {
    schema: 'acode.swarm-notice/1',
    at: new Date().toISOString(),
    swarm: id,
    workspace,
    state,
    task: task.id,
    title: plainText(task.title),
    reason: task.reason,
    detail: plainText(task.detail),
    branch: task.branch,
    waitsFor: task.waitsFor,
  };
}

/** Tells a person, one notice after the other, each within a deadline. */
export class Notifier {
  readonly #settings: NotifySettings | null;
  readonly #env: Readonly<Record<string, string>>;
  readonly #failed: (how: 'command' | 'webhook', detail: string) => void;
  #waiting = 0;
  #queue: Promise<void> = Promise.resolve();

  constructor(
    settings: NotifySettings | null,
    env: Readonly<Record<string, string | undefined>>,
    failed: (how: 'command' | 'webhook', detail: string) => void,
  ) {
    this.#settings = settings;
    this.#env = Object.fromEntries(
      VARIABLES.flatMap(name => (env[name] === undefined ? [] : [[name, env[name]] as const])),
    );
    this.#failed = failed;
  }

  /** Tells of a notice, if the user wants to be told of its state. */
  tell(notice: Notice): void {
    const settings = this.#settings;
    if (!settings?.on.includes(notice.state) || this.#waiting >= MAX_WAITING) return;
    this.#waiting += 1;
    this.#queue = this.#queue
      .then(async () => this.#deliver(`${JSON.stringify(notice)}\n`, settings))
      .finally(() => (this.#waiting -= 1));
  }

  /** Waits for what is being told, for a moment. */
  async close(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>(resolve => (timer = setTimeout(resolve, CLOSE_MS)));
    await Promise.race([this.#queue, late]);
    clearTimeout(timer);
  }

  async #deliver(text: string, { command, url, timeoutMs }: NotifySettings): Promise<void> {
    const [byCommand, byUrl] = await Promise.all([
      command ? toProgram(command, text, { env: this.#env, timeoutMs }) : null,
      url === undefined ? null : toAddress(url, text, timeoutMs),
    ]);
    if (byCommand !== null) this.#failed('command', byCommand);
    if (byUrl !== null) this.#failed('webhook', byUrl);
  }
}

// Null where it was told, else why not. Never a shell, and nothing of the event in an argument or a variable.
function toProgram(
  [program = '', ...argv]: readonly string[],
  text: string,
  { env, timeoutMs }: { readonly env: Readonly<Record<string, string>>; readonly timeoutMs: number },
): Promise<string | null> {
  return new Promise(resolve => {
    const child = spawn(program, argv, { cwd: '/', env, detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
    const end = (): void => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It has ended.
      }
    };
    const timer = setTimeout(() => {
      end();
      resolve(`it did not end within ${timeoutMs / 1000} s`);
    }, timeoutMs);
    child.on('error', ({ message }) => {
      clearTimeout(timer);
      resolve(message);
    });
    child.on('exit', (code, signal) => {
      clearTimeout(timer);
      resolve(code === 0 ? null : `it ended with ${code === null ? signal : `status ${code}`}`);
    });
    child.stdin.on('error', () => undefined);
    child.stdin.end(text);
  });
}

// The address may be a secret: it is in no event and no log.
async function toAddress(url: string, body: string, timeoutMs: number): Promise<string | null> {
  try {
    const answer = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
      redirect: 'error',
      signal: AbortSignal.timeout(timeoutMs),
    });
    await answer.body?.cancel();
    return answer.ok ? null : `it answered with status ${answer.status}`;
  } catch (error) {
    return error instanceof Error && error.name === 'TimeoutError'
      ? `it did not answer within ${timeoutMs / 1000} s`
      : 'it could not be reached';
  }
}
