// Artifacts of a run: copied out while the sandbox still exists, and as hostile as anything it made.

import type { ArtifactRequest } from '../contract/command.ts';
import { AcodeError } from '../contract/errors.ts';
import type { ArtifactReport } from '../contract/result.ts';
import type { TransferReport } from '../contract/sandbox.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import { Arrival } from './files/arrival.ts';
import { download } from './files/download.ts';
import { Programs, placeOf } from './files/programs.ts';
import type { ArtifactSandbox } from '../run/host.ts';
import type { Execution, OpenSandbox, WaitingSandbox } from '../isolation/backend.ts';
import { OUT_TARGET } from '../isolation/plan.ts';
import type { Clock } from '../contract/ports.ts';

const FETCH_MS = 5 * 60 * 1000;

/** Makes a waiting sandbox one whose artifacts can be taken after its command. */
export async function withArtifacts(
  sandbox: WaitingSandbox,
  wanted: readonly ArtifactRequest[],
  { spec, clock, signal }: { readonly spec: SandboxSpec; readonly clock: Clock; readonly signal: AbortSignal },
): Promise<ArtifactSandbox> {
  if (!sandbox.keepOpen)
    throw new AcodeError('ACODE-SBX-016', {
      what: `artifacts at level ${spec.level}, of ${spec.image.reference}`,
      instead:
        'Write what you want to keep into the workspace, or use an image with a shell at level docker or stronger.',
    });
  const open = await sandbox.keepOpen({ outlives: false }, signal);
  const root = spec.mounts.find(({ purpose }) => purpose === 'workspace')?.source ?? '';
  return {
    id: open.id,
    ports: open.ports,
    execute: async (...of) => ending(await open.start(...of), open),
    take: async () => {
      const programs = new Programs(open.inside, clock);
      const reports: ArtifactReport[] = [];
      const until = AbortSignal.any([signal, AbortSignal.timeout(FETCH_MS)]);
      // A run ends with its command: no process that it left continues, or writes into the files being copied.
      const quiet = open.quiet(until);
      quiet.catch(() => undefined);
      const takeOne = async (one: ArtifactRequest): Promise<TransferReport> => {
        await quiet;
        return await take(programs, one, root, until);
      };
      for (const one of wanted) reports.push(await reported(one, () => takeOne(one)));
      return reports;
    },
  };
}

// The command ends before its sandbox does: only after the sandbox ended can no process write.
function ending(execution: Execution, open: OpenSandbox): Execution {
  return {
    ended: execution.ended,
    dead: open.gone,
    ...(execution.over ? { over: execution.over } : {}),
    write: data => execution.write(data),
    closeStdin: () => execution.closeStdin(),
    kill: name => execution.kill(name),
    disconnect: () => execution.disconnect(),
  };
}

async function take(
  programs: Programs,
  { from, to }: ArtifactRequest,
  root: string,
  signal: AbortSignal,
): Promise<TransferReport> {
  const place = placeOf(from, OUT_TARGET, { syscall: 'open' });
  return download(programs, place, kind => Arrival.below(root, to, kind), { signal });
}

async function reported({ from, to }: ArtifactRequest, work: () => Promise<TransferReport>): Promise<ArtifactReport> {
  try {
    return { from, to, ...(await work()) };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unexpected';
    const message = error instanceof Error ? error.message : String(error);
    return { from, to, files: 0, directories: 0, bytes: 0, skipped: [], error: { code, message } };
  }
}
