// A host on a target that the rows of a group share: what a sandbox of the library does with an attack.

import { rmSync } from 'node:fs';
import { Acode, policyFrom } from '@acode/sandbox';
import type { AcodeOptions, Command, RunRequest, RunResult, RunningCommand } from '@acode/sandbox';
import { images, makeWorkspace, warmth, withEngine } from '../support/engines.ts';
import { TOOLS } from './targets.ts';
import type { Target } from './targets.ts';
import { noteSandbox } from './warm.ts';

const WARM_MS = 60_000;

// The user’s own configuration, in the words of the file.
type UserConfig = NonNullable<AcodeOptions['config']>;

/** A host with the target’s runtime in every request. */
export class Arena implements AsyncDisposable {
  readonly acode: Acode;
  readonly target: Target;
  /** The workspace on the host, as it was named. */
  readonly workspace: string;
  readonly #session: string;
  readonly #ownWorkspace: boolean;

  private constructor(acode: Acode, target: Target, session: string, workspace: string, ownWorkspace: boolean) {
    this.acode = acode;
    this.target = target;
    this.workspace = workspace;
    this.#session = session;
    this.#ownWorkspace = ownWorkspace;
  }

  /** Opens one. A workspace that is named is left alone at the end: some of those in here are the root of the machine. */
  static async open(target: Target, options: AcodeOptions = {}): Promise<Arena> {
    const workspace = options.workspace ?? makeWorkspace();
    const session = `attack-${process.pid}-${Math.random().toString(36).slice(2, 10)}`;
    const acode = await Acode.open({
      engine: { socket: target.engine.socket },
      sessionId: session,
      ...warmth,
      ...options,
      workspace,
      config: trusting(options.config),
    });
    return new Arena(acode, target, session, workspace, options.workspace === undefined);
  }

  /** Runs a shell line in the small image. */
  sh(script: string, request: RunRequest = {}): Promise<RunResult> {
    return this.run(['sh', '-c', script], request);
  }

  /** Runs a python program in the image that has one. */
  python(program: string, request: RunRequest = {}, ...argv: readonly string[]): Promise<RunResult> {
    return this.run(['python3', '-c', program, ...argv], withPolicy(request, { image: TOOLS }));
  }

  /** Runs a command on the target’s runtime. */
  async run(command: Command, request: RunRequest = {}): Promise<RunResult> {
    const asked = this.#onTarget(request);
    const cold = await this.#untilWarm(asked);
    const result = await this.acode.run(command, asked);
    noteSandbox(result, cold);
    return result;
  }

  /** Starts a command on the target’s runtime. */
  async spawn(command: Command, request: RunRequest = {}): Promise<RunningCommand> {
    const asked = this.#onTarget(request);
    const cold = await this.#untilWarm(asked);
    const running = await this.acode.spawn(command, asked);
    void running.result.then(
      result => noteSandbox(result, cold),
      () => undefined,
    );
    return running;
  }

  /** The ids of this host’s containers that run a command, asked past the library but for those of the pool. */
  async running(): Promise<string[]> {
    const all = (await this.#containers()).filter(({ state }) => state === 'running').map(({ id }) => id);
    if (!warmth.pool) return all;
    const pool = (await this.acode.list()).flatMap(({ waiting, containerId }) => (waiting ? [containerId] : []));
    return all.filter(id => !pool.includes(id));
  }

  /** Whether nothing of this host is on the engine, asked past the library. */
  async isGone(): Promise<boolean> {
    return (await this.#containers()).length === 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.acode.close();
    const left = await this.#containers();
    if (this.#ownWorkspace) rmSync(this.workspace, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`left behind: ${left.map(({ id }) => id).join(', ')}`);
  }

  #containers(): Promise<{ id: string; state: string }[]> {
    const label = `acode.session=${this.#session}`;
    return withEngine(this.target.engine, engine =>
      engine.containers.list({ labels: [label], all: true, signal: AbortSignal.timeout(60_000) }),
    );
  }

  /**
   * With ACODE_TEST_WARM, waits until a sandbox is pre-started for such a request. The reason where the pool can hold none, and
   * null for a request that is refused: no sandbox is made for it.
   */
  async #untilWarm(request: RunRequest): Promise<string | null> {
    if (!warmth.pool) return null;
    const end = performance.now() + WARM_MS;
    const { policy = {}, artifacts = [] } = request;
    const learning: RunRequest = { policy, ...(artifacts.length > 0 ? { artifacts } : {}) };
    for (let asked = false; ; asked = true) {
      const explained = await this.acode.explain(['true'], request).catch(() => null);
      if (!explained || explained.warm) return null;
      if (!explained.warmReason.startsWith('no sandbox with this plan is warm yet')) return explained.warmReason;
      if (performance.now() > end) throw new Error(`no sandbox was pre-started: ${explained.warmReason}`);
      // The pool learns of a plan by a command that has it.
      if (!asked) await this.acode.run(['true'], learning);
      await new Promise(resolve => void setTimeout(resolve, 20));
    }
  }

  // runc is every engine’s default here, and naming no runtime is what callers do.
  #onTarget(request: RunRequest): RunRequest {
    return this.target.runtime === 'runc' ? request : withPolicy(request, { runtime: this.target.runtime });
  }
}

/** A configuration in which the test images may be run. */
export function trusting(config: UserConfig = {}): UserConfig {
  const { sandbox = {} } = config;
  return {
    ...config,
    sandbox: {
      ...sandbox,
      images: { default: images.busybox, ...sandbox.images },
      security: { trusted_images: ['docker.io/acode-test/*', 'docker.io/acode-test/hostile'], ...sandbox.security },
    },
  };
}

function withPolicy(request: RunRequest, policy: NonNullable<RunRequest['policy']>): RunRequest {
  return { ...request, policy: policyFrom({ ...policy, ...request.policy }) };
}
