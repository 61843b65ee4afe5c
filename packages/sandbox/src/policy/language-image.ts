// Default image of a workspace, when the run names none: by its language, from the strongest layer that has an answer. Pure.

import { AcodeError } from '../contract/errors.ts';
import type { Config } from './config/schema.ts';
import type { Language, LanguageFound } from '../contract/languages.ts';
import type { PolicyFields, Sourced } from '../contract/policy.ts';
import { text } from '../contract/wording.ts';
import { checkReference } from './images.ts';
import { placeOf } from './layers.ts';
import type { Layers } from './layers.ts';
import { AGENT_IMAGES, DEFAULT_IMAGE, LANGUAGE_IMAGES } from './profiles.ts';

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
    remedy: text`For ${first.language} alone: ${{ field: 'policy.image', value: LANGUAGE_IMAGES[first.language] }}. For all of them, name an image that has them: ${{ field: 'policy.image', value: '<image>' }}. To set it for every run here: ${{ setting: { key: `sandbox.images.combined.${combinationOf(found)}`, value: 'your-image:tag' } }}.`,
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
