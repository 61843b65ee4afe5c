// Which images a repository’s own file or a model may name: what the user trusts, and nothing that merely lies on this machine. Pure.

import { createHash } from 'node:crypto';
import type { Config } from './config/schema.ts';
import { AcodeError } from '../contract/errors.ts';
import { LANGUAGES } from '../contract/languages.ts';
import type { EffectivePolicy, ImageNaming, PolicyFields, Sourced } from '../contract/policy.ts';
import type { ImageFacts } from '../contract/spec.ts';
import { fullName, isListed, parseReference } from './images.ts';
import type { ImageReference } from './images.ts';
import { resolveImageTrust } from './image-trust.ts';
import { setBy } from './layers.ts';
import type { Layers } from './layers.ts';
import { DEFAULT_IMAGE, LANGUAGE_IMAGES } from './profiles.ts';
import { isLocal } from './pull.ts';
import type { TrustKey } from './repository.ts';

/** Who named the image, and what the user’s own file lets them name. */
export function resolveImageNaming(
  layers: Layers,
  image: Sourced<string>,
  askedBy: PolicyFields['askedBy'],
  projectImage: string | undefined,
): ImageNaming {
  const { user } = layers;
  const references = fullNames(imagesIn(user.config));
  return {
    untrusted: whoNamed(layers, image, askedBy),
    listed: {
      // `ghcr.io/me/*` trusts a place in a registry. It does not name each image of this machine that is called so.
      repositories: (user.config.sandbox?.security?.trusted_images ?? []).filter(one => !one.endsWith('/*')),
      references,
    },
    pullable: askedBy === 'model' ? [...references, ...fullNames(answeredFor(layers))] : null,
    projectImage: projectImage === undefined ? null : fullName(projectImage),
  };
}

function whoNamed({ repository }: Layers, { layer }: Sourced<string>, askedBy: PolicyFields['askedBy']) {
  if (layer === 'repository') return repository?.trusted === true ? null : 'repository';
  return layer === 'request' && askedBy === 'model' ? 'model' : null;
}

// What acode chooses by itself, and what the user agreed to when they trusted the repository’s file.
function answeredFor({ repository }: Layers): readonly string[] {
  const trusted = repository?.trusted === true ? imagesIn(repository.config) : [];
  return [DEFAULT_IMAGE, ...Object.values(LANGUAGE_IMAGES), ...trusted];
}

function imagesIn(config: Config): readonly string[] {
  return Object.values(keyedImages(config));
}

function keyedImages({ sandbox }: Config): Readonly<Record<string, string>> {
  const { combined = {}, ...images } = sandbox?.images ?? {};
  const named = [
    ...['default' as const, ...LANGUAGES].map(key => [key, images[key]] as const),
    ...Object.entries(combined).map(([key, image]) => [`combined.${key}`, image] as const),
  ];
  const keyed: Record<string, string> = {};
  for (const [key, image] of named) if (image !== undefined) keyed[`sandbox.images.${key}`] = image;
  return keyed;
}

function fullNames(references: readonly string[]): readonly string[] {
  return references.flatMap(one => fullName(one) ?? []);
}

/** The part of a policy that says who named which image. */
export type NamedImage = Pick<EffectivePolicy, 'image' | 'imageTrust' | 'imageNaming'>;

/**
 * Refuses a name that only the user may give, whether the engine has such an image or not: the answer must not tell a model
 * which images this machine has.
 */
export function assertMayName(policy: NamedImage): void {
  const why = whyNotNamed(policy);
  if (why !== null) throw refused(policy, why);
}

function whyNotNamed(policy: NamedImage): string | null {
  const { image, imageTrust, imageNaming } = policy;
  const reference = parseReference(image.value);
  if (imageNaming.untrusted === null || !reference || isUsers(policy, reference)) return null;
  const { repository } = reference;
  if (repository === null) return 'only you may name an image by its id';
  if (isLocal(reference)) return MADE_HERE;
  const { repositories, anywhere } = imageTrust;
  if (anywhere.value || isListed(repository, repositories.value)) return null;
  return `${repository} is not trusted (${setBy(repositories)}: ${repositories.value.join(', ')})`;
}

/**
 * Refuses an image that the engine has under a name that may be given, but that no registry gave: it was made or loaded here,
 * or is another image that got this name. `pulled` says whether acode itself pulled it under this name; that counts where the
 * engine makes digests of names.
 */
export function assertOrigin(policy: NamedImage, facts: ImageFacts, pulled: boolean): void {
  const { image, imageNaming } = policy;
  const reference = parseReference(image.value);
  if (imageNaming.untrusted === null || !reference || isUsers(policy, reference)) return;
  const origins = facts.repositoryDigests.map(text => parseReference(text)?.repository);
  const { repository } = reference;
  if (origins.includes(repository ?? undefined) && (facts.namedOnly !== true || pulled)) return;
  throw refused(policy, facts.repositoryDigests.length === 0 ? MADE_HERE : NOT_PROVEN);
}

const MADE_HERE = 'it was made or loaded on this machine and did not come from a registry';
const NOT_PROVEN = 'this engine cannot show that it came from that registry';

// What the user’s own file names, and the image of this very project, which acode built here.
function isUsers(
  { image, imageNaming: { listed, projectImage } }: NamedImage,
  { repository }: ImageReference,
): boolean {
  const name = fullName(image.value);
  if (name === null || repository === null) return false;
  return name === projectImage || listed.references.includes(name) || listed.repositories.includes(repository);
}

const RULE = 'a repository or a model may name only images that you trust and that came from their registry';

function refused({ image, imageNaming: { untrusted } }: NamedImage, why: string): AcodeError<'ACODE-SBX-010'> {
  const repository = parseReference(image.value)?.repository ?? null;
  const by = untrusted === 'model' ? 'a model’s call, the argument image' : setBy(image);
  return new AcodeError('ACODE-SBX-010', {
    violation: 'UnverifiedImage',
    detail: `${image.value} was named by ${by}, and ${why}`,
    remedy: untrusted === 'model' ? forModel(repository) : forRepository(repository),
    rule: RULE,
    setBy: by,
  });
}

function forRepository(repository: string | null): string {
  const read = 'Read the repository’s file; if you agree with all of it, run `acode trust`.';
  return repository === null
    ? `${read} Or take the line out.`
    : `${read} To allow this image alone, add to your own configuration file: ${yaml(repository)}`;
}

function forModel(repository: string | null): string {
  const without = 'Leave the argument image out: the workspace has an image.';
  return repository === null
    ? without
    : `${without} If you need this one, ask the user to add to their own configuration file: ${yaml(repository)}`;
}

function yaml(repository: string): string {
  return `\`sandbox: { security: { trusted_images: [${repository}] } }\``;
}

/** The images of a repository’s file that no list of the user has: each counts only once the file is trusted. */
export function imagesThatNeedTrust(layers: Layers, projectImage: string): TrustKey[] {
  const { repository } = layers;
  if (!repository) return [];
  const imageTrust = resolveImageTrust(layers);
  const untrusted = { ...layers, repository: { ...repository, trusted: false } };
  return Object.entries(keyedImages(repository.config)).flatMap(([key, value]) => {
    const image: Sourced<string> = { value, layer: 'repository', where: repository.where(key) };
    const imageNaming = resolveImageNaming(untrusted, image, undefined, projectImage);
    const needed = whyNotNamed({ image, imageTrust, imageNaming }) !== null;
    return needed ? [{ key, where: image.where, value: JSON.stringify(value) }] : [];
  });
}

/** The tag of every project image. */
const TAG = 'project';

/** Local names: they are built here, and a registry that has one of them has a stranger’s. */
const REPOSITORY = 'acode-sandbox';

/** The name of a project’s image: readable, and different for every directory and user. */
export function projectReference(root: string, uid: number): string {
  const name = root.slice(root.lastIndexOf('/') + 1);
  const slug = name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .slice(0, 40)
    .replaceAll(/^-+|-+$/g, '');
  const digest = createHash('sha256').update(`${uid}:${root}`).digest('hex').slice(0, 12);
  return `${[REPOSITORY, slug, digest].filter(part => part !== '').join('-')}:${TAG}`;
}
