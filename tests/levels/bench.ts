// Sandboxes of a local level, made through the backend alone from a plan of the real planner: what the level itself does.

import { randomBytes, randomUUID } from 'node:crypto';
import { homedir } from 'node:os';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { directoriesOf } from '../../packages/sandbox/src/lifecycle/directories.ts';
import type { Command } from '../../packages/sandbox/src/contract/command.ts';
import type { Limits, MountRequest } from '../../packages/sandbox/src/contract/policy.ts';
import type { SandboxSpec } from '../../packages/sandbox/src/contract/spec.ts';
import type {
  Backend,
  Ending,
  Execution,
  WaitingSandbox,
  Weakening,
} from '../../packages/sandbox/src/isolation/backend.ts';
import { supervise } from '../../packages/sandbox/src/isolation/supervise.ts';
import { systemClock } from '../../packages/sandbox/src/lifecycle/clock.ts';
import { validateWorkspace } from '../../packages/sandbox/src/workspace/locate.ts';
import { EgressMounts } from '../../packages/sandbox/src/isolation/egress.ts';
import { planMounts } from '../../packages/sandbox/src/workspace/mounts.ts';

const MIB = 1024 ** 2;
const PATIENCE_MS = 60_000;

/** What a local backend is constructed with besides what only it knows. */
export const OPTIONS = {
  memory: '/nonexistent',
  egress: new EgressMounts('/nonexistent', process.getuid?.() ?? 1000),
  clock: systemClock,
  closing: new AbortController().signal,
  keep: (work: Promise<unknown>): void => void work.catch(() => undefined),
};

/** How a command ended, and what it printed. */
export interface Outcome extends Ending {
  readonly stdout: string;
  readonly stderr: string;
  readonly timedOut: boolean;
}

/** What a test wants to be different. */
export interface Wish {
  readonly limits?: Partial<Limits>;
  readonly mounts?: readonly MountRequest[];
  readonly readOnly?: boolean;
  readonly changes?: Partial<SandboxSpec>;
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string | Uint8Array;
  readonly timeoutMs?: number;
  readonly weakenings?: readonly Weakening[];
  readonly beforeCreate?: () => Promise<void>;
  readonly signal?: AbortSignal;
  /** Called once the command is under way. */
  readonly during?: (execution: Execution) => void;
  /** Called with what it prints, as it comes. */
  readonly onOutput?: (text: string, execution: Promise<Execution>) => void;
}

/** A workspace with a repository in it, and sandboxes of one backend on it. */
export class LevelBench implements AsyncDisposable {
  readonly workspace = mkdtempSync('/var/tmp/acode-test-');
  readonly backend: Backend;

  constructor(backend: Backend) {
    this.backend = backend;
    this.put('.git/HEAD', 'ref: refs/heads/main\n');
    this.put('.git/config', '[core]\n');
    mkdirSync(join(this.workspace, '.git/hooks'));
  }

  /** Writes a file of the workspace, on the host. */
  put(path: string, content: string | Uint8Array, mode = 0o644): string {
    const full = join(this.workspace, path);
    mkdirSync(dirname(full), { recursive: true });
    writeFileSync(full, content, { mode });
    return full;
  }

  async spec({ limits = {}, mounts = [], readOnly = false, changes = {} }: Wish = {}): Promise<SandboxSpec> {
    const user = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
    const directories = directoriesOf({ env: process.env, home: homedir(), uid: user.uid });
    const around = { engineSocket: '/nonexistent/docker.sock', environment: process.env };
    const planned = await planMounts({
      workspace: await validateWorkspace(this.workspace, directories, around),
      target: '/workspace',
      readOnly,
      additional: mounts,
      hostRoots: ['/var/tmp'],
      uid: user.uid,
    });
    const image = await this.backend.resolveImage(undefined as never, AbortSignal.timeout(PATIENCE_MS));
    const id = randomUUID();
    return {
      identity: { sandboxId: id, name: `acode-test-${id}`, labels: {}, correlationId: id },
      level: this.backend.level,
      image: { ...image, removed: [] },
      user,
      limits: {
        memoryBytes: 256 * MIB,
        swapBytes: 0,
        cpus: 1,
        pids: 64,
        openFiles: 256,
        tmpBytes: 4 * MIB,
        outputBytes: MIB,
        ...limits,
      },
      runtime: null,
      network: { kind: 'none' },
      dns: [],
      ports: [],
      workdir: '/workspace',
      home: '/home/sandbox',
      mounts: planned.mounts,
      caches: [],
      tmpfs: [
        { target: '/tmp', bytes: 4 * MIB, mode: '1777' },
        { target: '/run', bytes: MIB, mode: '0755' },
        { target: '/home/sandbox', bytes: 4 * MIB, mode: '0700' },
      ],
      hash: id,
      ...changes,
    };
  }

  /** A pre-started sandbox that was verified. */
  async waiting(wish: Wish = {}): Promise<WaitingSandbox> {
    const signal = wish.signal ?? AbortSignal.timeout(PATIENCE_MS);
    const weak = wish.weakenings || wish.beforeCreate;
    const backend = weak ? this.backend.weakened(wish.weakenings ?? [], wish.beforeCreate) : this.backend;
    const sandbox = await backend.prepare(await this.spec(wish), signal);
    try {
      await sandbox.verify(signal);
      return sandbox;
    } catch (error) {
      await sandbox[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Runs one command to its end. */
  async run(command: Command, wish: Wish = {}): Promise<Outcome> {
    await using sandbox = await this.waiting(wish);
    const signal = wish.signal ?? AbortSignal.timeout(PATIENCE_MS);
    const printed = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
    let under: (execution: Execution) => void = () => undefined;
    const underWay = new Promise<Execution>(resolve => (under = resolve));
    const take = (stream: keyof typeof printed) => (data: Buffer) => {
      printed[stream].push(data);
      wish.onOutput?.(data.toString(), underWay);
    };
    const handover = {
      command,
      cwd: wish.cwd ?? '/workspace',
      env: wish.env ?? {},
      nonce: randomBytes(16).toString('hex'),
    };
    const execution = await sandbox.execute(handover, { stdout: take('stdout'), stderr: take('stderr') }, signal);
    under(execution);
    wish.during?.(execution);
    if (wish.stdin !== undefined) await execution.write(wish.stdin);
    await execution.closeStdin();
    const limits = { timeoutMs: wish.timeoutMs ?? PATIENCE_MS, graceMs: 300, sandboxId: sandbox.id };
    const { ending, timedOut } = await supervise(execution, limits, systemClock);
    const text = (chunks: readonly Buffer[]): string => Buffer.concat([...chunks]).toString();
    return { ...ending, timedOut, stdout: text(printed.stdout), stderr: text(printed.stderr) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend.release();
    this.backend.close();
    rmSync(this.workspace, { recursive: true, force: true });
  }
}
