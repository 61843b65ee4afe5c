// open_sandbox, list_sandboxes, close_sandbox: the sandboxes of a session.

import * as z from 'zod';
import { omittedSchema, riskTexts, riskySchema, toldRisks } from '../risks.ts';
import type { SessionSandbox } from '../session.ts';
import { tightened, tighteningArguments } from '../tighten.ts';
import { tool } from '../tool.ts';
import { given, surroundings } from './arguments.ts';

const A_DAY_MINUTES = 24 * 60;

const sandboxSchema = z.object({
  sandbox_id: z.string(),
  expiresAt: z.string().describe('When it is removed by itself.'),
  isDefault: z.boolean().describe('Whether tools use it that are given no sandbox_id.'),
});

/** Opens one. */
export const openSandbox = tool({
  name: 'open_sandbox',
  title: 'Open a persistent sandbox',
  description:
    'Opens a persistent, isolated sandbox: it exists until it is closed, expires, or this session ends. The user’s workspace is at /workspace in it. Use it when commands build on each other, or for a second environment beside the default one. Pass its sandbox_id to run_in_sandbox and to the file tools.',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: false },
  lane: 'commands',
  input: z.strictObject({
    env: surroundings.env,
    expires_in_minutes: z.number().positive().max(A_DAY_MINUTES).optional().describe('Default 60.'),
    ...tighteningArguments,
  }),
  output: sandboxSchema.extend({ notes: z.array(z.string()) }),
  perform: async ({ env, expires_in_minutes: minutes, ...wishes }, { session, signal }) => {
    const { policy, notes } = await tightened(session.host, wishes, signal);
    const sandbox = await session.open({
      policy,
      ...given({
        env,
        risk: wishes.risk,
        expiresInMs: minutes === undefined ? undefined : Math.round(minutes * 60_000),
      }),
      signal,
    });
    const structured = { ...described({ sandbox, isDefault: false }), notes: [...notes] };
    return { text: [`Opened sandbox ${sandbox.id}.`, ...notes].join('\n'), structured };
  },
});

/** Lists them. */
export const listSandboxes = tool({
  name: 'list_sandboxes',
  title: 'List the open sandboxes',
  description: 'Lists the sandboxes that this session has open.',
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  lane: 'short',
  input: z.strictObject({}),
  output: z.object({ sandboxes: z.array(sandboxSchema) }),
  perform: async (_, { session }) => {
    const sandboxes = session.sandboxes.map(described);
    const lines = sandboxes.map(one => `${one.sandbox_id}${one.isDefault ? ' (default)' : ''} until ${one.expiresAt}`);
    return { text: lines.length === 0 ? 'No sandbox is open.' : lines.join('\n'), structured: { sandboxes } };
  },
});

/** Closes one. */
export const closeSandbox = tool({
  name: 'close_sandbox',
  title: 'Close a sandbox',
  description:
    'Closes a sandbox: its commands end, and what was only inside it is lost. Files in the workspace stay as they are.',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: false },
  lane: 'short',
  input: z.strictObject({ sandbox_id: z.string().min(1).max(128).describe('The id that open_sandbox gave.') }),
  output: z.object({
    closed: z.string(),
    riskyChanges: riskySchema.describe(
      'Files left in the workspace after its last command that tools of the user might execute.',
    ),
    riskyChangesOmitted: omittedSchema,
  }),
  perform: async ({ sandbox_id: id }, { session }) => {
    const left = toldRisks(await session.closeSandbox(id));
    const text = [`Closed sandbox ${id}.`, ...riskTexts(left)].join('\n');
    return { text, structured: { closed: id, ...left } };
  },
});

function described({ sandbox, isDefault }: SessionSandbox): z.input<typeof sandboxSchema> {
  return { sandbox_id: sandbox.id, expiresAt: sandbox.expiresAt.toISOString(), isDefault };
}
