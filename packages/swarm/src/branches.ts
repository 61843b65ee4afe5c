// Branches of tasks: brought to the user’s repository through the fork’s own way, never over one that exists.

import type { Acode, AcodeError, ForkConsent, RiskyChange } from '@acode/sandbox';
import * as z from 'zod';
import { isAcodeError } from './errors.ts';
import type { TaskRecord } from './record.ts';
import type { SwarmSandboxes } from './sandboxes.ts';

// A branch that is not made because of what the commits or the repository are.
const REFUSALS: readonly string[] = ['ACODE-FRK-016', 'ACODE-FRK-018', 'ACODE-FRK-019'];

const refsSchema = z.looseObject({ refs: z.record(z.string(), z.string()) });

/** What keeps commits from becoming a branch without a person. `protected-path` has to be named, all others accepted. */
export interface BranchRisk {
  readonly path: string;
  readonly kind: RiskyChange['kind'] | 'protected-path';
  readonly reason: string;
}

/** What came of the commits of a task. */
export type Brought =
  | { readonly kind: 'made'; readonly commit: string }
  /** The task changed nothing. */
  | { readonly kind: 'nothing' }
  /** A person has to accept what programs on the host might execute. */
  | { readonly kind: 'risky'; readonly riskyChanges: readonly BranchRisk[] }
  | { readonly kind: 'refused'; readonly detail: string };

/** Whose commits, and who agreed to what is risky in them. */
export interface BringingBack {
  readonly acode: Acode;
  readonly sandboxes: SwarmSandboxes;
  readonly task: TaskRecord;
  readonly signal: AbortSignal;
  readonly consent?: ForkConsent;
  readonly protectedPaths?: readonly string[];
}

function protectedPath(path: string): BranchRisk {
  return { path, kind: 'protected-path', reason: 'programs on this machine trust this path' };
}

/** The branches of the user’s repository, read by git in a sandbox that cannot write it. */
export async function readBranches(sandboxes: SwarmSandboxes, signal: AbortSignal): Promise<Record<string, string>> {
  const { refs } = await sandboxes.ask('refs', {}, {}, refsSchema, { signal });
  return refs;
}

/** Makes the branch of a task, once: after a kill it may be there. */
export async function bringBack(bringing: BringingBack): Promise<Brought> {
  const { commit, base, branchCommit } = bringing.task;
  if (commit !== null && commit === base) return { kind: 'nothing' };
  if (commit !== null && commit === branchCommit) return { kind: 'made', commit };
  try {
    return await branched(bringing);
  } catch (error) {
    if (isAcodeError(error) && REFUSALS.includes(error.code)) return refusedBy(error, bringing);
    throw error;
  }
}

async function branched({ acode, sandboxes, task, consent, protectedPaths }: BringingBack): Promise<Brought> {
  const { branch, fork, branchCommit, title } = task;
  const made = await acode.forks.branch({
    name: branch,
    fork,
    message: title,
    // A task that was opened again goes on from where its branch is.
    ...(branchCommit === null ? {} : { expected: branchCommit }),
    ...(protectedPaths ? { protectedPaths } : {}),
    ...(sandboxes.image === null ? {} : { image: sandboxes.image }),
    confirm: ({ riskyChanges }) => Promise.resolve(consent ?? (riskyChanges.length === 0 ? {} : null)),
  });
  return made.created ? { kind: 'made', commit: made.commit } : { kind: 'risky', riskyChanges: made.riskyChanges };
}

async function refusedBy(
  error: AcodeError,
  { sandboxes, task: { branch, commit }, signal }: BringingBack,
): Promise<Brought> {
  const paths = error.is('ACODE-FRK-018') ? (error.context.protectedPaths ?? []) : [];
  if (paths.length > 0) return { kind: 'risky', riskyChanges: paths.map(protectedPath) };
  const there = commit === null ? undefined : (await readBranches(sandboxes, signal))[branch];
  if (commit !== null && there === commit) return { kind: 'made', commit };
  return { kind: 'refused', detail: `${error.code}: ${error.message} ${error.hint}` };
}
