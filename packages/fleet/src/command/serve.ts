// `acode fleet serve --e2b`: the HTTP server for programs of E2B, with sandboxes on this host. It runs until a signal.

import { randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { Acode, LockTimeoutError, Locks, directoriesOf, ensurePrivateDirectory, homeOf } from '@acode/sandbox';
import type { Clock, PolicyFields } from '@acode/sandbox';
import { MAX_SANDBOXES, ownKey, readKeys } from '../e2b/keys.ts';
import type { ApiKeys } from '../e2b/keys.ts';
import { E2bSandboxes, discarded } from '../e2b/sandboxes.ts';
import { E2bServer } from '../e2b/server.ts';
import { FLEET_ERRORS } from '../errors.ts';
import { reasonOf } from '../engine/retry.ts';
import type { RequestOf, Terminal } from './requests.ts';
import { assertOrdinaryUser } from './up.ts';

const DEFAULT_HOST = '127.0.0.1';
const DEFAULT_PORT = 49_983;
const DEFAULT_SANDBOXES = 16;
const SWEEP_MS = 600_000;
const LOCK_MS = 10_000;
const TEMPLATE = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$/;
const CLOCK: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after: (ms, action) => {
    const timer = setTimeout(action, ms);
    return () => clearTimeout(timer);
  },
};

/** `acode fleet serve --e2b`. */
export async function serve(request: RequestOf<'serve'>, terminal: Terminal): Promise<number> {
  assertOrdinaryUser();
  const { state, runtime } = directoriesOf({ env: process.env, home: homeOf(process.env), uid: userInfo().uid });
  // Not below acode’s own state, which no sandbox is given.
  const top = join(state, '..', 'acode-e2b');
  const uid = process.getuid?.() ?? 0;
  await ensurePrivateDirectory(top, uid);
  const templates = templatesOf(request.images ?? []);
  const { keys, keyFile } = keysOf(request, top);
  assertApart(keys, request.level ?? 'docker');
  const tls = certificateOf(request);
  const onFault = (what: string, error: unknown): void => terminal.say(`acode: ${what}: ${reasonOf(error)}\n`);
  const locks = new Locks({ directory: runtime, uid, clock: CLOCK });
  const own = join(top, randomUUID());
  const holding = { deadlineMs: LOCK_MS, signal: terminal.signal };
  return locks.during(lockOf(own), holding, async () => {
    mkdirSync(own, { mode: 0o700 });
    const acode = await Acode.open({ ...hostOptions(request, own), sweepEveryMs: SWEEP_MS });
    const sweeping = removeLeft({ top, own, locks, request, onFault });
    const { host = DEFAULT_HOST, port = DEFAULT_PORT, sandboxes: most = DEFAULT_SANDBOXES } = request;
    const sandboxes = new E2bSandboxes({ acode, templates, sandboxes: most, policy: policyOf(request), onFault });
    try {
      // Whether there is an engine is said now, and not to the first caller.
      await acode.list();
      await using server = await E2bServer.listen({ sandboxes, keys, host, port, tls, onFault });
      terminal.value('acode.fleet-serve/1', {
        url: server.url,
        tenants: keys.tenants,
        keyFile,
        templates: Object.fromEntries(templates),
        sandboxes: most,
      });
      await ended(terminal.signal);
    } finally {
      await sandboxes.close();
      await acode.close();
      await sweeping;
      rmSync(own, { recursive: true, force: true });
    }
    return 0;
  });
}

function ended(signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    signal.addEventListener('abort', () => resolve(), { once: true });
    if (signal.aborted) resolve();
  });
}

function hostOptions({ socket, sandboxes = DEFAULT_SANDBOXES }: RequestOf<'serve'>, workspace: string) {
  return {
    workspace,
    // Nothing of the operator’s own configuration: no credentials, services or caches for tenants.
    config: {},
    maxConcurrent: Math.min(sandboxes, MAX_SANDBOXES),
    ...(socket === undefined ? {} : { engine: { socket } }),
  };
}

function policyOf({ level, memoryBytes, cpus, pids, allow }: RequestOf<'serve'>): PolicyFields {
  return {
    ...(level === undefined ? {} : { level }),
    limits: {
      ...(memoryBytes === undefined ? {} : { memoryBytes }),
      ...(cpus === undefined ? {} : { cpus }),
      ...(pids === undefined ? {} : { pids }),
    },
    network: allow === undefined || allow.length === 0 ? 'none' : { allow },
    caches: false,
    services: {},
  };
}

function templatesOf(images: readonly string[]): Map<string, string> {
  const templates = new Map<string, string>();
  for (const given of images) {
    const [, name, image = given] = /^([^=:@]+)=(.+)$/s.exec(given) ?? [];
    if (name !== undefined && !TEMPLATE.test(name))
      throw refused(
        '--image',
        `the name ${JSON.stringify(name)} of a template is invalid`,
        'Use letters, digits, `.`, `_`, `-` and `/`.',
      );
    if (templates.size === 0) templates.set('base', image);
    templates.set(name ?? image, image);
  }
  if (templates.size > 0) return templates;
  throw refused(
    'no --image',
    'no image is named that sandboxes are made of',
    'Name one that this machine has: `acode fleet serve --e2b --image node:20-alpine`. `acode sandbox images` shows them.',
  );
}

function keysOf({ keys: path }: RequestOf<'serve'>, top: string): { readonly keys: ApiKeys; readonly keyFile: string } {
  if (path !== undefined) return { keys: readKeys(path), keyFile: path };
  const { keys, file } = ownKey(top);
  return { keys, keyFile: file };
}

// As a worker: tenants share a kernel only if the operator says so.
function assertApart({ tenants, sharedKernel }: ApiKeys, level: string): void {
  if (tenants > 1 && level === 'docker' && !sharedKernel)
    throw refused(
      `${tenants} tenants at level docker`,
      'their sandboxes would share one kernel',
      'Add `--level gvisor`, start a server for each tenant, or write `shared_kernel: true` into the file of keys.',
    );
}

function certificateOf({
  tlsCert,
  tlsKey,
}: RequestOf<'serve'>): { readonly cert: string; readonly key: string } | null {
  if (tlsCert === undefined && tlsKey === undefined) return null;
  if (tlsCert === undefined || tlsKey === undefined)
    throw refused('half a certificate', 'TLS needs both', 'Give `--tls-cert` and `--tls-key`.');
  try {
    return { cert: readFileSync(tlsCert, 'utf8'), key: readFileSync(tlsKey, 'utf8') };
  } catch (cause) {
    throw refused('--tls-cert and --tls-key', reasonOf(cause), 'Correct the path, or the rights of the file.');
  }
}

function refused(what: string, reason: string, remedy: string): Error {
  return FLEET_ERRORS.create('ACODE-FLT-040', { what, reason, remedy });
}

function lockOf(directory: string): string {
  return `e2b ${directory}`;
}

/** Removes what servers that were killed left: the files of their sandboxes. The sandboxes themselves ended with them. */
async function removeLeft(of: {
  readonly top: string;
  readonly own: string;
  readonly locks: Locks;
  readonly request: RequestOf<'serve'>;
  readonly onFault: (what: string, error: unknown) => void;
}): Promise<void> {
  const { top, own, locks, request, onFault } = of;
  const others = readdirSync(top, { withFileTypes: true })
    .filter(entry => entry.isDirectory() && join(top, entry.name) !== own)
    .map(({ name }) => join(top, name));
  for (const directory of others)
    try {
      await locks.during(lockOf(directory), { deadlineMs: 0, signal: AbortSignal.timeout(LOCK_MS) }, async () => {
        await using acode = await Acode.open(hostOptions(request, directory));
        for (const { id } of await acode.forks.list()) await discarded(acode, id);
        rmSync(directory, { recursive: true, force: true });
      });
    } catch (error) {
      // Its server lives.
      if (!(error instanceof LockTimeoutError)) onFault('files of an earlier server could not be removed', error);
    }
}
