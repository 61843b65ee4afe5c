// Fleet of the benches: real servers, three hosts with workers, and a client; and what can be done to the servers.

import { execFileSync, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Fleet, NatsEngine, PostgresEngine, makeKeys } from '@acode/fleet';
import type { FleetEngine } from '@acode/fleet';
import { connect } from '@nats-io/transport-node';
import { NatsServers, PostgresServer } from '../../tests/fleet/servers.ts';
import { Host, pause } from './hosts.ts';
import type { JournalLine } from './hosts.ts';

const FLEET = 'acode';
const HOSTS = 3;
const TENANT = 'acme';
const SIZES = { logBytes: 8 * 1024 ** 2, blobBytes: 8 * 1024 ** 2 };
const CALL_MS = 60_000;
const SLOTS = 16;

const [TASKS, STATES] = ['ACODE_TASKS', 'KV_acode_task'] as const;

/** The streams of a fleet that keep what may not be lost. */
export const STREAMS = [TASKS, STATES, 'KV_acode_lease'] as const;

/** A container engine for real tasks. */
export interface RealEngine {
  readonly socket: string;
  readonly image: string;
}

/** What a fleet of a bench is made of. */
export interface FleetSettings {
  readonly engine: 'nats' | 'postgres';
  readonly servers?: 1 | 3 | 4;
  readonly real: RealEngine | null;
  /** The label of its sandboxes. */
  readonly label: string;
  /** Whether each server keeps its files on a small file system of its own, of so many bytes. */
  readonly diskBytes?: number;
  readonly slots?: number;
  readonly realSlots?: number;
  readonly warm?: number;
  /** How many workers of tasks that do nothing each host has. */
  readonly fakeWorkers?: number;
  readonly logBytes?: number;
  /** Whether the connections of hosts can be cut, and so go through a proxy. */
  readonly canCut?: boolean;
}

/** A fleet with everything that it needs, on this machine. */
export class TestFleet implements AsyncDisposable {
  readonly directory = mkdtempSync('/var/tmp/acode-fleet-bench-');
  readonly hosts: Host[] = [];
  readonly nats: NatsServers | null;
  readonly postgres: PostgresServer | null;
  readonly #disks: Disk[];
  readonly #clients: Fleet[] = [];
  readonly #keys = makeKeys();
  readonly #settings: FleetSettings;
  readonly #sizes: { readonly logBytes: number; readonly blobBytes: number };

  private constructor(
    settings: FleetSettings,
    nats: NatsServers | null,
    postgres: PostgresServer | null,
    disks: Disk[],
  ) {
    this.#settings = settings;
    this.#sizes = { ...SIZES, ...(settings.logBytes === undefined ? {} : { logBytes: settings.logBytes }) };
    this.nats = nats;
    this.postgres = postgres;
    this.#disks = disks;
  }

  static async start(settings: FleetSettings): Promise<TestFleet> {
    const disks: Disk[] = [];
    const inside = (directory: string): readonly string[] => {
      if (settings.diskBytes === undefined) return [];
      const disk = new Disk(directory, settings.diskBytes);
      disks.push(disk);
      return disk.inside;
    };
    const { engine, servers = 3 } = settings;
    const nats =
      engine === 'nats'
        ? await NatsServers.start(servers, { inside: (_, directory) => inside(join(directory, 'store')) })
        : null;
    const postgres = engine === 'postgres' ? await PostgresServer.start({ inside }) : null;
    const made = new TestFleet(settings, nats, postgres, disks);
    try {
      // The first client creates the streams.
      await made.client();
      for (let at = 0; at < HOSTS; at += 1) made.hosts.push(made.#host(`host${at}`));
      await Promise.all(made.hosts.map(host => host.start(made.#ports(), settings.canCut ?? true)));
    } catch (error) {
      await made[Symbol.asyncDispose]();
      throw error;
    }
    return made;
  }

  /** The engine, by a connection of its own. */
  async engine(): Promise<FleetEngine> {
    return this.nats
      ? NatsEngine.open({ ...this.#sizes, fleet: FLEET, servers: this.nats.urls, monitors: this.nats.monitors })
      : PostgresEngine.open({ fleet: FLEET, url: this.postgres?.url ?? '' });
  }

  /** A client of the fleet, with a connection of its own. */
  async client(): Promise<Fleet> {
    const engine = await this.engine();
    const fleet = await Fleet.open({ engine, tenant: TENANT, keys: this.#keys });
    this.#clients.push(fleet);
    return fleet;
  }

  journal(): JournalLine[] {
    return this.hosts.flatMap(host => host.journal());
  }

  /** Lets every host end, so that nothing of a sandbox may be left. */
  async endHosts(): Promise<void> {
    await Promise.all(this.hosts.map(host => host[Symbol.asyncDispose]()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.endHosts();
    await Promise.all(this.#clients.map(client => client.close().catch(() => undefined)));
    await this.nats?.[Symbol.asyncDispose]();
    await this.postgres?.[Symbol.asyncDispose]();
    for (const disk of this.#disks) disk[Symbol.dispose]();
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** Which server leads a stream; waits until one does. */
  async leaderOf(stream: string): Promise<number> {
    const end = performance.now() + CALL_MS;
    while (performance.now() < end) {
      const found = (await this.#placesOf(stream))?.leader;
      if (found !== undefined) return Number(found.slice(1));
      await pause(100);
    }
    throw new Error(`nobody leads ${stream}`);
  }

  /** Which servers follow in a stream. */
  async followersOf(stream: string): Promise<number[]> {
    await this.leaderOf(stream);
    return ((await this.#placesOf(stream))?.followers ?? []).map(name => Number(name.slice(1)));
  }

  /** Waits until every replica of every stream has everything. */
  async whole(): Promise<void> {
    const end = performance.now() + CALL_MS;
    while (performance.now() < end) {
      const places = await Promise.all(STREAMS.map(stream => this.#placesOf(stream)));
      if (places.every(found => found?.leader !== undefined && found.isCurrent)) return;
      await pause(200);
    }
  }

  async #placesOf(stream: string): Promise<{ leader?: string; followers: string[]; isCurrent: boolean } | null> {
    for (const [at, monitor] of (this.nats?.monitors ?? []).entries()) {
      const found = await streamAt(monitor, stream).catch(() => null);
      // Only the leader knows how far the others are.
      if (found?.leader === `n${at}`) return found;
    }
    return null;
  }

  /** How many durable writes there were so far: tasks and states that were stored, and tasks that were removed. */
  async writes(): Promise<number> {
    let sum = 0;
    for (const stream of this.nats ? [TASKS, STATES] : []) {
      const { last_seq, messages } = JSON.parse(await this.ask(`$JS.API.STREAM.INFO.${stream}`)).state;
      sum += stream === TASKS ? 2 * last_seq - messages : last_seq;
    }
    return sum;
  }

  /** Asks the servers for something that the product never does. */
  async ask(subject: string, body = ''): Promise<string> {
    const connection = await connect({ servers: this.nats?.urls ?? [], reconnect: false });
    try {
      return (await connection.request(subject, body, { timeout: 10_000 })).string();
    } finally {
      await connection.close();
    }
  }

  /** The largest block of a stream on a server. */
  blockOf(server: number, stream: string): string {
    const root = join(this.nats?.directory ?? '', `n${server}`, 'store', 'jetstream');
    const blocks = readdirSync(root, { recursive: true, encoding: 'utf8' })
      .filter(name => name.endsWith('.blk') && name.includes(`/${stream}/`))
      .map(name => join(root, name));
    return blocks.sort((one, other) => sizeOf(other) - sizeOf(one))[0] ?? '';
  }

  fillDisk(at: number): void {
    this.#disks[at]?.fill();
  }

  emptyDisk(at: number): void {
    this.#disks[at]?.empty();
  }

  #ports(): number[] {
    const urls = this.nats?.urls ?? [this.postgres?.url ?? ''];
    return urls.map(url => Number(new URL(url).port));
  }

  #host(name: string): Host {
    const address = (proxied: readonly number[]): object =>
      this.nats
        ? {
            ...this.#sizes,
            fleet: FLEET,
            servers: proxied.map(port => `nats://127.0.0.1:${port}`),
            monitors: this.nats.monitors,
          }
        : { fleet: FLEET, url: (this.postgres?.url ?? '').replace(/:\d+\//, `:${proxied[0]}/`) };
    const { real, label, slots = SLOTS, realSlots = 2, warm = 1, fakeWorkers = 1 } = this.#settings;
    const file = (pool: string, most: number, image: string): object => ({
      engine: { postgres: { url: 'postgres://nowhere' } },
      pool,
      images: [image],
      slots: most,
      tenants: { [TENANT]: { keys: [this.#keys.publicKey] } },
      warm,
      socket: real?.socket ?? null,
      sandbox: { containers: { labels: { 'com.example.fleet': label } } },
    });
    const places = (at: string, place: string): { root: string; runtime: string } => {
      const [root, runtime] = [join(at, place), join(at, `${place[0]}`)];
      mkdirSync(root, { recursive: true });
      return { root, runtime };
    };
    return new Host(name, this.directory, address, at => [
      ...Array.from({ length: fakeWorkers }, (_, number) => ({
        file: file('nothing', slots, 'none'),
        ...places(at, `nothing-${number}`),
        isFake: true,
      })),
      ...(real ? [{ file: file('real', realSlots, real.image), ...places(at, 'real'), isFake: false }] : []),
    ]);
  }
}

interface Replica {
  readonly name: string;
  readonly current: boolean;
}

interface StreamDetail {
  readonly name: string;
  readonly cluster?: { readonly leader?: string; readonly replicas?: readonly Replica[] };
}

async function streamAt(
  monitor: string,
  stream: string,
): Promise<{ leader: string; followers: string[]; isCurrent: boolean } | null> {
  const answer = await fetch(`${monitor}/jsz?streams=true`, { signal: AbortSignal.timeout(2000) });
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  const { account_details = [] } = (await answer.json()) as {
    account_details?: { stream_detail?: StreamDetail[] }[];
  };
  const found = account_details
    .flatMap(({ stream_detail = [] }) => stream_detail)
    .find(({ name }) => name === stream)?.cluster;
  if (found?.leader === undefined || !found.replicas) return null;
  const { leader, replicas } = found;
  return { leader, followers: replicas.map(({ name }) => name), isCurrent: replicas.every(({ current }) => current) };
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

/** Flips one bit in the middle of a file. */
export function flipBit(path: string): void {
  const bytes = readFileSync(path);
  const at = Math.floor(bytes.length / 2);
  bytes[at] = (bytes[at] ?? 0) ^ 4;
  writeFileSync(path, bytes);
}

/** Takes the last third of a file away. */
export function truncate(path: string): void {
  const bytes = readFileSync(path);
  writeFileSync(path, bytes.subarray(0, Math.floor((bytes.length * 2) / 3)));
}

/** A small file system in a namespace of its own, which outlives the server in it. */
class Disk implements Disposable {
  readonly inside: readonly string[];
  readonly #holder: ChildProcess;
  readonly #filler: string;

  constructor(directory: string, bytes: number) {
    mkdirSync(directory, { recursive: true });
    const script = 'mount -t tmpfs -o size="$1",mode=0777 none "$2" && echo ready && exec sleep infinity';
    this.#holder = spawn(
      'unshare',
      ['-Um', '--map-current-user', '--keep-caps', 'sh', '-c', script, 'sh', String(bytes), directory],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    const pid = String(this.#holder.pid);
    this.inside = ['nsenter', '-t', pid, '-U', '-m', '--preserve-credentials', '--'];
    this.#filler = join(directory, 'filler');
    // Mounted when the words for the server are asked for.
    for (let tries = 0; tries < 500 && !readFileSync(`/proc/${pid}/mounts`, 'utf8').includes(directory); tries += 1)
      execFileSync('sleep', ['0.01']);
  }

  fill(): void {
    this.#do(`head -c 10G /dev/zero >'${this.#filler}' 2>/dev/null || true`);
  }

  empty(): void {
    this.#do(`rm -f '${this.#filler}'`);
  }

  #do(script: string): void {
    const [program = '', ...words] = this.inside;
    execFileSync(program, [...words, 'sh', '-c', script]);
  }

  [Symbol.dispose](): void {
    this.#holder.kill('SIGKILL');
  }
}
