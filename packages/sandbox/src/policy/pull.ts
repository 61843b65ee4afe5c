// Pull decision: whether an image is pulled, used as it is, or refused, and who may name it. Decided before a registry
// is asked. Pure.

import { createHash } from 'node:crypto';
import { AcodeError } from '../contract/errors.ts';
import type { EffectivePolicy, ImageNaming, ImageTrust, PolicyFields, Sourced } from '../contract/policy.ts';
import { fullName, isListed, noReference, parseReference, resolveImageTrust } from './images.ts';
import type { ImageReference } from './images.ts';
import { builtInValue, setBy, sourceOf } from './layers.ts';
import type { Layers } from './layers.ts';
import { AGENT_IMAGES, DEFAULT_IMAGE, LANGUAGE_IMAGES, TRUSTED_REPOSITORIES } from './profiles.ts';
import type { Config } from './config/schema.ts';
import { LANGUAGES } from '../contract/languages.ts';
import type { ImageFacts } from '../contract/spec.ts';
import { rendered, text } from '../contract/wording.ts';
import type { SettingReference, Text } from '../contract/wording.ts';
import type { TrustKey } from './repository.ts';

/** What the decision is made from. */
export interface PullQuestion {
  readonly image: Sourced<string>;
  /** Whether the engine has an image under this reference. */
  readonly present: boolean;
  readonly policy: Pick<EffectivePolicy, 'pull' | 'offline' | 'mode' | 'imageTrust' | 'imageNaming'>;
}

/** What is to be done, and why. */
export interface PullDecision {
  readonly action: 'use' | 'pull';
  /** A clause for the audit log and for `explain`. */
  readonly reason: string;
  /** What a reader should know besides. */
  readonly warnings: readonly string[];
}

// Images that are made on this host and never published. Another publisher’s image of that name must not be pulled in their place.
const LOCAL_NAMES = /^(?:acode-[a-z0-9._-]+|devs-agent-sandbox|aimi-sandbox[a-z0-9._-]*)$/;

/** Decides; throws ACODE-SBX-009 where nothing may be pulled, -010 where its origin is not trusted, -002 where it cannot be. */
export function decidePull({ image, present, policy }: PullQuestion): PullDecision {
  const reference = parsed(image);
  const forbidden = whatForbids(image.value, policy);
  if (present && (policy.pull.value !== 'always' || forbidden)) {
    return { action: 'use', reason: 'the engine has it', warnings: unasked(image.value, policy, forbidden) };
  }
  if (present && isLocal(reference)) return { action: 'use', reason: 'it is made on this host', warnings: [] };
  if (forbidden) throw notPresent(image.value, forbidden);
  assertPullable(image.value, reference);
  const reason = assertTrusted({ name: image.value, present }, reference, policy.imageTrust);
  return { action: 'pull', reason, warnings: latestWarning(image.value) };
}

// The layer that forbids asking a registry; null if none does.
function whatForbids(
  image: string,
  { pull, offline, mode, imageNaming }: Pick<EffectivePolicy, 'pull' | 'offline' | 'mode' | 'imageNaming'>,
): { rule: Text; remedy: Text } | null {
  if (mode.value === 'airgapped') return { rule: `the mode is airgapped (${setBy(mode)})`, remedy: LOAD };
  if (offline.value) {
    const online = { setting: { key: 'sandbox.images.offline', value: false } };
    const remedy = text`${LOAD} To allow registries again: ${online}.`;
    return { rule: `sandbox.images.offline is true (${setBy(offline)})`, remedy };
  }
  if (pull.value !== 'never') return modelForbids(image, imageNaming);
  const remedy = `Pull it once with \`acode sandbox pull ${image}\`.`;
  return { rule: text`the pull policy is never (${sourceOf(pull)})`, remedy };
}

// The tag of a pull is text that leaves this machine. A model chooses none of it.
function modelForbids(image: string, { pullable, untrusted }: ImageNaming): { rule: string; remedy: string } | null {
  if (pullable === null || pullable.includes(fullName(image) ?? '')) return null;
  return {
    rule: 'a model’s call pulls only images that the user’s configuration or acode’s own table of languages names (built-in rule)',
    remedy: `Ask the user to pull it once with \`acode sandbox pull ${image}\`${untrusted === 'model' ? ', or leave the argument image out' : ''}.`,
  };
}

const LOAD = 'Load it from a file that was brought here: `docker load`.';

// A request with `always` is warned if the registry was not asked after all.
function unasked(
  reference: string,
  { pull }: Pick<EffectivePolicy, 'pull'>,
  forbidden: { rule: Text } | null,
): readonly string[] {
  if (pull.value !== 'always' || !forbidden) return [];
  return [`${reference} was not pulled anew: ${rendered(forbidden.rule)}.`];
}

function parsed(image: Sourced<string>): ImageReference {
  const reference = parseReference(image.value);
  if (!reference) throw noReference(image);
  return reference;
}

function notPresent(image: string, { rule, remedy }: { rule: Text; remedy: Text }): AcodeError {
  const cause = new AcodeError('ACODE-CTN-011', { image });
  return new AcodeError('ACODE-SBX-009', { image, rule, remedy }, { cause });
}

/** Whether a reference names an image of this host’s own, which no registry has. */
export function isLocal({ repository }: ImageReference): boolean {
  if (repository === null) return true;
  const [host, ...path] = repository.split('/');
  // Podman’s own name for what was made here.
  if (host === 'localhost') return true;
  return host === 'docker.io' && path[0] === 'library' && path.length === 2 && LOCAL_NAMES.test(path[1] ?? '');
}

function assertPullable(image: string, reference: ImageReference): void {
  if (!isLocal(reference)) return;
  const named = reference.repository === null;
  const reason = named ? 'it is named by its id, which no registry knows' : 'it is made on this host and never pulled';
  throw new AcodeError(
    'ACODE-SBX-002',
    {
      image,
      reason,
      remedy: named
        ? 'Name it by repository and digest: repository@sha256:…'
        : 'Build it first; docs/project-images.md says how.',
    },
    { cause: new AcodeError('ACODE-CTN-011', { image }) },
  );
}

// The same lists as those that decide what may run; asked of the name alone, since there is nothing else yet.
function assertTrusted(
  { name: image, present }: { readonly name: string; readonly present: boolean },
  { repository, digest }: ImageReference,
  trust: ImageTrust,
): string {
  const name = repository ?? '';
  const { repositories, anywhere, machineRepositories: machine, requireDigest } = trust;
  if (requireDigest.value && digest === null) {
    throw refused(
      `${image} names no digest, and one is required (${setBy(requireDigest)})`,
      `Name it as ${image}@sha256:…, with the digest that its publisher names.`,
    );
  }
  if (machine && !isListed(name, machine.value)) {
    throw refused(
      `${image} is not in a repository that this machine allows (${setBy(machine)})`,
      `Use an image of ${machine.value.join(', ') || 'nothing: the list is empty'}, or ask the administrator of this machine.`,
    );
  }
  if (isListed(name, repositories.value)) return trustedBy(name, repositories);
  if (anywhere.value) return `images from anywhere may run (${setBy(anywhere)})`;
  throw refused(
    `${image} ${present ? 'may not be pulled' : 'is not on this engine and may not be pulled'}: ${distrust(name, image, repositories)}`,
    text`Choose another image, or, if you trust it: ${trusting(name)}.`,
  );
}

function distrust(name: string, image: string, repositories: ImageTrust['repositories']): string {
  return `${name === image ? 'it' : name} is not trusted. Trusted by ${setBy(repositories)}: ${repositories.value.join(', ')}`;
}

// The user’s list has the built-in ones in it, and a reader of the audit log must not search for those in a file.
function trustedBy(name: string, repositories: ImageTrust['repositories']): string {
  const by = isListed(name, TRUSTED_REPOSITORIES) ? builtInValue(name) : repositories;
  return `${name} is trusted (${setBy(by)})`;
}

function refused(detail: string, remedy: Text): AcodeError {
  return new AcodeError('ACODE-SBX-010', { violation: 'UnverifiedImage', detail, remedy });
}

/** Says that a reference means the tag that moves, where it does. */
export function latestWarning(image: string): readonly string[] {
  const reference = parseReference(image);
  if (!reference || reference.digest !== null || (reference.tag !== null && reference.tag !== 'latest')) return [];
  return [`${image} means the tag latest, which moves: name a version, or a digest.`];
}

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
    ...(image.layer === 'repository' && layers.repository?.changed === true ? { changed: true } : {}),
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
  return [DEFAULT_IMAGE, ...Object.values(LANGUAGE_IMAGES), ...Object.values(AGENT_IMAGES), ...trusted];
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
  if (why !== null) throw imageNamingRefused(policy, why);
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
  const origins = facts.repositoryDigests.map(name => parseReference(name)?.repository);
  const { repository } = reference;
  if (origins.includes(repository ?? undefined) && (facts.namedOnly !== true || pulled)) return;
  throw imageNamingRefused(policy, facts.repositoryDigests.length === 0 ? MADE_HERE : NOT_PROVEN);
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

function imageNamingRefused(
  { image, imageNaming: { untrusted, changed = false } }: NamedImage,
  why: string,
): AcodeError<'ACODE-SBX-010'> {
  const repository = parseReference(image.value)?.repository ?? null;
  const by = untrusted === 'model' ? 'a model’s call, the argument image' : sourceOf(image);
  return new AcodeError('ACODE-SBX-010', {
    violation: 'UnverifiedImage',
    detail: text`${image.value} was named by ${by}, ${changed ? 'which has changed since you trusted it, ' : ''}and ${why}`,
    remedy: untrusted === 'model' ? forModel(repository) : forRepository(repository, changed),
    rule: RULE,
    setBy: by,
  });
}

function forRepository(repository: string | null, changed: boolean): Text {
  const read = changed
    ? '`acode trust --show` shows what the file asks for now. If you agree with all of it, run `acode trust` again.'
    : 'Read the repository’s file; if you agree with all of it, run `acode trust`.';
  return repository === null
    ? `${read} Or take the line out.`
    : text`${read} To allow this image alone: ${trusting(repository)}.`;
}

function forModel(repository: string | null): Text {
  const without = 'Leave the argument image out: the workspace has an image.';
  return repository === null
    ? without
    : text`${without} If you need this one, ask the user for it: ${trusting(repository)}.`;
}

const TRUSTED = 'sandbox.security.trusted_images';

function trusting(repository: string): SettingReference {
  return { setting: { key: TRUSTED, value: [repository], add: true } };
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
