// What a sandbox may do: the input a caller writes, and the effective policy in which every value knows who set it.

import type { NetworkMode } from './network.ts';
import * as z from 'zod';
import { CACHE_TOOLS } from './caches.ts';
import type { CachePolicy } from './caches.ts';
import { PROFILE_NAMES } from './profiles.ts';
import type { ProfileName } from './profiles.ts';
import { LEVELS } from './levels.ts';
import type { Level, Risk } from './levels.ts';
import type { Denial } from './result.ts';

const bytes = z.int().positive();

/** A port of the sandbox to be reached from the host’s loopback. */
const portRequest = z.strictObject({
  container: z.int().min(1).max(65_535),
  host: z.int().min(1).max(65_535).optional(),
  protocol: z.enum(['tcp', 'udp']).optional(),
});

const mountRequest = z.strictObject({
  source: z.string().min(1),
  target: z.string().min(1),
  readOnly: z.boolean().optional(),
});

// By name, so that what is no cache is an error and never ignored.
const cacheTool = z.enum(CACHE_TOOLS);

/** The schema of {@link PolicyInput}: strict, so that a misspelt key is an error and never ignored. */
export const policyInputSchema = z.strictObject({
  profile: z.enum(PROFILE_NAMES).optional(),
  level: z.enum([...LEVELS, 'auto']).optional(),
  runtime: z.string().min(1).optional(),
  image: z.string().min(1).optional(),
  askedBy: z.enum(['caller', 'model']).optional(),
  pull: z.enum(['missing', 'always', 'never']).optional(),
  limits: z
    .strictObject({
      memoryBytes: bytes.optional(),
      swapBytes: z.int().nonnegative().optional(),
      // The least the engine can hold anybody to; less would round to no limit at all.
      cpus: z.number().min(0.01).optional(),
      // Init, the shell that waits, and the command with a few of its own.
      pids: z.int().min(8).optional(),
      // The engine itself needs some to start a container.
      openFiles: z.int().min(32).optional(),
      tmpBytes: z.int().min(65_536).optional(),
      outputBytes: z.int().nonnegative().optional(),
    })
    .optional(),
  timeoutMs: z.int().positive().optional(),
  network: z
    .union([
      z.enum(['none', 'bridge']),
      z.strictObject({ name: z.string().min(1) }),
      z.strictObject({ allow: z.array(z.string()).readonly() }),
    ])
    .optional(),
  ports: z.array(portRequest).optional(),
  dns: z.array(z.string()).optional(),
  workspace: z.enum(['direct', 'readonly', 'fork']).optional(),
  mounts: z.array(mountRequest).optional(),
  caches: z
    .union([z.array(cacheTool).readonly(), z.literal(false), z.strictObject({ fill: z.array(cacheTool).readonly() })])
    .optional(),
  user: z.union([z.literal('caller'), z.templateLiteral([z.int(), ':', z.int()])]).optional(),
});

/**
 * What a caller may say about a sandbox; what is absent comes from the configured layers.
 *
 * `askedBy: 'model'` says that a model chose these values, as in a tool call. Then `image` must be on the trust list and have
 * come from that registry, or be named in the user’s own file; and acode pulls only images that this file or its own table of
 * languages names. The default is `'caller'`: the program or person behind the call is responsible for the image.
 *
 * @example
 * const policy: PolicyInput = { image: 'node:20-alpine', limits: { memoryBytes: 256 * 1024 ** 2 }, timeoutMs: 30_000 };
 */
export type PolicyInput = z.input<typeof policyInputSchema>;

/** A port of the sandbox to be reached from the host’s loopback. */
export type PortRequest = z.input<typeof portRequest>;

/** A directory of the host that a sandbox is given besides its workspace; read-only unless told otherwise. */
export type MountRequest = z.input<typeof mountRequest>;

/**
 * The layers a value can come from, weakest voice first. `machine` sets ceilings only; `repository` is untrusted and may
 * tighten, unless the user trusted that very content.
 */
export type Layer = 'built-in' | 'machine' | 'user' | 'repository' | 'request';

/** A value and who set it. */
export interface Sourced<Value> {
  readonly value: Value;
  readonly layer: Layer;
  /** Where in that layer: a field of the request, or file, line, column and key. */
  readonly where: string;
}

/** The limits of a sandbox. Each one is always set. */
export interface Limits {
  memoryBytes: number;
  swapBytes: number;
  cpus: number;
  pids: number;
  openFiles: number;
  tmpBytes: number;
  outputBytes: number;
}

/** A user and group by number. */
export interface UserId {
  readonly uid: number;
  readonly gid: number;
}

/** The policy that counts: every layer merged, clamped by every ceiling, each value with its source. */
export interface EffectivePolicy {
  /** `airgapped` beats everything that would enable a network. */
  readonly mode: Sourced<'local-only' | 'airgapped'>;
  readonly profile: Sourced<ProfileName>;
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
  readonly image: Sourced<string>;
  /** What led to the image, as a clause: a file of the workspace, or that it was asked for. */
  readonly imageReason: string;
  readonly imageTrust: ImageTrust;
  readonly imageNaming: ImageNaming;
  readonly pull: Sourced<'missing' | 'always' | 'never'>;
  /** Whether no registry is ever asked for anything. */
  readonly offline: Sourced<boolean>;
  readonly limits: { readonly [Name in keyof Limits]: Sourced<Limits[Name]> };
  readonly timeoutMs: Sourced<number>;
  readonly network: Sourced<NetworkMode>;
  /** How long the network stays connected; null for as long as the command runs. */
  readonly networkTimeoutMs: Sourced<number | null>;
  readonly dns: Sourced<readonly string[]>;
  readonly ports: Sourced<readonly PortRequest[]>;
  /** A bundle of CA certificates for sandboxes with a network; null for the image’s own. */
  readonly caFile: Sourced<string | null>;
  readonly workspace: Sourced<'direct' | 'readonly'>;
  readonly mounts: Sourced<readonly MountRequest[]>;
  /** The caches of package managers that the sandbox is to have. */
  readonly caches: Sourced<CachePolicy>;
  /** Directories outside the workspace that mounts may come from. Only the user’s own configuration names them. */
  readonly hostRoots: Sourced<readonly string[]>;
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
  /** Images that the user’s own file names: repositories of `trusted_images` without `*`, and references of `images`. */
  readonly listed: { readonly repositories: readonly string[]; readonly references: readonly string[] };
  /** The only references, in full, that may be pulled for this request; null where the trust list alone decides. */
  readonly pullable: readonly string[] | null;
  /** The name of this workspace’s own project image; null where it is not known. */
  readonly projectImage: string | null;
}
