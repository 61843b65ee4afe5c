// Pulls as the images of a host share them: locks, what was pulled before, and what is wanted now.

import type { PullProgress, VerifySignature } from '../contract/images.ts';
import type { Host, WantedImage } from '../run/host.ts';
import type { PulledImages } from './registry/pulled.ts';
import type { SharedWork } from './registry/shared-work.ts';
import type { Locks } from '../lifecycle/lock.ts';

/** What a host needs to pull images. */
export interface Pulls {
  readonly locks: Locks;
  /** What was pulled. */
  readonly index: PulledImages;
  readonly shared: SharedWork<PullProgress, PullOutcome>;
  readonly verifySignature: VerifySignature | null;
}

/** What one pull came to. */
export interface PullOutcome {
  /** Whether the reference means another image than before. */
  readonly changed: boolean;
  readonly previousDigest: string | null;
}

/** A host that can pull. */
export interface ImageHost extends Host {
  readonly pulls: Pulls;
}

/** An image that somebody wants. */
export interface Wanted extends WantedImage {
  readonly onProgress?: ((progress: PullProgress) => void) | undefined;
}
