// Images: what a reference means, whether the engine’s image may be run, and which one a workspace has when a run names none (by its
// language, from the strongest layer that has an answer). Pure.

import { AcodeError } from '../contract/errors.ts';
import type { ImageTrust, Sourced, PolicyFields } from '../contract/policy.ts';
import type { ImageFacts } from '../contract/spec.ts';
import { text as textOf } from '../contract/wording.ts';
import type { Text } from '../contract/wording.ts';
import { builtInValue, placeOf, setBy, sourceIn } from './layers.ts';
import type { Layers } from './layers.ts';
import { TRUSTED_REPOSITORIES, AGENT_IMAGES, DEFAULT_IMAGE, LANGUAGE_IMAGES } from './profiles.ts';
import type { Config } from './config/schema.ts';
import type { Language, LanguageFound } from '../contract/languages.ts';

/** An image reference, taken apart. */
export interface ImageReference {
  /** Registry and path, `docker.io/library/node`; null where the image is named by its id. */
  readonly repository: string | null;
  readonly tag: string | null;
  /** A digest, or the id. */
  readonly digest: string | null;
}

const MAX_LENGTH = 512;
const MAX_PATH = 255;
const HOST =
  /^(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]{2,39}\])(?::([1-9][0-9]{0,4}))?$/;
const LAST_PORT = 65_535;
const PART = /^[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*$/;
const TAG = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;
const DIGEST = /^sha256:[0-9a-f]{64}$/;

/** Takes a reference apart and fills in what engines assume; null where it is none. */
export function parseReference(text: string): ImageReference | null {
  if (text.length > MAX_LENGTH) return null;
  if (DIGEST.test(text)) return { repository: null, tag: null, digest: text };
  const at = text.indexOf('@');
  const digest = at === -1 ? null : text.slice(at + 1);
  if (digest !== null && !DIGEST.test(digest)) return null;
  const { name, tag } = splitTag(at === -1 ? text : text.slice(0, at));
  const repository = tag === null || TAG.test(tag) ? normalised(name) : null;
  return repository === null ? null : { repository, tag, digest };
}

function splitTag(named: string): { name: string; tag: string | null } {
  const colon = named.lastIndexOf(':');
  // A colon before the last slash belongs to the port of the registry.
  if (colon <= named.lastIndexOf('/')) return { name: named, tag: null };
  return { name: named.slice(0, colon), tag: named.slice(colon + 1) };
}

function normalised(name: string): string | null {
  const [first = '', ...rest] = name.split('/');
  const host = rest.length > 0 && isHost(first) ? first : null;
  const path = host === null ? [first, ...rest] : rest;
  if ((host !== null && !isAddress(host)) || !isPath(path)) return null;
  return inRegistry((host ?? 'docker.io').toLowerCase(), path).join('/');
}

// Docker Hub has two names, and a namespace for its official images.
function inRegistry(host: string, path: readonly string[]): string[] {
  if (host !== 'docker.io' && host !== 'index.docker.io') return [host, ...path];
  return ['docker.io', ...(path.length === 1 ? ['library'] : []), ...path];
}

function isPath(parts: readonly string[]): boolean {
  return parts.every(part => PART.test(part)) && parts.join('/').length <= MAX_PATH;
}

function isAddress(host: string): boolean {
  const found = HOST.exec(host);
  return found !== null && Number(found[1] ?? 1) <= LAST_PORT;
}

function isHost(part: string): boolean {
  return part.includes('.') || part.includes(':') || part === 'localhost';
}

/**
 * A reference in full: registry, path, and a tag or a digest. What is asked of an engine in these words means the same to
 * every engine, whatever it would make of a short name; null where the text is no reference, or an id.
 */
export function fullName(text: string): string | null {
  const parsed = parseReference(text);
  if (!parsed || parsed.repository === null) return null;
  const { repository, tag, digest } = parsed;
  return digest === null ? `${repository}:${tag ?? 'latest'}` : `${repository}@${digest}`;
}

/** Refuses text that is not an image reference, before it reaches an engine. */
export function checkReference(image: Sourced<string>): Sourced<string> {
  if (parseReference(image.value)) return image;
  throw noReference(image);
}

/** The refusal of text that is not an image reference, with what is wrong with it. */
export function noReference({ value, where }: Pick<Sourced<string>, 'value' | 'where'>): AcodeError {
  const { fault, meant } = faultOf(value);
  return new AcodeError('ACODE-SBX-017', {
    field: where,
    reason: `${JSON.stringify(value.slice(0, 80))} is not an image reference: ${fault}`,
    remedy:
      meant === undefined
        ? 'A reference is [registry[:port]/]path[:tag][@sha256:…], such as node:20-alpine; docs/images.md says more.'
        : textOf`Did you mean ${{ field: where, value: meant }}?`,
  });
}

// The commonest mistakes by name.
function faultOf(text: string): { readonly fault: string; readonly meant?: string } {
  if (text.trim() === '') return { fault: 'there is nothing in it' };
  if (text.length > MAX_LENGTH) return { fault: `it is longer than ${MAX_LENGTH} characters` };
  if (/\s/.test(text)) return { fault: 'there is a space in it' };
  const [named = '', ...digest] = text.split('@');
  if (digest.some(one => !DIGEST.test(one)))
    return { fault: 'a digest is sha256: and 64 digits from 0 to 9 and a to f' };
  const { name, tag } = splitTag(named);
  if (tag !== null && !TAG.test(tag)) return { fault: 'its tag is invalid' };
  const lowercase = name.toLowerCase();
  if (normalised(lowercase) === null) return { fault: 'the registry or the path is invalid' };
  // A tag may have capitals.
  return { fault: 'names of images are lowercase', meant: `${lowercase}${text.slice(name.length)}` };
}

/** Whether a repository is one of a list, by path segments: `docker.io/library/*` never means `docker.io/library-evil`. */
export function isListed(repository: string, patterns: readonly string[]): boolean {
  const parts = repository.split('/');
  return patterns.some(pattern => {
    const wanted = pattern.split('/');
    const below = wanted.at(-1) === '*';
    if (below) wanted.pop();
    return (
      (below ? parts.length > wanted.length : parts.length === wanted.length) &&
      wanted.every((part, n) => part === parts[n])
    );
  });
}

/**
 * Decides whether what the engine has under a reference may be run; throws ACODE-SBX-010 otherwise. Where an image came from
 * is read from the engine, not from its name: anybody can give any image any name.
 */
export function decideImage(reference: string, facts: ImageFacts, trust: ImageTrust): void {
  const parsed = parseReference(reference);
  if (!parsed) throw new AcodeError('ACODE-SBX-017', { field: 'policy.image', reason: 'is not an image reference' });
  assertDigest(reference, parsed, facts, trust);
  const origins = facts.repositoryDigests.flatMap(text => parseReference(text)?.repository ?? []);
  const fromRegistry = facts.repositoryDigests.length > 0;
  const trusted = trust.anywhere.value || !fromRegistry ? origins : trustedOf(origins, facts, trust);
  if (fromRegistry && !trust.anywhere.value && trusted.length === 0) throw untrusted(reference, origins, trust);
  assertMachine(reference, fromRegistry ? trusted : parsed.repository === null ? [] : [parsed.repository], trust);
}

// A further name must not make an image trusted that came from elsewhere.
function trustedOf(origins: readonly string[], { namedOnly }: ImageFacts, trust: ImageTrust): readonly string[] {
  const trusted = origins.filter(one => isListed(one, trust.repositories.value));
  return namedOnly && trusted.length < origins.length ? [] : trusted;
}

function assertDigest(reference: string, parsed: ImageReference, facts: ImageFacts, trust: ImageTrust): void {
  if (parsed.digest === null) {
    if (!trust.requireDigest.value) return;
    throw unverified(
      `${reference} names no digest, and one is required (${setBy(trust.requireDigest)})`,
      `Name it as ${pinned(reference, facts)}.`,
    );
  }
  const known = [facts.id, ...facts.repositoryDigests.map(text => text.slice(text.indexOf('@') + 1))];
  if (known.includes(parsed.digest)) return;
  throw unverified(
    `the engine’s image for ${reference} has another digest (built-in rule)`,
    'Compare the digest with the one its publisher names; pull the image again by digest if it is right.',
  );
}

function pinned(reference: string, facts: ImageFacts): string {
  return facts.repositoryDigests[0] ?? (facts.id === '' ? `${reference}@sha256:…` : facts.id);
}

function assertMachine(reference: string, repositories: readonly string[], trust: ImageTrust): void {
  const machine = trust.machineRepositories;
  if (!machine || repositories.some(one => isListed(one, machine.value))) return;
  throw unverified(
    `${reference} is not in a repository that this machine allows (${setBy(machine)})`,
    `Use an image of ${machine.value.join(', ') || 'nothing: the list is empty'}, or ask the administrator of this machine.`,
  );
}

function untrusted(reference: string, origins: readonly string[], { repositories }: ImageTrust): AcodeError {
  const origin = origins.find(one => !isListed(one, repositories.value)) ?? 'another registry';
  return unverified(
    `${reference} came from ${origin}, which is not trusted (${setBy(repositories)}: ${repositories.value.join(', ')})`,
    textOf`If you trust it: ${{ setting: { key: LIST, value: [origin], add: true } }}.`,
  );
}

function unverified(detail: string, remedy: Text): AcodeError {
  return new AcodeError('ACODE-SBX-010', { violation: 'UnverifiedImage', detail, remedy });
}

/** Which images may be run. */
export function resolveImageTrust(layers: Layers): ImageTrust {
  return {
    repositories: usersRepositories(layers),
    machineRepositories: machinesRepositories(layers),
    anywhere: fromAnywhere(layers),
    requireDigest: resolveRequireDigest(layers),
  };
}

const LIST = 'sandbox.security.trusted_images';

function usersRepositories({ user }: Layers): Sourced<readonly string[]> {
  const listed = user.config.sandbox?.security?.trusted_images;
  if (!listed) return builtInValue(TRUSTED_REPOSITORIES);
  const { layer, where } = sourceIn(user, LIST);
  // A reader of the source must not search for the built-in ones in their own file.
  return { value: [...TRUSTED_REPOSITORIES, ...listed], layer, where: `${where}, beside the built-in ones` };
}

function machinesRepositories({ machine }: Layers): Sourced<readonly string[]> | null {
  const listed = machine?.config.sandbox?.security?.trusted_images;
  return machine && listed ? { value: listed, layer: 'machine', where: placeOf(machine, LIST) } : null;
}

function fromAnywhere({ user }: Layers): Sourced<boolean> {
  const value = user.config.sandbox?.security?.allow_untrusted_registries;
  if (value === undefined) return builtInValue(false);
  return { value, layer: 'user', where: placeOf(user, 'sandbox.security.allow_untrusted_registries') };
}

// Any layer can require a digest; no other layer can undo that.
function resolveRequireDigest({ machine, user, repository }: Layers): Sourced<boolean> {
  const key = 'sandbox.security.require_digest';
  for (const [layer, config] of [
    ['machine', machine],
    ['user', user],
    ['repository', repository],
  ] as const) {
    if (config?.config.sandbox?.security?.require_digest === true)
      return layer === 'user'
        ? { value: true, ...sourceIn(user, key) }
        : { value: true, layer, where: placeOf(config, key) };
  }
  return builtInValue(false);
}

/** An image, who named it, and what in the workspace led to it. */
export interface ImageChoice {
  readonly image: Sourced<string>;
  /** A clause, such as `package.json says node`. */
  readonly imageReason: string;
}

type Images = NonNullable<NonNullable<Config['sandbox']>['images']>;

/**
 * Chooses the image. A request’s own counts first. Then the repository, the user, the team: the first of them that names an
 * image for this workspace decides, by its image for the language, else by its default. So a default in your own file is
 * not overruled by a built-in image, and what the repository names is not overruled by your default. Last, what is built in,
 * for a whole agent and for other commands.
 */
export function chooseImage(
  requested: string | undefined,
  layers: Layers,
  found: readonly LanguageFound[] = [],
  profile?: PolicyFields['profile'],
): ImageChoice {
  if (requested !== undefined) {
    const image = checkReference({ value: requested, layer: 'request', where: 'policy.image' });
    return { image, imageReason: 'it was asked for' };
  }
  return (
    namedByLayer(layers, found) ??
    builtIn(found, profile === 'agent' ? AGENT_IMAGES : { ...LANGUAGE_IMAGES, default: DEFAULT_IMAGE })
  );
}

function namedByLayer({ repository, user }: Layers, found: readonly LanguageFound[]): ImageChoice | null {
  // Each file on its own: a default of yours is not overruled by an image of the team’s for the language.
  const { own, team = null } = user.parts ?? { own: user };
  for (const [layer, loaded] of [
    ['repository', repository] as const,
    ['user', own] as const,
    ['team', team] as const,
  ]) {
    const named = loaded ? imageIn(loaded.config.sandbox?.images ?? {}, found, WHOSE[layer]) : null;
    if (!loaded || !named) continue;
    const { key, value, imageReason } = named;
    return { image: checkReference({ value, layer, where: placeOf(loaded, key) }), imageReason };
  }
  return null;
}

const WHOSE = {
  repository: 'in the repository’s own file',
  user: 'in your configuration',
  team: 'in the team’s defaults',
} as const;

interface Named {
  readonly key: string;
  readonly value: string;
  readonly imageReason: string;
}

function imageIn(images: Images, found: readonly LanguageFound[], whose: string): Named | null {
  const [only] = found;
  const own = only && found.length === 1 ? ofLanguage(images, only.language) : ofCombination(images, found);
  if (own) return { key: `sandbox.images.${own[0]}`, value: own[1], imageReason: evidence(found) };
  if (images.default === undefined) return null;
  const imageReason =
    found.length === 0
      ? NO_LANGUAGE
      : `sandbox.images.default is set (${whose}), and ${keyFor(found)} is not: a default counts before the built-in images of languages`;
  return { key: 'sandbox.images.default', value: images.default, imageReason };
}

type NamedImage = readonly [key: string, image: string];

function ofLanguage(images: Images, language: Language): NamedImage | null {
  const image = images[language];
  return image === undefined ? null : [language, image];
}

// A user who names several languages need not know acode’s order of them.
function ofCombination({ combined = {} }: Images, found: readonly LanguageFound[]): NamedImage | null {
  const wanted = combinationOf(found);
  const named = Object.entries(combined).find(([key]) => key.split('+').sort().join('+') === wanted);
  return named ? [`combined.${named[0]}`, named[1]] : null;
}

function keyFor(found: readonly LanguageFound[]): string {
  const languages = combinationOf(found);
  return found.length === 1 ? `sandbox.images.${languages}` : `sandbox.images.combined."${languages}"`;
}

const NO_LANGUAGE = 'no file in the top directory says what the workspace is written in';

function builtIn(found: readonly LanguageFound[], images: typeof AGENT_IMAGES): ImageChoice {
  const standard = { value: images.default, layer: 'built-in', where: 'default' } as const;
  const [only] = found;
  if (!only) return { image: standard, imageReason: NO_LANGUAGE };
  if (found.length === 1) return { image: { ...standard, value: images[only.language] }, imageReason: evidence(found) };
  return { image: standard, imageReason: evidence(found) };
}

/**
 * Refuses a workspace of several languages for which no layer names an image. The image of one of them would lack the others’
 * programs, and the command would fail later for no visible reason. Levels without images do not mind.
 */
export function refuseUndecided(image: Sourced<string>, found: readonly LanguageFound[]): void {
  const [first] = found;
  if (image.layer !== 'built-in' || !first || found.length < 2) return;
  throw new AcodeError('ACODE-SBX-017', {
    field: 'policy.image',
    reason: `No image can be chosen: this workspace has several languages (${evidence(found)}), and no image is set for them`,
    sentence: true,
    remedy: textOf`For ${first.language} alone: ${{ field: 'policy.image', value: LANGUAGE_IMAGES[first.language] }}. For all of them, name an image that has them: ${{ field: 'policy.image', value: '<image>' }}. To set it for every run here: ${{ setting: { key: `sandbox.images.combined.${combinationOf(found)}`, value: 'your-image:tag' } }}.`,
  });
}

function combinationOf(found: readonly LanguageFound[]): string {
  return found.map(({ language }) => language).join('+');
}

function evidence(found: readonly LanguageFound[]): string {
  const clauses = found.map(({ file, language }) => `${shown(file)} says ${language}`);
  return clauses.join(', ');
}

// A name in the workspace is anybody’s text.
function shown(file: string): string {
  return /^[\w.+ -]{1,80}$/.test(file) ? file : JSON.stringify(file.slice(0, 80));
}

/** An error about the image, with what led to it, where that was no wish of the request. */
export function withImageReason(error: unknown, { image, imageReason: chosen }: ImageChoice): unknown {
  if (!(error instanceof AcodeError) || image.layer === 'request') return error;
  const { cause } = error;
  if (error.is('ACODE-SBX-009')) return new AcodeError('ACODE-SBX-009', { ...error.context, chosen }, { cause });
  if (error.is('ACODE-SBX-002')) return new AcodeError('ACODE-SBX-002', { ...error.context, chosen }, { cause });
  return error;
}
