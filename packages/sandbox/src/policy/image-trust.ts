// Which images may be run, by everybody who has a voice in it. The repository’s only says that a digest is required.

import type { ImageTrust, Sourced } from '../contract/policy.ts';
import { builtInValue, placeOf } from './layers.ts';
import type { Layers } from './layers.ts';
import { TRUSTED_REPOSITORIES } from './profiles.ts';

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
  // Whoever reads where the list is from must not look for the built-in ones in their own file.
  const where = `${placeOf(user, LIST)}, beside the built-in ones`;
  return { value: [...TRUSTED_REPOSITORIES, ...listed], layer: 'user', where };
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

// Whoever requires a digest is heard; nobody can take that back.
function resolveRequireDigest({ machine, user, repository }: Layers): Sourced<boolean> {
  const key = 'sandbox.security.require_digest';
  for (const [layer, config] of [
    ['machine', machine],
    ['user', user],
    ['repository', repository],
  ] as const) {
    if (config?.config.sandbox?.security?.require_digest === true)
      return { value: true, layer, where: placeOf(config, key) };
  }
  return builtInValue(false);
}
