// `acode sandbox forward`: forwards a local port to a server in a sandbox, until Ctrl-C.

import { AcodeError } from '@acode/sandbox';
import { Command, InvalidArgumentError } from '@commander-js/extra-typings';
import { reference } from '../arguments/values.ts';
import type { Call, Perform } from '../call.ts';

/** The command. */
export function forwardCommand(perform: Perform) {
  return new Command('forward')
    .description('Forward a port of 127.0.0.1 to a server in a persistent sandbox, until Ctrl-C')
    .argument('<sandbox>', 'id or name of a persistent sandbox', reference)
    .argument('<port>', 'port in the sandbox, or hostport:port', forwarding)
    .action((named, port, _options, command) => perform(command, call => forward(call, named, port)));
}

async function forward(call: Call, named: string, { containerPort, hostPort }: Forwarding): Promise<number> {
  return call.withHost(async acode => {
    const { signal } = call.interruption;
    const sandbox = await call.progress.during('Asking the engine…', acode.connect(named, { signal }));
    const onUnanswered = once(() => void call.say(unanswered(containerPort)));
    const ways = { ...(hostPort === undefined ? {} : { hostPort }), onUnanswered, signal };
    await using way = await sandbox.ports.forward(containerPort, ways);
    const facts = { sandboxId: sandbox.id, address: '127.0.0.1', port: way.port, containerPort };
    await call.print('acode.forward/1', facts, () => `127.0.0.1:${way.port}\n`);
    if (!call.options.json)
      await call.say(
        `acode: forwarding to port ${containerPort} of ${sandbox.givenName ?? sandbox.name}. Ctrl-C stops it; the sandbox keeps running.\n`,
      );
    const reason = await Promise.race([sandbox.ended, interrupted(signal)]);
    if (reason !== null) throw new AcodeError('ACODE-SBX-025', { sandbox: sandbox.id, reason });
    return 0;
  });
}

function unanswered(port: number): string {
  return `acode: nothing listens on port ${port} inside yet (on 127.0.0.1, or on every address).\n`;
}

// Browsers ask again and again, and the second line would say nothing new.
function once(tell: () => void): () => void {
  let told = false;
  return () => {
    if (!told) tell();
    told = true;
  };
}

function interrupted(signal: AbortSignal): Promise<null> {
  return new Promise(resolve => {
    if (signal.aborted) resolve(null);
    else signal.addEventListener('abort', () => resolve(null), { once: true });
  });
}

/** Which port leads where. */
export interface Forwarding {
  readonly containerPort: number;
  /** Absent: any free one. */
  readonly hostPort?: number;
}

const MAX_PORT = 65_535;

/** A forwarding, written `[hostport:]port`. */
export function forwarding(text: string): Forwarding {
  const [, outside, inside] = /^(?:(\d{1,5}):)?(\d{1,5})$/.exec(text) ?? [];
  const numbers = [inside, ...(outside === undefined ? [] : [outside])].map(Number);
  if (!numbers.every(number => number >= 1 && number <= MAX_PORT))
    throw new InvalidArgumentError('Expected a port, or hostport:port, from 1 to 65535, such as 3000 or 8080:3000.');
  return { containerPort: Number(inside), ...(outside === undefined ? {} : { hostPort: Number(outside) }) };
}
