// The plan of one sandbox, engine-neutral: what isolation/ makes of an effective policy and what verification holds the engine to.

import type { CacheSpec } from './caches.ts';
import type { Level } from './levels.ts';
import type { Limits, PortRequest, UserId } from './policy.ts';
import type { NetworkMode } from './network.ts';

/** Which object of the file system a path was when it was validated. */
export interface FileIdentity {
  readonly device: number;
  readonly inode: number;
  /** When it was made, in milliseconds: the number of one that was removed is given to the next. Only of what cannot be written. */
  readonly born?: number;
}

/** A directory or file of the host inside the sandbox. */
export interface MountSpec {
  /**
   * Why it is there. `protected` covers a part of the workspace that host tools trust; `worktree` is the repository of a git
   * worktree; `identity` is the image’s list of users or groups with an entry for the user inside; `ca` is the user’s bundle
   * of CA certificates.
   */
  readonly purpose: 'workspace' | 'protected' | 'worktree' | 'additional' | 'identity' | 'ca';
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
  /** The object that was validated; another one found at start is an attack. */
  readonly identity: FileIdentity;
}

/** A sized file system in memory. */
export interface TmpfsSpec {
  readonly target: string;
  readonly bytes: number;
  readonly mode: string;
}

/** The image of a sandbox, resolved to what cannot move. */
export interface ImageSpec {
  readonly reference: string;
  readonly id: string;
  /** Repository digest, or the id where the image never came from a registry. */
  readonly digest: string;
  /** Variables the image sets that are kept. */
  readonly environment: readonly string[];
  /** Names of variables the image sets that would change how programs load code, and are removed. */
  readonly removed: readonly string[];
}

/** Who a sandbox is: not part of its hash, since it says nothing about what the sandbox can do. */
export interface SandboxIdentity {
  readonly sandboxId: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** The operation it is made for. */
  readonly correlationId: string;
}

/** What a backend found out about an image. */
export interface ImageFacts {
  readonly reference: string;
  readonly id: string;
  readonly digest: string;
  /** `NAME=value` as the image has them. */
  readonly environment: readonly string[];
  /** Paths the image declares as volumes: the engine would give each a writable one of its own. */
  readonly volumes: readonly string[];
  /** `repository@digest` for each registry the image came from; none for one that was made or loaded here. */
  readonly repositoryDigests: readonly string[];
  /** Set where the engine makes those of the image’s names, which anybody who may use it can give: then each counts. */
  readonly namedOnly?: boolean;
}

/** The plan of one sandbox. */
export interface SandboxSpec {
  readonly identity: SandboxIdentity;
  readonly level: Level;
  readonly image: ImageSpec;
  readonly user: UserId;
  readonly limits: Limits;
  /** The engine’s runtime by name; null for its default. */
  readonly runtime: string | null;
  readonly network: NetworkMode;
  readonly dns: readonly string[];
  readonly ports: readonly PortRequest[];
  readonly workdir: string;
  readonly home: string;
  readonly mounts: readonly MountSpec[];
  readonly caches: readonly CacheSpec[];
  readonly tmpfs: readonly TmpfsSpec[];
  /** Hash of everything but the identity: two sandboxes with the same hash are interchangeable before use. */
  readonly hash: string;
}
