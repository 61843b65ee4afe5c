// The plan of one sandbox, engine-neutral: what isolation/ makes of an effective policy and what verification holds the engine to.

import type { CacheSpec } from './caches.ts';
import type { Level } from './levels.ts';
import type { Limits, PortRequest, UserId } from './policy.ts';
import type { NetworkMode } from './network.ts';
import type { ImageProgram } from './services.ts';

/** Which object of the file system a path was when it was validated. */
export interface FileIdentity {
  /** The device number. */
  readonly device: number;
  /** The inode number. */
  readonly inode: number;
  /** When it was made, in milliseconds: the number of one that was removed is given to the next. Only of what cannot be written. */
  readonly born?: number;
}

/** A directory of an overlay, with the identity of each directory on the way to it, from the root of the file system. */
export interface OverlayPart {
  /** The absolute path on the host, without links. */
  readonly path: string;
  /** What was found at `/`, at the first name, …, at the path itself. */
  readonly identities: readonly FileIdentity[];
  /** Whether it is in a directory that only root can change, and that only the engine sees. */
  readonly ofEngine?: true;
}

/** A copy-on-write layer over a directory of the host, which is read and never written. */
export interface OverlaySpec {
  /** The id of the fork. */
  readonly fork: string;
  /** Where this sandbox’s changes go. */
  readonly upper: OverlayPart;
  /** The kernel’s own directory beside it. */
  readonly work: OverlayPart;
  /** Changes of earlier commands, the latest first, and last the empty files over masked ones. */
  readonly lowers: readonly OverlayPart[];
  /** Paths of the workspace that are masked, relative to it; absent for none. */
  readonly masked?: readonly string[];
}

/** The copy of a workspace that a command works in. */
export interface CopySpec {
  /** The workspace. */
  readonly path: string;
  /** Paths that are masked: empty in the copy. */
  readonly masked: readonly string[];
}

/** A directory or file of the host inside the sandbox. */
export interface MountSpec {
  /**
   * Why it is there. `protected` covers a part of the workspace that host tools trust; `worktree` is the repository of a git
   * worktree; `identity` is the image’s list of users or groups with an entry for the user inside; `ca` is the user’s bundle
   * of CA certificates; `masked` is an empty file or directory over one of the workspace that holds secrets; `egress` is a part of
   * the way out of a sandbox with an allow-list; `state` is a state directory, in which only sandboxes open files; `program` is a
   * program of the store.
   */
  readonly purpose:
    | 'workspace'
    | 'protected'
    | 'worktree'
    | 'additional'
    | 'identity'
    | 'ca'
    | 'masked'
    | 'egress'
    | 'state'
    | 'program';
  /** The absolute path on the host, without links. */
  readonly source: string;
  /** The absolute path inside. */
  readonly target: string;
  /** Whether it cannot be written from inside. */
  readonly readOnly: boolean;
  /** The object that was validated; another one found at start is an attack. */
  readonly identity: FileIdentity;
  /** The layer that takes what is written; absent where the source itself is mounted. */
  readonly overlay?: OverlaySpec;
  /** What the source is a copy of, for a fork; absent for every other mount. */
  readonly copyOf?: CopySpec;
  /** What a mask hides; absent for every other mount. */
  readonly covers?: CoveredFile;
}

/** A file or directory of the host that a mask hides from the sandbox. */
export interface CoveredFile {
  /** The absolute path on the host, without links. */
  readonly path: string;
  /** The object that was found there. If another one takes its place on the host, the kernel takes the mask away. */
  readonly identity: Required<FileIdentity>;
}

/** A directory of dependencies: from the layer of the project image, over the workspace’s own. */
export interface DependencySpec {
  /** The absolute path in the image. */
  readonly source: string;
  /** The absolute path inside, below the workspace. */
  readonly target: string;
}

/** A sized file system in memory. */
export interface TmpfsSpec {
  /** The absolute path inside. */
  readonly target: string;
  /** Its size, in bytes. */
  readonly bytes: number;
  /** The permissions of its root, in octal. */
  readonly mode: string;
}

/** The image of a sandbox, resolved to what cannot move. */
export interface ImageSpec {
  /** The image as it was asked for. */
  readonly reference: string;
  /** The engine’s id of the image, which containers run by. */
  readonly id: string;
  /** Repository digest, or the id where the image never came from a registry. */
  readonly digest: string;
  /** Variables the image sets that are kept. */
  readonly environment: readonly string[];
  /** Names of variables the image sets that would change how programs load code, and are removed. */
  readonly removed: readonly string[];
}

/** A file system of a fixed size in memory, as a volume of the engine. */
export interface StoreSpec {
  /** The absolute path inside. */
  readonly target: string;
  /** Its size, in bytes. */
  readonly bytes: number;
  /** The name of the volume; empty until it is made. */
  readonly volume: string;
  /** Where the engine has the volume; empty until it is made. */
  readonly mountpoint: string;
}

/** Memory that takes what a fork’s command writes. */
export interface MemoryLayerSpec {
  /** How much may be written. */
  readonly bytes: number;
  /** A sandbox without a command, which has the file system mounted: it exists for as long as that sandbox does. */
  readonly holder: SandboxSpec;
}

/** A limit of what is read from disks, and written to them. */
export interface DiskThroughput {
  /** The block devices, as `/dev/sda`; each has the limit for itself. */
  readonly devices: readonly string[];
  /** Bytes a second; absent for no limit. */
  readonly readBytes?: number;
  /** Bytes a second; absent for no limit. */
  readonly writeBytes?: number;
}

/** Who a sandbox is: not part of its hash, since it says nothing about what the sandbox can do. */
export interface SandboxIdentity {
  /** The sandbox’s UUID. */
  readonly sandboxId: string;
  /** The container’s name. */
  readonly name: string;
  /** The container’s labels. */
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
  /** How its program is started; absent where acode does not know. */
  readonly program?: ImageProgram;
  /** Set where the engine makes those of the image’s names, which anybody who may use it can give: then each counts. */
  readonly namedOnly?: boolean;
}

/** The plan of one sandbox. */
export interface SandboxSpec {
  /** Who it is. */
  readonly identity: SandboxIdentity;
  /** The isolation level. */
  readonly level: Level;
  /** The image, resolved. */
  readonly image: ImageSpec;
  /** The user inside. */
  readonly user: UserId;
  /** The limits. */
  readonly limits: Limits;
  /** The engine’s runtime by name; null for its default. */
  readonly runtime: string | null;
  /** The network. */
  readonly network: NetworkMode;
  /** Addresses of name servers; empty for the engine’s own. */
  readonly dns: readonly string[];
  /** Ports published on 127.0.0.1. */
  readonly ports: readonly PortRequest[];
  /** The working directory inside, as an absolute path. */
  readonly workdir: string;
  /** The home directory inside, as an absolute path. */
  readonly home: string;
  /** What of the host it is given. */
  readonly mounts: readonly MountSpec[];
  /** Caches of package managers. */
  readonly caches: readonly CacheSpec[];
  /** Directories of dependencies from the project image; absent for none. Changes to them end with the sandbox. */
  readonly dependencies?: readonly DependencySpec[];
  /** File systems in memory. */
  readonly tmpfs: readonly TmpfsSpec[];
  /** What the fork that it writes may take on disk; absent where that has no limit. */
  readonly disk?: {
    /** What all its layers may take together. */
    readonly bytes: number;
  };
  /** Memory that takes what is written to its fork, with a hard limit; absent where that goes to a directory. */
  readonly memoryLayer?: MemoryLayerSpec;
  /** A file system in memory that it holds for another sandbox; absent for none. */
  readonly store?: StoreSpec;
  /** What it may read and write a second on the disks of its mounts; absent where that has no limit. */
  readonly throughput?: DiskThroughput;
  /** Sandboxes that share its loopback, and end with it; absent for none. */
  readonly services?: readonly ServiceSpec[];
  /** Hash of everything but the identity: two sandboxes with the same hash are interchangeable before use. */
  readonly hash: string;
}

/** The plan of one service. */
export interface ServiceSpec {
  /** The name that resolves to the loopback inside. */
  readonly name: string;
  /** The port that it is ready on. */
  readonly port: number;
  /** What is started in it. */
  readonly argv: readonly string[];
  /** Variables that are handed over with it. */
  readonly environment: Readonly<Record<string, string>>;
  /** How long it may take to be ready, in milliseconds. */
  readonly readyMs: number;
  /** Its sandbox. */
  readonly spec: SandboxSpec;
}
