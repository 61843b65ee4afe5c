// Client of `acode serve`: passes a call to the server of its workspace. Every call loads this file first, so it imports next to nothing.

import { lstatSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Io } from '../io.ts';
import { placeOf } from '../workspace.ts';
import { converse } from './conversation.ts';
import type { Outcome } from './conversation.ts';
import { identityOf, inheritedTraits, runtimeDirectory } from './identity.ts';
import type { Identity } from './identity.ts';
import { directoryMark, requestFrom } from './request.ts';
import { SocketDirectory } from './socket-path.ts';
import { whereOf } from './location-options.ts';

const ALONE: Outcome = { kind: 'alone', note: null };
// A server that lives answers within a few milliseconds; one that does not costs a call of its own no more than this.
const ANSWER_MS = 250;

/**
 * Has a server do the call.
 *
 * @param terminals which of the three standard streams are terminals
 * @param where where the call runs; null for a call that no server takes
 * @param answerMs how long the server has to answer: longer where nobody else can do the call
 * @returns its exit status; or that nothing was done, so that the call is this process’s own; or that the server was lost on
 *   the way, when nobody can tell how far the command came
 */
export async function throughServer(
  argv: readonly string[],
  io: Io,
  terminals: readonly number[],
  where = whereOf(argv),
  answerMs = ANSWER_MS,
): Promise<Outcome> {
  const uid = process.getuid?.();
  const cwd = currentDirectory(io);
  if (where === null || uid === undefined || cwd === null) return ALONE;
  const { root } = placeOf(cwd, where.workspace);
  const identity = identityOf({ ...where, root, cwd, env: io.env, uid, inherited: inheritedTraits() });
  const directory = runtimeDirectory(io.env, uid);
  if (!isThere(join(directory, identity.socketName))) return ALONE;
  const workspace = statSync(root, { throwIfNoEntry: false });
  if (!workspace) return ALONE;
  const about = { identity: identity.text, directory: directoryMark(workspace), argv, cwd };
  const request = JSON.stringify(requestFrom(io, terminals, about));
  return ask(directory, identity, uid, path => converse(path, request, io, answerMs));
}

async function ask(
  directory: string,
  { socketName }: Identity,
  uid: number,
  talk: (path: string) => Promise<Outcome>,
): Promise<Outcome> {
  const place = SocketDirectory.open(directory, uid);
  if ('unsafe' in place) return refused(place.unsafe);
  using held = place;
  const unsafe = held.whyUnsafe(socketName, uid);
  return unsafe === null ? await talk(held.path(socketName)) : refused(unsafe);
}

// Whoever put it there wants to be handed commands: that is said, whatever else is not.
function refused(reason: string): Outcome {
  const message = `the server of this workspace is not used: ${reason}, and only what is yours alone is trusted`;
  return { kind: 'alone', note: { level: 'warn', message } };
}

function isThere(path: string): boolean {
  try {
    return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false;
  }
}

function currentDirectory(io: Io): string | null {
  try {
    return io.cwd();
  } catch {
    return null;
  }
}
