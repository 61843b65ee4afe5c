// Commands of a persistent sandbox: each recorded before it is handed over, supervised and scanned like that of a run.

import { randomBytes } from 'node:crypto';
import type { Command, RunRequest } from '../contract/command.ts';
import { AcodeError } from '../contract/errors.ts';
import { isAtLeast } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { RunResult } from '../contract/result.ts';
import { text } from '../contract/wording.ts';
import type {
  CommandHandle,
  CommandInfo,
  CommandRequest,
  Commands,
  TerminalHandle,
  TerminalRequest,
  TerminalSize,
} from '../contract/sandbox.ts';
import type { Host, Planned } from '../run/host.ts';
import type { OpenExecution, OpenSandbox, WaitingSandbox } from '../isolation/backend.ts';
import { Capture, LiveCapture } from '../run/output/capture.ts';
import { govern } from '../policy/risk.ts';
import { sourceOf } from '../policy/layers.ts';
import { printable, recordIntent } from '../run/trail.ts';
import type { CommandsElsewhere } from './relay/elsewhere.ts';
import { CommandsOffer } from './relay/offer.ts';
import type { Offered } from './relay/offer.ts';
import { refusePrivateValues } from '../run/credentials/environment.ts';
import { layersFor, workspaceOf } from '../run/repository.ts';
import { admitted, checkCommandRequest, captures } from '../run/run.ts';
import type { RunEgress } from '../run/egress.ts';
import { Running } from '../run/running.ts';
import { workdirFor } from '../workspace/locate.ts';

/** What the commands of a sandbox need to know of it. */
export interface CommandsParts {
  readonly host: Host;
  readonly open: OpenSandbox;
  readonly planned: Planned;
  /** What every command is given. */
  readonly env: Readonly<Record<string, string>>;
  /** What was asked for when the sandbox was made. */
  readonly about: Pick<RunRequest, 'risk' | 'sessionId' | 'taskId'>;
  /** Time of the last scan, by the kernel’s clock: earlier changes are already reported. */
  readonly lookedUntilMs: number;
  /** Its network, if it has an allow-list. */
  readonly egress?: RunEgress | undefined;
  /** Called after a further scan. */
  readonly looked: (untilMs: number) => void;
  /** How much time the sandbox has left, were it extended for as long as it may be. */
  readonly leftMs: () => number;
  /** What other processes have in it, where it is kept. */
  readonly elsewhere: CommandsElsewhere | null;
  /** Where other processes of the user find what this one has: to follow it, and to connect to it where it is kept. */
  readonly offerAt: string;
}

type Execute = WaitingSandbox['execute'];

const DEFAULT_SIZE: TerminalSize = { columns: 80, rows: 24 };

/** The commands of one sandbox. */
export class SandboxCommands implements Commands {
  readonly #parts: CommandsParts;
  readonly #underWay = new Map<number, { readonly handle: Handle; readonly info: CommandInfo }>();
  readonly #offer: CommandsOffer;
  #lookedUntilMs: number;

  constructor(parts: CommandsParts) {
    this.#parts = parts;
    this.#lookedUntilMs = parts.lookedUntilMs;
    const find = (pid: number): Handle | null => this.#underWay.get(pid)?.handle ?? null;
    this.#offer = new CommandsOffer(parts.offerAt, { list: () => this.#own(), find });
  }

  /** Start of the next scan: changes made between two commands are reported with the second one. */
  get lookedUntilMs(): number {
    return this.#lookedUntilMs;
  }

  run(command: Command, request?: CommandRequest & { background?: false }): Promise<RunResult>;
  run(command: Command, request: CommandRequest & { background: true }): Promise<CommandHandle>;
  async run(
    command: Command,
    request: CommandRequest & { background?: boolean } = {},
  ): Promise<RunResult | CommandHandle> {
    const { background = false, ...rest } = request;
    const { open } = this.#parts;
    const begin: Begin = (...of) => open.start(...of);
    const handle = await this.#start(command, rest, { begin, background });
    return background ? handle : handle.result;
  }

  async spawn(command: Command, request: CommandRequest = {}): Promise<CommandHandle> {
    const { open } = this.#parts;
    return this.#start(command, request, { begin: (...of) => open.start(...of), background: false, input: true });
  }

  async terminal(command: Command, request: TerminalRequest = {}): Promise<TerminalHandle> {
    const { size = DEFAULT_SIZE, limited = false, ...rest } = request;
    checkSize(size);
    const { open } = this.#parts;
    const begin: Begin = (handover, io, signal) => open.startTerminal(handover, size, io, signal);
    return this.#start(command, rest, { begin, background: true, live: true, limited });
  }

  async list(): Promise<CommandInfo[]> {
    const { elsewhere, offerAt } = this.#parts;
    return [...this.#own(), ...((await elsewhere?.list(offerAt)) ?? [])];
  }

  async connect(pid: number): Promise<CommandHandle> {
    const { elsewhere, offerAt } = this.#parts;
    const found = this.#underWay.get(pid)?.handle ?? (await elsewhere?.connect(pid, offerAt));
    if (found) return found;
    const whose = elsewhere ? 'any process that lives' : 'this process';
    throw new AcodeError('ACODE-SBX-017', {
      field: 'pid',
      reason: `no command of ${whose} runs as ${pid}`,
      remedy: '`commands.list()` tells which there are; a command is known as long as it runs and its process lives.',
    });
  }

  /** Offers nothing any more. */
  async end(): Promise<void> {
    await this.#offer.end();
  }

  #own(): CommandInfo[] {
    return [...this.#underWay.values()].map(({ info }) => info);
  }

  async #start(
    command: Command,
    request: CommandRequest,
    how: {
      readonly begin: Begin;
      readonly background: boolean;
      /** Whether the caller may write to the command, as with `Acode.spawn`. */
      readonly input?: true;
      readonly live?: true;
      readonly limited?: boolean;
    },
  ): Promise<Handle> {
    const { host, planned: of, about } = this.#parts;
    const { timeoutMs, ...asked } = request;
    const asRun: RunRequest = { ...asked, ...about, env: { ...this.#parts.env, ...asked.env } };
    const run = { command, request: asRun, as: 'exec' as const };
    return admitted(host, { name: 'exec', signal: asked.signal, run }, async ({ operation, signal, stop, began }) => {
      const recorded = { ...run, host, operation };
      const { clock } = host.telemetry;
      checkCommandRequest(command, request, of.spec.workdir);
      refusePrivateValues(asRun.env, of.spec.network);
      if (!how.live) this.#parts.open.expect();
      await this.#assertStrongEnough(command);
      const planned = withTimeout(of, timeoutMs, this.#most(how));
      operation.note({ command: printable(command), sandboxId: of.spec.identity.sandboxId });
      const sinceMs = this.#lookedUntilMs;
      const intent = await recordIntent(recorded, planned, signal);
      const obtained = clock.monotonic();
      const egress = await this.#parts.egress?.forCommand();
      const sandbox = this.#once(how.begin);
      const running = await Running.begin({
        ...recorded,
        planned,
        sandbox,
        dispose: async () => undefined,
        stays: true,
        egress,
        warm: true,
        intent,
        signal,
        stop,
        stdinStaysOpen: (how.background || how.input === true) && asked.stdin === undefined,
        timings: { queueMs: 0, obtainMs: obtained - began },
        sinceMs,
        captures: how.live ? liveCaptures(planned.policy, asRun) : captures(planned.policy, asRun),
        cwd: workdirFor(asked.cwd, planned.spec.workdir),
        nonce: randomBytes(16).toString('hex'),
      });
      this.#rememberLook(running, sandbox.execution);
      return this.#track(new Handle(running, sandbox.execution), { command, cwd: asked.cwd ?? '.' });
    });
  }

  // The parts of a run that a pre-started sandbox needs, for a persistent one.
  #once(begin: Begin): Once {
    const { id, ports } = this.#parts.open;
    const once: Once = {
      id,
      ports,
      execution: null,
      execute: async (...of) => {
        once.execution = await begin(...of);
        return once.execution;
      },
    };
    return once;
  }

  // A look begins when its command has ended, so that it has seen whatever came before that.
  #rememberLook({ result }: Running, execution: OpenExecution | null): void {
    let endedMs = 0;
    const ended = (): void => void (endedMs = Date.now());
    execution?.ended.then(ended, () => undefined);
    const looked = (): void => {
      if (endedMs <= this.#lookedUntilMs) return;
      this.#lookedUntilMs = endedMs;
      this.#parts.looked(endedMs);
    };
    result.then(looked, () => undefined);
  }

  #track(handle: Handle, what: { readonly command: Command; readonly cwd: string }): Handle {
    const { pid } = handle;
    const startedAt = new Date(this.#parts.host.telemetry.clock.now()).toISOString();
    this.#underWay.set(pid, { handle, info: { pid, ...what, startedAt } });
    this.#parts.host.keep(this.#offer.begin());
    const forget = (): void => {
      if (this.#underWay.get(pid)?.handle === handle) this.#underWay.delete(pid);
    };
    handle.result.then(forget, forget);
    return handle;
  }

  // A command may be more dangerous than those the sandbox was made for, and the rules may be stricter by now.
  async #assertStrongEnough(command: Command): Promise<void> {
    const { host, planned, about } = this.#parts;
    const layers = await layersFor(host, await workspaceOf(host));
    const { required, risk, riskReasons } = govern({ command, risk: about.risk }, layers);
    const { level } = planned.spec;
    if (isAtLeast(level, required.value)) return;
    const why = riskReasons.length > 0 ? `; ${riskReasons.join('; ')}` : '';
    throw new AcodeError('ACODE-SBX-012', {
      required: text`${required.value} (risk ${risk.value}, ${sourceOf(required)}${why})`,
      available: level,
      weaker: `this sandbox was created at level ${level}`,
      remedy: `Create a sandbox at level ${required.value} for such commands.`,
    });
  }

  // The built-in limit is for commands that have a sandbox of their own. Here it would end every server after minutes, in a
  // sandbox that was asked for by the hour; a configured limit still applies.
  #most({ background, limited = false }: { readonly background: boolean; readonly limited?: boolean }): number {
    const { planned, leftMs } = this.#parts;
    const { value } = planned.policy.timeoutMs;
    if (limited) return value;
    return background ? leftMs() : (commandLimit(planned.policy) ?? leftMs());
  }
}

interface Once extends Pick<WaitingSandbox, 'id' | 'ports' | 'execute'> {
  execution: OpenExecution | null;
}

type Captures = ReturnType<typeof captures>;
type Begin = (...of: Parameters<Execute>) => Promise<OpenExecution>;

// A terminal is read while it is open, by a person who would not know what an output limit left out.
function liveCaptures({ limits }: EffectivePolicy, run: RunRequest): Captures {
  const limit = limits.outputBytes.value;
  return { stdout: new LiveCapture(limit, run.onStdout), stderr: new Capture(limit, run.onStderr) };
}

/** How long a command in the foreground may take in a persistent sandbox; null for as long as the sandbox exists. */
export function commandLimit({ timeoutMs }: Pick<EffectivePolicy, 'timeoutMs'>): number | null {
  return timeoutMs.layer === 'built-in' ? null : timeoutMs.value;
}

function withTimeout(planned: Planned, asked: number | undefined, most: number): Planned {
  const { policy } = planned;
  const source = asked !== undefined && asked < most ? ({ layer: 'request', where: 'timeoutMs' } as const) : {};
  const timeoutMs = { ...policy.timeoutMs, ...source, value: Math.max(1, Math.min(asked ?? most, most)) };
  return { ...planned, policy: { ...policy, timeoutMs } };
}

/** A command under way in a persistent sandbox. */
export class Handle implements TerminalHandle, Offered {
  readonly pid: number;
  readonly ports: CommandHandle['ports'];
  readonly stdout: AsyncIterable<Uint8Array>;
  readonly stderr: AsyncIterable<Uint8Array>;
  readonly result: Promise<RunResult>;
  readonly heads: Offered['heads'];
  readonly #running: Running;
  readonly #execution: OpenExecution | null;

  constructor(running: Running, execution: OpenExecution | null) {
    this.#running = running;
    this.#execution = execution;
    this.pid = execution?.pid ?? 0;
    this.ports = running.ports;
    this.stdout = running.stdout;
    this.stderr = running.stderr;
    this.result = running.result;
    this.heads = running.heads;
  }

  write(data: Uint8Array | string): Promise<void> {
    return this.#running.write(data);
  }

  closeStdin(): Promise<void> {
    return this.#running.closeStdin();
  }

  kill(signal?: string): Promise<void> {
    return this.#running.kill(signal);
  }

  wait(): Promise<RunResult> {
    return this.result;
  }

  async disconnect(): Promise<void> {}

  async resize(size: TerminalSize): Promise<void> {
    checkSize(size);
    await this.#execution?.resize?.(size);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#running[Symbol.asyncDispose]();
  }
}

/** Refuses the size of a terminal that is none. */
function checkSize({ columns, rows }: TerminalSize): void {
  const fits = (count: number): boolean => Number.isInteger(count) && count >= 1 && count <= 10_000;
  if (fits(columns) && fits(rows)) return;
  throw new AcodeError('ACODE-SBX-017', { field: 'size', reason: 'must be 1 to 10000 columns and rows' });
}
