// The proxy of a host as the rest of acode sees it: one worker thread, started with the first sandbox that has an allow-list.

import { Duplex } from 'node:stream';
import { MessageChannel, Worker } from 'node:worker_threads';
import type { MessagePort, Transferable } from 'node:worker_threads';
import type { EgressConnection, EgressPlan, SpentBudget } from '../../contract/egress.ts';
import { CREDENTIAL_MS } from '../credentials/provider.ts';
import type { CredentialProvider, CredentialValue } from '../credentials/provider.ts';
import type { BindFault } from '../relay/control.ts';
import type { Transport } from '../relay/relay.ts';
import { egressProgram } from './program.ts';

/** The proxy of a host. */
export interface EgressProxy {
  /** Opens the network of one sandbox. Its forwarder may be started when this has resolved. */
  open(task: EgressTaskRequest): Promise<EgressTask>;
  /** Ends the proxy, and with it the network of every sandbox. */
  close(): Promise<void>;
}

/** A sandbox that is to have a network. */
export interface EgressTaskRequest {
  /** The id of the sandbox. */
  readonly id: string;
  readonly plan: EgressPlan;
  /** How its bytes come out. */
  readonly transport: Transport;
  /** Certificate authorities besides those of this host that servers may be signed by, as PEM. */
  readonly extraRoots?: string;
  /** What keeps the credentials of the plan, by their names. */
  readonly credentials?: ReadonlyMap<string, CredentialProvider>;
}

/** What a sandbox has to trust besides the authorities of its image: the proxy, so that it can end TLS, and those of the user. */
export interface SandboxTrust {
  /** The certificate authority of this sandbox and those of the user, as PEM: for variables that add some. */
  readonly certificate: string;
  /** The same together with the authorities of this host: for variables that replace them all. */
  readonly bundle: string;
}

/** The network of one sandbox. */
export interface EgressTask {
  /** Resolves when the forwarder inside has bound everything, with what it could not bind. */
  readonly bound: Promise<BindFault>;
  /** Resolves when the proxy has died: the sandbox has no network any more. */
  readonly lost: Promise<void>;
  /** Resolves when a budget is used up; never where it is not. */
  readonly spent: Promise<SpentBudget>;
  /** What the sandbox has to trust by the current plan; null for what it trusts anyway. */
  trust(): SandboxTrust | null;
  /** Follows another plan. Connections that it does not allow are closed. */
  update(plan: EgressPlan): Promise<void>;
  /** The connections so far, per host and outcome. */
  report(): Promise<readonly EgressConnection[]>;
  /** Closes every connection, and reports. After the death of the proxy: what it last reported. */
  close(): Promise<readonly EgressConnection[]>;
}

/** An order to the worker about one sandbox. */
export type TaskOrder = { readonly number: number; readonly task: string } & (
  { readonly do: 'update'; readonly plan: EgressPlan } | { readonly do: 'report' | 'close' }
);

/** An order to the worker. */
export type Order =
  | TaskOrder
  | {
      readonly number: number;
      readonly do: 'open';
      readonly task: string;
      readonly plan: EgressPlan;
      readonly transport: WireTransport;
      readonly extraRoots: string;
    }
  | {
      readonly do: 'answer';
      /** The number of what was asked. */
      readonly number: number;
      /** The value; null if it cannot be had. */
      readonly value: CredentialValue | null;
    };

type WireTransport = Extract<Transport, { kind: 'socket' }> | { readonly kind: 'frames'; readonly pipe: MessagePort };

/** What came of an order: rows of a report, and after an open or an update what the sandbox has to trust. */
export interface Result {
  readonly rows?: readonly EgressConnection[];
  readonly trust?: SandboxTrust | null;
}

/** What the worker says. */
export type Reply =
  | { readonly is: 'done'; readonly number: number; readonly result: Result }
  | { readonly is: 'failed'; readonly number: number; readonly message: string }
  | { readonly is: 'bound'; readonly task: string; readonly fault: BindFault }
  | { readonly is: 'spent'; readonly task: string; readonly budget: SpentBudget }
  | {
      readonly is: 'ask';
      readonly number: number;
      readonly task: string;
      /** The name of a credential whose value is wanted. */
      readonly credential: string;
      /** A value that a server has refused. */
      readonly refused?: string;
    };

type Unsent<Message> = Message extends unknown ? Omit<Message, 'number'> : never;

// What hostile traffic can make the worker hold. Beyond it the worker dies, and with it the network of its sandboxes.
const RESOURCES = { maxOldGenerationSizeMb: 192, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 };
// An answer needs no more than a few milliseconds; binding names inside has its own limit of ten seconds.
const ANSWER_MS = 15_000;

/** The proxy of a host. Nothing is started before the first sandbox needs it. */
export function egressProxy(): EgressProxy {
  let thread: ProxyThread | null = null;
  return {
    async open(task) {
      // A thread that died took its sandboxes’ network along; the next sandbox gets another one.
      if (thread === null || thread.isDead) thread = new ProxyThread();
      return thread.open(task);
    },
    async close() {
      const ending = thread;
      thread = null;
      await ending?.end();
    },
  };
}

interface Pending {
  resolve(result: Result): void;
  reject(error: Error): void;
}

class ProxyThread {
  isDead = false;
  readonly lost: Promise<void>;
  readonly #worker: Worker;
  readonly #pending = new Map<number, Pending>();
  readonly #binding = new Map<string, (fault: BindFault) => void>();
  readonly #spending = new Map<string, (budget: SpentBudget) => void>();
  readonly #credentials = new Map<string, ReadonlyMap<string, CredentialProvider>>();
  #number = 0;
  #fault: unknown = null;

  constructor() {
    // Nothing of the environment: it may hold secrets that no proxy needs.
    this.#worker = new Worker(egressProgram(), {
      name: 'acode-egress',
      env: {},
      execArgv: [],
      resourceLimits: RESOURCES,
    });
    this.#worker.unref();
    this.#worker.on('message', (reply: Reply) => this.#receive(reply));
    this.lost = new Promise(resolve => {
      this.#worker.once('error', error => (this.#fault = error));
      // After an error too.
      this.#worker.once('exit', () => {
        this.#die();
        resolve();
      });
    });
  }

  async open({ id, plan, transport, extraRoots = '', credentials }: EgressTaskRequest): Promise<EgressTask> {
    if (credentials) this.#credentials.set(id, credentials);
    const bound = new Promise<BindFault>(resolve => void this.#binding.set(id, resolve));
    const spent = new Promise<SpentBudget>(resolve => void this.#spending.set(id, resolve));
    const { wire, transfer } = wireOf(transport);
    let { trust = null } = await this.#order({ do: 'open', task: id, plan, transport: wire, extraRoots }, transfer);
    let last: readonly EgressConnection[] = [];
    const report = async (what: 'report' | 'close'): Promise<readonly EgressConnection[]> => {
      if (!this.isDead) ({ rows: last = [] } = await this.#order({ do: what, task: id }));
      return last;
    };
    return {
      bound,
      lost: this.lost,
      spent,
      trust: () => trust,
      update: async next => {
        ({ trust = null } = await this.#order({ do: 'update', task: id, plan: next }));
      },
      report: () => report('report'),
      close: async () => {
        this.#binding.delete(id);
        this.#spending.delete(id);
        this.#credentials.delete(id);
        return report('close');
      },
    };
  }

  async end(): Promise<void> {
    await this.#worker.terminate();
  }

  #order(order: Unsent<Order>, transfer: readonly Transferable[] = []): Promise<Result> {
    if (this.isDead) return Promise.reject(this.#ended());
    const number = (this.#number += 1);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => this.#settle(number)?.reject(new Error('the egress proxy does not answer')),
        ANSWER_MS,
      );
      this.#pending.set(number, {
        resolve: result => {
          clearTimeout(timer);
          resolve(result);
        },
        reject: error => {
          clearTimeout(timer);
          reject(error);
        },
      });
      // Only while an answer is awaited does the thread keep the process alive.
      this.#worker.ref();
      this.#worker.postMessage({ ...order, number }, transfer);
    });
  }

  #settle(number: number): Pending | undefined {
    const pending = this.#pending.get(number);
    this.#pending.delete(number);
    if (this.#pending.size === 0) this.#worker.unref();
    return pending;
  }

  #receive(reply: Reply): void {
    if (reply.is === 'bound') return this.#binding.get(reply.task)?.(reply.fault);
    if (reply.is === 'spent') return this.#spending.get(reply.task)?.(reply.budget);
    if (reply.is === 'ask') return void this.#answer(reply);
    const pending = this.#settle(reply.number);
    if (reply.is === 'done') pending?.resolve(reply.result);
    else pending?.reject(new Error(reply.message));
  }

  // The value goes to the thread and nowhere else; why there is none stays here.
  async #answer({ number, task, credential, refused }: Extract<Reply, { is: 'ask' }>): Promise<void> {
    const provider = this.#credentials.get(task)?.get(credential);
    const signal = AbortSignal.timeout(CREDENTIAL_MS);
    const value = await provider?.current({ signal, ...(refused === undefined ? {} : { refused }) }).catch(() => null);
    const answer: Order = { do: 'answer', number, value: value ?? null };
    if (!this.isDead) this.#worker.postMessage(answer, []);
  }

  #die(): void {
    this.isDead = true;
    for (const number of this.#pending.keys()) this.#settle(number)?.reject(this.#ended());
    for (const bind of this.#binding.values()) bind({ reason: 'the egress proxy has ended' });
  }

  #ended(): Error {
    return new Error('the egress proxy has ended', { cause: this.#fault });
  }
}

// A stream stays with its thread. Its bytes go to the worker over a port; how many there are at once, the frames limit.
function wireOf(transport: Transport): { wire: WireTransport; transfer: Transferable[] } {
  if (transport.kind === 'socket') return { wire: transport, transfer: [] };
  const { pipe } = transport;
  if (!(pipe instanceof Duplex)) return { wire: { kind: 'frames', pipe }, transfer: [pipe] };
  const { port1, port2 } = new MessageChannel();
  // A copy that is given away: sent as it is, all of the memory that it is a part of would be copied.
  pipe.on('data', (chunk: Buffer) => {
    const own = new Uint8Array(chunk);
    port1.postMessage(own, [own.buffer]);
  });
  pipe.once('close', () => port1.close()).on('error', () => pipe.destroy());
  pipe.once('end', () => pipe.destroy());
  port1.on('message', (chunk: Uint8Array) => void pipe.write(chunk));
  port1.once('close', () => pipe.destroy());
  return { wire: { kind: 'frames', pipe: port2 }, transfer: [port2] };
}
