// A signal for every process of a sandbox on Podman: its init passes one on to its first child alone, which is only the
// shell that waits for the command.

import { demultiplex } from '../engine/demultiplex.ts';
import type { Engine } from '../engine/index.ts';

const CALL_MS = 5000;
const SENT = 'sent';

/** Sends a signal from inside, to everything but the first process; rejects where that could not be done. */
export async function signalInside(engine: Engine, id: string, name: string, signal: AbortSignal): Promise<void> {
  const within = AbortSignal.any([signal, AbortSignal.timeout(CALL_MS)]);
  const terms = { signal: within, deadlineMs: CALL_MS };
  // The name is a word of its own and never part of the text; -1 stands for all there are.
  const argv = ['/bin/sh', '-c', `kill -s "$1" -- -1 && echo ${SENT}`, 'sh', name.replace(/^SIG/, '')];
  const exec = await engine.exec.create(id, { argv }, terms);
  const stream = await engine.exec.start(exec, terms);
  let said = '';
  const stdout = (data: Buffer): void => {
    if (said.length < SENT.length) said += data.toString('latin1');
  };
  await demultiplex(stream, { stdout, stderr: () => undefined });
  // Not asked for its exit status: what the signal ended may be gone by then, and all that was in it.
  if (!said.startsWith(SENT)) throw new Error(`the shell of the sandbox could not send ${name}`);
}
