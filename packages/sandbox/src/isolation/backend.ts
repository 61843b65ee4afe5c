// The one interface that every isolation level implements. The state of a sandbox is its type.

import type { Duplex, Readable } from 'node:stream';
import type { CacheVolume } from '../contract/caches.ts';
import type { EngineResource, SandboxDetails, SandboxInfo, SandboxUsage, Status } from '../contract/host.ts';
import type { PullProgress, RegistryLogin } from '../contract/images.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { PublishedPort, Usage } from '../contract/result.ts';
import type { TerminalSize } from '../contract/sandbox.ts';
import type { RestPeriod } from '../contract/scan.ts';
import type { ImageFacts, SandboxSpec } from '../contract/spec.ts';
import type { Handover } from './handover/script.ts';

/** What a backend can really do on this host. */
export interface Capability {
  readonly level: Level;
  readonly available: boolean;
  readonly reason?: string;
  /** What to do about it, as a sentence. */
  readonly remedy?: string;
  /** Whether it did not answer in time: it is asked again, and nothing follows from it. */
  readonly unknown?: boolean;
  readonly cpus: number;
  /** The memory of the machine; absent where it is this one’s. */
  readonly memoryBytes?: number;
  /** Whether it reports at once that the kernel killed a process for lack of memory; absent where it does not. */
  readonly reportsOom?: boolean;
  /**
   * Disk throughput that it can limit: all of it, or all but writes that a program leaves to the kernel (control groups of
   * version 1). Absent where it limits none.
   */
  readonly throughput?: 'all' | 'waiting';
  /** Where the engine keeps its images and containers; absent where it does not say. */
  readonly rootDirectory?: string;
  /** Every runtime the engine lists, with the level it is for. */
  readonly runtimes: Readonly<Record<string, Level>>;
  /** The runtime of a sandbox that names none. */
  readonly standardRuntime: string;
  /** Runtimes that do not hold what is mounted read-only, each with the argument it lacks: a workspace with `.git` is refused. */
  readonly unprotecting?: Readonly<Record<string, string>>;
}

/**
 * A protection that the doctor’s controls take away from a sandbox of their own, to see that a probe works where it is
 * missing. Not part of any policy: nothing a caller or a file says can name one.
 */
export type Weakening =
  | 'seccomp'
  | 'no-new-privileges'
  | 'read-only-root'
  | 'protected-paths'
  | 'masks'
  | 'network'
  | 'pids'
  | 'memory'
  | 'tmpfs-size'
  | 'open-files'
  | 'environment'
  | 'verification';

/** What the engine says about itself and its host, for the doctor. */
export interface Diagnosis {
  readonly engine: NonNullable<Status['engine']>;
  /** As in {@link Capability}. */
  readonly unprotecting?: Readonly<Record<string, string>>;
  readonly kernel: string;
  readonly architecture: string;
  /** The engine’s parts, such as its runtime, and their versions. */
  readonly components: readonly { readonly name: string; readonly version: string }[];
  /** Where the engine keeps its images and containers. */
  readonly rootDirectory: string;
  /** Which limits its kernel can hold a sandbox to. */
  readonly limits: { readonly memory: boolean; readonly swap: boolean; readonly pids: boolean; readonly cpu: boolean };
  /** The engine’s own clock. */
  readonly systemTime: string;
  readonly warnings: readonly string[];
  readonly sandboxes: readonly SandboxInfo[];
  readonly networks: readonly { readonly name: string; readonly labels: Readonly<Record<string, string>> }[];
  /** Whether the image that was asked about is there. */
  readonly imagePresent: boolean;
}

/** A backend whose sandboxes lack something. Disposing of it leaves the backend it came from open. */
export interface WeakenedBackend extends Backend, AsyncDisposable {}

/**
 * How forks are mounted: by the engine, as a volume; by bubblewrap itself; or by `mount` in namespaces that `unshare` makes. Or why
 * they cannot be, and what to do about it.
 */
export type ForkWay =
  | {
      readonly way: 'volume' | 'bubblewrap' | 'unshare';
      /** Whether what is written can go to memory. */ readonly inMemory?: true;
    }
  | { readonly impossible: string; readonly remedy: string };

/** A place where commands run. */
export interface Backend {
  readonly level: Level;
  /** What everybody who uses the level should know. */
  readonly notes: readonly string[];
  /** Does the thing rather than asking whether it could be done. */
  probe(signal: AbortSignal): Promise<Capability>;
  /** Resolves what the policy names to what cannot move any more; for levels without images, what stands for one. */
  resolveImage(policy: EffectivePolicy, signal: AbortSignal): Promise<ImageFacts>;
  /** The request this backend would make for a spec, for people to read. */
  describe(spec: SandboxSpec): unknown;
  /**
   * How it mounts the fork of a workspace, tried rather than asked; absent where it never can. `directory` is where forks are kept.
   */
  forkWay?(directory: string, signal: AbortSignal): Promise<ForkWay>;
  /** A command has ended: what it wrote to memory is copied to the layer of its fork, which the plan names. Absent where none does. */
  collect?(spec: SandboxSpec): Promise<void>;
  /** Created, started, waiting; nothing untrusted has run. */
  prepare(spec: SandboxSpec, signal: AbortSignal): Promise<WaitingSandbox>;
  /**
   * The same backend without some protections, for the doctor’s controls. `beforeCreate` is called when everything was
   * validated and nothing is made yet: where an attacker would exchange what was validated.
   */
  weakened(weakenings: readonly Weakening[], beforeCreate?: () => Promise<void>): WeakenedBackend;
  /** Removes what sandboxes shared, once the last of them is gone; what could not be removed comes back. */
  release(): Promise<readonly { readonly id: string; readonly reason: string }[]>;
  close(): void;
}

/** Whether there is a cache: `filling` while a run fills it, `unsupported` where the engine cannot make layers over one. */
export type CacheState = 'ready' | 'filling' | 'absent' | 'unsupported';

/**
 * Reads what is at a path of an image, as a tar that its maker may have made to do harm: null where nothing is there, and
 * `refused` where the engine does not give it. Links are followed within the image, except at the end of the path.
 */
export type ImageReader = (path: string) => Promise<{ readonly tar: Readable } | { readonly refused: string } | null>;

/** What is at a path of an image, where a link at its end is not followed; `other` also where the engine does not say. */
export type ImageKinds = (path: string) => Promise<'absent' | 'directory' | 'file' | 'symbolic link' | 'other'>;

/** A backend whose sandboxes are on an engine that outlives us: the truth about what exists is asked of it. */
export interface EngineBackend extends Backend {
  /** Where it is reached: never to be given to a sandbox. */
  readonly socket: string;
  list(signal: AbortSignal): Promise<SandboxInfo[]>;
  /** One of our sandboxes by name or id, as it is now; null where there is none. */
  inspect(reference: string, signal: AbortSignal): Promise<SandboxDetails | null>;
  /** What one of our sandboxes uses now; null where it does not run, or the engine does not say. */
  usage(id: string, signal: AbortSignal): Promise<Pick<SandboxUsage, 'memoryBytes' | 'cpuMs'> | null>;
  /** The engine behind the backend. */
  engine(signal: AbortSignal): Promise<NonNullable<Status['engine']>>;
  remove(id: string, signal: AbortSignal): Promise<void>;
  /** Stops every process of a container where it is, or lets them go on. */
  freeze(id: string, action: 'pause' | 'unpause', signal: AbortSignal): Promise<void>;
  /** A sandbox that was kept, made by whatever process; it must run. */
  reopen(spec: SandboxSpec, id: string, signal: AbortSignal): Promise<OpenSandbox>;
  /** The networks and volumes of ours on the engine, whoever made them. */
  belongings(signal: AbortSignal): Promise<EngineResource[]>;
  /** One of them as it is now; null where there is none any more. */
  belonging(of: Pick<EngineResource, 'kind' | 'id'>, signal: AbortSignal): Promise<EngineResource | null>;
  removeBelonging(of: Pick<EngineResource, 'kind' | 'id'>, signal: AbortSignal): Promise<void>;
  /** Why no sandbox can have services beside it on this engine; null where it can. */
  readonly withoutServices: string | null;
  /** The engine’s images. */
  readonly images: ImageStore;
  /** Images made of files and a template of acode’s own. */
  readonly builds: ImageBuilds;
  /** What there is of a user’s caches, in the order they were asked for. */
  caches(volumes: readonly CacheVolume[], uid: number, signal: AbortSignal): Promise<CacheState[]>;
  /** Reads files of a plan’s image, from a container that is made for that, never started, and removed at once. */
  readImage<Value>(
    spec: SandboxSpec,
    use: (read: ImageReader, kindAt: ImageKinds) => Promise<Value>,
    signal: AbortSignal,
  ): Promise<Value>;
  /** Everything about the engine that the doctor judges, and whether it has an image. */
  diagnose(image: string, signal: AbortSignal): Promise<Diagnosis>;
}

/** One pull of one image. */
export interface PullRequest {
  /** In full, with registry and tag or digest: an engine must not make anything of a short name. */
  readonly reference: string;
  /** What it was asked for by. */
  readonly shownAs: string;
  /** The host of the registry, for people. */
  readonly registry: string;
  readonly login: RegistryLogin | null;
  /** For all tries together. */
  readonly deadlineMs: number;
  /** What is left of it, where others were waited for before. */
  readonly leftMs?: number;
  /** The longest silence of the engine. */
  readonly silenceMs?: number;
  readonly onProgress?: (progress: PullProgress) => void;
  /** Called when a try failed and there will be another, after a pause. */
  readonly onRetry?: (retry: PullRetry) => void;
}

/** A try that failed, and the pause before the next. */
export interface PullRetry {
  /** Which one failed, from 1. */
  readonly attempt: number;
  readonly mostAttempts: number;
  /** In the words of whoever refused, without secrets. */
  readonly reason: string;
  readonly pauseMs: number;
  /** Where nothing arrived because there was no connection to the registry: which one, and why in few words. */
  readonly unreached?: { readonly registry: string; readonly fault: string };
}

/** An image as the engine lists it. */
export interface StoredImage {
  readonly id: string;
  readonly tags: readonly string[];
  readonly digests: readonly string[];
  readonly sizeBytes: number;
  readonly createdAt: string;
  /** Containers that use it, whoever made them, running or not. */
  readonly containers: number;
}

/** The images of an engine. */
export interface ImageStore {
  /** What tells this engine from every other, wherever its socket is. */
  engineId(signal: AbortSignal): Promise<string>;
  /** What a reference means here; null where the engine has no such image. Never pulls. */
  find(reference: string, signal: AbortSignal): Promise<ImageFacts | null>;
  /** Pulls; rejects with ACODE-SBX-002 where that fails. */
  pull(request: PullRequest, signal: AbortSignal): Promise<void>;
  list(signal: AbortSignal): Promise<StoredImage[]>;
  /** What all images take on disk; null where the engine does not say. */
  diskBytes(signal: AbortSignal): Promise<number | null>;
  /** Takes a name from an image, and the image with its last one; one that a container uses is kept, and that is an error. */
  remove(reference: string, signal: AbortSignal): Promise<void>;
}

/** An image, as whoever builds on it has to know it. */
export interface BuiltImage {
  readonly id: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Its layers by their content, lowest first. */
  readonly layers: readonly string[];
  /** What it has executed in the build of whatever is built on it. */
  readonly triggers: readonly string[];
}

/** An image to be made. */
export interface ImageBuild {
  /** The name it gets. */
  readonly reference: string;
  /** What the template builds on. */
  readonly base: BuiltImage;
  /** The name of the template in the context. */
  readonly template: string;
  readonly labels: Readonly<Record<string, string>>;
  /** A tar. It is always used up or destroyed. */
  readonly context: Readable;
  readonly timeoutMs: number;
  readonly onOutput?: (text: string) => void;
}

/** Where images are made. */
export interface ImageBuilds {
  /** Why none can be made on this engine; null where they can. */
  readonly impossible: string | null;
  /** What a name or an id means here; null where the engine has no such image. */
  find(reference: string, signal: AbortSignal): Promise<BuiltImage | null>;
  /** Makes an image: one layer on its base, without a network. Rejects where the engine made anything else. */
  build(build: ImageBuild, signal: AbortSignal): Promise<BuiltImage>;
  /** Removes one that nothing uses; one in use stays. */
  remove(id: string, signal: AbortSignal): Promise<void>;
}

/** A sandbox that has run nothing yet. Disposing of it removes it. */
export interface WaitingSandbox extends AsyncDisposable {
  /** The backend’s own id of it. */
  readonly id: string;
  readonly specHash: string;
  /** Ports that can be reached on the host’s loopback; known once it was verified. */
  readonly ports: readonly PublishedPort[];
  /** Holds engine and kernel against the spec; throws a security error at the first difference. */
  verify(signal: AbortSignal): Promise<void>;
  /** How it is kept for a later command; absent where nothing waits yet, so that it cannot be. */
  readonly keeping?: Keeping;
  /**
   * Starts the forwarder of an allow-list; its standard streams carry the frames of its connections. Absent where the forwarder is
   * started with the command and reaches a socket of this machine, and where there is no allow-list.
   */
  readonly openForwarder?: (signal: AbortSignal) => Promise<Duplex>;
  /** Hands over the one command it will ever run. */
  execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution>;
  /**
   * Makes it one that stays, in place of handing over a command; with `outlives`, it goes on when this process is gone.
   * Absent where it cannot be.
   */
  keepOpen?(how: { readonly outlives: boolean }, signal: AbortSignal): Promise<OpenSandbox>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A sandbox that stays: commands run in it one after another and beside each other. Disposing of it removes it. */
export interface OpenSandbox extends AsyncDisposable {
  /** The backend’s own id of it. */
  readonly id: string;
  readonly ports: readonly PublishedPort[];
  /** Settles when it is gone, whoever ended it, with the reason in words. */
  readonly gone: Promise<string>;
  /** What acode itself has done inside. */
  readonly inside: Inside;
  /** A command is about to be started: what it needs of the sandbox may be made ready meanwhile. */
  expect(): void;
  /** Starts a command. */
  start(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<OpenExecution>;
  /** Starts a command with a terminal, all of whose output is `stdout`. */
  startTerminal(handover: Handover, size: TerminalSize, io: CommandIo, signal: AbortSignal): Promise<OpenExecution>;
  /** Stops every process inside for good; only what acode starts from then on does anything. */
  quiet(signal: AbortSignal): Promise<void>;
  /** Lets go of it without removing it. What was given up before is ended inside first. */
  leave(): Promise<void>;
  /** Removes it, for a reason that whoever uses it is told. */
  remove(reason: string): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A command in a sandbox that stays. */
export interface OpenExecution extends Execution {
  /** Its first process, as the sandbox counts. */
  readonly pid: number;
  /** Gives its terminal another size; absent where it has none. */
  resize?(size: TerminalSize): Promise<void>;
}

/** What is known of a sandbox while it waits for longer. */
export interface Keeping {
  /** Settles when it cannot be given a command any more: its process has ended, or its engine is gone. */
  readonly lost: Promise<unknown>;
  /**
   * Compares what may have changed since it was verified, when its command is there; throws at the first difference. It is
   * on the way of a command that wants to be quick: what cannot change is not looked at again.
   */
  recheck(signal: AbortSignal): Promise<void>;
  /** The time up to now in which nothing ran in it; null where that is not known. */
  rest(): RestPeriod | null;
}

/** Where the output of a command goes as it comes. */
export interface CommandIo {
  stdout(data: Buffer): void;
  stderr(data: Buffer): void;
  /** Settles when whoever reads is not far behind; where it is absent, there is always room. */
  room?(): Promise<void>;
}

/** A command that was handed over. */
export interface Execution {
  write(data: Uint8Array | string): Promise<void>;
  closeStdin(): Promise<void>;
  /** Sends a signal to every process of the command. One that has ended already is no error. */
  kill(signal: string): Promise<void>;
  /** Kills every process of the sandbox without its engine, where this machine’s kernel lets us. `kill` is still needed. */
  halt?(): void;
  /** Stops every process of the sandbox where it is; absent where that cannot be done. */
  pause?(): Promise<void>;
  /** Lets them go on. */
  resume?(): Promise<void>;
  /** Takes the command’s network away while it goes on; without one, nothing. */
  disconnect(): Promise<void>;
  /** Settles once, when the command has ended and all its output was passed on. */
  readonly ended: Promise<Ending>;
  /** Settles when no process of the sandbox is left; rejects where that cannot be known. A command may end before. */
  readonly dead: Promise<unknown>;
  /** Throws where what the sandbox has mounted is not what it was verified with; absent where it is watched by others, or cannot be. */
  readonly assertSame?: () => void;
  /** Calls `act` when the kernel kills a process of the sandbox for lack of memory; returns what ends that. */
  readonly onOutOfMemory?: (act: () => void) => () => void;
  /** Where the sandbox stays and is gone before its command: settles when nothing in it goes on, or nobody here has it. */
  readonly over?: Promise<unknown>;
}

/** How a command ended. */
export interface Ending {
  readonly exitCode: number;
  /** Why the command never started, where it did not. */
  readonly neverStarted?: 'cwd' | 'missing' | 'forbidden' | 'network' | 'ended';
  readonly oomKilled: boolean;
  readonly pidsRefused: boolean;
  readonly usage?: Usage;
}

// What acode itself has done inside a sandbox that stays: programs of a fixed argument vector, never a line for a shell that
// somebody’s words are part of.

/** How a program inside ended. */
export interface InsideEnd {
  readonly exitCode: number;
  /** The beginning of what it printed on standard error, as text. */
  readonly stderr: string;
}

/** What a program inside printed, and how it ended. */
export interface InsideResult extends InsideEnd {
  readonly stdout: Buffer;
}

/** A program inside while it runs. */
export interface InsideProgram {
  /** What it prints. When it is not read, the program waits. */
  readonly stdout: Readable;
  /** Resolves when the bytes are on their way, so awaiting each write is back-pressure. */
  write(data: Uint8Array | string): Promise<void>;
  closeStdin(): Promise<void>;
  /** Settles when it has ended and `stdout` was read to its end. */
  readonly ended: Promise<InsideEnd>;
  /** Ends it, and every process it started. */
  destroy(): void;
}

/** The inside of one sandbox. */
export interface Inside {
  /**
   * Runs a program to its end. Rejects with ACODE-SBX-015 where the image has no such program, with ACODE-FIL-003 where it
   * prints more than `maxBytes` (16 MiB unless told otherwise), and with ACODE-SBX-025 where the sandbox is gone.
   */
  call(
    argv: readonly string[],
    options: { readonly input?: Uint8Array | string; readonly maxBytes?: number; readonly signal: AbortSignal },
  ): Promise<InsideResult>;
  /** Starts a program. */
  open(argv: readonly string[], signal: AbortSignal): Promise<InsideProgram>;
}
