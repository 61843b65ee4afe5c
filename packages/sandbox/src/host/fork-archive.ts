// Forks as archives: changes written to a tar, and a new fork made of one. The workspace is only read.

import { lstatSync } from 'node:fs';
import { AcodeError } from '../contract/errors.ts';
import type { ForkExport, ForkExportRequest, ForkImportRequest } from '../contract/forks.ts';
import { underLock } from '../run/forking.ts';
import type { Host } from '../run/host.ts';
import { workspaceOf } from '../run/repository.ts';
import { gathered } from '../workspace/archive/tar-read.ts';
import { identityOf } from '../workspace/file-identity.ts';
import { ForkArchiveError, exportLayers, importLayer } from '../workspace/fork/archive.ts';
import { recordBase } from '../workspace/fork/base.ts';
import { LayerStack } from '../workspace/fork/layers.ts';
import { historyOf } from '../workspace/fork/record.ts';
import type { ForkRecord } from '../workspace/fork/record.ts';
import type { ForkStore } from '../workspace/fork/store.ts';
import { nearestReal } from '../workspace/locate.ts';

// Thousands of small entries would each be written on their own.
const PORTION = 256 * 1024;

/** Writes the changes of a fork as an archive. */
export async function exportFork(
  host: Host,
  store: ForkStore,
  record: ForkRecord,
  { diffId, write }: Pick<ForkExportRequest, 'write'> & { readonly diffId: string },
): Promise<ForkExport> {
  const omitted: ForkExport['omitted'][number][] = [];
  const exportedAt = new Date(host.telemetry.clock.now()).toISOString();
  const commands = historyOf(record).length;
  const pieces = exportLayers(store.layersOf(record), {
    scratch: store.pathOf(record.id),
    signal: host.closing,
    manifest: { version: 1, fork: record.name ?? record.id, diffId, commands, exportedAt },
    omitted: (path, reason) => void omitted.push({ path, reason }),
  });
  let bytes = 0;
  for await (const piece of gathered(pieces, PORTION)) {
    bytes += piece.length;
    await write(piece);
  }
  return { forkId: record.id, diffId, bytes, omitted };
}

/** Makes a fork of an archive. */
export async function importFork(
  host: Host,
  store: ForkStore,
  { source, name }: ForkImportRequest,
): Promise<ForkRecord> {
  const workspace = nearestReal(await workspaceOf(host));
  const wantedFork = {
    workspace,
    identity: identityOf(lstatSync(workspace)),
    ...(name === undefined ? {} : { fork: name }),
  };
  const refuseTaken = async (): Promise<void> => {
    if (name !== undefined && (await store.find(wantedFork))) throw new AcodeError('ACODE-FRK-007', { fork: name });
  };
  await refuseTaken();
  const signal = host.closing;
  const fill = async (target: string, base: string): Promise<string> => {
    const { fork, commands } = await importLayer(buffers(source), { target, workspace, scratch: base, signal });
    await keepImportedBase({ workspace, target, base, startedMs: host.telemetry.clock.now() }, signal);
    return `import of fork ${fork} (${commands} ${commands === 1 ? 'command' : 'commands'})`;
  };
  try {
    return await store.makeWith(wantedFork, fill, publish =>
      underLock(host, workspace, signal, async () => {
        await refuseTaken();
        await publish();
      }),
    );
  } catch (error) {
    if (!(error instanceof ForkArchiveError)) throw error;
    const entry = error.entry === null ? {} : { entry: error.entry };
    throw new AcodeError('ACODE-FRK-009', { reason: error.message, ...entry }, { cause: error });
  }
}

// The workspace as it is now is what the changes are compared with from now on.
async function keepImportedBase(
  {
    workspace,
    target,
    base,
    startedMs,
  }: { readonly workspace: string; readonly target: string; readonly base: string; readonly startedMs: number },
  signal: AbortSignal,
): Promise<void> {
  using stack = await LayerStack.open({ workspace, uppers: [target], masked: [] }, { scratch: base, signal });
  await recordBase(stack, { index: 0, number: 1, startedMs, directory: base, signal });
}

async function* buffers(source: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  for await (const piece of source) yield Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
}
