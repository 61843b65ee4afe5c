// Result of a run.

import type { EgressConnection } from './egress.ts';
import type { Denial } from './denials.ts';
import type { Level } from './levels.ts';

/** A limit that a run can hit, by name. */
export type LimitName = 'memory' | 'pids' | 'time' | 'output' | 'disk' | 'requests' | 'tokens';

/** Something a run left in the workspace that a tool on the host might execute or follow. */
export interface RiskyChange {
  /** Relative to the workspace; for another directory that was mounted writable, absolute as inside the sandbox: `/other/.git`. */
  readonly path: string;
  /** Why the change is risky. */
  readonly kind: RiskyKind;
  /** The same as a sentence, for a person. */
  readonly reason: string;
}

/** Why a change is risky. `scan-incomplete` means that the scan did not reach everything: too many files, or no permission. */
export type RiskyKind =
  | 'git-repository'
  | 'git-settings'
  | 'symlink-out'
  | 'hard-link'
  | 'privileged-file'
  | 'special-file'
  | 'package-scripts'
  | 'build-file'
  | 'ci-file'
  | 'editor-config'
  | 'agent-config'
  | 'shell-startup'
  | 'shadowed-program'
  | 'scan-incomplete';

const EVERY_KIND: Readonly<Record<RiskyKind, true>> = {
  'git-repository': true,
  'git-settings': true,
  'symlink-out': true,
  'hard-link': true,
  'privileged-file': true,
  'special-file': true,
  'package-scripts': true,
  'build-file': true,
  'ci-file': true,
  'editor-config': true,
  'agent-config': true,
  'shell-startup': true,
  'shadowed-program': true,
  'scan-incomplete': true,
};

/** Whether a text is the name of a rule for risky changes. */
export function isRiskyKind(text: string): text is RiskyKind {
  return Object.hasOwn(EVERY_KIND, text);
}

/** Every rule for risky changes. */
export const RISKY_KINDS: readonly RiskyKind[] = Object.keys(EVERY_KIND).filter(isRiskyKind);

/**
 * How many files a run made or changed, by kind. Each file counts once, under the first kind that fits. A list of risky names is
 * never complete: these numbers distinguish "no changes" from "a hundred changed files that no rule matches". Links and special
 * files count by their names. Directories do not count, nor does the content of a directory that is reported as a whole, such
 * as a git repository. If `scan` is not `'complete'`, each number is a lower bound.
 */
export interface ChangeCounts {
  /** Files with an executable bit. */
  readonly executable: number;
  /** Files whose name, or that of a directory they are in, begins with a dot. */
  readonly hidden: number;
  /** Files that configure tools: those with a risky name, and settings such as `.json`, `.yml`, `.toml`. */
  readonly configuration: number;
  /** Files with the extension of a programming language, such as `.ts`, `.py`, `.sh`. */
  readonly source: number;
  /** All others: documents, images, data, compiled code. */
  readonly other: number;
}

/**
 * How much of the workspace the scan after the run covered. `'complete'`: all of it, or the run could not write there.
 * `'incomplete'`: `riskyChanges` has an entry of kind `scan-incomplete` that says why. `'continuing'`: the scan continues
 * in the background and reports later.
 */
export type ScanState = 'complete' | 'continuing' | 'incomplete';

/** A published port, as it came out. */
export interface PublishedPort {
  /** The port inside. */
  readonly container: number;
  /** On 127.0.0.1. */
  readonly host: number;
  /** The protocol. */
  readonly protocol: 'tcp' | 'udp';
}

/** What a run used. */
export interface Usage {
  /** The most memory at once, in bytes. */
  peakMemoryBytes: number;
  /** CPU time, in milliseconds. */
  cpuMs: number;
  /** How long the CPU limit held the command back. */
  throttledMs: number;
  /** Bytes received from the network; absent without one. */
  rxBytes?: number;
  /** Bytes sent to the network; absent without one. */
  txBytes?: number;
}

/** What came of one artifact. */
export interface ArtifactReport {
  /** The path inside, as it was asked for. */
  readonly from: string;
  /** The path in the workspace, as it was asked for. */
  readonly to: string;
  /** How many files were brought out. */
  readonly files: number;
  /** How many directories were made. */
  readonly directories: number;
  /** The size of the files, in bytes. */
  readonly bytes: number;
  /** What was left out, and why: links, devices and names that lead elsewhere. */
  readonly skipped: readonly {
    /** The path, relative to the artifact. */
    readonly path: string;
    /** Why it was left out. */
    readonly reason: string;
  }[];
  /** Why nothing of it came, where nothing did. */
  readonly error?: {
    /** The code of the error, such as `ACODE-SBX-017`. */
    readonly code: string;
    /** The error as a sentence. */
    readonly message: string;
  };
}

/** The result of one run. */
export interface RunResult {
  /** The command’s own exit status; null if it was killed by us (timeout, cancel). */
  exitCode: number | null;
  /** What the command printed to standard output, as UTF-8 text, up to `policy.limits.outputBytes`. */
  stdout: string;
  /** What the command printed to standard error, as UTF-8 text, up to `policy.limits.outputBytes`. */
  stderr: string;
  /** The bytes, where the output was not text. */
  stdoutBytes?: Uint8Array;
  /** The bytes, where the output was not text. */
  stderrBytes?: Uint8Array;
  /** Bytes beyond the output limit. */
  dropped: {
    /** Bytes of standard output beyond the limit. */
    stdout: number;
    /** Bytes of standard error beyond the limit. */
    stderr: number;
  };
  /** Whether the command hit its time limit. `exitCode` is then null. */
  timedOut: boolean;
  /**
   * Whether the kernel killed a process of the command because the memory limit was reached. The command itself may have
   * gone on.
   */
  oomKilled: boolean;
  /** The limit that was hit, if one was. */
  limitExceeded?: LimitName;
  /** What the sandbox denied the command, with the rule and the remedy. Empty if nothing was denied. */
  denials: Denial[];
  /** The sandbox’s UUID. */
  sandboxId: string;
  /** The engine’s id of the container; absent at levels without an engine. */
  containerId?: string;
  /** The isolation level that it ran at. */
  level: Level;
  /** The engine’s runtime by name, such as `runsc`; absent for the engine’s default. */
  runtime?: string;
  /** The image that it ran in; absent at levels without images. */
  image?: {
    /** The image as it was asked for, such as `node:20-alpine`. */
    reference: string;
    /** The digest in its registry; the image’s id if it has none. */
    digest: string;
  };
  /** How long the command ran, in milliseconds. */
  durationMs: number;
  /** Where the time went, in milliseconds. */
  timings: {
    /** Waiting for a free slot. */
    queueMs: number;
    /** Obtaining and verifying a sandbox. */
    obtainMs: number;
    /** Running the command. */
    runMs: number;
  };
  /** Whether the sandbox was waiting before the command was asked for. */
  warm: boolean;
  /** What the command used; absent where it cannot be measured. */
  usage?: Usage;
  /** What the run left in the workspace that tools of the host might execute or follow. Empty if there is nothing. */
  riskyChanges: RiskyChange[];
  /** How many files in the workspace the run made or changed, by kind; all zeros if it could not write there. */
  changed: ChangeCounts;
  /** How much of the workspace the scan for `riskyChanges` and `changed` covered. */
  scan: ScanState;
  /** What was brought out of the sandbox, in the order it was asked for. */
  artifacts?: ArtifactReport[];
  /**
   * Paths of the workspace that were present and empty inside, because they hold secrets; absent where nothing was masked. They are
   * relative to the workspace.
   *
   * @example ['.env', 'deploy/server.key']
   */
  masked?: string[];
  /** Ports that were reachable from the host’s loopback while the command ran. */
  ports?: PublishedPort[];
  /** The connections of a command with an allow-list, per host and outcome; absent without such a list. */
  network?: EgressConnection[];
  /** The fork that the command wrote; absent where it wrote the workspace itself, or changed nothing in a fork that was new. */
  fork?: ForkResult;
  /** Ties the result to the log lines of its run. */
  correlationId: string;
  /** The sequence number of the run’s intent in the audit log. */
  auditSequence?: number;
}

/** What a command left in a fork of the workspace. */
export interface ForkResult {
  /** The fork’s id. */
  id: string;
}

/** The result of one run at level web, which stands outside the order of levels. Its stdout contains stderr too. */
export type WebRunResult = Omit<RunResult, 'level'> & {
  /** The level `web`. */
  level: 'web';
};

/** A command that runs, with its streams as they come. */
export interface RunningCommand extends AsyncDisposable {
  /** Ports of the command that can be reached on 127.0.0.1, as long as it runs. */
  readonly ports: readonly PublishedPort[];
  /** What the command prints, from its first byte on, up to the output limit; a slow reader loses nothing. */
  readonly stdout: AsyncIterable<Uint8Array>;
  /** What the command prints, from its first byte on, up to the output limit; a slow reader loses nothing. */
  readonly stderr: AsyncIterable<Uint8Array>;
  /** Writes to the command’s standard input. */
  write(data: Uint8Array | string): Promise<void>;
  /** Ends the command’s standard input. */
  closeStdin(): Promise<void>;
  /** Sends a signal to every process of the command; SIGTERM by default. */
  kill(signal?: string): Promise<void>;
  /** Settles when the command has ended; as {@link RunResult} of `run`. */
  readonly result: Promise<RunResult>;
}
