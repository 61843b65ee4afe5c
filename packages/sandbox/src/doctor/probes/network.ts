// Group D: a canary in one sandbox, and whether another one can reach it, its gateway, or anything at all.

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { RunResult } from '../../contract/result.ts';
import { refusalOf } from '../bench.ts';
import type { Bench } from '../bench.ts';
import type { Processor } from '../machine-code.ts';
import { answersIn, probingProgram } from '../program.ts';
import type { SystemCall } from '../program.ts';
import { answerName } from '../system-calls.ts';
import type { Outcome, Trial, Untried } from '../trial.ts';

const UNIX = 1;
const IPV4 = 2;
const IPV6 = 10;
const STREAM = 1;
const DATAGRAM = 2;
const PORT = 7077;
// Nothing listens there: a refusal comes from the host’s own network stack, and so shows that it was reached.
const CLOSED_PORT = 1;
const CANARY = 'canary';
// How many callers the canary answers before it ends.
const CALLERS = 8;

const start = (name: string): string => `cat ${name} > /tmp/${name} && chmod 755 /tmp/${name}`;
const CLIENT = `${start('client')} && /tmp/client`;
const SERVE = `
cat /proc/net/fib_trie
${start('listener')} && ${start('friend')} && ${start('server')}
/tmp/listener > /dev/null & sleep 1
/tmp/friend
/tmp/server > /dev/null &
sleep 1; echo serving; wait`;

/** The canary, the gateway and a neighbour’s sockets, with network none. */
export const reachable: Trial = {
  about: 'the network',
  needsShell: true,
  attacks: [
    { id: 'D1', title: 'egress, DNS, IPv6 with network none' },
    { id: 'D2', title: 'abstract sockets of another namespace' },
    { id: 'D3', title: 'services of this host through the gateway' },
    { id: 'D5', title: 'other containers' },
  ],
  async run(bench) {
    const { processor } = bench;
    if (processor === null) return none(`there is no probing program for ${process.arch}`);
    return withCanary(bench, processor);
  },
};

function none(untried: string): Record<string, Untried> {
  return Object.fromEntries(reachable.attacks.map(({ id }) => [id, { untried }]));
}

async function withCanary(bench: Bench, processor: Processor): Promise<Record<string, Outcome | Untried>> {
  const workspace = await bench.workspace({
    server: probingProgram(processor, server()),
    listener: probingProgram(processor, abstractListener()),
    friend: probingProgram(processor, abstractClient()),
  });
  const stop = new AbortController();
  return bench.together({ workspace, without: 'network', plainRuntime: true }, async run => {
    const canary = new Canary();
    const signal = AbortSignal.any([bench.signal, stop.signal]);
    const serving = refusalOf(run(SERVE, { signal, onStdout: chunk => canary.hear(chunk) })).finally(() =>
      canary.gone(),
    );
    try {
      const address = await canary.address;
      if (address === null) return none('no canary could be placed: the private network has no address');
      const client = probingProgram(processor, clientOf(address));
      await writeFile(join(workspace, 'client'), client, { mode: 0o755 });
      const [inside, open] = await Promise.all([
        // Each host has a private network of its own: where every sandbox has one, this is the one that counts.
        bench.lacks('network') ? run(CLIENT) : bench.run(CLIENT, { workspace: await bench.workspace({ client }) }),
        run(CLIENT),
      ]);
      return outcomes(inside, open, canary.heard);
    } finally {
      stop.abort();
      await serving;
    }
  });
}

/** What the canary says as it comes up. */
class Canary {
  /** Where it listens; null if it never came up. */
  readonly address: Promise<string | null>;
  heard = '';
  #settle: (address: string | null) => void = () => undefined;

  constructor() {
    this.address = new Promise(resolve => (this.#settle = resolve));
  }

  hear(chunk: Uint8Array): void {
    this.heard += Buffer.from(chunk).toString('latin1');
    if (!this.heard.includes('serving')) return;
    const local = [...this.heard.matchAll(/-- (\d+\.\d+\.\d+\.\d+)\n\s+\/32 host LOCAL/g)].map(([, ip]) => ip ?? '');
    this.#settle(local.find(ip => !ip.startsWith('127.')) ?? null);
  }

  gone(): void {
    this.#settle(null);
  }
}

function outcomes(inside: RunResult, open: RunResult, canary: string): Record<string, Outcome | Untried> {
  const [tcp, read, udp, mapped, gateway, abstract] = STEPS.map(at => answersIn(inside.stdout)[at]);
  const [openTcp, openRead, openUdp, openMapped, openGateway] = STEPS.map(at => answersIn(open.stdout)[at]);
  const friend = answersIn(canary).at(-1);
  const failed = (...answers: (bigint | undefined)[]): boolean => answers.every(one => one !== undefined && one < 0n);
  const worked = (...answers: (bigint | undefined)[]): boolean => answers.every(one => one !== undefined && one >= 0n);
  const received = openRead === BigInt(CANARY.length);
  return {
    D1: {
      stopped: failed(tcp, udp, mapped),
      observed: names(tcp, udp, mapped),
      controlled: worked(openTcp, openUdp, openMapped),
      control: `${names(openTcp, openUdp, openMapped)} on a private network`,
    },
    D2: {
      stopped: failed(abstract),
      observed: names(abstract),
      controlled: worked(friend),
      control: `${names(friend)} from the namespace that has the socket`,
    },
    D3:
      openGateway === undefined || answerName(openGateway) !== 'ECONNREFUSED'
        ? { untried: `the gateway of the private network does not answer (${names(openGateway)})` }
        : {
            stopped: failed(gateway) && answerName(gateway) !== 'ECONNREFUSED',
            observed: names(gateway),
            controlled: true,
            control: 'this host answers ECONNREFUSED on a private network',
          },
    D5: {
      stopped: failed(tcp, read),
      observed: names(tcp),
      controlled: received,
      control: received ? 'the canary’s bytes arrive on a private network' : 'no byte arrived',
    },
  };
}

function names(...answers: (bigint | undefined)[]): string {
  return [...new Set(answers.map(answerName))].join(', ');
}

// The steps of `clientOf` whose answers count.
const STEPS = [1, 2, 4, 6, 8, 10];

function clientOf(address: string): SystemCall[] {
  const gateway = address.replace(/\d+$/, '1');
  return [
    { call: 'socket', args: [IPV4, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 0 }, ipv4(address, PORT), 16] },
    { call: 'read', args: [{ resultOf: 0 }, new Uint8Array(16), 16] },
    { call: 'socket', args: [IPV4, DATAGRAM, 0] },
    // Asks only for a route: nothing is sent.
    { call: 'connect', args: [{ resultOf: 3 }, ipv4(address, 53), 16] },
    { call: 'socket', args: [IPV6, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 5 }, ipv6(address, PORT), 28] },
    { call: 'socket', args: [IPV4, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 7 }, ipv4(gateway, CLOSED_PORT), 16] },
    { call: 'socket', args: [UNIX, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 9 }, ABSTRACT, ABSTRACT.length] },
  ];
}

function server(): SystemCall[] {
  const callers = Array.from({ length: CALLERS }, (_, index): SystemCall[] => [
    { call: 'accept', args: [{ resultOf: 0 }, 0, 0] },
    { call: 'write', args: [{ resultOf: 3 + index * 2 }, CANARY, CANARY.length] },
  ]);
  return [
    { call: 'socket', args: [IPV4, STREAM, 0] },
    { call: 'bind', args: [{ resultOf: 0 }, ipv4('0.0.0.0', PORT), 16] },
    { call: 'listen', args: [{ resultOf: 0 }, CALLERS] },
    ...callers.flat(),
  ];
}

const ABSTRACT = Buffer.concat([Buffer.from([UNIX, 0, 0]), Buffer.from('acode-doctor-canary')]);

function abstractListener(): SystemCall[] {
  return [
    { call: 'socket', args: [UNIX, STREAM, 0] },
    { call: 'bind', args: [{ resultOf: 0 }, ABSTRACT, ABSTRACT.length] },
    { call: 'listen', args: [{ resultOf: 0 }, 4] },
    // Once for its friend, and then until it is removed.
    { call: 'accept', args: [{ resultOf: 0 }, 0, 0] },
    { call: 'accept', args: [{ resultOf: 0 }, 0, 0] },
  ];
}

function abstractClient(): SystemCall[] {
  return [
    { call: 'socket', args: [UNIX, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 0 }, ABSTRACT, ABSTRACT.length] },
  ];
}

function ipv4(address: string, port: number): Buffer {
  return Buffer.from([IPV4, 0, port >> 8, port & 255, ...address.split('.').map(Number), 0, 0, 0, 0, 0, 0, 0, 0]);
}

// The IPv4 address by the other family: what stops one must stop both.
function ipv6(address: string, port: number): Buffer {
  const head = Buffer.from([IPV6, 0, port >> 8, port & 255, 0, 0, 0, 0]);
  const mapped = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, ...address.split('.').map(Number)]);
  return Buffer.concat([head, mapped, Buffer.alloc(4)]);
}
