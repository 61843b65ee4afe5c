// The layers a policy is made of, and the order in which they are heard.

import { isAbsolute } from 'node:path';
import { checkConfig } from './config/check.ts';
import type { LoadedConfig } from './config/check.ts';
import type { LoadedMachine, RepositoryConfig } from './config/load.ts';
import type { Config } from './config/schema.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { Source, Sourced } from '../contract/sourced.ts';
import { ENVIRONMENT_MODE, LIBRARY_TERMS } from '../contract/wording.ts';
import type { Setting } from '../contract/setting.ts';
import type { SettingReference, Text } from '../contract/wording.ts';

/** Whether networks may be had at all. */
export type Mode = EffectivePolicy['mode']['value'];

/** A repository’s configuration, and whether the user trusted that very content. */
export interface RepositoryLayer extends RepositoryConfig {
  readonly trusted: boolean;
  /** Whether the user trusted other content of this file before. */
  readonly changed?: boolean;
}

/** Everything that has a voice besides the request. */
export interface Layers {
  readonly machine: LoadedMachine | null;
  /** The user’s own configuration, over the team’s defaults. */
  readonly user: LoadedConfig;
  readonly repository: RepositoryLayer | null;
  /** `ACODE_MODE`. It can only tighten. */
  readonly environmentMode: Mode | null;
  /** Entries of allow-lists that a person granted for some time; absent for none. */
  readonly grants?: readonly string[];
}

/** Layers that set nothing. */
export const NO_LAYERS: Layers = {
  machine: null,
  user: checkConfig({}, 'AcodeOptions.config'),
  repository: null,
  environmentMode: null,
};

/** Settings of sandboxes in a configuration file. */
export type SandboxSection = NonNullable<Config['sandbox']>;

/** One value that layers may set. */
export interface Choice<Value> {
  /** The field of the request. */
  readonly field: string;
  readonly request: Value | undefined;
  /** The key of the configuration. */
  readonly key: string;
  /** What the configuration says, where it has a section of that key. */
  readonly read: (sandbox: SandboxSection) => Value | undefined;
  readonly builtIn: Value;
}

/** The strongest voice’s value: the request, the repository, the user, the team, the built-in one. */
export function pick<Value>(layers: Layers, choice: Choice<Value>): Sourced<Value> {
  const { field, request, key, read, builtIn } = choice;
  if (request !== undefined) return { value: request, layer: 'request', where: `policy.${field}` };
  const { repository, user } = layers;
  const asked = repository?.config.sandbox && read(repository.config.sandbox);
  if (repository && asked !== undefined) return { value: asked, layer: 'repository', where: placeOf(repository, key) };
  const own = user.config.sandbox && read(user.config.sandbox);
  if (own !== undefined) return { value: own, ...sourceIn(user, key) };
  return builtInValue(builtIn);
}

/** Who set a key of the user’s configuration: the user, or the team’s defaults below it. */
export function sourceIn(user: LoadedConfig, key: string): { readonly layer: 'user' | 'team'; readonly where: string } {
  return { layer: user.layerOf?.(key) ?? 'user', where: placeOf(user, key) };
}

/** A setting of the user’s own file, to stand in a text. */
export function setting(user: LoadedConfig, change: Omit<Setting, 'file'>): SettingReference {
  // A program that gave its configuration as an object has no file.
  return { setting: isAbsolute(user.source) ? { ...change, file: user.source } : change };
}

/** A value that no layer set. */
export function builtInValue<Value>(value: Value): Sourced<Value> {
  return { value, layer: 'built-in', where: 'default' };
}

/** Where a key was set, for people. */
export function placeOf(layer: { readonly where: (key: string) => string }, key: string): string {
  return `${layer.where(key)} (${key})`;
}

/** Who set a value, to stand in a text: a field of the request is a reference, which each audience names in its own terms. */
export function sourceOf({ layer, where }: Source): Text {
  return layer === 'request' ? [{ source: { layer, where } }] : setBy({ layer, where });
}

/** Who set a value, for people. */
export function setBy(source: Source): string {
  return LIBRARY_TERMS.source(source);
}

// From the strictest.
const MODES: readonly Mode[] = ['airgapped', 'local-only', 'burst'];

/**
 * The mode: the strictest that anybody says, since each of them can only protect. Only the user’s own file says `burst`, so a
 * repository that says it says nothing.
 */
export function resolveMode(layers: Layers): Sourced<Mode> {
  const { machine, user, repository, environmentMode: environment } = layers;
  const said: (Sourced<Mode> | null)[] = [
    machine?.config.mode ? { value: machine.config.mode, layer: 'machine', where: placeOf(machine, 'mode') } : null,
    environment ? { value: environment, layer: 'request', where: ENVIRONMENT_MODE } : null,
    user.config.mode ? { value: user.config.mode, ...sourceIn(user, 'mode') } : null,
    repository?.config.mode && repository.config.mode !== 'burst'
      ? { value: repository.config.mode, layer: 'repository', where: placeOf(repository, 'mode') }
      : null,
  ];
  const heard = said.filter(one => one !== null);
  for (const mode of MODES) {
    const first = heard.find(({ value }) => value === mode);
    if (first) return first;
  }
  return builtInValue('local-only');
}
