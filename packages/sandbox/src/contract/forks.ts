// Forks of workspaces as callers see them: which there are, what their commands did, and how they end.

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
  /** When a command used it last. */
  usedAt: string;
  /** When it is removed, unless a command uses it before. */
  expiresAt: string;
  /** The commands whose changes it has. */
  commands: number;
  /** Its snapshots by name, each with the number of commands that it has the changes of. */
  snapshots: Record<string, number>;
  /** The sandbox that writes it now; null for none. */
  sandbox: string | null;
}

/** One command of a fork. */
export interface ForkCommand {
  /** Which one, from 1. */
  number: number;
  /** When it began. */
  at: string;
  /** The command, shortened. */
  command: string;
}

/** Which forks to list. */
export interface ForkListOptions {
  /** Whether to list those of every workspace. False by default. */
  all?: boolean;
}

/** What to take back. */
export interface ForkUndoOptions {
  /** How many commands; 1 by default. */
  commands?: number;
  /** Id or name of the fork; the current one of the workspace by default. */
  fork?: string;
}

/** The forks of the workspaces of this user. */
export interface Forks {
  /** The forks of this workspace, or of all; the latest used first. */
  list(options?: ForkListOptions): Promise<ForkInfo[]>;
  /** The commands whose changes a fork has, in order. */
  history(fork?: string): Promise<ForkCommand[]>;
  /** Takes the changes of the last commands back; the last one by default. Says which. */
  undo(options?: ForkUndoOptions): Promise<ForkCommand[]>;
  /** Gives a name to a fork as it is now. */
  snapshot(name: string, fork?: string): Promise<ForkInfo>;
  /** Removes a fork with all its changes. Says what was removed. */
  discard(fork?: string): Promise<ForkInfo>;
}
