// The audit log as its readers and writers see it: what a record says, and what can be asked of the chain.

import type { EgressConnection } from './egress.ts';
import type { RemovalReason } from './events.ts';
import type { KpiReport } from './host.ts';
import type { Level, Risk } from './levels.ts';
import type { ChangeCounts, RiskyKind, ScanState } from './result.ts';

/** What a record is about. */
export const AUDIT_KINDS = ['intent', 'creation', 'outcome', 'refusal', 'removal', 'event', 'checkpoint'] as const;

/** One of {@link AUDIT_KINDS}. */
export type AuditKind = (typeof AUDIT_KINDS)[number];

/** What was done, or was about to be. */
export type AuditOperation =
  | 'open'
  | 'run'
  | 'create'
  | 'start'
  | 'exec'
  | 'stop'
  | 'kill'
  | 'remove'
  | 'pull'
  | 'build'
  | 'prune'
  | 'cleanup'
  | 'uninstall'
  | 'scan'
  | 'trust'
  | 'config'
  | 'apply'
  | 'patch'
  | 'branch'
  | 'network'
  | 'approve'
  | 'deny';

/** What every entry says: which operation it belongs to. */
export interface AuditContext {
  /** The operation that it belongs to. */
  readonly correlationId: string;
  /** What was done, or was about to be. */
  readonly operation: AuditOperation;
  /** The session that did it. */
  readonly sessionId?: string;
  /** The task it was done for, if the request named one. */
  readonly taskId?: string;
}

/** What is known about a sandbox, as far as it is known. Secrets are taken out of every text before it is written. */
export interface AuditSandbox {
  /** The sandbox’s UUID. */
  readonly sandboxId?: string;
  /** The isolation level. */
  readonly sandbox_level?: Level;
  /** The profile whose limits count, such as `dev`. */
  readonly profile?: string;
  /** The engine’s runtime; null for its default. */
  readonly runtime?: string | null;
  /** The engine’s id of the container. */
  readonly containerId?: string;
  /** The container’s name. */
  readonly containerName?: string;
  /** The image, as it was asked for. */
  readonly image?: string;
  /** The digest it was resolved to. */
  readonly imageDigest?: string;
  /** The services beside it. */
  readonly services?: readonly {
    /** The name that it has inside. */
    readonly name: string;
    /** The image, as it was asked for. */
    readonly image: string;
    /** The digest it was resolved to. */
    readonly imageDigest: string;
  }[];
  /** The argument vector; secrets are masked and long ones are cut. */
  readonly command?: readonly string[];
  /** The names of the variables that are set; a value is never written. */
  readonly env?: readonly string[];
  /** `none`, `bridge`, or the name of a network. */
  readonly network?: string;
  /** The limits, by name. */
  readonly limits?: Readonly<Record<string, number>>;
  /** What of the host it is given. */
  readonly mounts?: readonly {
    /** The path inside. */
    readonly target: string;
    /** Read-only or writable. */
    readonly mode: 'ro' | 'rw';
  }[];
  /** The user inside, as `uid:gid`. */
  readonly user?: string;
  /** The risk of the command, after every rule. */
  readonly risk?: Risk;
  /** The rules that raised the risk. */
  readonly riskReasons?: readonly string[];
  /** The weakest level that this risk may run at. */
  readonly requiredLevel?: Level;
  /** Hash of the effective policy. */
  readonly policyHash?: string;
  /** Hash of what the sandbox is to be. */
  readonly specHash?: string;
  /** Hash of the exact request to the engine. */
  readonly requestHash?: string;
  /** The workspace, as an absolute path. */
  readonly workspace?: string;
}

/** Written before a command is handed over: what will run, and why it may. */
export interface AuditIntent extends AuditContext, AuditSandbox {
  /** An intent. */
  readonly kind: 'intent';
  /** The isolation level. */
  readonly sandbox_level: Level;
  /** The argument vector; secrets are masked and long ones are cut. */
  readonly command: readonly string[];
  readonly policyHash: string;
  /** A fingerprint of command, working directory, variables and input as they were given, whatever is masked or cut in the text. */
  readonly commandHash: string;
  /** The working directory inside. */
  readonly cwd: string;
  /** What the command reads: nothing, text that is part of `commandHash`, or a stream whose content is not known yet. */
  readonly stdin: 'none' | 'given' | 'stream';
  /** Why the level is what it is: `allowed`, or the weaker level that the user’s own configuration accepted. */
  readonly decision: string;
}

/** A risky change as a record names it. */
export interface AuditChange {
  /** Why the change is risky. */
  readonly kind: RiskyKind;
  /** Relative to the workspace; cut where it is very long. */
  readonly path: string;
}

/** What a scan of the workspace found, as far as a record has room for it. Records of older versions lack these fields. */
export interface AuditFindings {
  /** At most 64, each kind in turn; absent where there were none. */
  readonly riskyChanges?: readonly AuditChange[];
  /** How many risky changes there were in all; absent where there were none. */
  readonly riskyChangesTotal?: number;
  /** How many files changed, by kind. */
  readonly changed?: ChangeCounts;
  /** How much of the workspace was scanned. */
  readonly scan?: ScanState;
  /** Why not everything was scanned; absent where everything was. */
  readonly scanReason?: string;
}

/** Written after it: what became of an intent. */
export interface AuditOutcome extends AuditContext, AuditFindings, Partial<AuditProvision> {
  /** An outcome. */
  readonly kind: 'outcome';
  /** The sequence number of the intent. */
  readonly intent: number;
  /** The command’s exit status; null if acode killed it or it never started. */
  readonly exitCode: number | null;
  /** How long the command took, in milliseconds. */
  readonly durationMs: number;
  /** Whether the kernel killed a process of it for want of memory. */
  readonly oomKilled?: boolean;
  /** Whether it hit its time limit. */
  readonly timedOut?: boolean;
  /** The code of the error that the caller got, if there was one. */
  readonly errorCode?: string;
  /** The engine’s id of the container, if there was one. */
  readonly containerId?: string;
  /**
   * The connections of an allow-list, added up per host, port and outcome: at most 64, refused ones first. Absent without such a
   * list, where nothing was connected, and in records of older versions.
   */
  readonly connections?: readonly EgressConnection[];
  /** How many such rows there were in all. */
  readonly connectionsTotal?: number;
}

/** How long the sandbox of an operation took to be ready. A command in an existing sandbox has none of these fields. */
export interface AuditProvision {
  /** The sandbox’s UUID. */
  readonly sandboxId: string;
  /** How long it took, in milliseconds; for a sandbox of the warm pool, from asking the pool until it was checked. */
  readonly sandbox_provisioning_ms: number;
  /** Whether it came from the warm pool. */
  readonly warm: boolean;
}

/** Something that was asked for and not done. */
export interface AuditRefusal extends AuditContext, AuditSandbox, AuditFindings {
  readonly kind: 'refusal';
  readonly errorCode: string;
  readonly message: string;
}

/** A sandbox that was created: a container, or a process of this host at a level without an engine. */
export interface AuditCreation extends AuditContext {
  readonly kind: 'creation';
  readonly what: 'container' | 'process';
  /** The container’s id; the sandbox’s own where there is no container. */
  readonly id: string;
  readonly name?: string;
  readonly sandboxId: string;
}

/** Something of ours that was removed. */
export interface AuditRemoval extends AuditContext {
  readonly kind: 'removal';
  readonly what: 'container' | 'process' | 'network' | 'volume' | 'image' | 'fork';
  readonly id: string;
  readonly name?: string;
  /** The sandbox whose container or process it was. */
  readonly sandboxId?: string;
  readonly reason: RemovalReason;
}

/** Something else worth keeping: a protection that was broken, a host opened by root, a choice of the user’s. */
export interface AuditEvent extends AuditContext, AuditFindings {
  readonly kind: 'event';
  readonly event: string;
  readonly sandboxId?: string;
  readonly workspace?: string;
  readonly detail?: Readonly<Record<string, string | number | boolean | null>>;
}

/** The findings of a background scan after a run: an event of operation `scan`. */
export interface AuditScan extends AuditEvent {
  readonly operation: 'scan';
  readonly workspace: string;
  /** The sandboxes whose changes it covers. */
  readonly sandboxIds: readonly string[];
  /** The correlation ids of the runs whose changes it is about: a persistent sandbox has many runs. */
  readonly correlationIds?: readonly string[];
}

/** A warm sandbox is about to be created, before its command is known: an event of operation `create`. */
export interface AuditMadeAhead extends AuditEvent, AuditSandbox {
  readonly operation: 'create';
  readonly sandboxId: string;
  readonly specHash: string;
}

/** What can be written to the audit log. */
export type AuditEntry =
  AuditIntent | AuditCreation | AuditOutcome | AuditRefusal | AuditRemoval | AuditEvent | AuditScan | AuditMadeAhead;

/** A place in the chain: a record, and through its hash every record before it. */
export interface AuditHead {
  /** The sequence number of the record. */
  readonly seq: number;
  /** The hash of the record. */
  readonly hash: string;
}

/** One record as it was read. Fields that a later version adds are kept. */
export interface AuditRecord {
  /** The version of the format. */
  readonly v: 1;
  /** The sequence number, from 1, without gaps. */
  readonly seq: number;
  /** When it was written, in ISO 8601. */
  readonly ts: string;
  /** Hash of the record before; zeros for the first. */
  readonly prev: string;
  /** What the record is about. */
  readonly kind: AuditKind;
  /** The hash of this record, which covers `prev`. */
  readonly hash: string;
  /** The operation that it belongs to; absent in a checkpoint. */
  readonly correlationId?: string | undefined;
  /** What was done, such as `run`; absent in a checkpoint. */
  readonly operation?: string | undefined;
  readonly [field: string]: unknown;
}

/**
 * What is wrong with a record, or a line that should be one.
 *
 * - `unreadable`: the file is none of this log’s: a link, a directory, or not to be opened
 * - `incomplete`: the last line does not end, and no process is writing it
 * - `not-json`, `not-canonical`: no record, or not written as a record is
 * - `edited`: the content is not what the hash in it says
 * - `missing`: records are left out before it
 * - `out-of-order`: the record that should stand here stands further on
 * - `inserted`: it was there before, or belongs nowhere
 * - `broken-chain`: it does not continue the record before it: one of the two was written anew
 * - `bad-signature`: a checkpoint that the key did not sign
 * - `unsigned`: a record where there must be a checkpoint: signatures were taken out
 * - `lost`: the log was emptied or removed: there is a key but no record, or the first record says so
 * - `truncated`, `rewritten`: a head that was kept elsewhere is not in the chain any more
 */
export type AuditFault =
  | 'unreadable'
  | 'incomplete'
  | 'not-json'
  | 'not-canonical'
  | 'edited'
  | 'missing'
  | 'out-of-order'
  | 'inserted'
  | 'broken-chain'
  | 'bad-signature'
  | 'unsigned'
  | 'lost'
  | 'truncated'
  | 'rewritten';

/** The first thing that is wrong with a log. */
export interface AuditProblem {
  /** The kind of fault. */
  readonly fault: AuditFault;
  /** The file, as an absolute path. */
  readonly file: string;
  /** The line in the file, from 1; 0 where it is about the file as a whole. */
  readonly line: number;
  /** The sequence number that stands, or should stand, there. */
  readonly seq: number;
  /** What was found, in a sentence without its full stop. */
  readonly detail: string;
}

/** What verifying found. */
export interface AuditVerification {
  /** Whether every record is what it was when it was written, as far as the log itself can show. */
  readonly ok: boolean;
  /** How many records are good, from the first one on. */
  readonly records: number;
  /** How many files the log has. */
  readonly files: number;
  /** The last good record. Kept elsewhere, it shows whether the log is cut or written anew later. */
  readonly head: AuditHead | null;
  /** How many signed checkpoints were found. */
  readonly checkpoints: number;
  /** How many records the signatures cover, from the first one on; the newest are always without one yet. */
  readonly covered: number;
  /** Fingerprint of the key that signed the checkpoints; null where there is no key yet. */
  readonly key: string | null;
  /** How many of the given heads are in the chain. */
  readonly headsFound: number;
  /** Whether the last line is still being written, or its writer died before finishing it. */
  readonly unfinished: boolean;
  /** What is not as it should be and still proves no change, in sentences. */
  readonly warnings: readonly string[];
  /** The first thing that is wrong; null if `ok`. */
  readonly problem: AuditProblem | null;
}

/** A run that left risky changes in a workspace, or whose workspace was not scanned completely. */
export interface RecordedChanges {
  /** The number of the record that names the changes. */
  readonly record: number;
  /** When the command had ended; where no command is known, when the changes were found. */
  readonly ts: string;
  /** The record of the command; null where the changes came after the last command of a sandbox. */
  readonly intent: number | null;
  /** The command as it was recorded: secrets are masked, and a long one is cut. Empty where there is none. */
  readonly command: readonly string[];
  /** The sandbox’s UUID; null if the record names none. */
  readonly sandboxId: string | null;
  /** The workspace, as an absolute path; null if the record names none. */
  readonly workspace: string | null;
  /** The command’s exit status; null if it was killed, or is not known. */
  readonly exitCode: number | null;
  /** The risky changes, at most 64. */
  readonly riskyChanges: readonly AuditChange[];
  /** How many risky changes there were in all. */
  readonly riskyChangesTotal: number;
  /** How many files changed, by kind; null in records of older versions. */
  readonly changed: ChangeCounts | null;
  /** How much of the workspace was scanned; null in records of older versions. */
  readonly scan: ScanState | null;
  /** Why not everything was scanned; null where everything was. */
  readonly scanReason: string | null;
}

/** A filter for recorded changes. */
export interface ChangesQuery {
  /** Only changes in this workspace; default: every workspace. */
  readonly workspace?: string;
  /** From this moment on, or after the record with this number. */
  readonly since?: Date | number;
  /** Cancels the query. */
  readonly signal?: AbortSignal;
}

/** Which records count. */
export interface StatsQuery {
  /** Only what ended at this moment or later, or after the record with this number; everything in the log by default. */
  readonly since?: Date | number;
  /** Cancels the reading. */
  readonly signal?: AbortSignal;
}

/** How long sandboxes took to be ready. */
export interface ProvisionFigures {
  /** How many there were. */
  readonly count: number;
  /** The median, in milliseconds; null if there were none. */
  readonly medianMs: number | null;
  /** The 95th percentile, in milliseconds; null if there were none. */
  readonly p95Ms: number | null;
}

/** Figures from the audit log, over every session of this user. */
export interface Stats extends KpiReport {
  /** When the first operation that counts ended, in ISO 8601; null if there was none. */
  readonly from: string | null;
  /** When the last one ended. */
  readonly to: string | null;
  /** Commands that ran, in sandboxes of their own and in persistent ones. */
  readonly commands: number;
  /** Those that ended with a status other than 0. */
  readonly failed: number;
  /** Those that hit their time limit. */
  readonly timedOut: number;
  /** Those of which the kernel killed a process because the memory limit was reached. */
  readonly oomKilled: number;
  /** Those that ended with an error of acode or of the engine. */
  readonly errors: number;
  /** Requests that were refused before a command was handed over. */
  readonly refused: number;
  /** Sandboxes of the warm pool. */
  readonly warm: ProvisionFigures;
  /** Sandboxes that were created for their command. */
  readonly cold: ProvisionFigures;
}

/** The audit log of this user, to be read. Works without an engine, and never waits for a writer. */
export interface Audit {
  /** The newest records, oldest of them first. */
  tail(options?: {
    /** How many records; 20 by default, at most 10,000. */
    count?: number;
  }): Promise<AuditRecord[]>;
  /**
   * Records as they are written, after a sequence number or from now on, until the signal.
   *
   * @example
   * for await (const record of acode.audit.follow({ signal: AbortSignal.timeout(60_000) })) console.log(record.kind);
   */
  follow(options?: {
    /** Begins after the record with this sequence number; without it, with the next record. */
    after?: number;
    /** Ends the iteration. */
    signal?: AbortSignal;
  }): AsyncIterable<AuditRecord>;
  /** The record with a sequence number, or every record with a correlation id. */
  find(reference: string): Promise<AuditRecord[]>;
  /**
   * Reads the whole chain and reports whether it was changed. Against an attacker with the rights of this user, only a
   * head stored elsewhere proves anything.
   *
   * @example
   * const { ok, head, problem } = await acode.audit.verify();
   * console.log(ok ? `keep ${head?.seq}:${head?.hash}` : problem?.detail);
   */
  verify(options?: {
    /** Heads that were kept elsewhere. Each must be in the chain. */
    heads?: readonly AuditHead[];
    /** Cancels the verification. */
    signal?: AbortSignal;
  }): Promise<AuditVerification>;
  /**
   * Runs that left risky changes, oldest first. Runs of acode versions that did not record changes are not among them.
   *
   * @example
   * const runs = await acode.audit.changes({ since: new Date(Date.now() - 3_600_000) });
   * for (const { command, riskyChanges } of runs) console.log(command.join(' '), riskyChanges);
   */
  changes(query?: ChangesQuery): Promise<RecordedChanges[]>;
  /**
   * Figures of all sessions of this user: how many commands ran, how they ended, and how long their sandboxes took to be ready.
   *
   * @example
   * const { commands, warm, cold } = await acode.audit.stats({ since: new Date(Date.now() - 86_400_000) });
   * console.log(commands, warm.medianMs, cold.medianMs);
   */
  stats(query?: StatsQuery): Promise<Stats>;
  /** The lines of the log as they are, each with its newline. */
  export(options?: {
    /** The first sequence number; 1 by default. */
    from?: number;
    /** The last sequence number; the newest by default. */
    to?: number;
    /** Cancels the export. */
    signal?: AbortSignal;
  }): AsyncIterable<string>;
}
