// Collects the doctor’s inputs from a host whose engine may be missing, slow or broken.

import { stat } from 'node:fs/promises';
import { loadRepositoryConfig } from '../policy/config/load.ts';
import { AcodeError } from '../contract/errors.ts';
import { fail, ok, warn } from './doctor/checks/machine.ts';
import { examine } from './doctor/doctor.ts';
import type { Check, DoctorReport } from './doctor/report.ts';
import type { Host } from '../run/host.ts';
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
  const image = resolvePolicy({}, layers, { caller, cpus: 1 }).image.value;
  return examine({
    uid,
    identity,
    directories,
    image,
    workspace: await workspaceOf(host),
    configuration: await configurationChecks(host, faults),
    diagnose: async signal => {
      const backend = await host.engine();
      const diagnosis = await backend.diagnose(image, AbortSignal.any([signal, host.closing]));
      const left = (await judged(host, diagnosis.sandboxes)).filter(({ verdict }) => verdict.remove);
      return { ...diagnosis, left: left.map(({ thing }) => thing.containerId) };
    },
  });
}

const ID = 'configuration';
const TITLE = 'Configuration';
const OTHERS_WRITE = 0o022;

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
  const files = [...(machine ? [machine.source] : []), ...(found ? [config.source] : [])];
  return [ok(ID, TITLE, files.length > 0 ? files.join(', ') : 'no file; the built-in values count')];
}

async function repositoryFault(host: Host): Promise<AcodeError | null> {
  try {
    await loadRepositoryConfig(await workspaceOf(host));
    return null;
  } catch (error) {
    // The workspace checks report any other problem of the workspace.
    return error instanceof AcodeError && (error.is('ACODE-SBX-013') || error.is('ACODE-SBX-016')) ? error : null;
  }
}
