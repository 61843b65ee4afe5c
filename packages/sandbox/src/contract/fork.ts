// Forks of workspaces as callers see them: the changes of a fork and the diff that lists them. Plain data.

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
}
