// Notices over LISTEN: one connection of its own, made again when it is lost. What was missed meanwhile is read again by polling.

import { Client } from 'pg';
import type { ClientConfig } from 'pg';

const AGAIN_MS = 500;

/** Listens to one channel, whose notices are a topic and a text. */
export class Notices implements AsyncDisposable {
  readonly #config: ClientConfig;
  readonly #channel: string;
  readonly #listeners = new Map<string, Set<(text: string) => void>>();
  #client: Client | null = null;
  #connecting: Promise<void> | null = null;
  #again: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(config: ClientConfig, channel: string) {
    this.#config = config;
    this.#channel = channel;
  }

  /** Calls `onNotice` for each notice of a topic. */
  async listen(topic: string, onNotice: (text: string) => void): Promise<AsyncDisposable> {
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners.add(onNotice));
    await this.#connected().catch(() => this.#later());
    return {
      [Symbol.asyncDispose]: async () => {
        listeners.delete(onNotice);
        if (listeners.size === 0) this.#listeners.delete(topic);
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#again);
    await this.#client?.end().catch(() => undefined);
  }

  #connected(): Promise<void> {
    if (this.#client || this.#closed) return Promise.resolve();
    this.#connecting ??= this.#connect().finally(() => (this.#connecting = null));
    return this.#connecting;
  }

  async #connect(): Promise<void> {
    const client = new Client(this.#config);
    const lost = (): void => {
      if (this.#client === client) this.#client = null;
      this.#later();
    };
    client.on('error', lost);
    client.on('end', lost);
    client.on('notification', ({ payload = '' }) => {
      const at = payload.indexOf(' ');
      for (const onNotice of this.#listeners.get(payload.slice(0, at)) ?? []) onNotice(payload.slice(at + 1));
    });
    await client.connect();
    await client.query(`listen "${this.#channel}"`);
    this.#client = client;
  }

  #later(): void {
    if (this.#closed || this.#listeners.size === 0) return;
    clearTimeout(this.#again);
    this.#again = setTimeout(() => void this.#connected().catch(() => this.#later()), AGAIN_MS);
    this.#again.unref();
  }
}
