// An image as a plan sees it; one that would speak for acode is refused before anything is made of it.

import { AcodeError } from '../../../contract/errors.ts';
import type { ImageFacts } from '../../../contract/spec.ts';
import { RESERVED } from '../../../lifecycle/labels.ts';
import type { ImageDetails } from '../engine/images.ts';

// Podman’s own name for what was built or loaded here and never came from a registry.
const LOCAL = /^localhost\//;

/** What the plan needs to know of an image; `reference` is what it was asked for by. */
export function imageFacts(reference: string, image: ImageDetails, isPodman = false): ImageFacts {
  refuseOwnLabels(reference, image.config.Labels ?? {});
  const repositoryDigests = image.repoDigests.filter(digest => !isPodman || !LOCAL.test(digest));
  return {
    reference,
    id: image.id,
    digest: repositoryDigests[0]?.split('@')[1] ?? image.id,
    environment: image.config.Env ?? [],
    volumes: Object.keys(image.config.Volumes ?? {}),
    repositoryDigests,
    ...(isPodman || isNamedByManifest(image) ? { namedOnly: true } : {}),
  };
}

// Docker’s containerd image store, which is told by an image’s id: that is the digest of its manifest there. It makes the
// digests of whatever names an image has, also of one that was built here.
function isNamedByManifest({ id, repoDigests }: ImageDetails): boolean {
  return repoDigests.some(digest => digest.endsWith(`@${id}`));
}

// A container gets the labels of its image: with one such as acode.keep it would outlive its session.
function refuseOwnLabels(reference: string, labels: Readonly<Record<string, string>>): void {
  const own = Object.keys(labels).filter(name => name.startsWith(RESERVED));
  if (own.length === 0) return;
  throw new AcodeError('ACODE-SBX-010', {
    violation: 'DangerousImage',
    detail: `the image ${reference} has labels by which acode knows its own sandboxes (${own.slice(0, 5).join(', ')})`,
    remedy:
      'Use another image, or rebuild this one from a Dockerfile without labels that begin with acode. (`docker commit` of a sandbox takes its labels along).',
  });
}
