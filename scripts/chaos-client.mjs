// One session of the chaos run through the built library: told its runs on standard input, it tells each step it comes to.
// Usage: node chaos-client.mjs '{"socket": …, "workspace": …, "session": …, "config": …}'
// @ts-check

import { createInterface } from 'node:readline';
import { Acode, AcodeError } from '../packages/sandbox/dist/index.js';

const { socket, workspace, session, config } = JSON.parse(process.argv[2] ?? '{}');

/** @param {Record<string, unknown>} told */
const tell = told => process.stdout.write(`${JSON.stringify(told)}\n`);

/** @type {(fields: Readonly<Record<string, unknown>>, message: string) => void} */
const log = ({ containerId, reason }, message) => void tell({ step: message, containerId, reason });
const logger = { debug: log, info: log, warn: log, error: log };

const acode = await Acode.open({ engine: { socket }, workspace, sessionId: session, config, logger });
for await (const line of createInterface({ input: process.stdin })) {
  const { id, command, network } = JSON.parse(line);
  try {
    const { stdout, exitCode } = await acode.run(command, { policy: { network } });
    tell({ id, stdout, exitCode });
  } catch (error) {
    const typed = error instanceof AcodeError;
    tell({ id, code: typed ? error.code : 'none', hint: typed ? error.hint : '', message: String(error) });
  }
}
await acode.close();
