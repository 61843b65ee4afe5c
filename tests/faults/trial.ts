// One run of a scenario behind a proxy of its own, with one call going wrong, and everything that was wrong about it.

import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Acode, AcodeError } from '@acode/sandbox';
import type { AcodeOptions } from '@acode/sandbox';
import { hostIdentity } from '../../packages/sandbox/src/lifecycle/ownership.ts';
import { images } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';
import { EngineProxy } from '../support/proxy.ts';
import type { RequestFate, SeenRequest } from '../support/proxy.ts';
import { ownerSocketsIn, reapersIn } from '../support/remains.ts';
import { EngineResources } from './engine-resources.ts';
import { watchFor } from './calls.ts';
import type { EngineCall } from './calls.ts';
import type { Scenario } from './scenarios.ts';

/** What goes wrong with a call. */
export type Fault = 'error before' | 'error after' | 'hang' | 'reply lost';

/** What may be different about a trial. */
export interface TrialOptions {
  /** Which call goes wrong, and how; without it none does. */
  readonly injection?: { readonly call: EngineCall; readonly fault: Fault };
  /** How long the scenario may take. */
  readonly boundMs: number;
  /** How long things may take to go when all is over; long enough for a reaper without it. */
  readonly settleMs?: number;
  /** Something that happens behind the product’s back when all is over, to see that it is noticed. */
  readonly afterwards?: (belongings: EngineResources, session: string) => Promise<unknown>;
}

/** What came of a trial. */
export interface TrialReport {
  /** What was wrong, each in a sentence. */
  readonly violations: readonly string[];
  readonly requests: readonly SeenRequest[];
  /** How many requests came before the scenario’s own. */
  readonly beginning: number;
  /** Whether the call that was to go wrong was made at all. */
  readonly hit: boolean;
}

// Closing leaves to the reaper what the engine has not removed within 10 s.
const CLOSING_MS = 45_000;
// A reaper that has work to do lists until the engine has been quiet, up to 10 s for a slow one.
const SETTLE_MS = 60_000;

const FATES: Readonly<Record<Fault, RequestFate>> = {
  'error before': { status: 500, message: 'injected before', when: 'before' },
  'error after': { status: 500, message: 'injected after', when: 'after' },
  hang: 'hang',
  'reply lost': 'drop-reply',
};

/** Plays a scenario once. Never rejects because of what it finds. */
export async function tryOut(scenario: Scenario, engine: TestEngine, options: TrialOptions): Promise<TrialReport> {
  const top = await mkdtemp('/var/tmp/acode-fault-');
  const proxy = await EngineProxy.start(engine.socket);
  try {
    // A runtime directory of its own makes it a host of its own: what carries that host’s label was made here.
    await mkdir(join(top, 'runtime', 'acode'), { recursive: true, mode: 0o700 });
    await mkdir(join(top, 'workspace'));
    const belongings = new EngineResources(engine, await hostIdentity(join(top, 'runtime', 'acode')));
    return await new Trial(scenario, { ...options, engine, top, proxy, belongings }).play();
  } finally {
    await proxy.close();
    await rm(top, { recursive: true, force: true });
  }
}

interface TrialParts extends TrialOptions {
  readonly engine: TestEngine;
  readonly top: string;
  readonly proxy: EngineProxy;
  readonly belongings: EngineResources;
}

class Trial {
  readonly #scenario: Scenario;
  readonly #parts: TrialParts;
  readonly #session = `fault-${randomUUID()}`;
  readonly #violations: string[] = [];
  #hit = false;

  constructor(scenario: Scenario, parts: TrialParts) {
    this.#scenario = scenario;
    this.#parts = parts;
  }

  async play(): Promise<TrialReport> {
    const { proxy, boundMs, belongings } = this.#parts;
    const orphan = this.#scenario.orphan ? await belongings.leave(`${this.#session}-dead`) : '';
    const acode = await this.#open(proxy.socket);
    this.#arm();
    let beginning = Infinity;
    const begins = (): void => void (beginning = Math.min(beginning, proxy.requests.length));
    await this.#bounded('it', boundMs, this.#judged(this.#scenario.act({ acode, orphan, begins })));
    await this.#bounded('close()', CLOSING_MS, acode.close());
    // What was to go wrong has gone wrong by now; from here on the engine is well.
    proxy.onRequest(undefined);
    const requests = [...proxy.requests];
    if (orphan !== '') await this.#orphanGoes(orphan);
    await this.#parts.afterwards?.(belongings, this.#session);
    await this.#nothingLeft();
    return { violations: this.#violations, requests, beginning, hit: this.#hit };
  }

  #open(socket: string): Promise<Acode> {
    const { sandbox = {} } = this.#scenario;
    const options: AcodeOptions = {
      engine: { socket },
      sessionId: this.#session,
      workspace: join(this.#parts.top, 'workspace'),
      config: {
        sandbox: {
          images: { default: images.busybox },
          cleanup: { timeout_seconds: 3 },
          retry: { attempts: 2, base_ms: 20 },
          ...sandbox,
          containers: { create_timeout_seconds: 2, ...sandbox.containers },
        },
      },
    };
    const { XDG_RUNTIME_DIR: runtime, XDG_STATE_HOME: state } = process.env;
    // They are read before anything is awaited, so that trials at the same time do not get each other’s.
    process.env['XDG_RUNTIME_DIR'] = join(this.#parts.top, 'runtime');
    if (this.#scenario.fresh) process.env['XDG_STATE_HOME'] = join(this.#parts.top, 'state');
    try {
      return Acode.open(options);
    } finally {
      restore('XDG_RUNTIME_DIR', runtime);
      restore('XDG_STATE_HOME', state);
    }
  }

  #arm(): void {
    const { proxy, injection } = this.#parts;
    if (!injection) return;
    const isIt = watchFor(injection.call);
    proxy.onRequest((...request) => {
      if (!isIt(...request)) return undefined;
      this.#hit = true;
      return FATES[injection.fault];
    });
  }

  async #bounded(what: string, ms: number, work: Promise<void>): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<'late'>(resolve => (timer = setTimeout(() => resolve('late'), ms)));
    if ((await Promise.race([work, late])) === 'late') {
      this.#violations.push(`${what} did not end within ${ms} ms`);
      // Let loose, so that the rest can be looked at.
      this.#parts.proxy.onRequest(undefined);
      this.#parts.proxy.dropAll();
      await Promise.race([work, pause(5000)]);
    }
    clearTimeout(timer);
  }

  async #judged(act: Promise<string | null>): Promise<void> {
    try {
      const wrong = await act;
      if (wrong !== null) this.#violations.push(wrong);
    } catch (error) {
      if (!(error instanceof AcodeError)) this.#violations.push(`no AcodeError but ${String(error)}`);
      else if (!this.#parts.injection) this.#violations.push(`without a fault: ${error.code} ${error.message}`);
    }
  }

  // A fault may have kept the orphan; then whoever comes next, to an engine that is well, takes it away.
  async #orphanGoes(orphan: string): Promise<void> {
    const { belongings, injection, engine } = this.#parts;
    if (!(await belongings.has(orphan))) return;
    if (!injection) this.#violations.push('the orphan was not removed');
    const next = await this.#open(engine.socket);
    await next.cleanup();
    await next.close();
    if (await belongings.has(orphan)) this.#violations.push('the orphan was not removed by the next one either');
  }

  async #nothingLeft(): Promise<void> {
    const end = performance.now() + (this.#parts.settleMs ?? SETTLE_MS);
    let left = await this.#left();
    while (left.length > 0 && performance.now() < end) {
      await pause(200);
      left = await this.#left();
    }
    if (left.length === 0) return;
    this.#violations.push(`left behind: ${left.join(', ')}`);
    await this.#parts.belongings.remove();
  }

  async #left(): Promise<string[]> {
    const { belongings, proxy, top } = this.#parts;
    const runtime = join(top, 'runtime');
    const connections = proxy.openConnections;
    return [
      ...(await belongings.list()),
      ...(connections > 0 ? [`${connections} connections to the engine`] : []),
      ...ownerSocketsIn(runtime).map(name => `owner socket ${name}`),
      ...reapersIn(runtime).map(pid => `reaper ${pid}`),
    ];
  }
}

function pause(ms: number): Promise<void> {
  return new Promise(resolve => void setTimeout(resolve, ms));
}

function restore(name: string, value: string | undefined): void {
  if (value === undefined) delete process.env[name];
  else process.env[name] = value;
}
