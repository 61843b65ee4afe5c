// List of the sandboxes that exist now. Loaded by `acode sandbox list` only.

import type { SandboxInfo } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { homeDirectory } from '../serve/identity.ts';
import { warmContainers } from '../serve/state.ts';
import { age, until } from '../terminal/age.ts';
import { shortId, shortPath } from '../terminal/text.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';

// A server answers within a few milliseconds. Without its answer, a warm sandbox is listed as running.
const ANSWER_MS = 500;
const ID_LENGTH = 8;
const MAX_PATH = 32;

/** Shows the list, and returns the exit status. */
export async function showList(call: Call): Promise<number> {
  const found = await call.withObserver(observer => call.progress.during('Asking the engine…', observer.list()));
  const items = await withWarm(call, found);
  await call.print('acode.list/1', { items }, look => renderList(items, look, homeDirectory(call.io.env)));
  return 0;
}

// Which sandboxes are warm only the process knows that keeps them.
async function withWarm(call: Call, items: readonly SandboxInfo[]): Promise<readonly SandboxInfo[]> {
  if (!items.some(({ state, expiresAt }) => state === 'running' && expiresAt === undefined)) return items;
  const warm = await warmContainers(call.io.env, ANSWER_MS);
  return items.map(item => (warm.has(item.containerId) ? { ...item, waiting: true } : item));
}

/** The sandboxes for a person. */
export function renderList(items: readonly SandboxInfo[], look: Look, home: string): string {
  if (items.length === 0) return 'There are no sandboxes.\n';
  // Most lists hold no persistent sandbox.
  const kept = items.some(({ expiresAt }) => expiresAt !== undefined);
  const named = items.some(({ givenName }) => givenName !== undefined);
  const rows = items.map(item => [
    // A persistent sandbox is listed by its own id, which `create` printed.
    (item.expiresAt === undefined ? item.containerId : item.sandboxId).slice(0, ID_LENGTH),
    nameOf(item, named && look.terminal),
    shortId(item.image),
    stateOf(item),
    workspaceOf(item, look, home),
    age(item.createdAt, look.now),
    ...(kept ? [item.expiresAt === undefined ? '' : until(item.expiresAt, look.now, 'letters')] : []),
  ]);
  const titles = ['ID', 'NAME', 'IMAGE', 'STATE', 'WORKSPACE', 'CREATED', ...(kept ? ['EXPIRES'] : [])];
  // Names that acode made say nothing that the id does not.
  return table(titles, rows, look, [...(named ? [] : ['NAME']), 'CREATED', 'IMAGE', 'EXPIRES', 'WORKSPACE']);
}

// A service says whose it is: by the id of that sandbox.
function nameOf({ givenName, service, name }: SandboxInfo, isBare: boolean): string {
  if (service) return `${service.name} of ${service.of.slice(0, ID_LENGTH)}`;
  return givenName ?? (isBare ? '' : name);
}

// In one word: warm and persistent sandboxes run too, and the word says which kind it is.
function stateOf({ state, waiting, expiresAt }: SandboxInfo): string {
  if (state !== 'running') return state;
  if (waiting === true) return 'warm';
  return expiresAt === undefined ? 'running' : 'persistent';
}

function workspaceOf({ workspace = '' }: SandboxInfo, look: Look, home: string): string {
  const path = shortPath(workspace, home);
  // The end tells directories apart, and the table would cut it.
  return look.terminal && path.length > MAX_PATH ? `…${path.slice(1 - MAX_PATH)}` : path;
}
