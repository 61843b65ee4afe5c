// Collects the doctor’s inputs from a host whose engine may be missing, slow or broken.

import { stat } from 'node:fs/promises';
import { loadRepositoryConfig } from '../policy/config/load.ts';
import { AcodeError } from '../contract/errors.ts';
import { WITHOUT_ENGINE, usesEngine } from '../contract/levels.ts';
import type { Level } from '../contract/levels.ts';
import { fail, ok, warn } from './doctor/checks/machine.ts';
import { examine } from './doctor/doctor.ts';
import type { LocalLevel } from './doctor/doctor.ts';
import type { Check, DoctorReport } from './doctor/report.ts';
import { defaultPolicy } from './inventory.ts';
import type { Host } from '../run/host.ts';
import type { EffectivePolicy, UserId } from '../contract/policy.ts';
import { NO_LAYERS } from '../policy/layers.ts';
import type { Layers } from '../policy/layers.ts';
import { resolvePolicy } from '../policy/resolve.ts';
import { workspaceOf } from '../run/repository.ts';
import { judged } from '../run/removing.ts';

/**
 * Examines a host; runs nothing.
 *
 * @param faults what is wrong with the configuration, which the host was opened without.
 */
export async function examineHost(host: Host, faults: readonly AcodeError[] = []): Promise<DoctorReport> {
  const { machine, config: user, environmentMode, caller, uid, identity, directories } = host;
  const layers = { machine, user, repository: null, environmentMode };
  const resolved = imageOf(layers, caller);
  const workspace = await workspaceOf(host);
  // The same choice as of a command and of the status: it depends on the languages of the project.
  const policy = await defaultPolicy(host, workspace).then(
    found => found.policy,
    () => null,
  );
  const image = policy?.image.value ?? resolved.image;
  return examine({
    uid,
    identity,
    directories,
    image,
    socket: host.engineNamed,
    workspace,
    local: policy && localLevel(host, policy),
    configuration: await configurationChecks(host, [...faults, ...resolved.faults]),
    diagnose: async signal => {
      const backend = await host.engine();
      const diagnosis = await backend.diagnose(image, AbortSignal.any([signal, host.closing]));
      const left = (await judged(host, diagnosis.sandboxes)).filter(({ verdict }) => verdict.remove);
      return { ...diagnosis, left: left.map(({ thing }) => thing.containerId) };
    },
  });
}

// Where the configuration chose a level without an engine, that level has to work, and the engine need not.
function localLevel(host: Host, { level, fallback }: Pick<EffectivePolicy, 'level' | 'fallback'>): LocalLevel | null {
  const standsIn = level.value === 'auto' && fallback.value === 'warn';
  const chosen = standsIn ? WITHOUT_ENGINE : level.value;
  if (chosen === 'auto' || usesEngine(chosen)) return null;
  return { level: chosen, standsIn, check: () => levelCheck(host, chosen) };
}

async function levelCheck(host: Host, level: Level): Promise<Check> {
  const found = await host.localCapability(level);
  if (found?.available === true) return ok('level', 'Isolation level', `${level} (${found.standardRuntime})`);
  const { reason = 'it could not be tried', remedy = 'docs/levels.md lists what this level needs.' } = found ?? {};
  return fail('level', 'Isolation level', `${level} is not available: ${reason}`, remedy);
}

// A configuration that is valid by itself may still be one that no command can run with.
function imageOf(layers: Layers, caller: UserId): { readonly image: string; readonly faults: readonly AcodeError[] } {
  try {
    return { image: resolvePolicy({}, layers, { caller, cpus: 1 }).image.value, faults: [] };
  } catch (error) {
    if (!(error instanceof AcodeError)) throw error;
    return { image: resolvePolicy({}, NO_LAYERS, { caller, cpus: 1 }).image.value, faults: [error] };
  }
}

const ID = 'configuration';
const TITLE = 'Configuration';
const OTHERS_WRITE = 0o022;
const BROKEN = ['ACODE-SBX-013', 'ACODE-SBX-016', 'ACODE-SBX-020'] as const;

// An error that blocks every command is reported as a failed check, so that the other checks still run.
async function configurationChecks(host: Host, faults: readonly AcodeError[]): Promise<Check[]> {
  const { config, machine } = host;
  const repository = await repositoryFault(host);
  const all = [...faults, ...(repository ? [repository] : [])];
  if (all.length > 0) return all.map(({ message, hint }) => fail(ID, TITLE, message, hint));
  const found = await stat(config.source).catch(() => null);
  if (found && (found.mode & OTHERS_WRITE) !== 0)
    return [
      warn(
        ID,
        TITLE,
        `${config.source} can be written by other users`,
        `Make it yours alone: chmod go-w ${config.source}`,
      ),
    ];
  const team = config.parts?.team;
  const files = [
    ...(machine ? [machine.source] : []),
    ...(team ? [team.source] : []),
    ...(found ? [config.source] : []),
  ];
  return [ok(ID, TITLE, files.length > 0 ? files.join(', ') : 'no file; the built-in values count')];
}

async function repositoryFault(host: Host): Promise<AcodeError | null> {
  try {
    await loadRepositoryConfig(await workspaceOf(host));
    return null;
  } catch (error) {
    // The workspace checks report any other problem of the workspace.
    return error instanceof AcodeError && BROKEN.some(code => error.is(code)) ? error : null;
  }
}
