// Forks of workspaces as callers see them: which there are, what their commands did, and how they end.

import type { Consent } from './configuration.ts';
import type { ApplyReport, ForkDiffCounts, ForkDiffSummary, PendingApply, WorkspaceDiff } from './fork.ts';
import type { RiskyChange, RiskyKind } from './result.ts';

/** A fork of a workspace. */
export interface ForkInfo {
  /** Its id: 8 characters. */
  id: string;
  /** The name it was given; null for none. */
  name: string | null;
  /** The workspace it is a fork of. */
  workspace: string;
  /** Whether `fork` without a name means this one. */
  isCurrent: boolean;
  /** When it was made. */
  createdAt: string;
  /** When it was used last. */
  usedAt: string;
  /** When it is removed, unless it is used before: 7 days after its last use. */
  expiresAt: string;
  /** The commands whose changes it has. */
  commands: number;
  /** Its snapshots by name, each with the number of commands that it has the changes of. */
  snapshots: Record<string, number>;
  /** The sandbox that writes it now; null for none. */
  sandbox: string | null;
  /** Whether its last command was interrupted: acode was killed, and the fork has what the command wrote until then. */
  interrupted: boolean;
}

/** One command of a fork. */
export interface ForkCommand {
  /** Which one, from 1. */
  number: number;
  /** When it began. */
  at: string;
  /** The command, shortened. */
  command: string;
  /** Set if acode was killed while it ran: the fork has what it wrote until then. */
  interrupted?: true;
}

/** Which forks to list. */
export interface ForkListOptions {
  /** Whether to list those of every workspace. False by default. */
  all?: boolean;
}

/** Where a fork is made from. */
export interface ForkCreateOptions {
  /** Snapshot whose changes it begins with: `clean` of the current fork of the workspace, `upgrade@clean` of another. */
  from: string;
  /** Its name; by default it has only an id. */
  name?: string;
}

/** What is copied, and under which name. */
export interface ForkCopyOptions {
  /** Id or name of the fork, or id of the persistent sandbox that writes it; the current one of the workspace by default. */
  fork?: string;
  /** Name of the new fork; by default it has only an id. */
  name?: string;
}

/** What to take back. */
export interface ForkUndoOptions {
  /** How many commands; 1 by default. */
  commands?: number;
  /** Snapshot to go back to, in place of a number of commands. */
  to?: string;
  /** Id or name of the fork; the current one of the workspace by default. */
  fork?: string;
}

/** Which changes to list. */
export interface ForkDiffRequest {
  /**
   * Id or name of the fork, or id of the persistent sandbox that writes it, which is paused meanwhile; the current one of the workspace
   * by default.
   */
  fork?: string;
  /** The most changes to list; counts and id are of all. 100,000 by default. */
  limit?: number;
}

/**
 * Risky changes that a person accepts, by their rule: `['package-scripts', 'ci-file']`; `'all'` accepts every rule. Changes whose
 * rule is not accepted do not leave the fork.
 */
export type AcceptedRisk = readonly RiskyKind[] | 'all';

/** Consent to changes that leave a fork. */
export interface ForkConsent {
  /** Risky changes that are accepted, by their rule; none by default. */
  acceptRisk?: AcceptedRisk;
  /** How a person agreed; the audit log records it. Without it, the log names the calling program alone. */
  consent?: Consent;
}

/** Where a patch goes. */
export interface ForkPatchRequest extends ForkConsent {
  /** Id or name of the fork; the current one of the workspace by default. */
  fork?: string;
  /** Takes the next piece of the patch. */
  write: (piece: Uint8Array) => void | Promise<void>;
}

/** A change that a patch lacks, in whole or in part. */
export interface PatchOmission {
  /** Relative to the workspace. */
  path: string;
  /**
   * Why: `directory`: git has no empty directories. `not-empty`: a directory became a file. `mode`: git knows only whether a file is
   * executable. `special`: a FIFO, a socket or a device. `name`: not valid UTF-8. `content`: it was not read. `base`: what the fork
   * began with is not known. `git`: it is git’s own directory, which git does not patch.
   */
  reason: 'directory' | 'not-empty' | 'mode' | 'special' | 'name' | 'content' | 'base' | 'git';
}

/** A patch that was written. */
export interface ForkPatch extends ForkDiffSummary {
  /** Id of the fork. */
  readonly forkId: string;
  /** What the patch lacks. */
  readonly omitted: readonly PatchOmission[];
}

/** Which changes to apply. */
export interface ForkApplyRequest extends ForkConsent {
  /** Id or name of the fork; the current one of the workspace by default. */
  fork?: string;
  /**
   * Paths to apply, relative to the workspace; a directory means everything below it. All changes by default, except at protected
   * paths such as `.git`: those are applied only if they are named here.
   */
  only?: readonly string[];
  /** Reports what would be applied, and changes nothing. False by default. */
  check?: boolean;
  /** Id of the diff that a person was shown. If the fork has other changes by now, nothing is applied (`ACODE-FRK-015`). */
  diffId?: string;
}

/** What an apply did. */
export interface ForkApplied extends ApplyReport {
  /** Id of the fork. */
  readonly forkId: string;
  /** Id of the diff that was applied. */
  readonly diffId: string;
  /** Number of changes of the fork, by kind; `only` may have left some out. */
  readonly counts: ForkDiffCounts;
  /** The risky changes among those to apply. */
  readonly riskyChanges: readonly RiskyChange[];
  /** Whether the fork was removed, because the workspace has all its changes. */
  readonly removed: boolean;
  /** Number of changes in git’s own directories. They stay in the fork, unless `only` names them. */
  readonly gitChanges: number;
}

/** Which commits to take over, and as which branch. */
export interface ForkBranchRequest extends ForkConsent {
  /** Name of the new branch: `fix/parser`. */
  name: string;
  /**
   * The commit that the branch is at now: it moves from there to the commits of the fork, which must build on it, and only if no work
   * tree has it checked out. Without it the branch must not exist.
   */
  expected?: string;
  /** Id or name of the fork; the current one of the workspace by default. */
  fork?: string;
  /** Image of the sandbox in which git bundles the commits; it needs git. The workspace’s own by default. */
  image?: string;
  /** Message of the commit that acode makes if the fork has changes and no commits. */
  message?: string;
  /** Protected paths that the commits may change, such as `.vscode`; a directory means everything below it. None by default. */
  protectedPaths?: readonly string[];
  /** Asked when the commits are checked, before the branch is made: the consent of a person, or null for no. */
  confirm?: (found: ForkBranchFound) => Promise<ForkConsent | null>;
}

/** Commits of a fork that were checked. */
export interface ForkBranchFound {
  /** Id of the fork. */
  readonly forkId: string;
  /** Name of the branch. */
  readonly branch: string;
  /** Commit that the workspace has checked out; null for none. */
  readonly base: string | null;
  /** Newest commit of the branch. */
  readonly commit: string;
  /** Number of commits that the repository does not have yet. */
  readonly commits: number;
  /** Whether acode made the commit, because the fork has changes and no commits. */
  readonly made: boolean;
  /** Whether the fork has changes besides its commits; they are not a part of the branch. */
  readonly uncommitted: boolean;
  /** Number of paths that the commits change, those that a later commit takes back included. */
  readonly counts: ForkDiffCounts;
  /** These paths, from the top of the repository. */
  readonly paths: readonly string[];
  /** Those that programs on the host might execute or follow once the branch is checked out. */
  readonly riskyChanges: readonly RiskyChange[];
}

/** Commits of a fork, and whether the repository has them. */
export interface ForkBranched extends ForkBranchFound {
  /** Whether the branch was made; false if `confirm` said no. */
  readonly created: boolean;
}

/** How an interrupted apply ended. */
export interface ForkApplyEnded extends ApplyReport {
  /** Id of the fork whose changes it applied. */
  readonly forkId: string;
}

/** Where an archive goes. */
export interface ForkExportRequest {
  /** Id or name of the fork; the current one of the workspace by default. */
  fork?: string;
  /** Takes the next piece of the archive. */
  write: (piece: Uint8Array) => void | Promise<void>;
}

/** An archive that was written. */
export interface ForkExport {
  /** Id of the fork. */
  readonly forkId: string;
  /** Id of the diff that it has the changes of. */
  readonly diffId: string;
  /** Size of the archive, in bytes. */
  readonly bytes: number;
  /** What the archive lacks. */
  readonly omitted: readonly {
    /** Relative to the workspace. */
    readonly path: string;
    /**
     * Why: `special`: a socket or a device. `name`: it would be taken for a whiteout (`.wh.…`). `unreadable`: its mode does not allow
     * it. `sparse`: too much of it is a hole.
     */
    readonly reason: 'special' | 'name' | 'unreadable' | 'sparse';
  }[];
}

/** Where an archive comes from. */
export interface ForkImportRequest {
  /** The archive, in pieces: `createReadStream(path)`. */
  source: AsyncIterable<Uint8Array>;
  /** Name of the new fork; by default it has only an id. */
  name?: string;
}

/** The forks of the workspaces of this user. */
export interface Forks {
  /** The forks of this workspace, or of all; the latest used first. */
  list(options?: ForkListOptions): Promise<ForkInfo[]>;
  /** The commands whose changes a fork has, in order. */
  history(fork?: string): Promise<ForkCommand[]>;
  /** What the commands of a fork changed. */
  diff(request?: ForkDiffRequest): Promise<WorkspaceDiff>;
  /** The same as a patch that `git apply --binary` takes. */
  patch(request: ForkPatchRequest): Promise<ForkPatch>;
  /**
   * Applies the changes of a fork to its workspace: all of them or none. Conflicts and refusals are in the report. A fork whose
   * changes are all applied is removed, unless it has snapshots. Risky changes need `acceptRisk` (`ACODE-FRK-016`).
   *
   * @example
   * const { id, changes } = await acode.forks.diff();
   * if (changes.every(({ path }) => path.startsWith('src/'))) await acode.forks.apply({ diffId: id });
   */
  apply(request?: ForkApplyRequest): Promise<ForkApplied>;
  /**
   * Brings the commits made in a fork to the repository of its workspace as a new branch, or one commit of its changes if there are
   * none. Files, index and other branches stay as they are. Risky changes need `acceptRisk` (`ACODE-FRK-016`).
   *
   * @example
   * const { commit } = await acode.forks.branch({ name: 'fix/parser' });
   */
  branch(request: ForkBranchRequest): Promise<ForkBranched>;
  /** The interrupted apply of this workspace; null if there is none. */
  pending(): Promise<PendingApply | null>;
  /** Finishes the interrupted apply of this workspace. */
  resume(): Promise<ForkApplyEnded>;
  /** Undoes the interrupted apply of this workspace. */
  rollback(): Promise<ForkApplyEnded>;
  /** Takes the changes of the last commands back; the last one by default. Says which. */
  undo(options?: ForkUndoOptions): Promise<ForkCommand[]>;
  /** Gives a name to a fork as it is now. */
  snapshot(name: string, fork?: string): Promise<ForkInfo>;
  /**
   * Makes a fork that begins with what a snapshot has. Any number of them can be used at the same time: what one writes, no other
   * sees.
   */
  create(options: ForkCreateOptions): Promise<ForkInfo>;
  /**
   * Makes a fork of what a fork has now. A persistent sandbox that writes it is paused while the layer of its commands is copied, which
   * takes as long as copying those files; all other layers are shared.
   */
  copy(options?: ForkCopyOptions): Promise<ForkInfo>;
  /**
   * Writes the changes of a fork as a tar with the whiteouts of OCI image layers: to keep them, or to take them to another machine. It
   * is no way to the workspace, so nothing is asked.
   */
  export(request: ForkExportRequest): Promise<ForkExport>;
  /** Makes a new fork of this workspace of what `export` wrote. The workspace is not touched. */
  import(request: ForkImportRequest): Promise<ForkInfo>;
  /** Removes a fork with all its changes. Says what was removed. */
  discard(fork?: string): Promise<ForkInfo>;
}
