// Group D: a canary in one sandbox, and whether another one can reach it, its gateway, or anything at all.

import { randomInt } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { RunResult } from '../../../contract/result.ts';
import { refusalOf } from '../bench.ts';
import type { Bench } from '../bench.ts';
import type { Processor } from '../machine-code.ts';
import { answersIn, placed, probingProgram } from '../program.ts';
import type { SystemCall } from '../program.ts';
import { answerName } from '../system-calls.ts';
import type { TestEnvironment } from '../test-environment.ts';
import type { Outcomes, Trial, Untried } from '../trial.ts';

const PORT = 7077;

// A program that heeds no proxy, whatever the variables say.
const client = ({ temporary }: Bench): string =>
  `${placed('client', temporary)} && HTTP_PROXY=http://127.0.0.1:9 http_proxy=http://127.0.0.1:9 ${temporary}/client`;
const serve = ({ temporary }: Bench): string => `
cat /proc/net/fib_trie
${['listener', 'friend', 'server'].map(name => placed(name, temporary)).join(' && ')}
${temporary}/listener > /dev/null & sleep 1
${temporary}/friend
${temporary}/server > /dev/null &
sleep 1; echo serving; wait`;

/** The canary, the gateway and a neighbour’s sockets, with network none. */
export const reachable: Trial = {
  about: 'the network',
  needsShell: true,
  // It talks to a server of its own alone.
  onHost: 'same',
  attacks: [
    { id: 'D1', title: 'egress, DNS, IPv6 with network none' },
    { id: 'D2', title: 'abstract sockets of another namespace' },
    { id: 'D3', title: 'services of this host through the gateway' },
    { id: 'D5', title: 'other containers' },
    { id: 'D12', title: 'program that ignores proxy variables' },
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

// Without an engine the canary is on this host’s own network, where a name or a number may be somebody else’s.
function postFor({ environment }: Bench): Post {
  const own = environment.kind === 'container';
  return {
    address: own ? '0.0.0.0' : LOOPBACK,
    port: own ? PORT : randomInt(20_000, 32_000),
    abstract: abstractAddress(`acode-doctor-canary-${randomInt(2 ** 40)}`),
  };
}

async function withCanary(bench: Bench, processor: Processor): Promise<Outcomes> {
  const post = postFor(bench);
  const workspace = await bench.workspace({
    server: probingProgram(processor, server(post)),
    listener: probingProgram(processor, abstractListener(post)),
    friend: probingProgram(processor, abstractClient(post)),
  });
  const stop = new AbortController();
  return bench.together({ workspace, without: 'network', plainRuntime: true }, async run => {
    const canary = new Canary();
    const signal = AbortSignal.any([bench.signal, stop.signal]);
    const serving = refusalOf(run(serve(bench), { signal, onStdout: chunk => canary.hear(chunk) })).finally(() =>
      canary.gone(),
    );
    try {
      const other = await canary.address;
      if (other === null && bench.environment.kind === 'container')
        return none('no canary could be placed: the private network has no address');
      const reached = bench.environment.kind === 'container' ? (other ?? LOOPBACK) : LOOPBACK;
      const program = probingProgram(processor, clientOf(post, reached, other ?? reached));
      await writeFile(join(workspace, 'client'), program, { mode: 0o755 });
      // Each host has a private network of its own: where every sandbox has one, this is the one that counts.
      const here = bench.lacks('network') && bench.environment.kind === 'container';
      const [inside, open] = await Promise.all([
        here ? run(client(bench)) : bench.run(client(bench), { workspace: await bench.workspace({ client: program }) }),
        run(client(bench)),
      ]);
      return outcomes(bench, { inside, open, canary: canary.heard, routed: other !== null });
    } finally {
      stop.abort();
      await serving;
    }
  });
}

/** What the canary says as it comes up. */
class Canary {
  /** An address of its network that is not the loopback; null if there is none, or it never came up. */
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

interface Heard {
  readonly inside: RunResult;
  readonly open: RunResult;
  readonly canary: string;
  /** Whether there was another address than the loopback to ask for a route to. */
  readonly routed: boolean;
}

type Answer = bigint | undefined;

function outcomes({ environment }: Bench, { inside, open, canary, routed }: Heard): Outcomes {
  const [tcp, read, udp, mapped, gateway, abstract] = STEPS.map(at => answersIn(inside.stdout)[at]);
  const [openTcp, openRead, openUdp, openMapped, openGateway] = STEPS.map(at => answersIn(open.stdout)[at]);
  const friend = answersIn(canary).at(-1);
  const received = openRead === BigInt(CANARY.length);
  const where = environment.kind === 'container' ? 'on a private network' : 'with the network of this host';
  // Its own loopback has a route to itself, which shows nothing.
  const [tried, control] = [
    [tcp, mapped, ...(routed ? [udp] : [])],
    [openTcp, openMapped, ...(routed ? [openUdp] : [])],
  ];
  return {
    D1: {
      stopped: failed(...tried),
      observed: names(...tried),
      controlled: worked(...control),
      control: `${names(...control)} ${where}`,
    },
    D2: {
      stopped: failed(abstract),
      observed: names(abstract),
      controlled: worked(friend),
      control: `${names(friend)} from the namespace that has the socket`,
    },
    ...neighbours(environment.kind, { tcp, read, gateway, openGateway, received }),
    D12: {
      stopped: failed(tcp, read),
      observed: names(tcp),
      controlled: received,
      control: received ? `the canary’s bytes arrive ${where}` : 'no byte arrived',
    },
  };
}

interface NeighbourAnswers {
  readonly tcp: Answer;
  readonly read: Answer;
  readonly gateway: Answer;
  readonly openGateway: Answer;
  readonly received: boolean;
}

// The host behind a gateway and other containers are there only where there is an engine.
function neighbours(kind: TestEnvironment['kind'], answers: NeighbourAnswers): Outcomes {
  const { tcp, read, gateway, openGateway, received } = answers;
  if (kind === 'host')
    return {
      D3: {
        stopped: false,
        observed: 'the host’s own network',
        controlled: received,
        control: 'a server of it answers',
      },
      D5: { untried: 'this level has no containers' },
    };
  if (kind === 'namespaces')
    return {
      D3: { untried: 'this level has no gateway; a service of this host is what D1 and D12 try to reach' },
      D5: { untried: 'this level has no containers; each sandbox has a network of its own, as D1 shows' },
    };
  return {
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

function failed(...answers: Answer[]): boolean {
  return answers.every(one => one !== undefined && one < 0n);
}

function worked(...answers: Answer[]): boolean {
  return answers.every(one => one !== undefined && one >= 0n);
}

function names(...answers: Answer[]): string {
  return [...new Set(answers.map(answerName))].join(', ');
}

const UNIX = 1;
const IPV4 = 2;
const IPV6 = 10;
const STREAM = 1;
const DATAGRAM = 2;
/** Where every host reaches itself. */
const LOOPBACK = '127.0.0.1';
// Nothing listens there: a refusal comes from the host’s own network stack, and so shows that it was reached.
const CLOSED_PORT = 1;
/** What the canary says to whoever calls. */
const CANARY = 'canary';
// How many callers the canary answers before it ends.
const CALLERS = 8;

/** Where the canary listens: on every address of a private network, or on the loopback of this host. */
export interface Post {
  readonly address: string;
  readonly port: number;
  readonly abstract: Buffer;
}

/** The steps of {@link clientOf} whose answers count: TCP, what it read, UDP, IPv6, the gateway, the abstract socket. */
const STEPS = [1, 2, 4, 6, 8, 10];

/** Tries to reach the canary in every way. `routed` is an address to ask for a route to. */
function clientOf({ port, abstract }: Post, address: string, routed: string): SystemCall[] {
  const gateway = address.replace(/\d+$/, '1');
  return [
    { call: 'socket', args: [IPV4, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 0 }, ipv4(address, port), 16] },
    { call: 'read', args: [{ resultOf: 0 }, new Uint8Array(16), 16] },
    { call: 'socket', args: [IPV4, DATAGRAM, 0] },
    // Asks only for a route: nothing is sent.
    { call: 'connect', args: [{ resultOf: 3 }, ipv4(routed, 53), 16] },
    { call: 'socket', args: [IPV6, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 5 }, ipv6(address, port), 28] },
    { call: 'socket', args: [IPV4, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 7 }, ipv4(gateway, CLOSED_PORT), 16] },
    { call: 'socket', args: [UNIX, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 9 }, abstract, abstract.length] },
  ];
}

/** The canary itself. */
function server({ address, port }: Post): SystemCall[] {
  const callers = Array.from({ length: CALLERS }, (_, index): SystemCall[] => [
    { call: 'accept', args: [{ resultOf: 0 }, 0, 0] },
    { call: 'write', args: [{ resultOf: 3 + index * 2 }, CANARY, CANARY.length] },
  ]);
  return [
    { call: 'socket', args: [IPV4, STREAM, 0] },
    { call: 'bind', args: [{ resultOf: 0 }, ipv4(address, port), 16] },
    { call: 'listen', args: [{ resultOf: 0 }, CALLERS] },
    ...callers.flat(),
  ];
}

/** Listens on an abstract socket. */
function abstractListener({ abstract }: Post): SystemCall[] {
  return [
    { call: 'socket', args: [UNIX, STREAM, 0] },
    { call: 'bind', args: [{ resultOf: 0 }, abstract, abstract.length] },
    { call: 'listen', args: [{ resultOf: 0 }, 4] },
    // For its friend, for whoever else gets there, and then until it is removed.
    ...Array.from({ length: CALLERS }, (): SystemCall => ({ call: 'accept', args: [{ resultOf: 0 }, 0, 0] })),
  ];
}

/** Calls the abstract socket. */
function abstractClient({ abstract }: Post): SystemCall[] {
  return [
    { call: 'socket', args: [UNIX, STREAM, 0] },
    { call: 'connect', args: [{ resultOf: 0 }, abstract, abstract.length] },
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

/** The address of an abstract socket with this name. */
function abstractAddress(name: string): Buffer {
  return Buffer.concat([Buffer.from([UNIX, 0, 0]), Buffer.from(name)]);
}
