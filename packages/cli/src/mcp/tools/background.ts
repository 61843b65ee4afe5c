// read_output, write_input, stop_command: background commands and saved outputs.

import type { RunResult } from '@acode/sandbox';
import * as z from 'zod';
import type { BackgroundCommand } from '../background.ts';
import { MAX_SHOWN } from '../command-answer.ts';
import { wholeBefore } from '../excerpt.ts';
import { denialText, toldDenials } from '../failure.ts';
import { riskTexts, toldRisks } from '../risks.ts';
import type { Session } from '../session.ts';
import { CHANGES, READS, tool } from '../tool.ts';
import type { Answer } from '../tool.ts';
import { commandId } from './arguments.ts';
import { mcpError } from '../errors.ts';

const MAX_WAIT_SECONDS = 60;
const STOPS_WITHIN_MS = 2000;
const KILLED_WITHIN_MS = 2000;

/** Reads. */
export const readOutput = tool({
  name: 'read_output',
  title: 'Read the output of a command',
  description:
    'Reads what a background command printed since the last reading (command_id), and whether it still runs; or an output that was too long for an answer (output: its acode://output/… address). wait_seconds, up to 60, waits for something new. offset counts characters.',
  annotations: READS,
  lane: 'short',
  input: z.strictObject({
    command_id: commandId.optional(),
    output: z.string().min(1).max(256).optional(),
    offset: z.int().min(0).optional(),
    wait_seconds: z.number().min(0).optional(),
  }),
  perform: async ({ command_id: id, output, offset, wait_seconds: seconds = 0 }, { session, signal }) => {
    if ((id === undefined) === (output === undefined))
      throw mcpError('ACODE-MCP-001', {
        tool: 'read_output',
        field: '',
        reason: 'give either `command_id` or `output`, and not both',
      });
    if (output !== undefined) return keptPart(session, output, offset ?? 0);
    const command = session.command(id ?? '');
    if (seconds > 0) await command.waitFor(offset, Math.min(seconds, MAX_WAIT_SECONDS) * 1000, signal);
    return printedPart(command, offset);
  },
});

/** Writes. */
export const writeInput = tool({
  name: 'write_input',
  title: 'Write to a background command',
  description:
    'Writes text to the standard input of a background command; a line ends with \\n. end: true closes that input.',
  annotations: CHANGES,
  lane: 'short',
  input: z.strictObject({
    command_id: commandId,
    text: z.string().optional(),
    end: z.boolean().optional(),
  }),
  perform: async ({ command_id: id, text = '', end = false }, { session }) => {
    const command = session.command(id);
    if (text !== '') await command.write(text);
    if (end) await command.closeInput();
    const written = Buffer.byteLength(text);
    return {
      text: `Wrote ${written} bytes${end ? ' and ended the input' : ''}.`,
      structured: { written, ended: end || undefined },
    };
  },
});

/** Stops. */
export const stopCommand = tool({
  name: 'stop_command',
  title: 'Stop a background command',
  description: 'Stops a background command: SIGTERM, and SIGKILL two seconds later. Its sandbox stays open.',
  annotations: CHANGES,
  lane: 'short',
  input: z.strictObject({ command_id: commandId }),
  perform: async ({ command_id: id }, { session, signal }) => {
    const command = session.command(id);
    await stop(command, signal);
    const exitCode = command.result?.exitCode;
    const text = command.isRunning ? `${id} did not end; close its sandbox to be rid of it.` : `${id} has ended.`;
    return { text, structured: { stopped: !command.isRunning, exitCode } };
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

function keptPart(session: Session, output: string, offset: number): Answer {
  const whole = session.outputs.find(output);
  if (whole === null) throw mcpError('ACODE-MCP-012', { output: output.slice(0, 100) });
  const next = wholeBefore(whole, Math.min(offset + MAX_SHOWN, whole.length));
  const text = whole.slice(offset, next);
  const more = next < whole.length;
  // Before the output: what follows it could be of the command.
  return {
    text: more ? `[continues at offset ${next} of ${whole.length}]\n${text}` : text,
    structured: { next: more ? next : undefined, more: more || undefined, text },
  };
}

function printedPart(command: BackgroundCommand, offset: number | undefined): Answer {
  const { result } = command;
  const { text, from, next } = command.read(MAX_SHOWN, offset);
  const denials = toldDenials(result?.denials ?? []);
  const risks = toldRisks(result?.riskyChanges ?? []);
  const structured = {
    running: result === null,
    ...(result && { exitCode: result.exitCode, timedOut: result.timedOut || undefined }),
    denials,
    ...risks,
    // Where the text begins, if not where it was asked for: what was before is no longer kept.
    from: from === (offset ?? from) ? undefined : from,
    next,
    more: text.length === MAX_SHOWN || undefined,
    text,
  };
  const own = [`[${command.id} ${stateText(result)}]`, ...denials.map(denialText), ...riskTexts(risks)];
  return { text: [...own, text].join('\n'), structured };
}

function stateText(result: RunResult | null): string {
  if (result === null) return 'still runs';
  return result.timedOut ? 'was stopped by its time limit' : `has ended with ${result.exitCode}`;
}
