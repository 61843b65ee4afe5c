// Images as a host program sees them: pulled, listed, and removed again when unused.

import type { BuildProjectOptions, ProjectImage } from './project-image.ts';

/** How far one layer of a pull is. */
export interface LayerProgress {
  /** The layer’s short id, in the engine’s words. */
  readonly id: string;
  /** `present`: the engine had it already; `retrying`: its download broke off and resumes in a moment. */
  readonly state: 'waiting' | 'downloading' | 'retrying' | 'downloaded' | 'extracting' | 'complete' | 'present';
  /** Bytes of the download so far. */
  readonly bytes: number;
  /** Bytes of the whole layer; null while the registry has not said. */
  readonly totalBytes: number | null;
}

/** How far a pull is. */
export interface PullProgress {
  /** The image as it was asked for. */
  readonly reference: string;
  /** In the order in which the engine named them. */
  readonly layers: readonly LayerProgress[];
  /** Bytes that were downloaded, of all layers. */
  readonly bytes: number;
  /** Bytes there are to download; null while the size of a layer is unknown. */
  readonly totalBytes: number | null;
  /** Over the last seconds; null while nothing was downloaded. */
  readonly bytesPerSecond: number | null;
  /** At that speed; null where it cannot be said. */
  readonly secondsLeft: number | null;
  /** Which try it is, from 1. */
  readonly attempt: number;
}

/** How to pull an image. */
export interface ImagePullOptions {
  /** `always` asks the registry even where the engine has the image; that is also what happens without it. */
  readonly pull?: 'missing' | 'always';
  /** Cancels the pull. */
  readonly signal?: AbortSignal;
  /** Called during the pull, at most about ten times a second, and once at its end. */
  readonly onProgress?: (progress: PullProgress) => void;
}

/** An image that a pull made sure of. */
export interface PulledImage {
  /** The image as it was asked for. */
  readonly reference: string;
  /** What containers run by; it cannot move. */
  readonly id: string;
  /** The digest in its registry; the id where it never came from one. */
  readonly digest: string;
  /** Whether something was downloaded or named anew. */
  readonly changed: boolean;
  /** The digest that the same reference had before, where it was another: the tag has moved. */
  readonly previousDigest?: string;
  /** Its size on the engine, in bytes. */
  readonly sizeBytes: number;
  /** How long the pull took, in milliseconds. */
  readonly durationMs: number;
  /** What a reader should know, such as that the tag can move. */
  readonly warnings: readonly string[];
}

/** One image that the engine has. */
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
  /** When a sandbox was last made of it, to the hour; null where that is not known. */
  readonly lastUsedAt: string | null;
  /** Containers that use it, including those that acode did not create. */
  readonly containers: number;
}

/** The images of the engine. */
export interface ImageList {
  /** The images, each once. */
  readonly items: readonly ImageInfo[];
  /** The sizes of all images added up. Layers that several share are counted for each. */
  readonly totalBytes: number;
  /** What they take on the engine’s disk, shared layers once; null where the engine does not say. */
  readonly diskBytes: number | null;
}

/** Which images are to be removed. */
export interface ImagePruneOptions {
  /** Removes nothing and reports what would be. */
  readonly dryRun?: boolean;
  /** How many days an image must not have been used; 30 by default. */
  readonly olderThanDays?: number;
  /** Cancels the prune; what it has already removed remains removed. */
  readonly signal?: AbortSignal;
}

/** An image that acode pulled or built, and what becomes of it. */
export interface PrunedImage {
  /** The name of the image. */
  readonly reference: string;
  /** The engine’s id of the image. */
  readonly id: string;
  /** 0 for a further name of an image that is not removed. */
  readonly sizeBytes: number;
  /** When a sandbox was last made of it, in ISO 8601. */
  readonly lastUsedAt: string;
}

/** Result of a prune. It ignores images that acode neither pulled nor built nor tagged. */
export interface ImagePruneReport {
  /** Images that were removed; with `dryRun`, those that would be. */
  readonly removed: readonly PrunedImage[];
  /** Images that were left alone. */
  readonly kept: readonly (PrunedImage & {
    /** Why it was left alone. */
    readonly reason: string;
  })[];
  /** Images that could not be removed. */
  readonly failed: readonly (PrunedImage & {
    /** Why it could not be removed. */
    readonly reason: string;
  })[];
  /** The sizes of what was removed, added up: the most that was freed, since layers that other images share stay. */
  readonly removedBytes: number;
  /** Whether nothing was really removed. */
  readonly dryRun: boolean;
}

/** The images of the engine. */
export interface Images {
  /**
   * Pulls one image, if its repository is trusted. Others that want the same image at the same time, here or in another
   * process, wait for the one download.
   *
   * @example
   * const { digest } = await acode.images.pull('node:20-alpine', {
   *   onProgress: ({ bytes, totalBytes }) => console.error(bytes, totalBytes),
   * });
   */
  pull(reference: string, options?: ImagePullOptions): Promise<PulledImage>;
  /** The images that the configuration names for commands that name none, each once. */
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
   * Makes an image of the workspace’s project: its files in one layer on a base image, built again only where something has
   * changed. Nothing is executed but, in a sandbox, the install command.
   *
   * @example
   * const { reference } = await acode.images.buildProject({ install: { command: ['npm', 'ci', '--ignore-scripts'] } });
   */
  buildProject(options?: BuildProjectOptions): Promise<ProjectImage>;
  /** Removes images that acode pulled or built, that no container uses and that were not used for a while. */
  prune(options?: ImagePruneOptions): Promise<ImagePruneReport>;
}

/** An image whose signature is to be verified, as it is about to be used. */
export interface SignedImage {
  /** The image as it was asked for. */
  readonly reference: string;
  /** The engine’s id of the image. */
  readonly id: string;
  /** `repository@digest` for each registry it came from; none for one that was made here. */
  readonly repositoryDigests: readonly string[];
}

/**
 * Verifies who made an image, before anything of it runs; rejects where it was not made by whom it should be. Whatever it
 * rejects with is a refusal.
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
