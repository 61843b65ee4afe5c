// Forks of workspaces as callers see them: the changes of a fork and the diff that lists them. Plain data.

import type { RiskyChange } from './result.ts';

/** Kind of an entry of a directory. */
export type ForkEntryKind = 'file' | 'directory' | 'link' | 'fifo' | 'socket' | 'device';

/**
 * Why the content of an entry is not part of a diff. `sparse`: too much of the file is a hole, so that reading it could take
 * hours. `unstable`: it changed while acode read it. `unreadable`: its mode does not allow it, or its path is too long.
 */
export type ForkContentGap = 'sparse' | 'unstable' | 'unreadable';

/** A value before the fork and in it. A side on which there is nothing is absent. */
export interface ForkSides<Value> {
  /** In the workspace, as the commands of the fork first saw it. */
  readonly before?: Value;
  /** In the fork. */
  readonly after?: Value;
}

/** One path that differs between the workspace, as the commands of the fork first saw it, and the fork. */
export interface ForkChange {
  /** Relative to the workspace, with `/` between names: `src/index.ts`. */
  readonly path: string;
  /** What happened to it. A file whose mode alone differs is `changed`. */
  readonly change: 'added' | 'changed' | 'deleted';
  /** Kind in the fork; for `deleted`, kind of what was there. */
  readonly kind: ForkEntryKind;
  /** Kind before, if it was another: a directory in the place of a file is one `changed` entry. */
  readonly before?: ForkEntryKind;
  /** Permission bits with setuid, setgid and sticky, if they differ or one side has nothing: `0o755`. */
  readonly mode?: ForkSides<number>;
  /** Targets of symbolic links. */
  readonly link?: ForkSides<string>;
  /** Sizes of files. */
  readonly bytes?: ForkSides<number>;
  /** Whether the content is binary: a NUL among its first 8,000 bytes, as git decides. Absent for deleted files. */
  readonly binary?: boolean;
  /** SHA-256 of the file in the fork. Absent if its content was not read. */
  readonly sha256?: string;
  /** Why the content was not read or compared. The entry is listed as changed then, and it is not applied. */
  readonly gap?: ForkContentGap;
  /**
   * The workspace changed here while a command of the fork ran, or since, and acode has no copy of what the fork began with.
   * `before` is what the workspace has now.
   */
  readonly baseUnknown?: true;
  /** The name is not valid UTF-8. `path` has its invalid bytes as `\377` and backslashes doubled; it is never applied. */
  readonly unreadableName?: true;
}

/** How many paths changed. */
export interface ForkDiffCounts {
  /** Paths that are new in the fork. */
  readonly added: number;
  /** Paths with other content, mode, target or kind. */
  readonly changed: number;
  /** Paths that the fork removed, those below removed directories included. */
  readonly deleted: number;
}

/** What is known of a diff when all its changes were listed. */
export interface ForkDiffSummary {
  /**
   * SHA-256 over paths, kinds, modes, targets of links and contents, in the order of the list. Two diffs with the same id make the
   * same changes.
   */
  readonly id: string;
  /** Number of changes. */
  readonly counts: ForkDiffCounts;
  /** Masked paths that commands wrote to or removed, the first 100. They are not among the changes and are never applied. */
  readonly masked: readonly string[];
  /** Number of changes whose content was not read or compared. */
  readonly gaps: number;
}

/** Changes of a fork. */
export interface WorkspaceDiff extends ForkDiffSummary {
  /** Id of the fork. */
  readonly forkId: string;
  /** All changes: a directory before what is in it, names in the order of their bytes. */
  readonly changes: readonly ForkChange[];
  /** Changes that programs on the host might execute or follow. They leave the fork only if they are accepted. */
  readonly riskyChanges: readonly RiskyChange[];
}

// Apply: taking changes of a fork to the workspace.

/**
 * Why a change and the workspace exclude each other. `changed-here`: the workspace has other content, another target or another mode
 * than the fork began with. `deleted-here`: the fork changed what the workspace no longer has. `added-here`: both added it, and
 * differently. `kind`: the workspace has something of another kind. `base-unknown`: acode has no copy of what the fork began with.
 * `overlap`: both changed the same lines, or lines that touch. `binary`, `too-large`: both changed it, and it cannot be merged.
 * `parent`: a directory of the path is missing, is a link, or is not a directory. `not-empty`: a directory that the fork replaced has
 * files of which the fork knew nothing. `open`: a process has the file open for writing. `meanwhile`: the workspace changed during the
 * apply.
 */
export type ForkConflictReason =
  | 'changed-here'
  | 'deleted-here'
  | 'added-here'
  | 'kind'
  | 'base-unknown'
  | 'overlap'
  | 'binary'
  | 'too-large'
  | 'parent'
  | 'not-empty'
  | 'open'
  | 'meanwhile';

/** A change that excludes what the workspace has now. Nothing is applied while there is one. */
export interface ForkConflict {
  /** Relative to the workspace, with `/` between names. */
  readonly path: string;
  /** Why both cannot be kept. */
  readonly reason: ForkConflictReason;
  /** Process that has the file open, for `open`. */
  readonly pid?: number;
}

/**
 * Why acode does not apply a change. `protected`: programs on the host trust the path, and the caller did not name it. `special`: it is
 * a FIFO, a socket or a device. `name`: the name is not valid UTF-8, or not a path in the workspace. `content`: the content could not
 * be read or compared (see `gap` of the change). `sparse`: most of the file is a hole. `owner`: the file belongs to another user.
 * `mount`: the path is on another mount than the workspace. `no-such-change`: the caller named a path that has no change.
 * `not-permitted`: the system refused it; `detail` has its words.
 */
export type ForkRefusalReason =
  'protected' | 'special' | 'name' | 'content' | 'sparse' | 'owner' | 'mount' | 'no-such-change' | 'not-permitted';

/** A change that acode does not apply. Nothing is applied while there is one; `only` leaves it out. */
export interface ForkRefusal {
  /** Relative to the workspace, with `/` between names. */
  readonly path: string;
  /** The rule. */
  readonly reason: ForkRefusalReason;
  /** For a person: who trusts a protected path, or what the system said. */
  readonly detail?: string;
}

/**
 * Something of the workspace that an apply left where it is. `not-empty`: a directory that the fork removed holds files of which the fork
 * knew nothing. `saved`: another program wrote the file after the apply, or after its interruption.
 */
export interface ForkKept {
  /** Relative to the workspace, with `/` between names. */
  readonly path: string;
  /** Why it was left. */
  readonly reason: 'not-empty' | 'saved';
  /** Where the earlier version of a saved file is now, relative to the workspace. Absent where there is none. */
  readonly earlier?: string;
}

/** What an apply did. It does all of it or nothing. */
export interface ApplyReport {
  /**
   * `applied`: every change is in the workspace. `checked`: every change could be applied, and the caller asked for no more.
   * `refused`: because of conflicts or refusals the workspace is as it was. `rolled-back`: an interrupted apply was undone.
   */
  readonly outcome: 'applied' | 'checked' | 'refused' | 'rolled-back';
  /** Number of changes that were made, or with `checked` would be. */
  readonly applied: number;
  /** Number of changes that the workspace already had. */
  readonly already: number;
  /** Files whose changes here and in the fork were merged by lines. */
  readonly merged: readonly string[];
  /** Changes that exclude what the workspace has. */
  readonly conflicts: readonly ForkConflict[];
  /** Changes that acode does not apply. */
  readonly refused: readonly ForkRefusal[];
  /** What was left where it is. */
  readonly kept: readonly ForkKept[];
}

/** An apply that was interrupted: the workspace may have some of its changes. */
export interface PendingApply {
  /** Id of the fork whose changes it applies. */
  readonly forkId: string;
  /** Id of the diff that was confirmed. */
  readonly diffId: string;
  /** Paths that it is limited to; absent for all. */
  readonly only?: readonly string[];
  /** When it began, in milliseconds since 1970. */
  readonly startedAt: number;
  /** Number of its changes. */
  readonly changes: number;
}
