// read_output, write_input, stop_command: background commands and saved outputs.

import { AcodeError } from '@acode/sandbox';
import * as z from 'zod';
import type { BackgroundCommand } from '../background.ts';
import { MAX_SHOWN } from '../command-answer.ts';
import { wholeBefore } from '../excerpt.ts';
import { denialSchema, denialText, toldDenials } from '../failure.ts';
import { omittedSchema, riskTexts, riskySchema, toldRisks } from '../risks.ts';
import type { Session } from '../session.ts';
import { tool } from '../tool.ts';
import type { Answer } from '../tool.ts';
import { commandId } from './arguments.ts';

const MAX_WAIT_SECONDS = 60;
const STOPS_WITHIN_MS = 2000;
const KILLED_WITHIN_MS = 2000;

const readSchema = z.object({
  text: z.string(),
  from: z.int().describe('Where the text begins, in characters of the whole output.'),
  next: z.int().describe('The offset at which to go on reading.'),
  more: z.boolean().describe('Whether there is more after it already.'),
  running: z.boolean(),
  exitCode: z.int().nullable().optional().describe('Of a command that has ended.'),
  timedOut: z.boolean().optional(),
  denials: z.array(denialSchema).optional(),
  riskyChanges: riskySchema.optional().describe('Files it left in the workspace that tools of the user might execute.'),
  riskyChangesOmitted: omittedSchema.optional(),
});

type Read = Answer<z.input<typeof readSchema>>;

/** Reads. */
export const readOutput = tool({
  name: 'read_output',
  title: 'Read the output of a command',
  description:
    'Reads what a background command printed (command_id), from where the last reading ended unless offset says otherwise, and whether it still runs; or reads an acode://output/… address that another tool gave because its output was too long (output). Up to 30,000 characters at a time. With wait_seconds it waits for something new instead of returning nothing.',
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: false, openWorldHint: false },
  lane: 'short',
  input: z.strictObject({
    command_id: commandId.optional(),
    output: z.string().min(1).max(256).optional().describe('An address such as acode://output/3.'),
    offset: z.int().min(0).optional().describe('Where to begin, in characters.'),
    wait_seconds: z.number().min(0).max(MAX_WAIT_SECONDS).optional(),
  }),
  output: readSchema,
  perform: async ({ command_id: id, output, offset, wait_seconds: seconds = 0 }, { session, signal }) => {
    if ((id === undefined) === (output === undefined))
      throw new AcodeError('ACODE-MCP-001', {
        tool: 'read_output',
        field: '',
        reason: 'give either `command_id` or `output`, and not both',
      });
    if (output !== undefined) return keptPart(session, output, offset ?? 0);
    const command = session.command(id ?? '');
    if (seconds > 0) await command.waitFor(offset, seconds * 1000, signal);
    return printedPart(command, offset);
  },
});

/** Writes. */
export const writeInput = tool({
  name: 'write_input',
  title: 'Write to a background command',
  description: 'Writes text to the standard input of a background command, and ends that input with end: true.',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: false },
  lane: 'short',
  input: z.strictObject({
    command_id: commandId,
    text: z.string().optional().describe('What to write; a line ends with \\n.'),
    end: z.boolean().optional().describe('true: nothing more will be written.'),
  }),
  output: z.object({ written: z.int(), ended: z.boolean() }),
  perform: async ({ command_id: id, text = '', end = false }, { session }) => {
    const command = session.command(id);
    if (text !== '') await command.write(text);
    if (end) await command.closeInput();
    const written = Buffer.byteLength(text);
    return { text: `Wrote ${written} bytes${end ? ' and ended the input' : ''}.`, structured: { written, ended: end } };
  },
});

/** Stops. */
export const stopCommand = tool({
  name: 'stop_command',
  title: 'Stop a background command',
  description:
    'Stops a background command: SIGTERM first, SIGKILL if it does not end within two seconds. The sandbox stays open.',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  lane: 'short',
  input: z.strictObject({ command_id: commandId }),
  output: z.object({ stopped: z.boolean(), exitCode: z.int().nullable().optional() }),
  perform: async ({ command_id: id }, { session, signal }) => {
    const command = session.command(id);
    await stop(command, signal);
    const exitCode = command.result?.exitCode;
    const text = command.isRunning ? `${id} did not end; close its sandbox to be rid of it.` : `${id} has ended.`;
    return { text, structured: { stopped: !command.isRunning, ...(exitCode === undefined ? {} : { exitCode }) } };
  },
});

async function stop(command: BackgroundCommand, signal: AbortSignal): Promise<void> {
  if (!command.isRunning) return;
  await command.kill('SIGTERM');
  await command.waitForEnd(STOPS_WITHIN_MS, signal);
  if (!command.isRunning) return;
  await command.kill('SIGKILL');
  await command.waitForEnd(KILLED_WITHIN_MS, signal);
}

function keptPart(session: Session, output: string, offset: number): Read {
  const whole = session.outputs.find(output);
  if (whole === null) throw new AcodeError('ACODE-MCP-012', { output: output.slice(0, 100) });
  const next = wholeBefore(whole, Math.min(offset + MAX_SHOWN, whole.length));
  const text = whole.slice(offset, next);
  const more = next < whole.length;
  const structured = { text, from: offset, next: Math.max(next, offset), more, running: false };
  // Before the output: what follows it could be of the command.
  return { text: more ? `[continues at offset ${next} of ${whole.length}]\n${text}` : text, structured };
}

function printedPart(command: BackgroundCommand, offset: number | undefined): Read {
  const { result } = command;
  const { text, from, next } = command.read(MAX_SHOWN, offset);
  const more = text.length === MAX_SHOWN;
  const structured = {
    text,
    from,
    next,
    more,
    running: result === null,
    ...(result === null
      ? {}
      : {
          exitCode: result.exitCode,
          timedOut: result.timedOut,
          denials: toldDenials(result.denials),
          ...toldRisks(result.riskyChanges),
        }),
  };
  const state =
    result === null
      ? 'still runs'
      : result.timedOut
        ? 'was stopped by its time limit'
        : `has ended with ${result.exitCode}`;
  const denials = toldDenials(result?.denials ?? []).map(denialText);
  const left = riskTexts(toldRisks(result?.riskyChanges ?? []));
  return { text: [`[${command.id} ${state}]`, ...denials, ...left, text].join('\n'), structured };
}
