// The one interface that every isolation level implements. The state of a sandbox is its type.

import type { SandboxDetails, SandboxInfo, Status } from '../contract/host.ts';
import type { Level } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { PublishedPort, Usage } from '../contract/result.ts';
import type { ImageFacts, SandboxSpec } from '../contract/spec.ts';
import type { Handover } from './handover/script.ts';

/** What a backend can really do on this host. */
export interface Capability {
  readonly level: Level;
  readonly available: boolean;
  readonly reason?: string;
  readonly cpus: number;
}

/** A place where commands run. */
export interface Backend {
  readonly level: Level;
  /** Where it is reached: never to be given to a sandbox. */
  readonly socket: string;
  /** Does the thing rather than asking whether it could be done. */
  probe(signal: AbortSignal): Promise<Capability>;
  /** Resolves what the policy names to what cannot move any more. */
  resolveImage(policy: EffectivePolicy, signal: AbortSignal): Promise<ImageFacts>;
  /** The request this backend would make for a spec, for people to read. */
  describe(spec: SandboxSpec): unknown;
  /** Created, started, waiting; nothing untrusted has run. */
  prepare(spec: SandboxSpec, signal: AbortSignal): Promise<WaitingSandbox>;
  list(signal: AbortSignal): Promise<SandboxInfo[]>;
  /** One of our sandboxes by name or id, as it is now; null where there is none. */
  inspect(reference: string, signal: AbortSignal): Promise<SandboxDetails | null>;
  /** The engine behind the backend. */
  engine(signal: AbortSignal): Promise<NonNullable<Status['engine']>>;
  remove(id: string, signal: AbortSignal): Promise<void>;
  close(): void;
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
  /** Hands over the one command it will ever run. */
  execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Where the output of a command goes as it comes. */
export interface CommandIo {
  stdout(data: Buffer): void;
  stderr(data: Buffer): void;
}

/** A command that was handed over. */
export interface Execution {
  write(data: Uint8Array | string): Promise<void>;
  closeStdin(): Promise<void>;
  /** Sends a signal to every process of the command. One that has ended already is no error. */
  kill(signal: string): Promise<void>;
  /** Settles once, when the command has ended and all its output was passed on. */
  readonly ended: Promise<Ending>;
}

/** How a command ended. */
export interface Ending {
  readonly exitCode: number;
  /** Why the command never started, where it did not. */
  readonly neverStarted?: 'cwd' | 'missing' | 'forbidden';
  readonly oomKilled: boolean;
  readonly pidsRefused: boolean;
  readonly usage?: Usage;
}
