// Puts a server together from the call that asked for it, and keeps it until that call is interrupted.

import { AcodeError } from '@acode/sandbox';
import type { PoolOptions } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { runCli } from '../cli.ts';
import { identityOf, runtimeDirectory } from './identity.ts';
import { ServedHost } from './served-host.ts';
import { CallServer } from './server.ts';

/** What a server says of itself when it is ready. */
export interface ServerFacts {
  readonly workspace: string;
  readonly socket: string;
  /** Whether commands have caches here, with which nothing can wait for them. */
  readonly caches: boolean;
}

/** Serves until the call is interrupted; nothing is left then. `ready` is called when clients can come. */
export async function serveCalls(
  call: Call,
  pool: PoolOptions,
  ready: (facts: ServerFacts) => Promise<void>,
): Promise<void> {
  const uid = process.getuid?.();
  if (uid === undefined)
    throw new AcodeError('ACODE-SBX-016', {
      what: '`acode serve` on this system',
      instead: 'Call `acode run` as it is: every command has a sandbox made for it.',
    });
  const { env } = call.io;
  const { root, here } = await call.place();
  const { Acode } = await import('@acode/sandbox');
  const host = new ServedHost({
    open: options => Acode.open(options),
    options: { ...(await call.hostOptions()), pool },
    env,
  });
  try {
    // Before anybody is served: whoever may not run anything hears of it here, and the directory of the sockets is private.
    await host.open();
    await loadAhead();
    await using server = await CallServer.listen({
      directory: runtimeDirectory(env, uid),
      identity: identityOf({ ...call.options, root, cwd: here, env, uid }),
      workspace: root,
      uid,
      perform: (argv, io) => runCli(argv, io, { lender: host }),
    });
    await ready({ workspace: root, socket: server.path, caches: await hasCaches(call, host) });
    await interrupted(call.interruption.signal);
  } finally {
    await call.progress.during('Removing the sandboxes…', host.close());
  }
}

// Of a command that asks for nothing. One that would be refused hears why when it comes.
async function hasCaches(call: Call, host: ServedHost): Promise<boolean> {
  const loan = await host.borrow(await call.hostOptions());
  const { signal } = call.interruption;
  const explained = loan?.during(acode => acode.explain('true', { signal }));
  const spec = await explained?.then(({ spec: planned }) => planned).catch(() => null);
  return (spec?.caches.length ?? 0) > 0;
}

// Where acode is installed in the workspace, a sandbox may have put something else in the place of what is loaded later.
async function loadAhead(): Promise<void> {
  await import('../structured-log.ts');
}

function interrupted(signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
