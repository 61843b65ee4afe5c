// Worker thread of the proxy: holds the proxies of all sandboxes of one host, each behind the relay of its sandbox.

import { parentPort } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import type { SpentBudget } from '../../contract/egress.ts';
import { decideAddress, decideHost, decideRequest } from '../decide.ts';
import { decideRepository } from '../repository.ts';
import { listen } from '../relay/relay.ts';
import type { Relay } from '../relay/relay.ts';
import { CREDENTIAL_MS } from '../credentials/provider.ts';
import type { CredentialValue } from '../credentials/provider.ts';
import type { Order, Reply, Result, SandboxTrust, TaskOrder } from './proxy.ts';
import { refusalText } from './refusal-text.ts';
import { SandboxProxy } from './sandbox-proxy.ts';
import { hostRoots } from './trust.ts';

interface Task {
  readonly proxy: SandboxProxy;
  readonly relay: Relay;
  readonly extraRoots: string;
}

const decisions = { decideHost, decideAddress, decideRequest, decideRepository, refusalText };

/** Obeys the orders that come over a port. */
function serve(port: MessagePort): void {
  const tasks = new Map<string, Task>();
  const reply = (message: Reply): void => port.postMessage(message);
  const asked = new Map<number, (value: CredentialValue | null) => void>();
  let questions = 0;

  // Values are with the thread that owns the sandboxes.
  const ask = (task: string) => (credential: string, refused?: string) =>
    new Promise<CredentialValue>((resolve, reject) => {
      const number = (questions += 1);
      const settle = (value: CredentialValue | null): void => {
        clearTimeout(timer);
        asked.delete(number);
        if (value) resolve(value);
        else reject(new Error('the credential cannot be had'));
      };
      const timer = setTimeout(settle, CREDENTIAL_MS, null);
      asked.set(number, settle);
      reply({ is: 'ask', number, task, credential, ...(refused === undefined ? {} : { refused }) });
    });

  const open = async ({ task: id, plan, transport, extraRoots }: Extract<Order, { do: 'open' }>): Promise<Result> => {
    const spent = (budget: SpentBudget): void => reply({ is: 'spent', task: id, budget });
    const proxy = new SandboxProxy({ plan, decisions, extraRoots, ask: ask(id), spent });
    const relay = await listen(transport, plan, (listener, stream) => proxy.accept(listener, stream));
    tasks.set(id, { proxy, relay, extraRoots });
    relay.bound.then(
      fault => reply({ is: 'bound', task: id, fault }),
      () => reply({ is: 'bound', task: id, fault: { reason: 'the relay failed' } }),
    );
    return { trust: trustOf({ proxy, extraRoots }) };
  };

  const close = async (id: string, { proxy, relay }: Task): Promise<Result> => {
    tasks.delete(id);
    const rows = proxy.close();
    await relay.close();
    return { rows };
  };

  const update = async (
    { proxy, relay, extraRoots }: Task,
    { plan }: Extract<TaskOrder, { do: 'update' }>,
  ): Promise<Result> => {
    // First what the plan no longer allows, then the names of what it does.
    proxy.update(plan);
    const fault = await relay.update(plan);
    if (fault) throw new Error(`the forwarder cannot listen: ${fault.listener ?? ''} ${fault.reason}`);
    return { trust: trustOf({ proxy, extraRoots }) };
  };

  const obey = async (order: Exclude<Order, { do: 'answer' }>): Promise<Result> => {
    if (order.do === 'open') return open(order);
    const task = tasks.get(order.task);
    if (!task) throw new Error('the sandbox has no proxy');
    if (order.do === 'update') return update(task, order);
    return order.do === 'report' ? { rows: task.proxy.report() } : close(order.task, task);
  };

  port.on('message', (order: Order) => {
    if (order.do === 'answer') {
      asked.get(order.number)?.(order.value);
      return;
    }
    obey(order).then(
      result => reply({ is: 'done', number: order.number, result }),
      (error: unknown) =>
        reply({ is: 'failed', number: order.number, message: error instanceof Error ? error.message : String(error) }),
    );
  });
}

function trustOf({ proxy, extraRoots }: Pick<Task, 'proxy' | 'extraRoots'>): SandboxTrust | null {
  if (proxy.certificate === null && extraRoots === '') return null;
  const certificate = [extraRoots, proxy.certificate ?? ''].filter(text => text !== '').join('\n');
  return { certificate, bundle: `${hostRoots().trimEnd()}\n${certificate}` };
}

if (parentPort) serve(parentPort);
