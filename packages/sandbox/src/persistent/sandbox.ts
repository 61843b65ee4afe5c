// Sandbox: a persistent one, with its commands, files and ports, until its lease expires or a caller removes it.

import { AcodeError } from '../contract/errors.ts';
import type { WorkspaceDiff } from '../contract/fork.ts';
import type { ForkApplied, ForkApplyRequest, ForkDiffRequest, ForkInfo, Forks } from '../contract/forks.ts';
import type { Level } from '../contract/levels.ts';
import type { Clock } from '../contract/ports.ts';
import type { RiskyChange, RunResult } from '../contract/result.ts';
import type { Command } from '../contract/command.ts';
import type { CommandHandle, CommandRequest, CommandRunner, Commands, Files, Ports } from '../contract/sandbox.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import type { OpenSandbox } from '../isolation/backend.ts';
import { givenNameIn } from '../lifecycle/labels.ts';

const OVER = 'its lease expired';

/** What a persistent sandbox is made of. */
export interface SandboxParts {
  readonly open: OpenSandbox;
  readonly spec: SandboxSpec;
  readonly kept: boolean;
  readonly commandTimeoutMs: number | null;
  readonly clock: Clock;
  readonly expiresAt: Date;
  /** The latest time it may be extended to. */
  readonly latest: Date;
  readonly commands: Commands;
  readonly files: Files;
  readonly ports: Ports;
  /** The way to its fork; null if it has none. */
  readonly forks: Pick<Forks, 'diff' | 'apply' | 'copy'> | null;
  /** When it expires by its lease on disk, which another process may have extended. */
  readonly written: () => Promise<Date | null>;
  /** Writes down that it may stay longer. */
  readonly extended: (until: Date) => Promise<void>;
  /** Ends what belongs to it on this host, and looks at what it left; called once, when it is removed or left. */
  readonly over: (reason: string, how: 'removed' | 'left') => Promise<readonly RiskyChange[]>;
}

// Timers hold no more than this; who waits longer waits in steps.
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * A persistent sandbox, hardened like that of a run. `await using` ends it; one that was kept is let go of.
 *
 * @example
 * await using sandbox = await acode.create({ policy: { image: 'node:20-alpine' } });
 * await sandbox.files.writeFile('hello.mjs', 'console.log(1 + 1)');
 * const { stdout } = await sandbox.commands.run(['node', 'hello.mjs']);
 */
export class Sandbox implements CommandRunner, AsyncDisposable {
  /** A UUID. */
  readonly id: string;
  /** The engine’s own id of it. */
  readonly containerId: string;
  /** What the engine calls it. */
  readonly name: string;
  /** The name that its creator gave it (`CreateRequest.name`); null if there is none. */
  readonly givenName: string | null;
  /** How strongly it is isolated. */
  readonly level: Level;
  /** What it is made of, as it was resolved. */
  readonly image: {
    /** The image as it was asked for. */
    readonly reference: string;
    /** The digest in its registry; the image’s id if it has none. */
    readonly digest: string;
  };
  /** Whether it outlives this process. */
  readonly kept: boolean;
  /** How long a command in the foreground may take, in milliseconds; null for as long as the sandbox exists. */
  readonly commandTimeoutMs: number | null;
  /** Runs commands in it. */
  readonly commands: Commands;
  /** Its files. */
  readonly files: Files;
  /** The way to servers in it. */
  readonly ports: Ports;
  /** Settles when it is over for this process, with the reason. */
  readonly ended: Promise<string>;
  readonly #parts: SandboxParts;
  #over: (reason: string) => void = () => undefined;
  #expiresAt: Date;
  #cancel: () => void = () => undefined;
  #ending: Promise<void> | null = null;
  #riskyChanges: readonly RiskyChange[] = [];

  /** Made by `Acode.create` and `Acode.connect`. */
  constructor(parts: SandboxParts) {
    const { spec, open } = parts;
    this.#parts = parts;
    this.id = spec.identity.sandboxId;
    this.containerId = open.id;
    this.name = spec.identity.name;
    this.givenName = givenNameIn(spec.identity.labels);
    this.level = spec.level;
    this.image = { reference: spec.image.reference, digest: spec.image.digest };
    this.kept = parts.kept;
    this.commandTimeoutMs = parts.commandTimeoutMs;
    this.commands = parts.commands;
    this.files = parts.files;
    this.ports = parts.ports;
    this.ended = new Promise(resolve => (this.#over = resolve));
    this.#expiresAt = parts.expiresAt;
    this.#watch();
    // One whose first process was ended from inside, or by the engine, is still to be removed.
    void open.gone.then(reason => this.#end(reason, 'removed')).catch(() => undefined);
  }

  /** When it expires unless it is extended. */
  get expiresAt(): Date {
    return this.#expiresAt;
  }

  /**
   * What was left in the workspace after the last command that tools of the host might execute or follow. Known when the
   * sandbox was removed; what its commands left is in their results.
   */
  get riskyChanges(): readonly RiskyChange[] {
    return this.#riskyChanges;
  }

  /** Runs a command in it to its end: the same as `commands.run`. */
  async run(command: Command, request?: CommandRequest): Promise<RunResult> {
    return this.commands.run(command, request);
  }

  /** Starts a command in it and returns a handle: the same as `commands.spawn`. */
  async spawn(command: Command, request?: CommandRequest): Promise<CommandHandle> {
    return this.commands.spawn(command, request);
  }

  /** Lets it exist for so much longer, counted from now; never beyond a day from its creation. */
  async extend(expiresInMs: number): Promise<Date> {
    this.#assertThere();
    if (!Number.isFinite(expiresInMs) || expiresInMs <= 0)
      throw new AcodeError('ACODE-SBX-017', { field: 'expiresInMs', reason: 'must be more than 0 milliseconds' });
    const { clock, latest, extended } = this.#parts;
    // Its keeper may be about to remove it.
    if ((await this.#untilWhen()).getTime() <= clock.now())
      throw new AcodeError('ACODE-SBX-025', { sandbox: this.id, reason: OVER });
    this.#assertThere();
    const until = new Date(Math.min(clock.now() + expiresInMs, latest.getTime()));
    await extended(until);
    this.#expiresAt = until;
    this.#watch();
    return until;
  }

  /** Ends everything inside and removes it. A second call waits for the first. */
  async kill(): Promise<void> {
    await this.#end('it was killed', 'removed');
  }

  /** Disconnects from a sandbox created with `keep`, which continues without this process; removes any other. */
  async leave(): Promise<void> {
    await this.#end('this process has let go of it', this.kept ? 'left' : 'removed');
  }

  /**
   * What its commands changed in the fork that it was created with (`policy.workspace: 'fork'`). Its processes are paused meanwhile.
   * Refused without a fork: its changes are in the workspace then.
   */
  async diff(request: Omit<ForkDiffRequest, 'fork'> = {}): Promise<WorkspaceDiff> {
    return this.#forks('Sandbox.diff').diff({ ...request, fork: this.id });
  }

  /**
   * Applies what its commands changed in its fork to the workspace, as `acode.forks.apply` does. Its processes are paused meanwhile and
   * go on afterwards; a later diff lists only what they change then.
   */
  async apply(request: Omit<ForkApplyRequest, 'fork'> = {}): Promise<ForkApplied> {
    return this.#forks('Sandbox.apply').apply({ ...request, fork: this.id });
  }

  /**
   * Makes a fork of what its own fork has now, to go back to: `acode.create({ policy: { fork: 'before' } })`. Its processes are paused
   * meanwhile, for as long as it takes to copy the files that its commands have written.
   */
  async snapshot(name?: string): Promise<ForkInfo> {
    return this.#forks('Sandbox.snapshot').copy({ fork: this.id, ...(name === undefined ? {} : { name }) });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.leave();
  }

  #forks(what: string): Pick<Forks, 'diff' | 'apply' | 'copy'> {
    this.#assertThere();
    const { forks } = this.#parts;
    if (!forks)
      throw new AcodeError('ACODE-SBX-016', {
        what: `${what} of a sandbox without a fork`,
        instead: 'Its changes are in the workspace already: look at them with `git diff`.',
      });
    return forks;
  }

  #assertThere(): void {
    if (this.#ending) throw new AcodeError('ACODE-SBX-025', { sandbox: this.id, reason: 'it was ended' });
  }

  #watch(): void {
    this.#cancel();
    const { clock } = this.#parts;
    const left = this.#expiresAt.getTime() - clock.now();
    const look = (): void => void this.#look().catch(() => undefined);
    this.#cancel = clock.after(Math.min(Math.max(left, 0), MAX_TIMER_MS), look);
  }

  async #look(): Promise<void> {
    const until = await this.#untilWhen();
    if (this.#ending) return;
    this.#expiresAt = until;
    if (this.#parts.clock.now() < until.getTime()) this.#watch();
    else await this.#end(OVER, 'removed');
  }

  // Another process may have said otherwise since.
  async #untilWhen(): Promise<Date> {
    return (await this.#parts.written().catch(() => null)) ?? this.#expiresAt;
  }

  #end(reason: string, how: 'removed' | 'left'): Promise<void> {
    this.#ending ??= this.#endOnce(reason, how);
    return this.#ending;
  }

  async #endOnce(reason: string, how: 'removed' | 'left'): Promise<void> {
    this.#cancel();
    const { open, over } = this.#parts;
    try {
      if (how === 'left') await open.leave();
      else await open.remove(reason);
    } finally {
      this.#over(reason);
      this.#riskyChanges = await over(reason, how);
    }
  }
}
