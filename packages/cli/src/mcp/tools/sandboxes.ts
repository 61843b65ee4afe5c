// open_sandbox, list_sandboxes, close_sandbox: the sandboxes of a session.

import * as z from 'zod';
import { riskTexts, toldRisks } from '../risks.ts';
import type { SessionSandbox } from '../session.ts';
import { tightened, tighteningArguments } from '../tighten.ts';
import { ADDS, CHANGES, READS, tool } from '../tool.ts';
import { given, surroundings } from './arguments.ts';

const A_DAY_MINUTES = 24 * 60;

/** Opens one. */
export const openSandbox = tool({
  name: 'open_sandbox',
  title: 'Open a persistent sandbox',
  description:
    'Opens a persistent sandbox besides the default one, such as for another image or stricter limits. Pass its sandbox_id to other tools. It ends when it is closed, expires (default 60 minutes), or this session ends.',
  annotations: ADDS,
  lane: 'commands',
  input: z.strictObject({
    env: surroundings.env,
    expires_in_minutes: z.number().positive().optional(),
    ...tighteningArguments,
  }),
  perform: async ({ env, expires_in_minutes: minutes, ...wishes }, { session, signal }) => {
    const { policy, notes: tightening } = await tightened(session.host, wishes, signal);
    const expiry = minutes === undefined ? undefined : Math.min(minutes, A_DAY_MINUTES);
    const notes = [
      ...tightening,
      ...(expiry === minutes
        ? []
        : [`expires_in_minutes was lowered from ${minutes} to ${A_DAY_MINUTES}, the longest.`]),
    ];
    const sandbox = await session.open({
      policy,
      ...given({
        env,
        risk: wishes.risk,
        expiresInMs: expiry === undefined ? undefined : Math.round(expiry * 60_000),
      }),
      signal,
    });
    const structured = { ...described({ sandbox, isDefault: false }), notes };
    return { text: [`Opened sandbox ${sandbox.id}.`, ...notes].join('\n'), structured };
  },
});

/** Lists them. */
export const listSandboxes = tool({
  name: 'list_sandboxes',
  title: 'List the open sandboxes',
  description: 'Lists the open sandboxes of this session, with their ids.',
  annotations: READS,
  lane: 'short',
  input: z.strictObject({}),
  perform: async (_, { session }) => {
    const sandboxes = session.sandboxes.map(described);
    if (sandboxes.length === 0) return { text: NONE, structured: { notes: [NONE] } };
    const lines = sandboxes.map(one => `${one.sandbox_id}${one.isDefault ? ' (default)' : ''} until ${one.expiresAt}`);
    return { text: lines.join('\n'), structured: { sandboxes } };
  },
});

const NONE = 'No sandbox is open.';

/** Closes one. */
export const closeSandbox = tool({
  name: 'close_sandbox',
  title: 'Close a sandbox',
  description: 'Ends a sandbox and its commands. Files in the workspace stay; everything else in it is lost.',
  annotations: CHANGES,
  lane: 'short',
  input: z.strictObject({ sandbox_id: z.string().min(1).max(128) }),
  perform: async ({ sandbox_id: id }, { session }) => {
    const left = toldRisks(await session.closeSandbox(id));
    const text = [`Closed sandbox ${id}.`, ...riskTexts(left)].join('\n');
    return { text, structured: { closed: id, ...left } };
  },
});

function described({ sandbox, isDefault }: SessionSandbox) {
  return {
    sandbox_id: sandbox.id,
    expiresAt: sandbox.expiresAt.toISOString(),
    // Whether tools use it that are given no sandbox_id.
    ...(isDefault ? { isDefault } : {}),
  };
}
