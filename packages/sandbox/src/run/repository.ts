// Repository configuration of an opened host, read again for each run, and the user’s trust in it.

import { loadRepositoryConfig } from '../policy/config/load.ts';
import type { Consent } from '../contract/configuration.ts';
import { AcodeError } from '../contract/errors.ts';
import type { ServeSetting } from '../contract/host.ts';
import type { Sourced } from '../contract/sourced.ts';
import type { Host } from './host.ts';
import { imagesThatNeedTrust, projectReference } from '../policy/pull.ts';
import { resolveMode } from '../policy/layers.ts';
import type { Layers, Mode, RepositoryLayer } from '../policy/layers.ts';
import { checkRepository, keysThatNeedTrust } from '../policy/repository.ts';
import type { TrustKey } from '../policy/repository.ts';
import { locateWorkspace, nearestReal, validateWorkspace } from '../workspace/locate.ts';

const SERVE = 'sandbox.serve';

/** The state of the user’s trust in a repository’s configuration. */
export interface TrustReport {
  /** The workspace, as an absolute path. */
  readonly workspace: string;
  /** The repository’s configuration file; null if it has none. */
  readonly file: string | null;
  /** Hash of its exact content. */
  readonly hash: string | null;
  /** Whether exactly this content is trusted for exactly this workspace. */
  readonly trusted: boolean;
  /** Whether other content was trusted for this workspace, and the file has changed since. */
  readonly changed: boolean;
  /** The settings in the file that take effect only once it is trusted. */
  readonly needsTrust: readonly TrustKey[];
  /** Why this file makes acode refuse commands even if it is trusted; null if it does not. */
  readonly refused: RefusedKey | null;
}

/** A setting in a repository’s file that no trust can allow. */
export interface RefusedKey {
  /** The key in the file, such as `sandbox.network.mode`. */
  readonly key: string;
  /** The file, line and column. */
  readonly where: string;
  /** Why it has no effect. */
  readonly rule: string;
  /** What to do about it. */
  readonly remedy: string;
}

/** The user’s trust in the configuration of the workspace’s repository. Works without an engine. */
export interface Trust {
  /** Reports whether the file is trusted, and which settings in it need trust. */
  show(): Promise<TrustReport>;
  /**
   * Trusts the current content of the file; any change ends the trust. With `hash`, only if the content still has that
   * hash. `consent` says how the user agreed, for the audit log.
   *
   * @example
   * const { hash, needsTrust } = await acode.trust.show();
   * if (hash !== null && needsTrust.every(({ key }) => key === 'sandbox.network.mode')) await acode.trust.grant(hash);
   */
  grant(hash?: string, consent?: Consent): Promise<TrustReport>;
  /** Revokes the trust. */
  revoke(): Promise<TrustReport>;
}

/** All layers of configuration that apply to a run in this workspace. */
export async function layersFor(host: Host, root: string): Promise<Layers> {
  const repository = await loadRepositoryConfig(root);
  const { machine, config: user, environmentMode } = host;
  if (!repository) return { machine, user, repository: null, environmentMode };
  const before = await host.trust.trustedHash(repository.root);
  const trusted = before === repository.hash;
  return {
    machine,
    user,
    repository: { ...repository, trusted, changed: before !== null && !trusted },
    environmentMode,
  };
}

/**
 * Whether acode may run a background process for the workspace. The machine’s policy and the repository can only
 * disable it.
 */
export async function serveSettingOf(host: Host): Promise<ServeSetting> {
  const { machine, user, repository } = await layersFor(host, nearestReal(await workspaceOf(host)));
  const off = [machine, repository].find(layer => layer?.config.sandbox?.serve === 'never');
  if (off) return { value: 'never', setBy: off.where(SERVE) };
  const { serve: own, network } = user.config.sandbox ?? {};
  const variables = Object.values(network?.credentials ?? {}).flatMap(({ from }) => ('env' in from ? [from.env] : []));
  return {
    ...(own === undefined ? { value: 'auto', setBy: null } : { value: own, setBy: user.where(SERVE) }),
    ...(variables.length > 0 ? { variables } : {}),
  };
}

/** The mode that holds for the workspace. */
export async function modeOf(host: Host): Promise<Sourced<Mode>> {
  return resolveMode(await layersFor(host, nearestReal(await workspaceOf(host))));
}

/** The workspace that the caller named; otherwise the project that contains the current directory. */
export async function workspaceOf(host: Pick<Host, 'workspace' | 'workspaceNamed'>): Promise<string> {
  return host.workspaceNamed ? host.workspace : locateWorkspace(host.workspace);
}

/** The trust client of a host. */
export function trustOf(host: Host): Trust {
  return {
    show: () => report(host),
    grant: (hash, consent) => grant(host, hash, consent),
    revoke: () => revoke(host),
  };
}

async function report(host: Host): Promise<TrustReport> {
  // Validated like the workspace of a run: the trust file must never be inside the workspace it is about.
  const { root } = await validateWorkspace(await workspaceOf(host), host.directories);
  const layers = await layersFor(host, root);
  const { repository } = layers;
  if (!repository)
    return { workspace: root, file: null, hash: null, trusted: false, changed: false, needsTrust: [], refused: null };
  const { file, hash, trusted, changed = false } = repository;
  const trusting = { ...repository, trusted: true };
  const refused = refusedAnyway(trusting, { ...layers, repository: trusting });
  const needsTrust = [
    ...keysThatNeedTrust(repository),
    ...imagesThatNeedTrust(layers, projectReference(root, host.uid)),
  ];
  return { workspace: root, file, hash, trusted, changed, needsTrust, refused };
}

function refusedAnyway(repository: RepositoryLayer, layers: Layers): RefusedKey | null {
  try {
    checkRepository(repository, layers);
    return null;
  } catch (error) {
    if (error instanceof AcodeError && error.is('ACODE-SBX-020')) return error.context;
    throw error;
  }
}

async function grant(host: Host, expected: string | undefined, consent: Consent | undefined): Promise<TrustReport> {
  const now = await report(host);
  if (now.file === null || now.hash === null) {
    throw new AcodeError('ACODE-SBX-013', {
      source: now.workspace,
      key: '',
      reason: 'has no .agent/config.yml that could be trusted',
    });
  }
  if (expected !== undefined && expected !== now.hash) {
    throw new AcodeError('ACODE-SBX-013', { source: now.file, key: '', reason: 'has changed since it was shown' });
  }
  const agreed = consent ? { consent: consent.how, parent: consent.parent ?? 'unknown' } : {};
  await recordTrust(host, 'trusted', { workspace: now.workspace, hash: now.hash, ...agreed });
  await host.trust.grant(now.workspace, now.hash, new Date(host.telemetry.clock.now()));
  return { ...now, trusted: true, changed: false };
}

// Recorded before it takes effect: if the record cannot be written, the policy is not loosened.
async function recordTrust(host: Host, event: string, detail: Readonly<Record<string, string>>): Promise<void> {
  const correlationId = host.session.owner;
  await host.audit.append({ kind: 'event', operation: 'trust', correlationId, event, detail });
}

async function revoke(host: Host): Promise<TrustReport> {
  const { root } = await validateWorkspace(await workspaceOf(host), host.directories);
  await recordTrust(host, 'trust revoked', { workspace: root });
  await host.trust.revoke(root);
  return report(host).catch((error: unknown) => unreadable(root, error));
}

// The trust is revoked, even if the file can no longer be read.
function unreadable(root: string, error: unknown): TrustReport {
  if (!(error instanceof AcodeError && error.is('ACODE-SBX-013'))) throw error;
  const { source: file, key, reason: rule } = error.context;
  const refused = { key, where: file, rule, remedy: error.hint };
  return { workspace: root, file, hash: null, trusted: false, changed: false, needsTrust: [], refused };
}
