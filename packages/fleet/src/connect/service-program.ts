// Programs of services, the worker’s and the gate’s: how they log, and how they tell the command that started them what went wrong.

import { AcodeError } from '@acode/sandbox';
import type { Logger } from '@acode/sandbox';

/** The status of a program that could not do what it was started for. */
export const FAILED = 125;

/** Lines of JSON on standard error. */
export const logger: Logger = {
  debug: () => undefined,
  info: (fields, message) => line('info', fields, message),
  warn: (fields, message) => line('warn', fields, message),
  error: (fields, message) => line('error', fields, message),
};

/** Runs what begins a service. What goes wrong is told to the command, or logged where none started it. */
export async function startService(name: string, begin: () => Promise<void>): Promise<void> {
  try {
    await begin();
  } catch (error) {
    const told = failureJson(error);
    if (process.connected) process.send?.(told, undefined, undefined, () => process.exit(FAILED));
    else {
      line('error', { ...told }, `the ${name} could not start`);
      process.exitCode = FAILED;
    }
  }
  // The channel is for errors of the start: it keeps no service alive, nor does its end stop one.
  if (process.connected) process.channel?.unref();
}

/** Calls a listener at each signal that asks a service to end. */
export function onStopSignals(listener: () => void): void {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, listener);
}

/** An error as the command makes it again. */
export function failureJson(error: unknown): object {
  if (error instanceof AcodeError) return error.toJSON();
  return { message: error instanceof Error ? error.message : String(error) };
}

function line(level: string, fields: Readonly<Record<string, unknown>>, message: string): void {
  process.stderr.write(`${JSON.stringify({ at: new Date().toISOString(), level, ...fields, message })}\n`);
}
