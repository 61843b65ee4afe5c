// Front door of a gate: what a tenant may ask of the fleet. Nothing of a tenant reaches the engine in another way.

import { AcodeError } from '@acode/sandbox';
import { FLEET_ERRORS } from '../errors.ts';
import type { FleetEngine, LogBatch } from '../engine/engine.ts';
import { MAX_BLOB_BYTES } from '../engine/engine.ts';
import { decodeFrame, encodeFrame } from '../engine/frame.ts';
import { checkedKey, checkedName } from '../engine/names.ts';
import type { TaskKey } from '../engine/names.ts';
import { paused, reasonOf } from '../engine/retry.ts';
import { hashOf } from '../tasks/signature.ts';
import { FleetTasks } from '../tasks/tasks.ts';
import { admittedSpec } from '../worker/admission.ts';
import type { GateTenant } from './file.ts';
import { GATE_LIMITS, TenantUse } from './limits.ts';
import type { GateLimits } from './limits.ts';
import { PART_BYTES, gateRequestSchema } from './protocol.ts';
import type { GateRequest, answers } from './protocol.ts';

const CALL_MS = 12_000;
/** How long a request waits for something to happen. */
const WAIT_MS = 5000;
const COUNT_MS = 1000;
const MAX_CHANGES = 1000;
const MAX_UPLOADS = 4;
const IDLE_MS = 60_000;

/** What a front door is made of. */
export interface ServiceParts {
  readonly engine: FleetEngine;
  /** The id of the gate. */
  readonly gate: string;
  /** The pools that tasks may name. */
  readonly pools: readonly string[];
  /** The tenants as they are now: the operator may change them. */
  readonly tenants: () => ReadonlyMap<string, GateTenant>;
  readonly limits?: GateLimits;
}

type RequestOf<Verb extends GateRequest['verb']> = Extract<GateRequest, { verb: Verb }>;
type Answer = { readonly value: object; readonly bytes?: Uint8Array };

/** One request: of whom, and what came with it. */
interface Asked {
  readonly tenant: string;
  readonly registered: GateTenant;
  readonly visitor: Visitor;
  readonly bytes: Uint8Array;
  readonly signal: AbortSignal;
}

/** The front door of one gate. */
export class GateService implements AsyncDisposable {
  readonly #parts: ServiceParts;
  readonly #tasks: FleetTasks;
  readonly #visitors = new Map<string, Visitor>();
  readonly #sweeping: NodeJS.Timeout;
  readonly #verbs: {
    readonly [Verb in GateRequest['verb']]: (request: RequestOf<Verb>, asked: Asked) => Answer | Promise<Answer>;
  } = {
    hello: () => told('hello', { gate: this.#parts.gate }),
    submit: (request, asked) => this.#submit(request, asked),
    queued: (request, asked) => this.#isQueued(request, asked),
    state: (request, asked) => this.#state(request, asked),
    cancel: ({ id }, { tenant, signal }) => this.#cancel({ tenant, id }, signal),
    changes: (request, asked) => this.#changes(request, asked),
    log: (request, { tenant }) => this.#log(tenant, request),
    put: (request, asked) => this.#put(request, asked),
    get: (request, asked) => this.#get(request, asked),
    sandboxes: (_, asked) => this.#sandboxes(asked),
    ask: (request, asked) => this.#ask(request, asked),
  };

  constructor(parts: ServiceParts) {
    this.#parts = parts;
    this.#tasks = new FleetTasks(parts.engine);
    this.#sweeping = setInterval(() => this.#sweep(), IDLE_MS);
    this.#sweeping.unref();
  }

  /** Answers one message of a tenant; null: it sends so many that this one has no answer. Never rejects. */
  async answer(tenant: string, message: Uint8Array): Promise<Uint8Array | null> {
    const registered = this.#parts.tenants().get(tenant);
    if (!registered) return failed(FLEET_ERRORS.create('ACODE-FLT-031', { tenant, reason: 'no such tenant' }));
    const visitor = this.#visitor(tenant);
    const begun = visitor.use.begin(performance.now());
    if (begun === 'dropped') return null;
    if (begun === 'refused') return failed(busy(tenant, 'too many requests'));
    try {
      const { value, bytes } = await this.#answered(tenant, registered, message, visitor);
      return encodeFrame({ value }, bytes);
    } catch (error) {
      return failed(error);
    } finally {
      visitor.use.end();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#sweeping);
    await Promise.all([...this.#visitors.values()].map(visitor => visitor.changes.end()));
    this.#visitors.clear();
  }

  async #answered(tenant: string, registered: GateTenant, message: Uint8Array, visitor: Visitor): Promise<Answer> {
    const frame = decodeFrame(message);
    const parsed = gateRequestSchema.safeParse(frame?.value);
    if (!frame || !parsed.success)
      throw FLEET_ERRORS.create('ACODE-FLT-031', { tenant, reason: 'the request is not one of this version' });
    const asked = { tenant, registered, visitor, bytes: frame.bytes, signal: AbortSignal.timeout(CALL_MS) };
    return this.#verb(parsed.data, asked);
  }

  #verb<Verb extends GateRequest['verb']>(
    request: RequestOf<Verb> & { readonly verb: Verb },
    asked: Asked,
  ): Answer | Promise<Answer> {
    return this.#verbs[request.verb](request, asked);
  }

  async #isQueued({ id, pool }: RequestOf<'queued'>, { tenant, signal }: Asked): Promise<Answer> {
    return told('queued', { queued: await this.#queued({ tenant, id }, [pool], signal) });
  }

  async #state({ id }: RequestOf<'state'>, { tenant, signal }: Asked): Promise<Answer> {
    const found = await this.#parts.engine.read(checkedKey({ tenant, id }), signal);
    return told('state', { state: found?.text ?? null });
  }

  async #changes({ gate, after }: RequestOf<'changes'>, { visitor }: Asked): Promise<Answer> {
    const own = this.#parts.gate;
    return told('changes', { gate: own, ...(await visitor.changes.after(gate === own ? after : null)) });
  }

  async #get({ hash, at }: RequestOf<'get'>, { tenant, signal }: Asked): Promise<Answer> {
    const bytes = await this.#parts.engine.getBlob(tenant, checkedName('hash', hash), signal);
    return told('get', { size: bytes?.length ?? null }, bytes?.subarray(at, at + PART_BYTES));
  }

  async #sandboxes({ tenant, signal }: Asked): Promise<Answer> {
    const found = await this.#parts.engine.sandboxes(tenant, signal);
    return told('sandboxes', { items: found.map(({ id, body }) => ({ id, body })) });
  }

  // What the message says is between the client, who has signed it, and the worker.
  async #ask({ sandbox }: RequestOf<'ask'>, { tenant, bytes, signal }: Asked): Promise<Answer> {
    return told('ask', {}, await this.#parts.engine.ask(checkedKey({ tenant, id: sandbox }), bytes, signal));
  }

  async #submit({ id, pool, priority, body, isNew }: RequestOf<'submit'>, asked: Asked): Promise<Answer> {
    const { tenant, registered, visitor, signal } = asked;
    const { engine, pools } = this.#parts;
    const task = { ...checkedKey({ tenant, id }), pool: checkedName('pool', pool), priority, body };
    if (!pools.includes(pool))
      throw FLEET_ERRORS.create('ACODE-FLT-031', { tenant, reason: `the fleet has no pool ${pool}` });
    // Before anything of it is stored.
    admittedSpec({ tenants: new Map([[tenant, registered]]) }, task, Date.now());
    const room = await visitor.room(registered.queue, () => engine.unfinished(tenant, signal));
    if (!room) {
      if (await this.#queued(task, [pool], signal)) return told('submit', { is: 'present' });
      const reason = `the tenant has ${registered.queue} unfinished tasks`;
      throw FLEET_ERRORS.create('ACODE-FLT-005', { pool, reason });
    }
    const is = await this.#tasks.submit({ ...task, isNew }, signal).catch((error: unknown) => {
      room.free();
      throw error;
    });
    if (is === 'present') room.free();
    return told('submit', { is });
  }

  async #queued(key: TaskKey, pools: readonly string[], signal: AbortSignal): Promise<boolean> {
    const found = await Promise.all(
      pools.map(pool => this.#parts.engine.queued(checkedKey(key), checkedName('pool', pool), signal)),
    );
    return found.some(one => one !== null);
  }

  // A task that is nowhere is not cancelled: that would store a state for each id that somebody makes up.
  async #cancel(key: TaskKey, signal: AbortSignal): Promise<Answer> {
    const isKnown =
      (await this.#tasks.state(key, signal)) !== null || (await this.#queued(key, this.#parts.pools, signal));
    if (!isKnown) throw FLEET_ERRORS.create('ACODE-FLT-011', { tenant: key.tenant, task: key.id });
    await this.#tasks.cancel(key, signal);
    return told('cancel', {});
  }

  async #log(tenant: string, { id, attempt, after }: RequestOf<'log'>): Promise<Answer> {
    const stop = new AbortController();
    const late = setTimeout(() => stop.abort(), WAIT_MS);
    const batches: LogBatch[] = [];
    let size = 0;
    try {
      for await (const batch of this.#parts.engine.followLog(checkedLog({ tenant, id, attempt }), after, stop.signal)) {
        if (size + batch.bytes.length > PART_BYTES && batches.length > 0) break;
        batches.push(batch);
        size += batch.bytes.length;
        // What is there already comes along.
        if (batches.length === 1) setTimeout(() => stop.abort(), GATHER_MS);
        if (size >= PART_BYTES / 2) break;
      }
    } finally {
      clearTimeout(late);
      stop.abort();
    }
    const pieces = batches.map(({ sequence, bytes }) => ({ sequence, length: bytes.length }));
    return told('log', { pieces }, Buffer.concat(batches.map(({ bytes }) => bytes)));
  }

  async #put({ hash, size, at }: RequestOf<'put'>, asked: Asked): Promise<Answer> {
    const { tenant, visitor, bytes, signal } = asked;
    checkedName('hash', hash);
    const upload = visitor.upload(hash, size, () => {
      if (!visitor.use.mayStore(size, performance.now())) throw busy(tenant, 'too many bytes of workspaces');
    });
    if (at === upload.have && at + bytes.length <= size) {
      upload.parts.push(bytes.slice());
      upload.have += bytes.length;
    }
    if (upload.have < size) return told('put', { have: upload.have });
    visitor.uploads.delete(hash);
    const whole = Buffer.concat(upload.parts);
    if (hashOf(whole) !== hash) throw FLEET_ERRORS.create('ACODE-FLT-012', { hash, reason: 'its bytes are others' });
    await this.#parts.engine.putBlob(tenant, hash, whole, signal);
    return told('put', { have: size });
  }

  #visitor(tenant: string): Visitor {
    const known = this.#visitors.get(tenant) ?? new Visitor(this.#parts, tenant);
    this.#visitors.set(tenant, known);
    known.seenAt = performance.now();
    return known;
  }

  #sweep(): void {
    for (const [tenant, visitor] of this.#visitors) {
      if (performance.now() - visitor.seenAt < IDLE_MS) continue;
      this.#visitors.delete(tenant);
      void visitor.changes.end();
    }
  }
}

// Beyond the first piece of a log: time for those behind it.
const GATHER_MS = 20;

interface Upload {
  readonly size: number;
  readonly parts: Uint8Array[];
  have: number;
}

/** What a gate knows of a tenant that asks. Nothing of it is needed by another gate. */
class Visitor {
  readonly use: TenantUse;
  readonly changes: Changes;
  readonly uploads = new Map<string, Upload>();
  seenAt = 0;
  #unfinished: { readonly at: number; readonly count: Promise<number> } | null = null;
  readonly #reserved = new Set<object>();

  constructor({ engine, limits = GATE_LIMITS }: ServiceParts, tenant: string) {
    this.use = new TenantUse(limits, performance.now());
    this.changes = new Changes(engine, tenant);
  }

  /**
   * Room for one task more, which `free` gives back; null where the tenant has as many as it may. The engine is asked now and then,
   * and counted on from there.
   */
  async room(max: number, ask: () => Promise<number>): Promise<{ free(): void } | null> {
    if (!this.#unfinished || performance.now() - this.#unfinished.at > COUNT_MS) {
      this.#reserved.clear();
      this.#unfinished = { at: performance.now(), count: ask() };
      this.#unfinished.count.catch(() => (this.#unfinished = null));
    }
    const reserved = {};
    this.#reserved.add(reserved);
    const free = (): void => void this.#reserved.delete(reserved);
    try {
      if ((await this.#unfinished.count) + this.#reserved.size <= max) return { free };
    } catch (error) {
      free();
      throw error;
    }
    free();
    return null;
  }

  upload(hash: string, size: number, admit: () => void): Upload {
    const known = this.uploads.get(hash);
    if (known?.size === size) return known;
    if (size > MAX_BLOB_BYTES || size === 0)
      throw FLEET_ERRORS.create('ACODE-FLT-007', { what: 'The workspace', bytes: size, maxBytes: MAX_BLOB_BYTES });
    admit();
    // The oldest one was given up.
    const [oldest] = this.uploads.keys();
    if (this.uploads.size >= MAX_UPLOADS && oldest !== undefined) this.uploads.delete(oldest);
    const made = { size, parts: [], have: 0 };
    this.uploads.set(hash, made);
    return made;
  }
}

/** The latest changes of a tenant’s tasks, numbered. */
class Changes {
  readonly #engine: FleetEngine;
  readonly #tenant: string;
  readonly #ids: string[] = [];
  #next = 0;
  #listening: Promise<AsyncDisposable> | null = null;
  #wake = new AbortController();

  constructor(engine: FleetEngine, tenant: string) {
    this.#engine = engine;
    this.#tenant = tenant;
  }

  /** The tasks that changed after a number; null: only the number from which on to ask. */
  async after(after: number | null): Promise<{ readonly next: number; readonly ids: string[] }> {
    this.#listening ??= this.#engine.listen({ tenant: this.#tenant }, id => this.#changed(id));
    try {
      await this.#listening;
    } catch (error) {
      this.#listening = null;
      throw error;
    }
    if (after === null) return { next: this.#next, ids: [] };
    if (after >= this.#next) await paused(WAIT_MS, this.#wake.signal);
    const count = Math.min(this.#ids.length, Math.max(0, this.#next - after));
    return { next: this.#next, ids: [...new Set(count === 0 ? [] : this.#ids.slice(-count))] };
  }

  async end(): Promise<void> {
    const listening = this.#listening;
    this.#listening = null;
    this.#wake.abort();
    await (await listening?.catch(() => null))?.[Symbol.asyncDispose]();
  }

  #changed(id: string): void {
    this.#next += 1;
    this.#ids.push(id);
    if (this.#ids.length > MAX_CHANGES) this.#ids.shift();
    const wake = this.#wake;
    this.#wake = new AbortController();
    wake.abort();
  }
}

function checkedLog({ tenant, id, attempt }: TaskKey & { readonly attempt: number }) {
  return { ...checkedKey({ tenant, id }), attempt };
}

function told<Verb extends keyof typeof answers>(
  _verb: Verb,
  value: (typeof answers)[Verb]['_output'],
  bytes?: Uint8Array,
): Answer {
  return bytes === undefined ? { value } : { value, bytes };
}

function busy(tenant: string, reason: string): Error {
  return FLEET_ERRORS.create('ACODE-FLT-032', { tenant, reason });
}

function failed(error: unknown): Uint8Array {
  const known =
    error instanceof AcodeError
      ? error
      : FLEET_ERRORS.create('ACODE-FLT-006', { operation: 'gate', deadlineMs: CALL_MS, reason: reasonOf(error) });
  const { code, message, hint, exitStatus, context } = known.toJSON();
  return encodeFrame({ failure: { code, message, hint, exitStatus, context } });
}
