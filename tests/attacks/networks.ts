// Networks of an engine that the tests make for themselves.

import { randomBytes } from 'node:crypto';
import { withEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

const soon = () => AbortSignal.timeout(60_000);

/** A network that is removed at the end. */
export class TestNetwork implements AsyncDisposable {
  readonly name: string;
  readonly #engine: TestEngine;
  readonly #id: string;

  private constructor(engine: TestEngine, name: string, id: string) {
    this.#engine = engine;
    this.name = name;
    this.#id = id;
  }

  /** Makes one; `body` is the engine’s own. */
  static async make(engine: TestEngine, body: Readonly<Record<string, unknown>>): Promise<TestNetwork> {
    const name = typeof body['Name'] === 'string' ? body['Name'] : `acode-attack-${randomBytes(4).toString('hex')}`;
    const id = await withEngine(engine, direct =>
      direct.networks.create(
        { Driver: 'bridge', CheckDuplicate: true, Labels: { 'acode.test': 'attack' }, ...body, Name: name },
        { signal: soon() },
      ),
    );
    return new TestNetwork(engine, name, id);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await withEngine(this.#engine, async direct => {
      // A container that is being removed holds it for a moment.
      for (let attempt = 0; ; attempt += 1) {
        try {
          await direct.networks.remove(this.#id, { signal: soon() });
          return;
        } catch (error) {
          if (attempt >= 20) throw error;
          await new Promise(resolve => setTimeout(resolve, 100));
        }
      }
    });
  }
}

/** The address of the host on a network, as a container on it would see it. */
export async function gatewayOf(engine: TestEngine, name: string): Promise<string> {
  const details = await withEngine(engine, direct => direct.networks.inspect(name, { signal: soon() }));
  const text = JSON.stringify(details);
  const gateway = /"Gateway":"(\d+\.\d+\.\d+\.\d+)/.exec(text)?.[1];
  if (gateway !== undefined) return gateway;
  // An engine that gives the bridge no address names none: the first of the subnet is where it would be.
  const subnet = /"Subnet":"(\d+\.\d+\.\d+)\.\d+/.exec(text)?.[1];
  if (subnet === undefined) throw new Error(`${name} has no addresses: ${text}`);
  return `${subnet}.1`;
}
