// Access of a client through a gate: it reaches nothing of the engine, and only the tasks of its own tenant.

import { AcodeError, errorOfOtherTable } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import type { LogBatch, LogKey, SandboxLease } from '../engine/engine.ts';
import { answerSchema, decodeFrame, encodeFrame } from '../engine/frame.ts';
import type { GateLink } from '../engine/link.ts';
import { checkedName } from '../engine/names.ts';
import type { TaskKey } from '../engine/names.ts';
import { paused, retried } from '../engine/retry.ts';
import { PART_BYTES, answers } from '../gate/protocol.ts';
import type { GateRequest } from '../gate/protocol.ts';
import { parseState } from '../tasks/state.ts';
import type { TaskState } from '../tasks/state.ts';
import type { NewTask } from '../tasks/tasks.ts';
import type { TaskAccess } from './access.ts';

const ONE_CALL_MS = 15_000;
const AGAIN_MS = 500;
const MAX_ROUNDS = 200;

type Answers = typeof answers;

/** Through a gate. */
export class GateAccess implements TaskAccess {
  readonly #link: GateLink;

  constructor(link: GateLink) {
    this.#link = link;
  }

  /** The id of a gate that answers. */
  async hello(signal?: AbortSignal): Promise<string> {
    return (await this.#call({ verb: 'hello' }, signal)).value.gate;
  }

  async submit(
    { id, pool, priority, body, isNew = false }: NewTask,
    signal?: AbortSignal,
  ): Promise<'queued' | 'present'> {
    return (await this.#call({ verb: 'submit', id, pool, priority, body, isNew }, signal)).value.is;
  }

  async isQueued({ id }: TaskKey, pool: string, signal?: AbortSignal): Promise<boolean> {
    return (await this.#call({ verb: 'queued', id, pool }, signal)).value.queued;
  }

  async state({ id }: TaskKey, signal?: AbortSignal): Promise<TaskState | null> {
    const { state } = (await this.#call({ verb: 'state', id }, signal)).value;
    return state === null ? null : parseState(state);
  }

  async cancel({ id }: TaskKey, signal?: AbortSignal): Promise<void> {
    await this.#call({ verb: 'cancel', id }, signal);
  }

  async *followLog({ id, attempt }: LogKey, after: number, signal: AbortSignal): AsyncGenerator<LogBatch, void> {
    let last = after;
    while (!signal.aborted) {
      const found = await this.#call({ verb: 'log', id, attempt, after: last }, signal).catch(() => null);
      if (found === null) await paused(AGAIN_MS, signal);
      let at = 0;
      for (const { sequence, length } of found?.value.pieces ?? []) {
        const bytes = found?.bytes.subarray(at, at + length) ?? new Uint8Array();
        at += length;
        if (sequence <= last) continue;
        last = sequence;
        yield { sequence, bytes };
        if (signal.aborted) return;
      }
    }
  }

  async putBlob(_tenant: string, hash: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void> {
    let have = 0;
    // Another gate begins anew.
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const request = { verb: 'put', hash, size: bytes.length, at: have } as const;
      have = (await this.#call(request, signal, bytes.subarray(have, have + PART_BYTES))).value.have;
      if (have >= bytes.length) return;
    }
    throw FLEET_ERRORS.create('ACODE-FLT-030', { reason: 'the workspace did not arrive' });
  }

  async getBlob(_tenant: string, hash: string, signal?: AbortSignal): Promise<Uint8Array | null> {
    const parts: Uint8Array[] = [];
    for (let at = 0; ;) {
      const { value, bytes } = await this.#call({ verb: 'get', hash, at }, signal);
      if (value.size === null) return null;
      parts.push(bytes);
      at += bytes.length;
      if (at >= value.size || bytes.length === 0) return Buffer.concat(parts);
    }
  }

  async listen(_tenant: string, onNotice: (id: string) => void): Promise<AsyncDisposable> {
    const stop = new AbortController();
    const first = (await this.#call({ verb: 'changes', gate: null, after: 0 })).value;
    const following = this.#follow(first, onNotice, stop.signal);
    return {
      [Symbol.asyncDispose]: async () => {
        stop.abort();
        await following;
      },
    };
  }

  async sandboxes(tenant: string, signal?: AbortSignal): Promise<SandboxLease[]> {
    const { items } = (await this.#call({ verb: 'sandboxes' }, signal)).value;
    return items.map(({ id, body }) => ({ tenant, id, body }));
  }

  async ask({ id }: TaskKey, message: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    if (this.#link.ask) return this.#link.ask(checkedName('task', id), message, signal);
    return (await this.#call({ verb: 'ask', sandbox: id }, signal, message)).bytes;
  }

  close(): Promise<void> {
    return this.#link.close();
  }

  async #follow(
    first: { readonly gate: string; readonly next: number },
    onNotice: (id: string) => void,
    signal: AbortSignal,
  ): Promise<void> {
    let { gate, next: after } = first;
    while (!signal.aborted) {
      const found = await this.#call({ verb: 'changes', gate, after }, signal).catch(() => null);
      if (found === null) {
        await paused(AGAIN_MS, signal);
        continue;
      }
      for (const id of found.value.ids) onNotice(id);
      ({ gate, next: after } = found.value);
    }
  }

  // A gate that is away or busy is asked again, or another one is, until the deadline of every call.
  async #call<Request extends GateRequest>(
    request: Request,
    signal?: AbortSignal,
    bytes?: Uint8Array,
  ): Promise<{ readonly value: Answers[Request['verb']]['_output']; readonly bytes: Uint8Array }> {
    const message = encodeFrame(request, bytes);
    const frame = await retried(
      async () => {
        const deadline = AbortSignal.timeout(ONE_CALL_MS);
        const within = signal ? AbortSignal.any([signal, deadline]) : deadline;
        const answer = decodeFrame(await this.#link.call(message, within));
        const parsed = answerSchema.safeParse(answer?.value);
        if (!answer || !parsed.success) throw unreadable();
        if ('failure' in parsed.data) throw errorOfOtherTable(parsed.data.failure);
        return { value: parsed.data.value, bytes: answer.bytes };
      },
      { operation: request.verb, isPassing, signal },
    );
    const value = answers[request.verb].safeParse(frame.value);
    if (!value.success) throw unreadable();
    return { value: value.data, bytes: frame.bytes };
  }
}

function unreadable(): Error {
  return FLEET_ERRORS.create('ACODE-FLT-031', { tenant: 'yours', reason: 'the answer is not one of this version' });
}

function isPassing(error: unknown): boolean {
  return error instanceof AcodeError && (error.code === 'ACODE-FLT-030' || error.code === 'ACODE-FLT-032');
}
