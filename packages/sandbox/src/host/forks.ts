// Forks of workspaces: shown, applied, taken back and removed.

import { randomUUID } from 'node:crypto';
import { lstatSync, mkdirSync } from 'node:fs';
import { rm, rmdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { AcodeError } from '../contract/errors.ts';
import { codeOf } from '../contract/system-error.ts';
import type { ForkApplyEnded, ForkCommand, ForkInfo, Forks } from '../contract/forks.ts';
import type { MountSpec, SandboxSpec } from '../contract/spec.ts';
import { WORKSPACE_TARGET } from '../isolation/plan.ts';
import { refuseBusy, settleKilled, settleLayer, underLock } from '../run/forking.ts';
import type { Host } from '../run/host.ts';
import { planFirst } from '../run/planning.ts';
import { workspaceOf } from '../run/repository.ts';
import { identityOf } from '../workspace/file-identity.ts';
import { nearestReal } from '../workspace/locate.ts';
import { ForkDiff } from '../workspace/fork/diff.ts';
import { UnreadableLayersError } from '../workspace/fork/marks.ts';
import { ForkRisks } from '../workspace/fork/risk.ts';
import { partAt } from '../workspace/fork/overlay.ts';
import { commandsIn, historyOf } from '../workspace/fork/record.ts';
import { ENGINE_WORK } from '../workspace/fork/store.ts';
import type { CommandRecord, ForkRecord } from '../workspace/fork/record.ts';
import type { ForkStore } from '../workspace/fork/store.ts';
import type { Leaving } from './fork-apply.ts';

// More than a person reads; the counts are of all of them.
const MAX_CHANGES = 100_000;

/** The forks of a host. */
export function forksOf(host: Host, assertOpen: (name: string) => void): Forks {
  const on = async <Value>(
    name: string,
    reference: string | undefined,
    work: (store: ForkStore, record: ForkRecord) => Promise<Value>,
  ): Promise<Value> => {
    assertOpen(`forks.${name}`);
    const store = await host.forks();
    const workspace = await workspaceHere();
    await settleKilled(host, workspace, host.closing);
    const { id } = await wanted(store, workspace, reference);
    return underLock(host, id, host.closing, () => work(store, store.read(id) ?? notThere(id)));
  };
  const workspaceHere = async (): Promise<string> => nearestReal(await workspaceOf(host));
  // Nothing may write a layer that is changed or removed.
  const unused = async (store: ForkStore, { id }: ForkRecord): Promise<ForkRecord> => {
    await refuseBusy(host, store.read(id), host.closing);
    await settleLayer(host, id);
    store.touch(id);
    return store.read(id) ?? notThere(id);
  };
  const leavingOf = (store: ForkStore, record: ForkRecord, isLive: boolean): Leaving => ({
    host,
    store,
    record,
    isLive,
    openDiff: () => openDiff(host, store, record),
    remove: () => removeFork(host, store, record, host.closing),
  });
  const endApply = async (how: 'resume' | 'rollback'): Promise<ForkApplyEnded> => {
    assertOpen(`forks.${how}`);
    const { endApply: end, pendingIn, settleResumed } = await waysOut();
    const workspace = await workspaceHere();
    const pending = pendingIn(host, workspace);
    const report = await end(host, workspace, how);
    if (!pending || report.outcome !== 'applied') return report;
    const { atRest } = await import('../run/fork-rest.ts');
    // The workspace has the changes either way; without this, the next diff lists them as well.
    await on('resume', report.forkId, (store, { id }) =>
      atRest(host, id, ({ record, isLive }) => settleResumed(leavingOf(store, record, isLive), pending)),
    ).catch((error: unknown) =>
      host.telemetry.log('info', 'a fork still lists what was applied', { fork: report.forkId, reason: String(error) }),
    );
    return report;
  };
  return {
    async list({ all = false } = {}) {
      assertOpen('forks.list');
      const store = await host.forks();
      const workspace = all ? undefined : await workspaceHere();
      await settleKilled(host, workspace, host.closing);
      return (await store.list(workspace)).map(record => infoOf(store, record));
    },
    history: fork => on('history', fork, (_, record) => Promise.resolve(historyOf(record).map(commandOf))),
    diff: ({ fork, limit = MAX_CHANGES } = {}) =>
      on('diff', fork, async (store, record) => {
        const { atRest } = await import('../run/fork-rest.ts');
        return atRest(host, record.id, async ({ record: rest }) => {
          using diff = await openDiff(host, store, rest);
          const risks = new ForkRisks(diff.layers);
          const found = await diff.collect(record.id, limit, entry => risks.add(entry));
          return { ...found, riskyChanges: risks.finish() };
        });
      }),
    patch: request =>
      on('patch', request.fork, async (store, record) =>
        (await waysOut()).printPatch(leavingOf(store, await unused(store, record), false), request),
      ),
    apply: (request = {}) =>
      on('apply', request.fork, async (store, { id }) => {
        const { atRest } = await import('../run/fork-rest.ts');
        const { applyFork } = await waysOut();
        return atRest(host, id, ({ record, isLive }) => applyFork(leavingOf(store, record, isLive), request));
      }),
    branch: async request => {
      const record = await on('branch', request.fork, unused);
      const { branchFork } = await import('./fork-branch.ts');
      return branchFork({ host, store: await host.forks(), record, workspace: await workspaceHere() }, request);
    },
    async pending() {
      assertOpen('forks.pending');
      return (await waysOut()).pendingIn(host, await workspaceHere());
    },
    resume: () => endApply('resume'),
    rollback: () => endApply('rollback'),
    undo: ({ commands = 1, to, fork } = {}) =>
      on('undo', fork, async (store, record) => {
        const before = await unused(store, record);
        const left = await store.undo(before.id, to === undefined ? commands : commandsSince(before, to));
        return historyOf(before).map(commandOf).slice(left);
      }),
    snapshot: (name, fork) =>
      on('snapshot', fork, async (store, record) => {
        const { id } = await unused(store, record);
        store.snapshot(id, name);
        return infoOf(store, store.read(id) ?? notThere(id));
      }),
    async create({ from, name }) {
      const [fork, snapshot] = from.includes('@')
        ? [from.slice(0, from.indexOf('@')), from.slice(from.indexOf('@') + 1)]
        : [undefined, from];
      return on('create', fork, async (store, { id, workspace, identity }) => {
        const made = await underLock(host, workspace, host.closing, async () => {
          if (name !== undefined && (await store.find({ workspace, identity, fork: name })))
            throw new AcodeError('ACODE-FRK-007', { fork: name });
          return store.makeFrom(id, snapshot, name ?? null);
        });
        return infoOf(store, made);
      });
    },
    copy: ({ fork, name } = {}) =>
      on('copy', fork, async (store, { id, workspace, identity }) => {
        const { atRest } = await import('../run/fork-rest.ts');
        const { copyLayer } = await import('../workspace/fork/marks.ts');
        const options = { scratch: store.pathOf(id), signal: host.closing };
        const made = await atRest(host, id, () =>
          underLock(host, workspace, host.closing, async () => {
            if (name !== undefined && (await store.find({ workspace, identity, fork: name })))
              throw new AcodeError('ACODE-FRK-007', { fork: name });
            return unreadable(
              id,
              store.makeCopy(id, name ?? null, (from, to) => copyLayer(from, to, options)),
            );
          }),
        );
        return infoOf(store, made);
      }),
    export: ({ fork, write }) =>
      on('export', fork, async (store, record) => {
        const rest = await unused(store, record);
        using diff = await openDiff(host, store, rest);
        const { id: diffId } = await diff.collect(rest.id, 0);
        return (await import('./fork-archive.ts')).exportFork(host, store, rest, { diffId, write });
      }),
    async import(request) {
      assertOpen('forks.import');
      const store = await host.forks();
      return infoOf(store, await (await import('./fork-archive.ts')).importFork(host, store, request));
    },
    discard: fork =>
      on('discard', fork, async (store, record) => {
        const info = infoOf(store, record);
        await refuseBusy(host, record, host.closing);
        await recordRemoval(host, record, 'asked');
        await removeFork(host, store, record, host.closing);
        return info;
      }),
  };
}

/**
 * Removes forks that have expired, and takes in what killed commands left. Says which were removed, or with `dryRun` would be. What
 * fails, or is in use, is left for the next time.
 */
export async function sweepForks(
  host: Host,
  signal: AbortSignal,
  { dryRun = false }: { readonly dryRun?: boolean } = {},
): Promise<ForkInfo[]> {
  const store = await host.forks();
  if (dryRun) return store.expired().map(record => infoOf(store, record));
  await settleKilled(host, undefined, signal);
  const removed: ForkInfo[] = [];
  for (const record of store.expired())
    try {
      await underLock(host, record.id, signal, async () => {
        if (!store.expired().some(({ id }) => id === record.id)) return;
        const info = infoOf(store, record);
        await recordRemoval(host, record, 'expired');
        await store.remove(record.id);
        removed.push(info);
      });
    } catch (error) {
      leaveFor(host, record.id, error, signal);
    }
  await store.collect();
  for (const path of await store.leftovers())
    await emptyWork(host, store, { id: basename(path).slice(1), image: null }, signal).catch((error: unknown) =>
      leaveFor(host, path, error, signal),
    );
  return removed;
}

/** Removes every fork with all its changes. */
export async function discardForks(host: Host, signal: AbortSignal): Promise<void> {
  const store = await host.forks();
  for (const record of await store.list())
    await underLock(host, record.id, signal, async () => {
      await recordRemoval(host, record, 'asked');
      await removeFork(host, store, record, signal);
    });
  await sweepForks(host, signal);
}

function leaveFor(host: Host, fork: string, error: unknown, signal: AbortSignal): void {
  signal.throwIfAborted();
  host.telemetry.log('info', 'a fork was left for the next sweep', { fork, reason: String(error) });
}

// Before it: a fork with changes is work, and its removal must not go unrecorded.
async function recordRemoval(host: Host, { id, name, layers }: ForkRecord, reason: 'asked' | 'expired'): Promise<void> {
  if (layers.length === 0) return;
  const operation = reason === 'asked' ? 'remove' : 'cleanup';
  const what = { what: 'fork', id, ...(name === null ? {} : { name }) } as const;
  await host.audit.append({ kind: 'removal', operation, correlationId: randomUUID(), reason, ...what });
}

const waysOut = () => import('./fork-apply.ts');

async function removeFork(host: Host, store: ForkStore, record: ForkRecord, signal: AbortSignal): Promise<void> {
  if (!(await store.remove(record.id))) await emptyWork(host, store, record, signal);
}

function openDiff(host: Host, store: ForkStore, record: ForkRecord): Promise<ForkDiff> {
  const options = { scratch: store.pathOf(record.id), base: store.baseOf(record.id), signal: host.closing };
  return unreadable(record.id, ForkDiff.open(store.layersOf(record), options));
}

function unreadable<Value>(fork: string, work: Promise<Value>): Promise<Value> {
  return work.catch((error: unknown) => {
    if (!(error instanceof UnreadableLayersError)) throw error;
    throw new AcodeError('ACODE-FRK-005', { fork, reason: error.message }, { cause: error });
  });
}

const MAX_SHOWN = 3;

async function wanted(store: ForkStore, workspace: string, reference: string | undefined): Promise<ForkRecord> {
  const all = await store.list();
  const here = all.filter(record => record.workspace === workspace);
  const named = (record: ForkRecord): boolean => record.id === reference || record.name === reference;
  const isOfSandbox = ({ active }: ForkRecord): boolean => active !== null && active.sandboxId === reference;
  const found =
    reference === undefined || reference === 'current'
      ? here.find(record => store.isCurrent(record))
      : // An id is unique, that of a sandbox too; a name is the workspace’s own.
        (here.find(named) ?? all.find(record => record.id === reference || isOfSandbox(record)));
  if (found) return found;
  if (reference !== undefined) return notThere(reference);
  const elsewhere = [...new Set(all.map(record => record.workspace))].sort().slice(0, MAX_SHOWN);
  throw new AcodeError('ACODE-FRK-001', { fork: 'of this workspace', elsewhere });
}

function notThere(fork: string): never {
  throw new AcodeError('ACODE-FRK-001', { fork });
}

function commandsSince(record: ForkRecord, snapshot: string): number {
  return historyOf(record).length - commandsIn(record, snapshot);
}

function infoOf(store: ForkStore, record: ForkRecord): ForkInfo {
  const commands = historyOf(record);
  return {
    id: record.id,
    name: record.name,
    workspace: record.workspace,
    isCurrent: store.isCurrent(record),
    createdAt: new Date(record.createdAt).toISOString(),
    usedAt: new Date(record.usedAt).toISOString(),
    expiresAt: new Date(record.expiresAt).toISOString(),
    commands: commands.length,
    snapshots: { ...record.snapshots },
    sandbox: record.active?.sandboxId ?? null,
    interrupted: commands.at(-1)?.interrupted === true,
  };
}

function commandOf({ at, command, interrupted }: CommandRecord, index: number): ForkCommand {
  return { number: index + 1, at: new Date(at).toISOString(), command, ...(interrupted ? { interrupted } : {}) };
}

// The kernel keeps its own files in the work directory, as root. It removes them when it mounts the overlay again: the engine does
// that to look for a path in a container, without a process in it.
async function emptyWork(
  host: Host,
  store: ForkStore,
  { id, image }: Pick<ForkRecord, 'id' | 'image'>,
  signal: AbortSignal,
): Promise<void> {
  const [aside] = (await store.leftovers()).filter(path => path.endsWith(`.${id}`));
  if (aside === undefined) return;
  for (const name of ['u', 'l']) mkdirSync(join(aside, name), { recursive: true, mode: 0o700 });
  const lower = join(aside, 'l');
  const cleaning = async (work: string): Promise<SandboxSpec> => {
    const { spec, policy } = await planFirst(host);
    // A name of its own: that of the next command may be given out before this container is removed.
    const identity = host.session.identify({
      task: 'fork-cleanup',
      session: undefined,
      profile: policy.profile.value,
      level: spec.level,
      specHash: spec.identity.labels['acode.spec'] ?? '',
      correlationId: '',
      preview: false,
    });
    const mount: MountSpec = {
      purpose: 'workspace',
      source: lower,
      target: WORKSPACE_TARGET,
      readOnly: false,
      identity: identityOf(lstatSync(lower)),
      overlay: { fork: id, upper: partAt(join(aside, 'u')), work: partAt(work), lowers: [] },
    };
    const own = { image: { ...spec.image, id: image ?? spec.image.id }, workdir: WORKSPACE_TARGET };
    return { ...spec, ...own, identity, mounts: [mount], caches: [] };
  };
  const engine = await host.engine();
  await host.claim();
  for (const work of ENGINE_WORK.map(name => join(aside, name))) {
    if (await isEmptied(join(work, 'work'))) continue;
    await engine.readImage(await cleaning(work), (_, kindAt) => kindAt(WORKSPACE_TARGET), signal);
    // Podman answers without mounting. It mounts where a container is started; only the image’s shell waits in it.
    if (!(await isEmptied(join(work, 'work'))))
      await (await engine.prepare(await cleaning(work), signal))[Symbol.asyncDispose]();
  }
  await rm(aside, { recursive: true, force: true });
}

// It is root’s, and may be removed by the owner of the directory around it once nothing is in it.
async function isEmptied(directory: string): Promise<boolean> {
  return rmdir(directory).then(
    () => true,
    (error: unknown) => codeOf(error) === 'ENOENT',
  );
}
