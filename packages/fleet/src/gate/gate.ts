// Gate: the way of tenants to the fleet. It keeps nothing that another gate needs: two of them run at once.

import { randomBytes } from 'node:crypto';
import type { Logger } from '@acode/sandbox';
import type { FleetEngine } from '../engine/engine.ts';
import { HttpDoor } from '../engine/http/gate-link.ts';
import { NatsGateServer } from '../engine/nats/gate-link.ts';
import { escaped, figure } from '../connect/metrics-page.ts';
import { present } from '../connect/open-engine.ts';
import { Dispatcher } from './dispatcher.ts';
import type { GateFile, GateTenant } from './file.ts';
import { GateService } from './service.ts';
import type { GateLimits } from './limits.ts';

/** Options of a gate. */
export interface GateOptions {
  /** Its file. */
  readonly file: GateFile;
  /** The engine. The gate closes it. */
  readonly engine: FleetEngine;
  /** Receives log lines; none by default. */
  readonly logger?: Logger;
  /** What a tenant may ask, for tests. */
  readonly limits?: GateLimits;
}

/** One gate of a fleet. */
export class Gate {
  /** Its id, another one after each start. */
  readonly id: string;
  readonly #engine: FleetEngine;
  readonly #file: GateFile;
  readonly #service: GateService;
  readonly #doors: AsyncDisposable[] = [];
  readonly #dispatcher: Dispatcher;
  #httpPort: number | null = null;

  private constructor({ file, engine, limits, logger }: GateOptions) {
    this.id = `gate_${randomBytes(6).toString('hex')}`;
    this.#engine = engine;
    this.#file = file;
    const { pools, tenants, affinityMs } = file;
    this.#dispatcher = new Dispatcher({ engine, pools, shares: tenants, affinityMs, logger });
    this.#service = new GateService({ engine, gate: this.id, pools, tenants, ...present({ limits }) });
  }

  /** Starts a gate. It runs until it is closed. */
  static async start(options: GateOptions): Promise<Gate> {
    const gate = new Gate(options);
    const { engine, fleet } = options.file;
    if ('nats' in engine) {
      const { servers, credentials, seed, ca_file: caFile, unencrypted } = engine.nats;
      const access = { servers, ...present({ credentials, seed, caFile, unencrypted }), fleet };
      gate.#doors.push(
        await NatsGateServer.open(access, gate.id, (tenant, message) => gate.#service.answer(tenant, message)),
      );
    }
    const { http, tenants } = options.file;
    if (http) {
      const door = await HttpDoor.open({ ...http, tokens: tokensOf(tenants) }, (tenant, message) =>
        gate.#service.answer(tenant, message),
      );
      gate.#doors.push(door);
      gate.#httpPort = door.port;
    }
    return gate;
  }

  /** The port on which it answers over HTTP; null where it does not. */
  get httpPort(): number | null {
    return this.#httpPort;
  }

  /** Whether it hands out tasks; of several gates one does. */
  get isLeading(): boolean {
    return this.#dispatcher.isLeading;
  }

  /** The figures for Prometheus. */
  figures(): string {
    const { pools } = this.#file;
    const leads = [`acode_gate_leads ${this.isLeading ? 1 : 0}`];
    const found = pools.flatMap(pool => {
      const figures = this.#dispatcher.figures(pool);
      return figures ? [{ labels: `{pool="${escaped(pool)}"}`, ...figures }] : [];
    });
    const lines = [
      ...figure('acode_gate_leads', 'gauge', 'Whether this gate hands out tasks.', leads),
      ...figure(
        'acode_gate_tasks_waiting',
        'gauge',
        'Tasks of the pool that no worker has.',
        found.map(({ labels, waiting }) => `acode_gate_tasks_waiting${labels} ${waiting}`),
      ),
      ...figure(
        'acode_gate_oldest_seconds',
        'gauge',
        'How long the oldest waiting task of the pool has waited.',
        found.map(({ labels, oldestMs }) => `acode_gate_oldest_seconds${labels} ${(oldestMs / 1000).toFixed(3)}`),
      ),
      ...figure(
        'acode_gate_slots_free',
        'gauge',
        'Slots that workers of the pool offer and no task has.',
        found.map(({ labels, free }) => `acode_gate_slots_free${labels} ${free}`),
      ),
      ...figure(
        'acode_gate_grants_total',
        'counter',
        'Tasks that this gate gave to workers.',
        found.map(({ labels, granted }) => `acode_gate_grants_total${labels} ${granted}`),
      ),
    ];
    return `${lines.join('\n')}\n`;
  }

  /** Answers nobody any more, and disconnects. */
  async close(): Promise<void> {
    await Promise.all(this.#doors.map(door => door[Symbol.asyncDispose]()));
    await this.#dispatcher[Symbol.asyncDispose]();
    await this.#service[Symbol.asyncDispose]();
    await this.#engine.close();
  }
}

// Made once for each reading of the tenants.
function tokensOf(tenants: () => ReadonlyMap<string, GateTenant>): () => ReadonlyMap<string, string> {
  let of: ReadonlyMap<string, GateTenant> | null = null;
  let tokens: ReadonlyMap<string, string> = new Map();
  return () => {
    const now = tenants();
    if (now !== of)
      tokens = new Map([...now].flatMap(([name, { token }]) => (token === undefined ? [] : [[token, name]])));
    of = now;
    return tokens;
  };
}
