// Finds the engine, once per session: what was found first stays, and a choice of the user is never replaced by another engine.

import { unavailable, reasonOf } from './failure.ts';
import { Engine } from './engine/index.ts';
import { locateEngine } from './engine/locate.ts';
import type { EngineCandidate, EngineRefusal } from './engine/locate.ts';
import { thisHost } from './engine/locate-host.ts';

/** An engine and how it was found. */
export interface FoundEngine {
  readonly engine: Engine;
  readonly source: string;
}

const FIRST_CONTACT_MS = 4000;

const REFUSALS: Readonly<Record<EngineRefusal['reason'], string>> = {
  'not-a-unix-socket': 'only engines on a local unix socket are supported',
  'not-absolute': 'the path of the socket must be absolute',
  'context-missing': 'there is no docker context of that name',
  unreadable: 'the docker configuration cannot be read',
};

/** Connects to the engine; throws ACODE-SBX-008 where there is none. */
export async function connectEngine(socket: string | undefined, signal: AbortSignal): Promise<FoundEngine> {
  const search = locateEngine(thisHost(), socket);
  if (search.kind === 'refused') {
    throw unavailable(search.refusal.subject, `${REFUSALS[search.refusal.reason]} (${search.refusal.source})`);
  }
  if (search.candidates.length === 0) {
    throw unavailable(search.kind === 'known-places' ? search.searched.join(', ') : '', 'no engine socket exists');
  }
  return firstThatAnswers(search.candidates, signal);
}

async function firstThatAnswers(candidates: readonly EngineCandidate[], signal: AbortSignal): Promise<FoundEngine> {
  let failure: unknown;
  for (const { socket, source } of candidates) {
    try {
      return { engine: await Engine.open({ socketPath: socket, signal, deadlineMs: FIRST_CONTACT_MS }), source };
    } catch (error) {
      signal.throwIfAborted();
      failure ??= unavailable(socket, reasonOf(error), error);
      // Something is there and does not answer: going on to another engine would be a choice nobody made.
      if (!(error instanceof Error && 'kind' in error && error.kind === 'unreachable')) throw failure;
    }
  }
  throw failure;
}
