// What belongs to one host on an engine, asked past the library; and an orphan such as a dead session of that host leaves.

import { randomUUID } from 'node:crypto';
import type { Engine } from '../../packages/sandbox/src/isolation/docker/engine/index.ts';
import { sandboxLabels } from '../../packages/sandbox/src/lifecycle/labels.ts';
import { images, withEngine } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

const soon = (): AbortSignal => AbortSignal.timeout(60_000);

/** The containers, networks and volumes that carry a host’s label. */
export class EngineResources {
  readonly #engine: TestEngine;
  readonly #host: string;

  constructor(engine: TestEngine, host: string) {
    this.#engine = engine;
    this.#host = host;
  }

  /** What there is, each in words. */
  async list(): Promise<string[]> {
    return withEngine(this.#engine, async engine => {
      const { containers, networks, volumes } = await this.#found(engine);
      return [
        ...containers.map(id => `container ${id.slice(0, 12)}`),
        ...networks.map(id => `network ${id.slice(0, 12)}`),
        ...volumes.map(name => `volume ${name}`),
      ];
    });
  }

  /** Removes it all, so that what one trial left behind is not found by the next test. */
  async remove(): Promise<void> {
    await withEngine(this.#engine, async engine => {
      const { containers, networks } = await this.#found(engine);
      for (const id of containers) await engine.containers.remove(id, { force: true, volumes: true, signal: soon() });
      for (const id of networks) await engine.networks.remove(id, { signal: soon() });
    });
  }

  /** Whether this container is there. */
  async has(id: string): Promise<boolean> {
    return withEngine(this.#engine, async engine => (await this.#found(engine)).containers.includes(id));
  }

  /** Makes a container as a session of this host makes them, of an owner that nobody answers for. */
  async leave(session: string): Promise<string> {
    const now = Date.now();
    const name = `acode-left-${randomUUID()}`;
    const labels = sandboxLabels({
      session,
      task: 'run',
      sandboxId: randomUUID(),
      name,
      owner: randomUUID(),
      host: this.#host,
      uid: process.getuid?.() ?? 1000,
      profile: 'exec',
      level: 'docker',
      specHash: '0',
      nonce: randomUUID(),
      createdAt: new Date(now),
      expiresAt: new Date(now + 3_600_000),
    });
    const body = { Image: images.busybox, Cmd: ['true'], Labels: labels, HostConfig: { NetworkMode: 'none' } };
    return withEngine(
      this.#engine,
      async engine => (await engine.containers.create(body, { name, signal: soon() })).id,
    );
  }

  async #found(engine: Engine): Promise<{ containers: string[]; networks: string[]; volumes: string[] }> {
    const labels = [`acode.host=${this.#host}`];
    const [containers, networks, volumes] = await Promise.all([
      engine.containers.list({ labels, all: true, signal: soon() }),
      engine.networks.list({ labels, signal: soon() }),
      engine.volumes.list({ labels, signal: soon() }),
    ]);
    return {
      containers: containers.map(({ id }) => id),
      networks: networks.map(({ Id }) => Id),
      volumes: volumes.map(({ Name }) => Name),
    };
  }
}
