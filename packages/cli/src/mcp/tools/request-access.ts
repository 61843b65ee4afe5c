// request_access: asks the user for a host. Only a person answers, elsewhere: no tool can allow anything.

import * as z from 'zod';
import { oneLine } from '../../terminal/text.ts';
import { ADDS, tool } from '../tool.ts';

const MAX_NAME = 253;
const MAX_PORT = 65_535;
const MAX_WHY = 500;

/** The tool. */
export const requestAccess = tool({
  name: 'request_access',
  title: 'Ask the user for a host',
  description:
    'Asks the user to let commands reach one host. Returns at once; only the user answers, by a command. Then pass network to run_command or open_sandbox.',
  annotations: ADDS,
  lane: 'short',
  input: z.strictObject({
    host: z.string().min(1).max(MAX_NAME).describe('Full name, without a scheme.'),
    port: z.int().min(1).max(MAX_PORT).optional().describe('Default: 443.'),
    why: z.string().min(1).max(MAX_WHY),
  }),
  perform: async ({ host, port, why }, { session }) => {
    const wanted = { host, why, ...(port === undefined ? {} : { port }) };
    const { id, entry, host: name, port: at } = await session.host.network.request(wanted);
    const next = `acode egress allow ${id}`;
    const text = [
      `Pending: nothing has changed. Tell the user that \`${next}\`, typed in a terminal of theirs, allows ${name}:${at}.`,
      `When they say that they did, pass network "allow=${oneLine(entry)}". Do not repeat the request.`,
    ].join(' ');
    return {
      text,
      structured: {
        status: 'pending',
        id,
        host: name,
        port: at,
        user_types: next,
        afterwards: { network: `allow=${entry}` },
      },
    };
  },
});
