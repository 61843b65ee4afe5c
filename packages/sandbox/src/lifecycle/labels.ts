// The labels every container of ours carries: how the engine, which is the truth, knows whose it is.

import { redact } from '../contract/redact.ts';
import type { SandboxSpec } from '../contract/spec.ts';

/** Everything a label says about a sandbox. */
export interface LabelFacts {
  readonly session: string;
  readonly task: string;
  readonly sandboxId: string;
  /** The name of its container. */
  readonly name: string;
  /** The session’s owner: a random id per opened host, no process id (those are reused). */
  readonly owner: string;
  readonly host: string;
  readonly uid: number;
  readonly profile: string;
  readonly level: string;
  readonly specHash: string;
  readonly nonce: string;
  /** Whether it outlives its session, or other processes can use it while the session lives. */
  readonly keep?: boolean | 'shared';
  /** The name that its creator gave it. */
  readonly givenName?: string;
  /** Where its lease is, where it does. */
  readonly leases?: string;
  readonly createdAt: Date;
  /** The hard maximum of its life. */
  readonly expiresAt: Date;
}

/** The prefix of labels that callers may not set. */
export const RESERVED = 'acode.';

/** The label that proves a container is ours. */
export const MANAGED = 'acode.managed';

/** The label that says whether a thing outlives its session. Always set: where it is not, an image could set it. */
export const KEEP = 'acode.keep';

/** The label that names the directory of a lease: a process with another state directory cannot know whether it expired. */
export const LEASES = 'acode.leases';

/** The label that binds the others to the container they were written for: what runs from a copy of it has another name. */
export const NAME = 'acode.name';

/** The label with the name that its creator gave a sandbox. Always set: where it is not, an image could set it. */
const GIVEN_NAME = 'acode.given-name';

/** The label of a cache volume: the tool it is for. A cache is never an orphan, whichever host made it. */
export const CACHE = 'acode.cache';

/** The label of a volume that belongs to one sandbox’s layer over a cache: the name of that cache. */
export const LAYER = 'acode.cache-layer';

/** The label of a volume that is there while a cache is filled: the name of that cache. */
export const FILLING = 'acode.cache-filling';

export const SESSION = 'acode.session';
export const TASK = 'acode.task';
export const SANDBOX = 'acode.sandbox';
export const OWNER = 'acode.owner';
const HOST = 'acode.host';
export const UID = 'acode.uid';
export const LEVEL = 'acode.level';
export const CREATED = 'acode.created';
export const EXPIRES = 'acode.expires';

/** The label of a service: its name. Images with labels of acode are refused, so that none can set it. */
const SERVICE = 'acode.service';

/** The label of a service that names the sandbox it belongs to. */
const SERVICE_OF = 'acode.service-of';

/** The labels of a service beside those of every sandbox. */
export function serviceLabels(name: string, of: string): Record<string, string> {
  return { [SERVICE]: name, [SERVICE_OF]: of };
}

/** The name of a service and the sandbox that it belongs to, by its labels; null for any other sandbox. */
export function serviceIn(
  labels: Readonly<Record<string, string>>,
): { readonly name: string; readonly of: string } | null {
  const { [SERVICE]: name, [SERVICE_OF]: of } = labels;
  return name === undefined || of === undefined ? null : { name, of };
}

/** The label by which acode finds what it made where the engine’s reply to the create was lost. */
export const NONCE = 'acode.nonce';

/** Whether a thing on an engine belongs to a user. */
export function isOwn({ labels }: { readonly labels: Readonly<Record<string, string>> }, uid: number): boolean {
  return labels[UID] === String(uid);
}

/** Whether a thing on an engine is acode’s. */
export function isManaged(labels: Readonly<Record<string, string>> | null | undefined): boolean {
  return labels?.[MANAGED] === 'true';
}

const GIVEN = /^[a-z][a-z0-9-]{2,38}[a-z0-9]$/;
// An id, or the beginning of one.
const LIKE_AN_ID = /^[0-9a-f-]+$/;

// The beginning of an id counts from four characters on.
const SHORT = /^[a-z][a-z0-9-]{0,2}$/;

/** Why a name cannot be given to a sandbox; null where it can. */
export function whyNoName(name: string): string | null {
  if (SHORT.test(name))
    return 'is too short: up to three characters could be mistaken for an id; use 4 to 40, such as web-1';
  if (!GIVEN.test(name)) return 'must be 4 to 40 lowercase letters, digits and hyphens, and begin with a letter';
  if (name.startsWith('acode-')) return 'must not begin with acode-, as the names that acode makes do';
  return LIKE_AN_ID.test(name) ? 'must not look like an id: use a letter after f' : null;
}

/** The name that its creator gave a sandbox, by its labels; null where there is none. */
export function givenNameIn(labels: Readonly<Record<string, string>>): string | null {
  const name = labels[GIVEN_NAME] ?? '';
  return isReachable(labels) && whyNoName(name) === null ? name : null;
}

/** Whether other processes of its user can use a sandbox. */
export function isReachable(labels: Readonly<Record<string, string>>): boolean {
  return labels[KEEP] === 'true' || labels[KEEP] === 'shared';
}

/** The labels of a sandbox; `extra` may add to them, never replace one. */
export function sandboxLabels(facts: LabelFacts, extra: Readonly<Record<string, string>> = {}): Record<string, string> {
  return {
    ...extra,
    [MANAGED]: 'true',
    [SESSION]: facts.session,
    [TASK]: facts.task,
    [SANDBOX]: facts.sandboxId,
    [NAME]: facts.name,
    [KEEP]: String(facts.keep ?? false),
    [GIVEN_NAME]: facts.givenName ?? '',
    ...(facts.keep === true ? { [LEASES]: facts.leases ?? '' } : {}),
    [OWNER]: facts.owner,
    [HOST]: facts.host,
    [UID]: String(facts.uid),
    'acode.profile': facts.profile,
    [LEVEL]: facts.level,
    'acode.spec': facts.specHash,
    [NONCE]: facts.nonce,
    [CREATED]: facts.createdAt.toISOString(),
    [EXPIRES]: facts.expiresAt.toISOString(),
  };
}

/** The labels of what was made for a sandbox besides its container: its owner, and how long it may exist. The reaper reads them. */
export function ownership({ identity }: SandboxSpec): Record<string, string> {
  const own = [SESSION, OWNER, HOST, UID, CREATED, EXPIRES];
  return {
    [MANAGED]: 'true',
    [KEEP]: 'false',
    ...Object.fromEntries(own.map(label => [label, identity.labels[label] ?? ''])),
  };
}

/** Why a container may not have a label of this name and value; null where it may. */
export function labelFault(name: string, value: string): string | null {
  // A label can be read by anybody who may ask the engine, like an id.
  const said = `${name}=${value}`;
  if (redact(said) !== said) return 'looks like a secret, and labels can be read by others';
  return name.startsWith(RESERVED) ? 'begins with acode., which is reserved' : null;
}
