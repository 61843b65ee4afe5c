// Image API of a host program: pull, list, build and prune.

import type { BuildProjectOptions, ProjectImage } from './project-image.ts';

/** Progress of one layer of a pull. */
export interface LayerProgress {
  /** The layer’s short id, as the engine reports it. */
  readonly id: string;
  /** `present`: the engine already had it; `retrying`: its download was interrupted and resumes shortly. */
  readonly state: 'waiting' | 'downloading' | 'retrying' | 'downloaded' | 'extracting' | 'complete' | 'present';
  /** Bytes downloaded so far. */
  readonly bytes: number;
  /** Size of the layer in bytes; null until the registry reports it. */
  readonly totalBytes: number | null;
}

/** Progress of a pull. */
export interface PullProgress {
  /** The image as it was asked for. */
  readonly reference: string;
  /** The layers, in the order in which the engine first reported them. */
  readonly layers: readonly LayerProgress[];
  /** Bytes downloaded so far, of all layers. */
  readonly bytes: number;
  /** Bytes to download in total; null while the size of any layer is unknown. */
  readonly totalBytes: number | null;
  /** Download speed over the last few seconds; null before anything was downloaded. */
  readonly bytesPerSecond: number | null;
  /** Estimated seconds until the download ends; null if acode cannot estimate it. */
  readonly secondsLeft: number | null;
  /** The number of the attempt, from 1. */
  readonly attempt: number;
}

/** Options for pulling an image. */
export interface ImagePullOptions {
  /**
   * When to contact the registry. `always` (the default) does so even if the engine has the image; `missing` only if it
   * does not.
   */
  readonly pull?: 'missing' | 'always';
  /** Cancels the pull. */
  readonly signal?: AbortSignal;
  /** Called during the pull, at most about ten times a second, and once at its end. */
  readonly onProgress?: (progress: PullProgress) => void;
}

/** The image that a pull provided. */
export interface PulledImage {
  /** The image as it was asked for. */
  readonly reference: string;
  /** The engine’s id of the image. Containers run by id; unlike a tag, it never moves. */
  readonly id: string;
  /** The digest in its registry; the id if the image did not come from a registry. */
  readonly digest: string;
  /** Whether the pull downloaded anything or changed a tag. */
  readonly changed: boolean;
  /** The previous digest of this reference, if it differs: the tag has moved. */
  readonly previousDigest?: string;
  /** Its size on the engine, in bytes. */
  readonly sizeBytes: number;
  /** How long the pull took, in milliseconds. */
  readonly durationMs: number;
  /** Warnings for the user, such as that the tag can move. */
  readonly warnings: readonly string[];
}

/** One image on the engine. */
export interface ImageInfo {
  /** The engine’s id of the image. */
  readonly id: string;
  /** Its names, such as `node:20-alpine`. */
  readonly tags: readonly string[];
  /** `repository@digest` for each repository it came from. */
  readonly digests: readonly string[];
  /** Its size, in bytes. */
  readonly sizeBytes: number;
  /** When it was built, in ISO 8601. */
  readonly createdAt: string;
  /** Whether acode pulled it, rather than another program or user. */
  readonly pulledByAcode: boolean;
  /** When acode pulled it, in ISO 8601; null if it did not. */
  readonly pulledAt: string | null;
  /** When acode last created a sandbox from it, to the hour; null if that is not known. */
  readonly lastUsedAt: string | null;
  /** Containers that use it, including those that acode did not create. */
  readonly containers: number;
}

/** The images of the engine. */
export interface ImageList {
  /** The images, each once. */
  readonly items: readonly ImageInfo[];
  /** The sum of all image sizes. A layer that several images share counts once for each. */
  readonly totalBytes: number;
  /**
   * Disk space that the images use on the engine, with shared layers counted once; null if the engine does not report
   * it.
   */
  readonly diskBytes: number | null;
}

/** Options that select which images to prune. */
export interface ImagePruneOptions {
  /** Removes nothing; reports what a prune would remove. */
  readonly dryRun?: boolean;
  /** Removes only images unused for at least this many days; 30 by default. */
  readonly olderThanDays?: number;
  /** Cancels the prune; what it has already removed remains removed. */
  readonly signal?: AbortSignal;
}

/** An image that a prune considered: one that acode pulled or built. */
export interface PrunedImage {
  /** The name of the image. */
  readonly reference: string;
  /** The engine’s id of the image. */
  readonly id: string;
  /** Its size, in bytes; 0 for an additional name of an image that is not removed. */
  readonly sizeBytes: number;
  /** When acode last created a sandbox from it, in ISO 8601. */
  readonly lastUsedAt: string;
}

/** Result of a prune. It ignores images that acode neither pulled nor built nor tagged. */
export interface ImagePruneReport {
  /** Images that were removed; with `dryRun`, those that would be. */
  readonly removed: readonly PrunedImage[];
  /** Images that the prune did not remove. */
  readonly kept: readonly (PrunedImage & {
    /** Why the prune did not remove it. */
    readonly reason: string;
  })[];
  /** Images that could not be removed. */
  readonly failed: readonly (PrunedImage & {
    /** Why it could not be removed. */
    readonly reason: string;
  })[];
  /**
   * The sum of the removed images’ sizes. The freed space may be smaller, since layers shared with other images remain.
   */
  readonly removedBytes: number;
  /** Whether this was a dry run, which removes nothing. */
  readonly dryRun: boolean;
}

/** The images of the engine. */
export interface Images {
  /**
   * Pulls one image, if its repository is trusted. Concurrent calls for the same image, also from other processes,
   * share one download.
   *
   * @example
   * const { digest } = await acode.images.pull('node:20-alpine', {
   *   onProgress: ({ bytes, totalBytes }) => console.error(bytes, totalBytes),
   * });
   */
  pull(reference: string, options?: ImagePullOptions): Promise<PulledImage>;
  /** The default images of the configuration, each once: what a command gets if it names no image. */
  defaults(): Promise<readonly string[]>;
  /** Whether the engine has an image. Never pulls. */
  isPresent(
    reference: string,
    options?: {
      /** Cancels the call. */
      readonly signal?: AbortSignal;
    },
  ): Promise<boolean>;
  /** Every image of the engine. */
  list(options?: {
    /** Cancels the call. */
    readonly signal?: AbortSignal;
  }): Promise<ImageList>;
  /**
   * Builds an image of the workspace’s project: its files in one layer on a base image. Builds again only if something
   * has changed. The build executes nothing except the install command, which runs in a sandbox.
   *
   * @example
   * const { reference } = await acode.images.buildProject({ install: { command: ['npm', 'ci', '--ignore-scripts'] } });
   */
  buildProject(options?: BuildProjectOptions): Promise<ProjectImage>;
  /** Removes images that acode pulled or built, that no container uses, and that were unused for a while. */
  prune(options?: ImagePruneOptions): Promise<ImagePruneReport>;
}

/** An image about to be used, whose signature is to be verified. */
export interface SignedImage {
  /** The image as it was asked for. */
  readonly reference: string;
  /** The engine’s id of the image. */
  readonly id: string;
  /** `repository@digest` for each registry it came from; empty for an image that was built locally. */
  readonly repositoryDigests: readonly string[];
}

/**
 * Verifies the publisher of an image before anything of it runs. Any rejection makes acode refuse the image.
 *
 * @example
 * const allowed = new Set(['ghcr.io/me/tools@sha256:…']);
 * await Acode.open({
 *   verifySignature: async ({ repositoryDigests }) => {
 *     if (!repositoryDigests.some(digest => allowed.has(digest))) throw new Error('no signer I trust');
 *   },
 * });
 */
export type VerifySignature = (image: SignedImage, signal: AbortSignal) => Promise<void>;

/** Credentials for a registry. acode passes them to the engine for one pull and does not store them. */
export interface RegistryLogin {
  readonly username?: string;
  readonly password?: string;
  readonly identitytoken?: string;
  readonly serveraddress: string;
}
