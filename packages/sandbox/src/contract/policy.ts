// Policies: the input a caller writes, and the effective policy in which every value knows who set it. Without a schema: the
// command line loads this file with every call.

import type { GitSsh } from './egress.ts';
import type { CredentialRequest } from './credentials.ts';
import type { NetworkMode } from './network.ts';
import type { CachePolicy, CacheTool } from './caches.ts';
import type { MaskPolicy } from './masks.ts';
import type { ProfileName } from './profiles.ts';
import type { Level, Risk } from './levels.ts';
import type { Denial } from './denials.ts';
import type { ProgramRequest } from './programs.ts';
import type { ServiceInput, ServiceRequest } from './services.ts';
import type { Sourced } from './sourced.ts';

/**
 * Every field of a policy. {@link PolicyInput} is this type without the combinations that acode always refuses. Use this one,
 * with {@link policyFrom}, for a policy that is put together at run time.
 */
export interface PolicyFields {
  /**
   * The built-in limits that count where no layer sets one. The library’s default is `exec` (512 MiB, 1 CPU, 5 minutes); the command and
   * `acode mcp` use `dev`.
   */
  profile?: ProfileName | undefined;
  /** The isolation level. `auto`, the default, is the strongest that the host has, and never weaker than `docker`. */
  level?: Level | 'auto' | undefined;
  /** The engine’s OCI runtime by name, such as `runsc`; the engine’s default unless the level needs another. */
  runtime?: string | undefined;
  /** The image, such as `node:20-alpine`. By default, the one that the configuration names for the workspace’s language. */
  image?: string | undefined;
  /**
   * Who chose these values. `model`: a model did, as in a tool call. Then `image` must be on the trust list and have come from that
   * registry, or be named in the user’s own file; and acode pulls only images that this file or its own table of languages
   * names. `caller`, the default: the program or person behind the call answers for the image.
   */
  askedBy?: 'caller' | 'model' | undefined;
  /** When the image is pulled: if the engine does not have it (the default), before every run, or never. */
  pull?: 'missing' | 'always' | 'never' | undefined;
  /** Limits. Each may be lower than what the layers say; a higher one is lowered to their ceiling, with a warning. */
  limits?: LimitsInput | undefined;
  /** The time limit of the command, in milliseconds; then SIGTERM, a grace period, SIGKILL. `exec`: 5 minutes; `dev`: 10. */
  timeoutMs?: number | undefined;
  /**
   * What happens when the kernel kills a process because the memory limit is reached. `report`, the default: the others go on,
   * and the result has `oomKilled`. `end`: acode ends the whole command. Needs an engine that reports it: not Podman.
   */
  onOutOfMemory?: 'report' | 'end' | undefined;
  /**
   * The network. `none`, the default: only the sandbox’s own loopback. `bridge`: the internet and services of the host, with the
   * user’s consent in their file. `{ name }`: a network of the engine that the user’s file lists. `{ allow }`: only these
   * presets and hosts, through a proxy that decides about each connection.
   *
   * @example
   * const policy: PolicyInput = { network: { allow: ['npm:install', 'tcp:db.example:5432'] } };
   */
  network?: 'none' | 'bridge' | NamedNetwork | AllowedHosts | undefined;
  /**
   * What the connections of an allow-list may take together. By default, what the configuration says, else no limit. No other
   * network can be limited: acode refuses a limit for one.
   *
   * @example
   * const policy: PolicyInput = { network: { allow: ['pypi'] }, networkLimits: { bytesPerSecond: 1024 ** 2 } };
   */
  networkLimits?: NetworkLimitsInput | undefined;
  /** Ports inside to publish on 127.0.0.1. Needs a network. */
  ports?: PortRequest[] | undefined;
  /** Addresses of up to 3 name servers. Needs a network; by default, the engine’s own. */
  dns?: string[] | undefined;
  /**
   * How the sandbox sees the workspace. `direct`, the default: it writes the host’s own files, except protected ones such as
   * `.git`. `readonly`: it cannot write. `fork`: it
   * writes a copy-on-write layer, and the host’s files stay as they are until the changes are applied.
   */
  workspace?: 'direct' | 'readonly' | 'fork' | undefined;
  /**
   * Where the workspace is inside: an absolute path that no part of the system or of the sandbox has, or `same` for its own path on
   * this machine. By default `/workspace`; in a fork of a linked worktree, its own path, where git looks for it.
   *
   * @example
   * const policy: PolicyInput = { workspacePath: 'same' };
   */
  workspacePath?: string | undefined;
  /** Directories of the host besides the workspace, from roots that the user’s file allows. None by default. */
  mounts?: MountRequest[] | undefined;
  /**
   * Caches of package managers. A list: these tools, each with a layer of its own over the cache that is discarded with the sandbox.
   * `{ fill }`: what the sandbox writes is kept for later ones. `false`: none. By default, what the configuration says.
   *
   * @example
   * const policy: PolicyInput = { caches: ['npm', 'pip'] };
   */
  caches?: readonly CacheTool[] | false | FilledCaches | undefined;
  /**
   * Whether the sandbox runs on the project image of the workspace and has its dependencies, such as `node_modules`, where the
   * workspace expects them; false by default. What it writes there ends with it. Needs `acode.images.buildProject` first.
   */
  deps?: boolean | undefined;
  /** The user inside: the caller’s own ids (the default), or `uid:gid`. Never root. */
  user?: 'caller' | `${number}:${number}` | undefined;
  /**
   * The fork to use: a name or an id, or `new` for a fresh one; by default the workspace’s current one. A name that does not exist
   * yet is made. Implies `workspace: 'fork'`.
   */
  fork?: string | undefined;
  /**
   * Sandboxes beside the command that share its loopback and end with it, such as a database: a name, and an image or more. The
   * command reaches each by its name once it listens. `{}` for none. By default, what the configuration says. Needs level `docker`,
   * and the network `none` or an allow-list.
   *
   * @example
   * const policy: PolicyInput = { services: { cache: 'redis:7', db: { image: 'acme/db:2', port: 5432 } } };
   */
  services?: Record<string, string | ServiceInput> | undefined;
  /** Programs of the store (`Acode.programs`) that the sandbox has, whatever its image. Needs an engine. */
  programs?: ProgramRequest[] | undefined;
  /**
   * A directory that sandboxes of this project keep from one to the next, at `/state` inside. Only sandboxes open files in it, one at a
   * time, and acode never reads it. Needs an engine.
   *
   * @example
   * const policy: PolicyInput = { state: { name: 'notes' } };
   */
  state?: StateRequest | undefined;
  /**
   * The disk limit of a fork: what all its layers may take together. acode watches it, and ends a command that reaches it; what the
   * command writes until then may exceed it. Needs `workspace: 'fork'`. By default, what the configuration says, else no limit.
   *
   * @example
   * const policy: PolicyInput = { workspace: 'fork', disk: { bytes: 2 * 1024 ** 3 } };
   */
  disk?: DiskInput | undefined;
  /**
   * Whether the fork is a copy of the workspace, whatever its size, and not an overlay. By default acode copies only where no overlay can
   * be mounted, and at most 200,000 entries and 2 GiB. Needs `workspace: 'fork'`.
   */
  forkCopy?: boolean | undefined;
}

/** A network of the engine that the user’s file lists. */
export interface NamedNetwork {
  /** Its name on the engine. */
  name: string;
}

/** An allow-list: the only hosts that a sandbox may reach. */
export interface AllowedHosts {
  /** Presets such as `npm:install`, and hosts such as `registry.npmjs.org`, `*.example.com` or `tcp:db.example:5432`. */
  allow: readonly string[];
  /**
   * Credentials by their names, for this sandbox, besides those of the user’s configuration. The proxy adds them to requests; the
   * sandbox never has their values. A model cannot ask for any.
   *
   * @example
   * const network: AllowedHosts = {
   *   allow: ['anthropic'],
   *   credentials: { anthropic: { from: { env: 'ANTHROPIC_API_KEY' }, mode: 'base-url' } },
   * };
   */
  credentials?: Readonly<Record<string, CredentialRequest>> | undefined;
}

/** Limits of an allow-list’s connections. What is absent comes from the configured layers. */
export interface NetworkLimitsInput {
  /** Bytes a second in each direction. */
  bytesPerSecond?: number | undefined;
  /** Bytes in both directions together; the connection that reaches it is closed, and so is every later one. */
  bytes?: number | undefined;
  /**
   * Requests that acode adds a credential to, such as those to the model of a coding agent. The command ends with the one after them.
   * Needs such a credential.
   */
  requests?: number | undefined;
  /**
   * Tokens of language models, as the answers to such requests count them; an answer without figures counts with a quarter of its
   * bytes. The command ends with the request after them. Needs such a credential.
   */
  tokens?: number | undefined;
}

/** Caches that the sandbox may fill. */
export interface FilledCaches {
  /** The tools whose caches keep what the sandbox writes, for every later sandbox of this user. */
  fill: readonly CacheTool[];
}

/** The limits of a request. What is absent comes from the configured layers. */
export interface LimitsInput {
  /** Memory of all processes together, in bytes. `exec`: 512 MiB; `dev`: a quarter of the host’s memory, 1 to 4 GiB. */
  memoryBytes?: number | undefined;
  /** Swap beyond the memory, in bytes; 0, the default, for none. */
  swapBytes?: number | undefined;
  /** CPUs, 0.01 or more; 0.5 is half of one. `exec`: 1; `dev`: those of the host, at most 4. */
  cpus?: number | undefined;
  /** Processes and threads at once, 8 or more. `exec`: 256; `dev`: 1,024. */
  pids?: number | undefined;
  /** Open files of each process, 32 or more. `exec`: 1,024; `dev`: 8,192. */
  openFiles?: number | undefined;
  /** Size of `/tmp` and of the home directory each, in bytes, 64 KiB or more. Both are in memory. `exec`: 64 MiB. */
  tmpBytes?: number | undefined;
  /** Bytes of each output stream that are kept; the rest is read, counted and dropped. 10 MiB by default. */
  outputBytes?: number | undefined;
}

/** Path of the state directory inside a sandbox. */
export const STATE_TARGET = '/state';

/** Names of state directories. */
export const STATE_NAME = /^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$/;

/** A state directory: what sandboxes of a project keep for themselves. */
export interface StateRequest {
  /** Its name in this project: small letters, digits and hyphens. */
  name: string;
  /** The size that it may have, in bytes, 1 MiB or more; 2 GiB by default. Checked at the start, and watched during `run`. */
  bytes?: number | undefined;
  /** Whether what is in it is removed first; false by default. */
  fresh?: boolean | undefined;
}

/** What a fork may take on disk. */
export interface DiskInput {
  /** The limit, in bytes, 1 MiB or more. */
  bytes: number;
  /**
   * Whether writes beyond the limit fail with “no space left on device”: what the command writes is in memory then, at most half of the
   * memory limit, and is copied to the fork when the command has ended. Needs runc on a Docker Engine; false by default.
   */
  hard?: boolean | undefined;
}

/**
 * What a caller may say about a sandbox; what is absent comes from the configured layers. Every field is optional. Combinations that
 * are always refused do not compile: `ports` or `dns` with a network that has none of its own, `image` or `runtime` at a
 * level without an engine. JavaScript callers get ACODE-SBX-016 or ACODE-SBX-017 at run time.
 *
 * @example
 * const policy: PolicyInput = { image: 'node:20-alpine', limits: { memoryBytes: 256 * 1024 ** 2 }, timeoutMs: 30_000 };
 */
export type PolicyInput = PolicyFields & PortsNeedNetwork & ImagesNeedEngine;

/**
 * Ports and name servers only where there may be a network. The network may be left out: then the layers decide, and a port
 * without one is refused at run time.
 */
type PortsNeedNetwork =
  | {
      /** A network of the engine: ports and name servers need one. Left out, the files decide. See {@link PolicyFields}. */
      network?: 'bridge' | NamedNetwork | undefined;
    }
  | {
      /** None. */
      ports?: never[] | undefined;
      /** None. */
      dns?: never[] | undefined;
    };

/** An image and a runtime only where there is an engine: the other levels run the programs of this host. */
type ImagesNeedEngine =
  | {
      /** A level with an engine. */
      level?: 'docker' | 'gvisor' | 'microvm' | 'auto' | undefined;
    }
  | {
      /** None. */
      image?: undefined;
      /** None. */
      runtime?: undefined;
    };

/**
 * A policy that was put together at run time, such as from JSON or options of a command line, where the compiler cannot see which
 * fields go together. Checks nothing: `run`, `spawn` and `create` refuse what no policy may hold.
 *
 * @example
 * const chosen: PolicyFields = JSON.parse('{ "level": "docker", "image": "node:20-alpine" }');
 * await acode.run('npm test', { policy: policyFrom(chosen) });
 */
export function policyFrom(fields: PolicyFields): PolicyInput {
  // oxlint-disable-next-line no-unsafe-type-assertion -- every field is checked where a policy is used
  return fields as PolicyInput;
}

/** A port of the sandbox to be reached from the host’s loopback. */
export interface PortRequest {
  /** The port inside, 1 to 65,535. */
  container: number;
  /** The port on 127.0.0.1; any free one by default. */
  host?: number | undefined;
  /** The protocol; `tcp` by default. */
  protocol?: 'tcp' | 'udp' | undefined;
}

/** A directory of the host that a sandbox is given besides its workspace. */
export interface MountRequest {
  /** The absolute path on the host. */
  source: string;
  /** The absolute path inside. */
  target: string;
  /** Whether it cannot be written from inside; true by default. */
  readOnly?: boolean | undefined;
}

export type { Layer, Sourced } from './sourced.ts';

/** The limits of a sandbox. Each one is always set. */
export interface Limits {
  /** Memory of all processes together, in bytes. */
  memoryBytes: number;
  /** Swap beyond the memory, in bytes; 0 for none. */
  swapBytes: number;
  /** CPUs; 0.5 is half of one. */
  cpus: number;
  /** Processes and threads at once. */
  pids: number;
  /** Open files of each process. */
  openFiles: number;
  /** Size of `/tmp` and of the home directory each, in bytes. Both are in memory. */
  tmpBytes: number;
  /** Bytes of each output stream that are kept; the rest is read and counted. */
  outputBytes: number;
}

/** A user and group by number. */
export interface UserId {
  /** The user id. */
  readonly uid: number;
  /** The group id. */
  readonly gid: number;
}

/** The policy that counts: every layer merged, clamped by every ceiling, each value with its source. */
export interface EffectivePolicy {
  /** `airgapped` beats everything that would enable a network. */
  readonly mode: Sourced<'local-only' | 'airgapped' | 'burst'>;
  /** The profile whose built-in limits count. */
  readonly profile: Sourced<ProfileName>;
  /** The level that was asked for; `auto` is the strongest that the host has. */
  readonly level: Sourced<Level | 'auto'>;
  /** How dangerous the command is: what its caller said, raised by rules. */
  readonly risk: Sourced<Risk>;
  /** The rules that raised it. */
  readonly riskReasons: readonly string[];
  /** The least level that this risk needs here. */
  readonly required: Sourced<Level>;
  /** Whether bubblewrap may stand in where there is no engine at all. */
  readonly fallback: Sourced<'refuse' | 'warn'>;
  /** The engine’s runtime by name; null for its default. */
  readonly runtime: Sourced<string | null>;
  /** The image, as a reference. */
  readonly image: Sourced<string>;
  /** What led to the image, as a clause: a file of the workspace, or that it was asked for. */
  readonly imageReason: string;
  /** Which images may be run. */
  readonly imageTrust: ImageTrust;
  /** Who named the image, and what that allows. */
  readonly imageNaming: ImageNaming;
  /** When the image is pulled. */
  readonly pull: Sourced<'missing' | 'always' | 'never'>;
  /** Whether no registry is ever asked for anything. */
  readonly offline: Sourced<boolean>;
  /** The limits, each with its source. */
  readonly limits: { readonly [Name in keyof Limits]: Sourced<Limits[Name]> };
  /** The time limit of the command, in milliseconds. */
  readonly timeoutMs: Sourced<number>;
  /** Whether a command ends as a whole when the kernel kills one of its processes for lack of memory. */
  readonly onOutOfMemory: Sourced<'report' | 'end'>;
  /** The network. */
  readonly network: Sourced<NetworkMode>;
  /** How long the network remains connected; null for as long as the command runs. */
  readonly networkTimeoutMs: Sourced<number | null>;
  /** Bytes a second that the connections of an allow-list may take in each direction; null for no limit. */
  readonly networkRate: Sourced<number | null>;
  /** Bytes that they may take in all; null for no limit. */
  readonly networkBytes: Sourced<number | null>;
  /** Requests that acode adds a credential to, until the command ends; null for no limit. */
  readonly networkRequests: Sourced<number | null>;
  /** Tokens that the answers to such requests count, until the command ends; null for no limit. */
  readonly networkTokens: Sourced<number | null>;
  /** The proxy of a company through which the connections of an allow-list leave this host; null for none. */
  readonly upstreamProxy: Sourced<string | null>;
  /** How acode runs `ssh` for repositories of an allow-list. Only the user’s own file changes it. */
  readonly gitSsh: Sourced<GitSsh>;
  /** Addresses of name servers; empty for the engine’s own. */
  readonly dns: Sourced<readonly string[]>;
  /** Ports published on 127.0.0.1. */
  readonly ports: Sourced<readonly PortRequest[]>;
  /** A bundle of CA certificates for sandboxes with a network; null for the image’s own. */
  readonly caFile: Sourced<string | null>;
  /** How the sandbox sees the workspace. */
  readonly workspace: Sourced<'direct' | 'readonly' | 'fork'>;
  /** Where the workspace is inside; before a plan is made, `same` for its own path on this machine. */
  readonly workspacePath: Sourced<string>;
  /** The fork that was named: its name or id, or `new`; null for the workspace’s current one. */
  readonly fork: Sourced<string | null>;
  /** The services beside the command. */
  readonly services: Sourced<readonly ServiceRequest[]>;
  /** Programs of the store that the sandbox has. */
  readonly programs: Sourced<readonly ProgramRequest[]>;
  /** The state directory that the sandbox has; null for none. */
  readonly state: Sourced<StateRequest | null>;
  /** Whether the fork is a copy of the workspace, whatever its size, in place of an overlay. */
  readonly forkCopy: Sourced<boolean>;
  /** What the fork may take on disk, in bytes; null for no limit. Without a fork it has no effect. */
  readonly diskBytes: Sourced<number | null>;
  /** Whether a command in the fork writes to memory of the size of that limit, and gets “no space left” at it. */
  readonly diskHard: Sourced<boolean>;
  /** Bytes a second that the sandbox may read from the disk of the workspace; null for no limit. */
  readonly diskReadRate: Sourced<number | null>;
  /** Bytes a second that it may write to that disk; null for no limit. */
  readonly diskWriteRate: Sourced<number | null>;
  /** Directories of the host besides the workspace. */
  readonly mounts: Sourced<readonly MountRequest[]>;
  /** The caches of package managers that the sandbox is to have. */
  readonly caches: Sourced<CachePolicy>;
  /** Whether the sandbox has the dependencies of the project image. */
  readonly deps: Sourced<boolean>;
  /** Directories outside the workspace that mounts may come from. Only the user’s own configuration names them. */
  readonly hostRoots: Sourced<readonly string[]>;
  /** Files of the workspace that are present and empty inside, beyond the built-in rules, and those that are not. */
  readonly masks: MaskPolicy;
  /** The user inside. */
  readonly user: Sourced<UserId>;
  /** What was lowered to a ceiling, and old keys that were understood, in sentences. */
  readonly warnings: readonly string[];
  /** What was asked for and is denied without ending the run, such as a network in air-gapped mode. */
  readonly denials: readonly Denial[];
}

/** Which images may be run. */
export interface ImageTrust {
  /** Repositories with their registry, a trailing `*` for everything below: `docker.io/library/*`. */
  readonly repositories: Sourced<readonly string[]>;
  /** A list of the machine’s own that an image must be in as well; null where there is none. */
  readonly machineRepositories: Sourced<readonly string[]> | null;
  /** Whether images from anywhere may be run. */
  readonly anywhere: Sourced<boolean>;
  /** Whether a reference must name a digest. */
  readonly requireDigest: Sourced<boolean>;
}

/** Who named the image of a run, and what that lets them name. */
export interface ImageNaming {
  /** Who named it, if the user does not vouch for them: a repository’s file that is not trusted, or a model. Else null. */
  readonly untrusted: 'repository' | 'model' | null;
  /** Whether a repository’s file named it that the user trusted with other content. Absent means no. */
  readonly changed?: boolean;
  /** Images that the user’s own file names: repositories of `trusted_images` without `*`, and references of `images`. */
  readonly listed: {
    /** Repositories that `trusted_images` names without `*`. */
    readonly repositories: readonly string[];
    /** References that `images` names. */
    readonly references: readonly string[];
  };
  /** The only references, in full, that may be pulled for this request; null where the trust list alone decides. */
  readonly pullable: readonly string[] | null;
  /** The name of this workspace’s own project image; null where it is not known. */
  readonly projectImage: string | null;
}
