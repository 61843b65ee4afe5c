// What of the host a sandbox gets: the workspace, its protected parts over it, and further directories, each validated.

import { basename, dirname } from 'node:path';
import type { MountRequest } from '../contract/policy.ts';
import type { MountSpec } from '../contract/spec.ts';
import { comparable } from './file-identity.ts';
import { installationRoot } from './installation.ts';
import type { Workspace } from './locate.ts';
import { nearestReal } from './places.ts';
import { protectHooks, protectInstallation, protectPart, protectParts, protectedPaths } from './protected-paths.ts';
import { refusal } from './refusal.ts';
import { refuseSockets, validateSource } from './source.ts';
import type { SourceRules } from './source.ts';
import { refuseOverlap, validateTarget } from './target.ts';
import { isWithin } from './within.ts';
import { findWorktree } from './worktree.ts';

/** What mounts are planned from. */
export interface MountFacts {
  readonly workspace: Workspace;
  /** Where the workspace is inside. */
  readonly target: string;
  readonly readOnly: boolean;
  readonly additional: readonly MountRequest[];
  /** Directories outside the workspace that the user allows mounts from. */
  readonly hostRoots: readonly string[];
  readonly uid: number;
  /** Where acode itself is; found out where it is not given. */
  readonly installation?: string;
}

/** The mounts of a sandbox, in the order they are made. */
export interface MountPlan {
  readonly mounts: readonly MountSpec[];
  /** What a reader of the plan should know, such as a git worktree that will not work and why. */
  readonly notes: readonly string[];
}

const INSTALLED_INSIDE =
  'acode is installed inside the workspace, where it is read-only to the command. What lies around it is not, such as what starts it: an installation outside of the workspace is safer.';

/** Validates everything a sandbox is to be given; throws ACODE-SBX-003 at the first thing it may not have. */
export async function planMounts(facts: MountFacts): Promise<MountPlan> {
  const { workspace, target, readOnly } = facts;
  const { root, places } = workspace;
  const roots = facts.hostRoots.map(nearestReal);
  refuseSockets(root);
  const installation = facts.installation ?? (await installationRoot());
  const protecting = readOnly ? [] : await protectParts(root, target);
  const own = readOnly ? null : await protectInstallation(root, target, installation);
  const sealed = protecting.map(({ source }) => source);
  const additional = await planAdditional({ ...facts, installation, sealed }, { places, workspace: root, roots });
  const git = await planGit(facts, roots, additional);
  const whole: MountSpec = {
    purpose: 'workspace',
    source: root,
    target,
    readOnly,
    identity: comparable(workspace.identity, readOnly),
  };
  const mounts = [whole, ...protecting, ...(own ? [own] : []), ...git.mounts, ...additional];
  return { mounts, notes: [...(own ? [INSTALLED_INSIDE] : []), ...git.notes] };
}

async function planGit(
  { workspace: { root, places }, target, readOnly, hostRoots, uid }: MountFacts,
  roots: readonly string[],
  additional: readonly MountSpec[],
): Promise<MountPlan> {
  const found = await findWorktree({ root, target, uid, places, roots: [...hostRoots, ...roots] });
  if (!found) return { mounts: [], notes: [] };
  if ('note' in found) return { mounts: [], notes: [found.note] };
  if ('inside' in found) return readOnly ? { mounts: [], notes: [] } : protectInside(found.inside, root, target);
  const { mount } = found;
  const met = additional.find(other => isWithin(mount.target, other.target) || isWithin(other.target, mount.target));
  const hooks = readOnly ? [] : await protectHooks(root, target, mount.source);
  if (!met) return { mounts: [...hooks, mount], notes: [] };
  return { mounts: hooks, notes: [`The repository of this worktree is not mounted: ${met.target} is in its place.`] };
}

// A git directory under another name, in the workspace itself: what git on the host trusts is there and not in `.git`.
async function protectInside(gitdir: string, root: string, target: string): Promise<MountPlan> {
  if (protectedPaths(root).includes(gitdir)) return { mounts: [], notes: [] };
  const mount = dirname(gitdir) === root ? await protectPart(root, target, basename(gitdir)) : null;
  const hooks = await protectHooks(root, target, gitdir);
  if (mount) return { mounts: [mount, ...hooks.filter(({ source }) => source !== mount.source)], notes: [] };
  return {
    mounts: hooks,
    notes: [
      `The repository ${gitdir} cannot be protected where it is: the command can change what git on the host runs.`,
    ],
  };
}

type AdditionalFacts = MountFacts & { readonly installation: string; readonly sealed: readonly string[] };

async function planAdditional(facts: AdditionalFacts, rules: SourceRules): Promise<MountSpec[]> {
  const planned: MountSpec[] = [];
  const targets: string[] = [];
  for (const request of facts.additional) {
    const readOnly = request.readOnly ?? true;
    const source = await validateSource(request.source, rules, readOnly);
    const target = validateTarget(request.target, facts.target);
    refuseOverlap(target, targets);
    if (!readOnly) refuseWayRound(source.path, facts.workspace.root, [...facts.sealed, facts.installation]);
    targets.push(target);
    planned.push({
      purpose: 'additional',
      source: source.path,
      target,
      readOnly,
      identity: comparable(source.identity, readOnly),
    });
    // Another project that may be written is trusted by the host in the same places.
    if (readOnly || !source.isDirectory) continue;
    const own = await protectInstallation(source.path, target, facts.installation);
    planned.push(...(await protectParts(source.path, target)), ...(own ? [own] : []));
  }
  return planned;
}

// What is read-only in the workspace would be writable through the other mount.
function refuseWayRound(source: string, root: string, sealed: readonly string[]): void {
  const remedy = 'Mount it read-only.';
  if (isWithin(root, source)) throw refusal(source, 'ProtectedPath', 'it is, or contains, the workspace', { remedy });
  const met = [...protectedPaths(root), ...sealed].find(path => isWithin(source, path));
  if (met) throw refusal(source, 'ProtectedPath', `it is a part of ${met}, which is read-only inside`, { remedy });
}
