// Image references and image trust: what a reference means, and whether the engine’s image may be run. Pure.

import { AcodeError } from '../contract/errors.ts';
import type { ImageTrust, Sourced } from '../contract/policy.ts';
import type { ImageFacts } from '../contract/spec.ts';
import { text as textOf } from '../contract/wording.ts';
import type { Text } from '../contract/wording.ts';
import { builtInValue, placeOf, setBy, sourceIn } from './layers.ts';
import type { Layers } from './layers.ts';
import { TRUSTED_REPOSITORIES } from './profiles.ts';

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
