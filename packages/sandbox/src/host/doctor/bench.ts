// The place where attacks are made: a scratch directory of its own, and sandboxes on it, whole or with a protection missing.

import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import type { Command, RunRequest } from '../../contract/command.ts';
import { AcodeError } from '../../contract/errors.ts';
import type { Explanation } from '../../contract/host.ts';
import { policyFrom } from '../../contract/policy.ts';
import type { PolicyFields } from '../../contract/policy.ts';
import type { RunResult } from '../../contract/result.ts';
import type { Weakening } from '../../isolation/backend.ts';
import type { Processor } from './machine-code.ts';
import type { TestEnvironment } from './test-environment.ts';

/** How a host for attacks is opened. */
export interface TargetOptions {
  readonly workspace: string;
  readonly weakenings: readonly Weakening[];
  /** Another engine socket than the one in use. */
  readonly socket?: string;
  /** Called after everything was validated and before the container is made. */
  readonly beforeCreate?: () => Promise<void>;
}

/** A host on one workspace. */
export interface AttackedHost {
  run(command: Command, request: RunRequest): Promise<RunResult>;
  explain(command: Command, request: RunRequest): Promise<Explanation>;
  close(): Promise<void>;
}

/** Opens hosts through the same pipe that every command goes through. */
export type OpenTarget = (options: TargetOptions) => Promise<AttackedHost>;

/** What a bench is made of. */
export interface BenchOptions {
  readonly open: OpenTarget;
  /** What every sandbox is asked for. */
  readonly policy: PolicyFields;
  readonly environment: TestEnvironment;
  /** The engine’s socket; null where there is none. */
  readonly socket: string | null;
  /** The kernel of the machine that sandboxes are on. */
  readonly machineKernel: string;
  /** Protections that are missing everywhere: how the probes themselves are tested. */
  readonly against: readonly Weakening[];
  readonly signal: AbortSignal;
}

/** How one sandbox differs from the ordinary. */
export interface RunOptions extends Partial<Omit<TargetOptions, 'weakenings'>> {
  /** The protection that the control lacks. */
  readonly without?: Weakening;
  /** Leaves verification on in a weakened sandbox. */
  readonly verified?: true;
  readonly policy?: PolicyFields;
  /** With the engine’s own runtime: what is controlled is the engine_ of the probe, and not the runtime. */
  readonly plainRuntime?: true;
  readonly request?: Omit<RunRequest, 'policy'>;
}

/** What was learned at the first contact. */
export interface Contact {
  /** Whether the image has a shell. */
  readonly shell: boolean;
  /** The kernel inside, as it names itself; empty where it did not. */
  readonly kernel: string;
  /** Whether sandboxes have a kernel of their own, which the host’s calls never reach. */
  readonly ownKernel: boolean;
}

const RUN_MS = 20_000;
const MEBIBYTE = 1024 ** 2;
const PROCESSORS: Readonly<Record<string, Processor>> = { x64: 'x86_64', arm64: 'aarch64' };
const LIMITS = { memoryBytes: 128 * MEBIBYTE, pids: 64, tmpBytes: 4 * MEBIBYTE, outputBytes: MEBIBYTE };

/** The bench. Disposing of it removes the scratch directory. */
export class Bench implements AsyncDisposable {
  readonly signal: AbortSignal;
  readonly policy: PolicyFields;
  readonly environment: TestEnvironment;
  readonly socket: string | null;
  readonly contact: Contact;
  /** The processor raw system calls are written for; null where there is no program for it. */
  readonly processor: Processor | null;
  /** As shell text, where a program can be put that no neighbour sees. */
  readonly temporary: string;
  readonly #options: BenchOptions;
  readonly #scratch: string;
  #made = 0;

  private constructor(options: BenchOptions, scratch: string, contact: Contact) {
    this.#options = options;
    this.#scratch = scratch;
    this.contact = contact;
    this.policy = options.policy;
    this.socket = options.socket;
    this.environment = options.environment;
    const onHost = options.environment.kind === 'host';
    // Elsewhere than on Linux a sandbox is Linux all the same, unless it is this host.
    this.processor = onHost && process.platform !== 'linux' ? null : (PROCESSORS[process.arch] ?? null);
    this.temporary = onHost ? '"$TMPDIR"' : '/tmp';
    this.signal = options.signal;
  }

  /** Makes the scratch directory where the engine can see it, and a first sandbox in it. */
  static async make(options: BenchOptions): Promise<Bench> {
    let failure: unknown;
    for (const place of new Set(['/var/tmp', tmpdir(), join(homedir(), '.cache')].filter(path => isAbsolute(path)))) {
      const scratch = await mkdtemp(join(place, `acode-doctor-${process.pid}-`)).catch(() => null);
      if (scratch === null) continue;
      try {
        return new Bench(options, scratch, await firstContact(options, scratch));
      } catch (error) {
        await rm(scratch, { recursive: true, force: true });
        failure ??= error;
        // An engine with a file system of its own does not see every directory of this host.
        if (!(error instanceof AcodeError && (error.is('ACODE-SBX-001') || error.is('ACODE-SBX-006')))) throw error;
      }
    }
    throw failure;
  }

  /** Whether a protection is missing everywhere. */
  lacks(weakening: Weakening): boolean {
    return this.#options.against.includes(weakening);
  }

  /** A new workspace with files in it. */
  async workspace(files: Readonly<Record<string, string | Buffer>> = {}): Promise<string> {
    this.#made += 1;
    const directory = join(this.#scratch, `w${this.#made}`);
    await mkdir(directory, { mode: 0o755 });
    for (const [name, content] of Object.entries(files)) {
      await mkdir(join(directory, name, '..'), { recursive: true });
      await writeFile(join(directory, name), content, { mode: 0o755 });
    }
    return directory;
  }

  /** Runs a command in a fresh sandbox. */
  async run(command: Command, options: RunOptions = {}): Promise<RunResult> {
    const ground = await this.#open(options);
    try {
      return await ground.run(command, this.#request(options));
    } finally {
      await ground.close();
    }
  }

  /** Several commands, each in a fresh sandbox, of one host: what such sandboxes share is theirs together. */
  async together<Value>(
    options: RunOptions,
    use: (run: (command: Command, request?: RunOptions['request']) => Promise<RunResult>) => Promise<Value>,
  ): Promise<Value> {
    const ground = await this.#open(options);
    try {
      return await use((command, request = {}) => ground.run(command, this.#request({ ...options, request })));
    } finally {
      await ground.close();
    }
  }

  /** What a request would come to. */
  async explain(options: RunOptions & { readonly command?: Command } = {}): Promise<Explanation> {
    const ground = await this.#open(options);
    try {
      return await ground.explain(options.command ?? ['true'], this.#request(options));
    } finally {
      await ground.close();
    }
  }

  /** The code that a request is refused with; null where it is accepted. */
  async refusal(options: RunOptions & { readonly command?: Command }): Promise<string | null> {
    return refusalOf(this.explain(options));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#scratch, { recursive: true, force: true, maxRetries: 3 });
  }

  async #open(options: RunOptions): Promise<AttackedHost> {
    const missing = [...this.#options.against, ...(options.without ? [options.without] : [])];
    const weakenings = new Set<Weakening>(missing.filter(one => this.environment.removable.includes(one)));
    if (weakenings.size > 0 && !options.verified) weakenings.add('verification');
    return this.#options.open({
      workspace: options.workspace ?? (await this.workspace()),
      weakenings: [...weakenings],
      ...(options.socket === undefined ? {} : { socket: options.socket }),
      ...(options.beforeCreate ? { beforeCreate: options.beforeCreate } : {}),
    });
  }

  #request({ policy = {}, request = {}, plainRuntime }: RunOptions): RunRequest {
    const limits = { ...LIMITS, ...policy.limits };
    const wish = { timeoutMs: RUN_MS, network: 'none' as const, ...this.policy, ...policy, limits };
    const { runtime, level, ...rest } = wish;
    const named = { ...(runtime === undefined ? {} : { runtime }), ...(level === undefined ? {} : { level }) };
    const chosen = plainRuntime && level !== undefined ? { level: 'auto' as const } : named;
    return { signal: this.signal, ...request, policy: policyFrom({ ...rest, ...chosen }) };
  }
}

/** The code that something was refused with; null where it was not. Any other failure is one. */
export async function refusalOf(work: Promise<unknown>): Promise<string | null> {
  try {
    await work;
    return null;
  } catch (error) {
    return codeOf(error);
  }
}

function codeOf(error: unknown): string {
  if (!(error instanceof AcodeError)) throw error;
  const code: unknown = error.code;
  return String(code);
}

async function firstContact(options: BenchOptions, scratch: string): Promise<Contact> {
  const { open, policy, signal, machineKernel } = options;
  const workspace = join(scratch, 'first');
  await mkdir(workspace);
  const ground = await open({ workspace, weakenings: [] });
  try {
    const result = await ground.run('cat /proc/version', {
      signal,
      policy: policyFrom({ timeoutMs: RUN_MS, ...policy }),
    });
    const kernel = /^Linux version (\S+)/.exec(result.stdout)?.[1] ?? '';
    return { shell: true, kernel, ownKernel: kernel !== '' && kernel !== machineKernel };
  } catch (error) {
    if (error instanceof AcodeError && error.is('ACODE-SBX-015')) return { shell: false, kernel: '', ownKernel: false };
    throw error;
  } finally {
    await ground.close();
  }
}
