// Program of `acode fleet …`: the command line starts it, sends one request, and shows what comes back. Nothing of it is loaded by acode.

import { FAILED, failureJson } from '../connect/service-program.ts';
import { requestSchema } from './requests.ts';
import type { FleetRequest, FromProgram, RequestOf, Terminal, ToProgram } from './requests.ts';

const stop = new AbortController();
let more: () => void = () => undefined;

function send(message: FromProgram): Promise<void> {
  return new Promise(resolve => {
    if (process.connected) process.send?.(message, undefined, undefined, () => resolve());
    else resolve();
  });
}

const terminal: Terminal = {
  signal: stop.signal,
  // One piece at a time: a reader who is slow holds the log up, and nothing else.
  output: async (stream, bytes) => {
    if (!process.connected) return;
    const room = new Promise<void>(resolve => (more = resolve));
    await send({ is: 'output', stream, bytes });
    await room;
  },
  say: text => void send({ is: 'say', text }),
  value: (schema, value) => void send({ is: 'value', schema, value }),
};

/** The modules of the verbs, each loaded when it is asked for. */
const VERBS: { readonly [Verb in FleetRequest['verb']]: (request: RequestOf<Verb>) => Promise<number> } = {
  submit: async request => (await import('./tasks.ts')).submit(request, terminal),
  run: async request => (await import('./tasks.ts')).run(request, terminal),
  logs: async request => (await import('./tasks.ts')).logs(request, terminal),
  cancel: async request => (await import('./tasks.ts')).cancel(request, terminal),
  create: async request => (await import('./sandboxes.ts')).create(request, terminal),
  exec: async request => (await import('./sandboxes.ts')).exec(request, terminal),
  list: async request => (await import('./sandboxes.ts')).list(request, terminal),
  kill: async request => (await import('./sandboxes.ts')).kill(request, terminal),
  status: async request => (await import('./fleet-view.ts')).status(request, terminal),
  hosts: async request => (await import('./fleet-view.ts')).hosts(request, terminal),
  drain: async request => (await import('./fleet-view.ts')).drain(request, terminal),
  doctor: async request => (await import('./doctor.ts')).doctor(request, terminal),
  tenant: async request => (await import('./tenant.ts')).tenant(request, terminal),
  up: async request => (await import('./up.ts')).up(request, terminal),
  serve: async request => (await import('./serve.ts')).serve(request, terminal),
  join: async request => (await import('./join.ts')).join(request, terminal),
};

function perform<Verb extends FleetRequest['verb']>(request: RequestOf<Verb> & { verb: Verb }): Promise<number> {
  return VERBS[request.verb](request);
}

async function main(request: unknown): Promise<void> {
  try {
    await send({ is: 'ended', status: await perform(requestSchema.parse(request)) });
  } catch (error) {
    await send({ is: 'failed', error: failureJson(error) });
    process.exitCode = FAILED;
  }
  process.exit();
}

process.on('message', (message: ToProgram) => {
  if (message.is === 'more') more();
  else if (message.is === 'stop') stop.abort(new Error('stopped'));
  else void main(message.request);
});
// Without the command line nobody reads what comes; a server or a worker that it started ends with it.
process.on('disconnect', () => {
  stop.abort(new Error('the command line is gone'));
  more();
});
// The command line passes on what is sent to it: a terminal sends its signals to both.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const) process.on(signal, () => undefined);
