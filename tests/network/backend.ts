// Sandboxes made through the backend alone, from a plan written by hand: for what no policy can ask for.

import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import type { SandboxSpec } from '../../packages/sandbox/src/contract/spec.ts';
import type { CommandIo, Ending, Execution, WaitingSandbox } from '../../packages/sandbox/src/isolation/backend.ts';
import { DockerBackend } from '../../packages/sandbox/src/isolation/docker/backend.ts';
import { EgressMounts } from '../../packages/sandbox/src/isolation/egress.ts';
import { Engine } from '../../packages/sandbox/src/isolation/docker/engine/index.ts';
import type { Attachment } from '../../packages/sandbox/src/isolation/docker/resources/owned.ts';
import { sandboxLabels } from '../../packages/sandbox/src/lifecycle/labels.ts';
import { systemClock } from '../../packages/sandbox/src/lifecycle/clock.ts';
import { images, makeWorkspace } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

const MIB = 1024 ** 2;

/** A command under way in a sandbox, with what it printed so far. */
export interface Handed {
  readonly sandbox: WaitingSandbox;
  readonly execution: Execution;
  readonly output: { text: string };
  readonly ended: Promise<Ending>;
}

/** A backend with a session of its own. Closing it removes everything it made. */
export class BackendHost implements AsyncDisposable {
  readonly backend: DockerBackend;
  readonly session: string;
  readonly #workspace = makeWorkspace();
  readonly #sandboxes = new Set<WaitingSandbox>();
  readonly #kept: Promise<unknown>[];

  readonly state: string;

  private constructor(
    backend: DockerBackend,
    session: string,
    kept: Promise<unknown>[],
    { egress, state }: { egress: EgressMounts; state: string },
  ) {
    this.egress = egress;
    this.state = state;
    this.backend = backend;
    this.session = session;
    this.#kept = kept;
  }

  readonly egress: EgressMounts;

  static async open(
    { socket }: Pick<TestEngine, 'socket'>,
    attachments: readonly Attachment[] = [],
  ): Promise<BackendHost> {
    const engine = await Engine.open({ socketPath: socket, signal: AbortSignal.timeout(60_000) });
    const kept: Promise<unknown>[] = [];
    const state = mkdtempSync('/var/tmp/acode-state-');
    const egress = new EgressMounts(state, process.getuid?.() ?? 1000);
    const backend = new DockerBackend({
      engine,
      source: 'test',
      attachments,
      egress,
      fileDirectory: '/var/tmp',
      owner: randomUUID(),
      clock: systemClock,
      observer: {
        created: () => undefined,
        started: () => undefined,
        leaving: () => undefined,
        networkRemoved: () => undefined,
        engineLost: () => undefined,
        engineFound: () => undefined,
      },
      createTimeoutMs: 20_000,
      retry: { attempts: 1, baseMs: 10, factor: 2 },
      closing: new AbortController().signal,
      keep: work => void kept.push(work.catch(() => undefined)),
      making: (_, make) => make(),
      removals: { begin: (id, remove) => remove(id, AbortSignal.timeout(60_000)) },
    });
    return new BackendHost(backend, `test-${randomUUID()}`, kept, { egress, state });
  }

  /** A plan, with what a test wants to be different. */
  async spec(changes: Partial<SandboxSpec>, reference = images.busybox): Promise<SandboxSpec> {
    const image = await this.backend.resolveImage(
      { image: { value: reference, layer: 'request', where: '' } } as Parameters<DockerBackend['resolveImage']>[0],
      AbortSignal.timeout(60_000),
    );
    const { dev, ino } = statSync(this.#workspace);
    const limits = {
      memoryBytes: 64 * MIB,
      swapBytes: 0,
      cpus: 1,
      pids: 64,
      openFiles: 256,
      tmpBytes: MIB,
      outputBytes: MIB,
    };
    const nonce = randomUUID();
    const now = Date.now();
    const name = `acode-test-${nonce}`;
    const labels = sandboxLabels({
      session: this.session,
      task: 'network',
      sandboxId: nonce,
      name,
      owner: this.session,
      host: 'test',
      uid: process.getuid?.() ?? 1000,
      profile: 'exec',
      level: 'docker',
      specHash: nonce,
      nonce,
      createdAt: new Date(now),
      expiresAt: new Date(now + 3600_000),
    });
    return {
      identity: { sandboxId: nonce, name, labels, correlationId: nonce },
      level: 'docker',
      image: { ...image, removed: [] },
      user: { uid: process.getuid?.() ?? 1000, gid: process.getgid?.() ?? 1000 },
      limits,
      runtime: null,
      network: { kind: 'none' },
      dns: [],
      ports: [],
      workdir: '/workspace',
      home: '/home/sandbox',
      mounts: [
        {
          purpose: 'workspace',
          source: this.#workspace,
          target: '/workspace',
          readOnly: false,
          identity: { device: dev, inode: ino },
        },
      ],
      caches: [],
      tmpfs: [
        { target: '/tmp', bytes: MIB, mode: '1777' },
        { target: '/run', bytes: MIB, mode: '0755' },
        { target: '/home/sandbox', bytes: MIB, mode: '0700' },
      ],
      hash: nonce,
      ...changes,
    };
  }

  /** A sandbox that was verified and handed a line for its shell. */
  async hand(script: string, changes: Partial<SandboxSpec>): Promise<Handed> {
    const signal = AbortSignal.timeout(60_000);
    const sandbox = await this.backend.prepare(await this.spec(changes), signal);
    this.#sandboxes.add(sandbox);
    await sandbox.verify(signal);
    const output = { text: '' };
    const take = (data: Buffer): void => void (output.text += data.toString());
    const io: CommandIo = { stdout: take, stderr: take };
    const handover = { command: script, cwd: '/workspace', env: {}, nonce: randomUUID() };
    const execution = await sandbox.execute(handover, io, signal);
    return { sandbox, execution, output, ended: execution.ended };
  }

  /** What a line for the shell prints, and how it ends. */
  async run(script: string, changes: Partial<SandboxSpec>): Promise<Ending & { readonly output: string }> {
    const handed = await this.hand(script, changes);
    try {
      const ending = await handed.ended;
      return { ...ending, output: handed.output.text };
    } finally {
      await this.remove(handed.sandbox);
    }
  }

  /** Removes one sandbox. */
  async remove(sandbox: WaitingSandbox): Promise<void> {
    this.#sandboxes.delete(sandbox);
    await sandbox[Symbol.asyncDispose]();
  }

  /** Removes what is still there, and waits for work in the background. */
  async settled(): Promise<void> {
    for (const sandbox of this.#sandboxes) await this.remove(sandbox);
    await Promise.all(this.#kept);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const sandbox of this.#sandboxes) await sandbox[Symbol.asyncDispose]();
    await Promise.all(this.#kept);
    const left = await this.backend.release();
    this.backend.close();
    for (const path of [this.#workspace, this.state]) rmSync(path, { recursive: true, force: true });
    if (left.length > 0) throw new Error(`left behind: ${left.map(({ id, reason }) => `${id} ${reason}`).join(', ')}`);
  }
}
