// Hands the doctor what it looks at: a host whose engine may be missing, slow or wrong.

import { examine } from './doctor/doctor.ts';
import type { DoctorReport } from './doctor/report.ts';
import type { Host } from './host.ts';
import { resolvePolicy } from './policy/resolve.ts';
import { workspaceOf } from './repository.ts';
import { judged } from './sweep.ts';

/** Examines a host; runs nothing. */
export async function examineHost(host: Host): Promise<DoctorReport> {
  const { machine, config: user, environmentMode, caller, uid, identity, directories } = host;
  const layers = { machine, user, repository: null, environmentMode };
  const image = resolvePolicy({}, layers, { caller, cpus: 1 }).image.value;
  return examine({
    uid,
    identity,
    directories,
    image,
    workspace: await workspaceOf(host),
    diagnose: async signal => {
      const backend = await host.engine();
      const diagnosis = await backend.diagnose(image, AbortSignal.any([signal, host.closing]));
      const left = (await judged(host, diagnosis.sandboxes)).filter(({ verdict }) => verdict.remove);
      return { ...diagnosis, left: left.map(({ thing }) => thing.containerId) };
    },
  });
}
