// Whether an image is pulled, taken as it is, or refused: decided before a registry is asked for a byte. Pure.

import { AcodeError } from '../contract/errors.ts';
import type { EffectivePolicy, ImageNaming, ImageTrust, Sourced } from '../contract/policy.ts';
import { fullName, isListed, noReference, parseReference } from './images.ts';
import type { ImageReference } from './images.ts';
import { builtInValue, setBy } from './layers.ts';
import { TRUSTED_REPOSITORIES } from './profiles.ts';

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
  /** A clause for the audit and for whoever asks for an explanation. */
  readonly reason: string;
  /** What a reader should know besides. */
  readonly warnings: readonly string[];
}

// Images that are made on this host and never published. Somebody else’s image of that name must not be fetched in their place.
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

// Who says that no registry may be asked; null where nobody does.
function whatForbids(
  image: string,
  { pull, offline, mode, imageNaming }: Pick<EffectivePolicy, 'pull' | 'offline' | 'mode' | 'imageNaming'>,
): { rule: string; remedy: string } | null {
  if (mode.value === 'airgapped') return { rule: `the mode is airgapped (${setBy(mode)})`, remedy: LOAD };
  if (offline.value) {
    const remedy = `Pull it once with sandbox.images.offline: false, or load it: \`docker load\`.`;
    return { rule: `sandbox.images.offline is true (${setBy(offline)})`, remedy };
  }
  if (pull.value !== 'never') return modelForbids(image, imageNaming);
  const remedy = `Pull it once with \`acode sandbox pull ${image}\`.`;
  return { rule: `the pull policy is never (${setBy(pull)})`, remedy };
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

// Whoever asked for `always` is told where the registry was not asked after all.
function unasked(
  reference: string,
  { pull }: Pick<EffectivePolicy, 'pull'>,
  forbidden: { rule: string } | null,
): readonly string[] {
  if (pull.value !== 'always' || !forbidden) return [];
  return [`${reference} was not pulled anew: ${forbidden.rule}.`];
}

function parsed(image: Sourced<string>): ImageReference {
  const reference = parseReference(image.value);
  if (!reference) throw noReference(image);
  return reference;
}

function notPresent(image: string, { rule, remedy }: { rule: string; remedy: string }): AcodeError {
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
      `${image} is in no repository that this machine allows (${setBy(machine)})`,
      `Use an image of ${machine.value.join(', ') || 'nothing: the list is empty'}, or ask whoever looks after this machine.`,
    );
  }
  if (isListed(name, repositories.value)) return trustedBy(name, repositories);
  if (anywhere.value) return `images from anywhere may run (${setBy(anywhere)})`;
  throw refused(
    `${image} ${present ? 'may not be pulled' : 'is not on this engine and may not be pulled'}: ${name} is not trusted (${setBy(repositories)}: ${repositories.value.join(', ')})`,
    `If you trust it, add ${name} to sandbox.security.trusted_images in your own configuration file; else choose another image.`,
  );
}

// The user’s list has the built-in ones in it, and whoever audits a pull must not look for those in a file.
function trustedBy(name: string, repositories: ImageTrust['repositories']): string {
  const by = isListed(name, TRUSTED_REPOSITORIES) ? builtInValue(name) : repositories;
  return `${name} is trusted (${setBy(by)})`;
}

function refused(detail: string, remedy: string): AcodeError {
  return new AcodeError('ACODE-SBX-010', { violation: 'UnverifiedImage', detail, remedy });
}

/** Says that a reference means the tag that moves, where it does. */
export function latestWarning(image: string): readonly string[] {
  const reference = parseReference(image);
  if (!reference || reference.digest !== null || (reference.tag !== null && reference.tag !== 'latest')) return [];
  return [`${image} means the tag latest, which moves: name a version, or a digest.`];
}
