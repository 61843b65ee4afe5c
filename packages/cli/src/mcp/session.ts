// MCP session: the sandboxes, background commands and saved outputs of one client. All of it ends with the client.

import { AcodeError } from '@acode/sandbox';
import { BackgroundCommand } from './background.ts';
import type { InsideHandle, InsideSandbox, OpenRequest, ToolHost } from './host.ts';
import { KeptOutputs } from './kept-outputs.ts';
import type { WorkspacePaths } from './paths.ts';
import { mcpError } from './errors.ts';

const MAX_SANDBOXES = 8;
const MAX_COMMANDS = 32;

/** A sandbox of a session, as a list shows it. */
export interface SessionSandbox {
  readonly sandbox: InsideSandbox;
  readonly isDefault: boolean;
}

/** One client’s belongings. */
export class Session implements AsyncDisposable {
  readonly host: ToolHost;
  readonly workspace: WorkspacePaths;
  readonly outputs = new KeptOutputs();
  readonly #closing = new AbortController();
  readonly #sandboxes = new Map<string, InsideSandbox>();
  readonly #commands = new Map<string, BackgroundCommand>();
  #opening = 0;
  #counted = 0;
  #default: Promise<InsideSandbox> | null = null;
  #defaultId: string | null = null;
  #closed: Promise<void> | null = null;
  #edited: Promise<unknown> = Promise.resolve();

  constructor(host: ToolHost, workspace: WorkspacePaths) {
    this.host = host;
    this.workspace = workspace;
  }

  /** Fires when the client has disconnected. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** The open sandboxes. */
  get sandboxes(): SessionSandbox[] {
    return [...this.#sandboxes.values()].map(sandbox => ({ sandbox, isDefault: sandbox.id === this.#defaultId }));
  }

  /** Opens a sandbox. */
  async open(request: OpenRequest): Promise<InsideSandbox> {
    this.#closing.signal.throwIfAborted();
    if (this.#sandboxes.size + this.#opening >= MAX_SANDBOXES)
      throw mcpError('ACODE-MCP-010', {
        what: 'open sandboxes',
        limit: MAX_SANDBOXES,
        remedy: 'Close one with close_sandbox first.',
      });
    this.#opening += 1;
    try {
      const sandbox = await this.host.create(request);
      if (this.#closing.signal.aborted) {
        await sandbox.kill();
        throw new AcodeError('ACODE-SBX-014', {});
      }
      this.#sandboxes.set(sandbox.id, sandbox);
      return sandbox;
    } finally {
      this.#opening -= 1;
    }
  }

  /**
   * The sandbox with this id; without one the session’s default, which is opened at first use. That one belongs to the
   * session and not to the call that came first, so only the end of the session stops its opening.
   */
  async sandbox(id: string | undefined): Promise<InsideSandbox> {
    if (id !== undefined) {
      const found = this.#sandboxes.get(id);
      if (!found) throw mcpError('ACODE-MCP-004', { sandbox: id });
      return found;
    }
    this.#default ??= this.#openDefault();
    return this.#default;
  }

  /** Closes a sandbox; what runs in it ends. */
  async closeSandbox(id: string): Promise<InsideSandbox['riskyChanges']> {
    const found = await this.sandbox(id);
    this.forget(id);
    await found.kill();
    return found.riskyChanges;
  }

  /** Forgets a sandbox that no longer exists. */
  forget(id: string): void {
    this.#sandboxes.delete(id);
    for (const [key, { sandboxId }] of this.#commands) if (sandboxId === id) this.#commands.delete(key);
    if (id !== this.#defaultId) return;
    this.#default = null;
    this.#defaultId = null;
  }

  /** Makes sure that one more command fits; those that have ended make room. */
  makeRoomForCommand(): void {
    for (const [key, { isRunning }] of this.#commands)
      if (this.#commands.size >= MAX_COMMANDS && !isRunning) this.#commands.delete(key);
    if (this.#commands.size < MAX_COMMANDS) return;
    throw mcpError('ACODE-MCP-010', {
      what: 'background commands',
      limit: MAX_COMMANDS,
      remedy: 'Stop one with stop_command first.',
    });
  }

  /** Does edits one after another: of two at once, each would write what it read, and one of them would be lost. */
  editing<Value>(edit: () => Promise<Value>): Promise<Value> {
    const edited = this.#edited.then(edit);
    this.#edited = edited.catch(() => undefined);
    return edited;
  }

  /** Keeps a command that runs on. */
  follow(sandboxId: string, handle: InsideHandle): BackgroundCommand {
    this.#counted += 1;
    const command = new BackgroundCommand({ id: `command-${this.#counted}`, sandboxId }, handle);
    this.#commands.set(command.id, command);
    return command;
  }

  /** A command that runs on, or has ended. */
  command(id: string): BackgroundCommand {
    const found = this.#commands.get(id);
    if (!found) throw mcpError('ACODE-MCP-005', { command: id });
    return found;
  }

  /** Ends everything. A second call waits for the first. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #openDefault(): Promise<InsideSandbox> {
    try {
      const sandbox = await this.open({ signal: this.#closing.signal });
      this.#defaultId = sandbox.id;
      return sandbox;
    } catch (error) {
      this.#default = null;
      throw error;
    }
  }

  async #close(): Promise<void> {
    this.#closing.abort(new AcodeError('ACODE-SBX-014', {}));
    const sandboxes = [...this.#sandboxes.values()];
    this.#sandboxes.clear();
    this.#commands.clear();
    this.outputs.clear();
    // Whatever cannot be removed now is the host’s to remove when it closes.
    await Promise.allSettled(sandboxes.map(sandbox => sandbox.kill()));
  }
}
