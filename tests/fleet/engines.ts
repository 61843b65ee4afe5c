// The three engines of the fleet, as the conformance suite opens them.

import { MemoryEngine, NatsEngine, PostgresEngine } from '@acode/fleet';
import type { FleetEngine } from '@acode/fleet';
import { NatsServers, PostgresServer } from './servers.ts';

/** What the suite may set. */
export interface EngineSettings {
  /** The fleet’s name: each test has its own. */
  readonly fleet: string;
  readonly hideMs?: number;
  readonly maxQueued?: number;
}

/** A place where engines of one kind are opened: each call is another client of the same server. */
export interface EnginePlace extends AsyncDisposable {
  open(settings: EngineSettings): Promise<FleetEngine>;
  /** Kills the server and starts it again; absent where there is none. */
  readonly restart?: () => Promise<void>;
}

// The server reserves them for each fleet.
const SIZES = { logBytes: 16 * 1024 ** 2, blobBytes: 64 * 1024 ** 2 };

/** The kinds of engines, by name. */
export const ENGINES: Readonly<Record<'memory' | 'nats' | 'postgres', () => Promise<EnginePlace>>> = {
  memory: async () => {
    const shared = new Map<string, MemoryEngine>();
    return {
      open: async settings => {
        const engine = shared.get(settings.fleet) ?? new MemoryEngine(settings);
        shared.set(settings.fleet, engine);
        return engine;
      },
      [Symbol.asyncDispose]: async () => shared.clear(),
    };
  },
  nats: async () => {
    const servers = await NatsServers.start();
    return {
      open: settings => NatsEngine.open({ ...SIZES, ...settings, servers: servers.urls, monitors: servers.monitors }),
      restart: async () => {
        await servers.processes[0]?.end();
        await servers.processes[0]?.start();
      },
      [Symbol.asyncDispose]: () => servers[Symbol.asyncDispose](),
    };
  },
  postgres: async () => {
    const server = await PostgresServer.start();
    return {
      open: settings => PostgresEngine.open({ ...settings, url: server.url }),
      restart: async () => {
        await server.process.end('SIGKILL');
        await server.process.start();
      },
      [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
    };
  },
};
