// Opens a host: configuration files, directories, the user who asks, and what must be loaded before a command runs.

import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import { systemClock } from '../lifecycle/clock.ts';
import { directoriesOf, homeOf, ownDirectories } from '../lifecycle/directories.ts';
import type { Directories } from '../lifecycle/directories.ts';
import { checkConfig } from '../policy/config/check.ts';
import type { LoadedConfig } from '../policy/config/check.ts';
import { loadMachinePolicy, loadTeamConfig, loadUserConfig, overTeam } from '../policy/config/load.ts';
import { AuditLog } from '../records/audit/log.ts';
import { workspaceOf } from '../run/repository.ts';
import { installationRoot, isWithin } from '../workspace/file-identity.ts';
import { composeHost, loadLevels } from './compose.ts';
import type { ComposedHost } from './compose.ts';
import type { AcodeOptions } from './options.ts';

/** Refuses uid 0 unless the user’s own configuration says otherwise. */
export function assertNotRoot(uid: number, allowRoot: boolean): void {
  if (uid === 0 && !allowRoot) throw new AcodeError('ACODE-SBX-011', { uid });
}

/** Every session of root must be recorded; without the record it does not open. */
export async function recordRoot(host: ComposedHost): Promise<void> {
  const event = 'opened by root, as allow_root in root’s own configuration says';
  host.telemetry.log('warn', event, {});
  await host.audit.append({ kind: 'event', operation: 'open', correlationId: host.session.owner, event });
}

/** Reads the configuration and builds a host. With `faults`, an invalid configuration is added to it and the default used. */
export async function open(options: AcodeOptions, uid: number, faults?: AcodeError[]): Promise<ComposedHost> {
  // Read before the first await, so that later changes to the program’s environment do not affect this host.
  const env = { ...process.env };
  const about = { env, home: homeOf(env), uid };
  const machine = await orFault(loadMachinePolicy(), null, faults);
  const team = await orFault(loadTeamConfig(), null, faults);
  const places = directoriesOf(about);
  const unset = checkConfig({}, options.configFile ?? join(places.config, 'config.yml'));
  const config = overTeam(await orFault(configOf(options, places), unset, faults), team);
  // Created only now, so that an invalid configuration leaves nothing behind.
  const directories = await ownDirectories(about);
  return composeHost({ options, config, machine, directories, uid, clock: options.clock ?? systemClock });
}

// If the caller collects configuration errors, adds the error and uses the default instead. Only for observation: acode
// never runs a command without the intended configuration.
async function orFault<Value>(
  loading: Promise<Value>,
  otherwise: Value,
  faults: AcodeError[] | undefined,
): Promise<Value> {
  try {
    return await loading;
  } catch (error) {
    if (!faults || !(error instanceof AcodeError && (error.is('ACODE-SBX-013') || error.is('ACODE-SBX-016'))))
      throw error;
    faults.push(error);
    return otherwise;
  }
}

/**
 * Opens a host beside another one: the same configuration, a different workspace, an engine if one is needed, and no
 * event listeners.
 */
export async function openFurther(
  options: AcodeOptions,
  workspace: string,
  socket: string | null,
): Promise<ComposedHost> {
  const uid = currentUid();
  const { config, configFile, clock } = options;
  const own: AcodeOptions = {
    workspace,
    ...(socket === null ? {} : { engine: { socket } }),
    ...(config ? { config } : {}),
    ...(configFile === undefined ? {} : { configFile }),
    ...(clock ? { clock } : {}),
  };
  return open(own, uid);
}

async function configOf(options: AcodeOptions, directories: Directories): Promise<LoadedConfig> {
  if (!options.config && options.configFile === undefined) return loadUserConfig(directories.config);
  const source = options.configFile ?? 'AcodeOptions.config';
  const loaded = options.config
    ? checkConfig(options.config, source)
    : await loadUserConfig(directories.config, options.configFile);
  if (loaded.config.allow_root === undefined) return loaded;
  // Any caller can name a file; only the user’s own file may allow root.
  throw new AcodeError('ACODE-SBX-013', {
    source,
    key: 'allow_root',
    reason: 'counts only in the user’s own configuration file',
  });
}

/** If acode is installed in the workspace, loads lazy modules now: later, a command in a sandbox may have replaced them. */
export async function loadAhead(host: ComposedHost): Promise<void> {
  const workspace = await workspaceOf(host);
  const root = await realpath(workspace).catch(() => workspace);
  if (!isWithin(await installationRoot(), root)) return;
  await Promise.all([
    import('../persistent/artifacts.ts'),
    import('../egress/public-suffix.ts'),
    import('./attack.ts'),
    import('../images/project/building.ts'),
    import('./configuration.ts'),
    import('../images/project/dependencies.ts'),
    import('../policy/config/parse.ts'),
    import('../persistent/create.ts'),
    import('./examine.ts'),
    import('../egress/proxy/proxy.ts'),
    import('../egress/relay/forwarder-program.ts'),
    import('./fork-apply.ts'),
    import('../run/fork-rest.ts'),
    import('./fork-branch.ts'),
    loadLevels(),
    import('../images/project/stage.ts'),
    import('../images/pull-once.ts'),
    import('../persistent/connect.ts'),
    import('./fork-archive.ts'),
    import('../workspace/fork/squash.ts'),
    import('../workspace/fork/copy.ts'),
    import('../workspace/fork/marks.ts'),
    import('../persistent/relay/follow.ts'),
    import('../persistent/relay/offer.ts'),
    import('../persistent/relay/network.ts'),
    import('../egress/proxy/dial.ts'),
    import('../run/credentials/providers.ts'),
    import('../workspace/fork/journal.ts'),
    import('../workspace/fork/store.ts'),
    import('../workspace/fork/mask-layer.ts'),
    import('./uninstall.ts'),
  ]);
}

/** Windows has no uids; sandboxes run on an engine in a virtual machine, whose ordinary user is 1000. */
export function currentUid(): number {
  return process.getuid?.() ?? 1000;
}

/** The audit log of this user, without a host: a scan that goes on has none. */
export function ownAuditLog(): AuditLog {
  const uid = currentUid();
  const { state } = directoriesOf({ env: process.env, home: homeOf(process.env), uid });
  return new AuditLog({ directory: join(state, 'audit'), uid, clock: systemClock });
}
