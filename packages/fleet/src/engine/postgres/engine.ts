// Engine on PostgreSQL: for teams that run one already. Tables for tasks, states, leases, logs, blobs and messages; LISTEN as wake-up.

import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { DatabaseError, Pool } from 'pg';
import type { PoolConfig, QueryResultRow } from 'pg';
import { FLEET_ERRORS } from '../../errors.ts';
import { ANSWER_MS as EXEC_MS, BLOB_KEEP_MS, HIDE_MS, LOG_KEEP_MS, MAX_WAIT_MS } from '../engine.ts';
import type {
  Delivery,
  FleetEngine,
  Lease,
  LogBatch,
  LogKey,
  MessageHandler,
  QueuedTask,
  Revised,
  SandboxLease,
  TakeRequest,
  Topic,
  WriteOptions,
} from '../engine.ts';
import { isLoopback } from '../address.ts';
import { assertSize } from '../limits.ts';
import { PRIORITIES, checkedKey, checkedName, leaseName } from '../names.ts';
import type { TaskKey } from '../names.ts';
import { reasonOf, retried } from '../retry.ts';
import { Notices } from './notices.ts';
import { checkServer, ensureTables } from './schema.ts';

const CONNECT_MS = 5000;
const ANSWER_MS = 10_000;
const SWEEP_MS = 60_000;
// A notice may be lost with its connection, and a task becomes visible again without one.
const LOOK_MS = 1000;
const LOG_LOOK_MS = 200;
const WATCH_ROWS = 2000;
const WATCH_AGAIN = 500;
const LOG_ROWS = 100;

/** Options of an engine on PostgreSQL. */
export interface PostgresEngineOptions {
  /** How to connect: `postgres://user@one.example/database`. A password is better in `PGPASSWORD` or `~/.pgpass`. */
  readonly url: string;
  /** The fleet’s name, and with `_` for `-` its schema; `acode` by default. */
  readonly fleet?: string;
  /** A file with the certificates that the server’s own is checked against. Without it, the URL’s `sslmode` counts. */
  readonly caFile?: string;
  /** Whether a server on another machine may be reached without encryption. False by default. */
  readonly unencrypted?: boolean;
  /** How long a delivery hides a task, in milliseconds; 30,000 by default. */
  readonly hideMs?: number;
  /** The most tasks in the queue. By default as many as the disk takes: to count them takes time. */
  readonly maxQueued?: number;
}

interface TaskRow {
  readonly tenant: string;
  readonly id: string;
  readonly pool: string;
  readonly priority: number;
  readonly body: string;
  readonly number: string;
  readonly deliveries: number;
}

/** A fleet engine on PostgreSQL. */
export class PostgresEngine implements FleetEngine {
  readonly kind = 'postgres';
  readonly hideMs: number;
  readonly #pool: Pool;
  readonly #notices: Notices;
  readonly #schema: string;
  readonly #maxQueued: number | undefined;
  readonly #sweeping: NodeJS.Timeout;

  private constructor(pool: Pool, notices: Notices, schema: string, options: PostgresEngineOptions) {
    this.#pool = pool;
    this.#notices = notices;
    this.#schema = schema;
    this.#maxQueued = options.maxQueued;
    this.hideMs = options.hideMs ?? HIDE_MS;
    this.#sweeping = setInterval(() => void this.#sweep().catch(() => undefined), SWEEP_MS);
    this.#sweeping.unref();
  }

  /** Connects, checks the server, and creates the tables. */
  static async open(options: PostgresEngineOptions, signal?: AbortSignal): Promise<PostgresEngine> {
    const schema = checkedName('fleet', options.fleet ?? 'acode').replaceAll('-', '_');
    const { config, engine } = await configOf(options);
    const pool = new Pool(config);
    // An idle connection that the server ends is made again when it is needed.
    pool.on('error', () => undefined);
    try {
      const about = { operation: 'open', isPassing, signal };
      await retried(() => checkServer(pool, engine), { ...about, deadlineMs: CONNECT_MS });
      await retried(() => ensureTables(pool, schema), about);
    } catch (cause) {
      await pool.end();
      signal?.throwIfAborted();
      if (
        cause instanceof DatabaseError ||
        (cause instanceof Error && 'code' in cause && isPassing(cause.cause ?? cause))
      )
        throw FLEET_ERRORS.create('ACODE-FLT-001', { engine, reason: reasonOf(cause.cause ?? cause) }, { cause });
      throw cause;
    }
    return new PostgresEngine(pool, new Notices(config, `acode_${schema}`), schema, options);
  }

  async enqueue(task: QueuedTask, signal?: AbortSignal): Promise<'queued' | 'present'> {
    const { tenant, id } = checkedKey(task);
    const pool = checkedName('pool', task.pool);
    assertSize('The task', task.body);
    const limit = this.#maxQueued;
    const room =
      limit === undefined
        ? ''
        : `where (select count(*) from (select 1 from $.task limit ${limit}) as present) < ${limit}`;
    const rows = await this.#query<{ told: string }>(
      'submit',
      `with made as (insert into $.task (tenant, id, pool, priority, body) select $1::text, $2::text, $3::text, $4::smallint, $5::text
         ${room} on conflict do nothing returning 1)
       select pg_notify($6, $7)::text as told from made`,
      [tenant, id, pool, PRIORITIES.indexOf(task.priority), task.body, this.#channel(), `pool:${pool} `],
      signal,
    );
    if (rows.length > 0) return 'queued';
    if (limit !== undefined && !(await this.queued(task, pool, signal)))
      throw FLEET_ERRORS.create('ACODE-FLT-005', { pool, reason: `the queue has ${limit} tasks` });
    return 'present';
  }

  async queued(key: TaskKey, pool: string, signal?: AbortSignal): Promise<QueuedTask | null> {
    const { tenant, id } = checkedKey(key);
    const rows = await this.#query<TaskRow>(
      'read',
      'select * from $.task where tenant = $1 and id = $2 and pool = $3',
      [tenant, id, pool],
      signal,
    );
    return rows[0] ? taskOf(rows[0]) : null;
  }

  async take({ pool, max, waitMs }: TakeRequest, signal?: AbortSignal): Promise<Delivery[]> {
    checkedName('pool', pool);
    const end = performance.now() + Math.min(waitMs, MAX_WAIT_MS);
    await using wakeUp = await this.#wakeUp(`pool:${pool}`);
    for (;;) {
      const woken = wakeUp.next();
      const rows = await this.#query<TaskRow>(
        'take',
        `update $.task one set visible_at = now() + $3 * interval '1 ms', deliveries = deliveries + 1
         from (select tenant, id from $.task where pool = $1 and visible_at <= now() order by priority, number limit $2
               for update skip locked) as next
         where one.tenant = next.tenant and one.id = next.id returning one.*`,
        [pool, max, this.hideMs],
        signal,
      );
      const restMs = end - performance.now();
      if (rows.length > 0) return this.#deliveries(rows);
      if (restMs <= 0 || signal?.aborted === true) return [];
      await Promise.race([woken, paused(Math.min(restMs, LOOK_MS), signal)]);
    }
  }

  async pick(key: TaskKey, pool: string, signal?: AbortSignal): Promise<Delivery | null> {
    const task = await this.queued(key, pool, signal);
    if (!task) return null;
    const { tenant, id } = task;
    return {
      task,
      deliveries: 1,
      prolong: async () => undefined,
      release: async () => undefined,
      done: () => this.#remove(tenant, id),
    };
  }

  async *watchQueue(pool: string, signal: AbortSignal): AsyncGenerator<Omit<QueuedTask, 'body'>, void, undefined> {
    checkedName('pool', pool);
    await using wakeUp = await this.#wakeUp(`pool:${pool}`);
    let last = 0;
    while (!signal.aborted) {
      const woken = wakeUp.next();
      // A number is taken before its task can be seen: a little from before is read again.
      const rows = await this.#query<Omit<TaskRow, 'body'>>(
        'watch',
        `select tenant, id, pool, priority, number from $.task where pool = $1 and number > $2 order by number limit ${WATCH_ROWS}`,
        [pool, Math.max(0, last - WATCH_AGAIN)],
        signal,
      ).catch((): Omit<TaskRow, 'body'>[] => []);
      const before = last;
      for (const row of rows) {
        last = Math.max(last, Number(row.number));
        yield { tenant: row.tenant, id: row.id, pool: row.pool, priority: PRIORITIES[row.priority] ?? 'normal' };
        if (signal.aborted) return;
      }
      if (last === before) await Promise.race([woken, paused(LOOK_MS, signal)]);
    }
  }

  async depth(pool: string, signal?: AbortSignal): Promise<number> {
    const rows = await this.#query<{ depth: string }>(
      'depth',
      'select count(*) as depth from $.task where pool = $1',
      [checkedName('pool', pool)],
      signal,
    );
    return Number(rows[0]?.depth ?? 0);
  }

  async unfinished(tenant: string, signal?: AbortSignal): Promise<number> {
    const rows = await this.#query<{ count: string }>(
      'unfinished',
      'select count(*) as count from $.task where tenant = $1',
      [checkedName('tenant', tenant)],
      signal,
    );
    return Number(rows[0]?.count ?? 0);
  }

  async read(key: TaskKey, signal?: AbortSignal): Promise<Revised | null> {
    const { tenant, id } = checkedKey(key);
    const rows = await this.#query<{ text: string; revision: string }>(
      'read',
      'select text, revision from $.state where tenant = $1 and id = $2 and (forget_at is null or forget_at > now())',
      [tenant, id],
      signal,
    );
    return rows[0] ? { text: rows[0].text, revision: Number(rows[0].revision) } : null;
  }

  async write(
    key: TaskKey,
    revision: number,
    text: string,
    { keepMs }: WriteOptions = {},
    signal?: AbortSignal,
  ): Promise<number | null> {
    const { tenant, id } = checkedKey(key);
    assertSize('The state of the task', text);
    const values = [tenant, id, text, keepMs ?? null];
    const forget = "now() + $4::float8 * interval '1 ms'";
    // A state whose time is over counts as absent.
    const rows = await (revision === 0
      ? this.#query<{ revision: string }>(
          'write',
          `insert into $.state as old (tenant, id, revision, text, forget_at) values ($1, $2, nextval('$.revision'), $3, ${forget})
           on conflict (tenant, id) do update set revision = excluded.revision, text = excluded.text, forget_at = excluded.forget_at
           where old.forget_at <= now() returning revision`,
          values,
          signal,
        )
      : this.#query<{ revision: string }>(
          'write',
          `update $.state set revision = nextval('$.revision'), text = $3, forget_at = ${forget}
           where tenant = $1 and id = $2 and revision = $5 and (forget_at is null or forget_at > now()) returning revision`,
          [...values, revision],
          signal,
        ));
    return rows[0] ? Number(rows[0].revision) : null;
  }

  async renew(lease: Lease | SandboxLease, ttlMs: number, signal?: AbortSignal): Promise<void> {
    await this.#query(
      'renew',
      `insert into $.lease values ($1, $2, now() + $3 * interval '1 ms')
       on conflict (worker) do update set body = excluded.body, until = excluded.until`,
      [leaseName('worker' in lease ? lease.worker : lease), lease.body, ttlMs],
      signal,
      ttlMs,
    );
  }

  async leases(signal?: AbortSignal): Promise<Lease[]> {
    return this.#query<Lease & QueryResultRow>(
      'leases',
      "select worker, body from $.lease where until > now() and strpos(worker, '.') = 0",
      [],
      signal,
    );
  }

  async sandboxes(tenant: string, signal?: AbortSignal): Promise<SandboxLease[]> {
    const rows = await this.#query<Lease & QueryResultRow>(
      'leases',
      'select worker, body from $.lease where until > now() and starts_with(worker, $1)',
      [`${checkedName('tenant', tenant)}.`],
      signal,
    );
    return rows.map(({ worker, body }) => ({ tenant, id: worker.slice(tenant.length + 1), body }));
  }

  async isLeased(worker: string, signal?: AbortSignal): Promise<boolean> {
    const rows = await this.#query(
      'leases',
      'select 1 from $.lease where worker = $1 and until > now()',
      [worker],
      signal,
    );
    return rows.length > 0;
  }

  async endLease(holder: string | TaskKey, signal?: AbortSignal): Promise<void> {
    await this.#query('end the lease', 'delete from $.lease where worker = $1', [leaseName(holder)], signal);
  }

  // The listener has the number of a message, and takes the message from its table: a notice has no room for one.
  serve(sandbox: TaskKey, handler: MessageHandler): Promise<AsyncDisposable> {
    const { tenant, id } = checkedKey(sandbox);
    const answered = async (number: string): Promise<void> => {
      const [row] = await this.#query<{ message: Uint8Array }>(
        'exec',
        'select message from $.message where number = $1 and tenant = $2 and sandbox = $3',
        [number, tenant, id],
      );
      const answer = row && (await handler(row.message));
      if (!answer) return;
      await this.#query(
        'exec',
        'with told as (update $.message set answer = $2 where number = $1) select pg_notify($3, $4)',
        [number, Buffer.from(answer), this.#channel(), `answer:${number} `],
      );
    };
    const heard = (number: string): void => void answered(number).catch(() => undefined);
    return this.#notices.listen(`exec:${tenant}.${id}`, heard);
  }

  async ask(sandbox: TaskKey, message: Uint8Array, signal?: AbortSignal): Promise<Uint8Array> {
    const { tenant, id } = checkedKey(sandbox);
    assertSize('The message', message);
    const number = randomUUID();
    const end = performance.now() + EXEC_MS;
    await using answered = await this.#wakeUp(`answer:${number}`);
    let next = answered.next();
    await this.#query(
      'exec',
      `with made as (insert into $.message (number, tenant, sandbox, message) values ($1, $2, $3, $4))
       select pg_notify($5, $6)`,
      [number, tenant, id, Buffer.from(message), this.#channel(), `exec:${tenant}.${id} ${number}`],
      signal,
    );
    try {
      while (performance.now() < end) {
        await Promise.race([next, paused(LOOK_MS, signal)]);
        signal?.throwIfAborted();
        next = answered.next();
        const [row] = await this.#query<{ answer: Uint8Array }>(
          'exec',
          'select answer from $.message where number = $1 and answer is not null',
          [number],
          signal,
        );
        if (row) return row.answer;
      }
    } finally {
      await this.#query('exec', 'delete from $.message where number = $1', [number]).catch(() => undefined);
    }
    throw FLEET_ERRORS.create('ACODE-FLT-050', { sandbox: id, reason: 'no answer in time' });
  }

  async appendLog(key: LogKey, { sequence, bytes }: LogBatch, signal?: AbortSignal): Promise<void> {
    const { tenant, id } = checkedKey(key);
    assertSize('The piece of the log', bytes);
    await this.#query(
      'log',
      'insert into $.log (tenant, id, attempt, sequence, bytes) values ($1, $2, $3, $4, $5) on conflict do nothing',
      [tenant, id, key.attempt, sequence, Buffer.from(bytes)],
      signal,
    );
  }

  async *followLog(key: LogKey, after: number, signal: AbortSignal): AsyncGenerator<LogBatch, void, undefined> {
    const { tenant, id } = checkedKey(key);
    let last = after;
    while (!signal.aborted) {
      const rows = await this.#query<{ sequence: number; bytes: Buffer }>(
        'log',
        `select sequence, bytes from $.log where tenant = $1 and id = $2 and attempt = $3 and sequence > $4
         order by sequence limit ${LOG_ROWS}`,
        [tenant, id, key.attempt, last],
        signal,
      ).catch((): { sequence: number; bytes: Buffer }[] => []);
      for (const { sequence, bytes } of rows) {
        last = sequence;
        yield { sequence, bytes: new Uint8Array(bytes) };
      }
      if (rows.length < LOG_ROWS) await paused(LOG_LOOK_MS, signal);
    }
  }

  async putBlob(tenant: string, hash: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void> {
    assertSize('The workspace', bytes);
    await this.#query(
      'upload',
      `insert into $.blob values ($1, $2, $3, now() + $4 * interval '1 ms')
       on conflict (tenant, hash) do update set bytes = excluded.bytes, until = excluded.until`,
      [checkedName('tenant', tenant), checkedName('hash', hash), Buffer.from(bytes), BLOB_KEEP_MS],
      signal,
    );
  }

  async getBlob(tenant: string, hash: string, signal?: AbortSignal): Promise<Uint8Array | null> {
    const rows = await this.#query<{ bytes: Buffer }>(
      'download',
      'select bytes from $.blob where tenant = $1 and hash = $2 and until > now()',
      [checkedName('tenant', tenant), checkedName('hash', hash)],
      signal,
    );
    return rows[0] ? new Uint8Array(rows[0].bytes) : null;
  }

  async notify(topic: Topic, text: string): Promise<void> {
    await this.#query('notify', 'select pg_notify($1, $2)', [this.#channel(), `${topicName(topic)} ${text}`]);
  }

  listen(topic: Topic, onNotice: (text: string) => void): Promise<AsyncDisposable> {
    return this.#notices.listen(topicName(topic), onNotice);
  }

  async close(): Promise<void> {
    clearInterval(this.#sweeping);
    await this.#notices[Symbol.asyncDispose]();
    if (!this.#pool.ended) await this.#pool.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #deliveries(rows: readonly TaskRow[]): Delivery[] {
    // In the order of the inner selection, which an update does not keep.
    const sorted = rows.toSorted(
      (one, other) => one.priority - other.priority || Number(one.number) - Number(other.number),
    );
    return sorted.map(row => {
      const own = [row.tenant, row.id, row.deliveries];
      const visible = (ms: number): Promise<unknown> =>
        this.#query(
          'prolong',
          `update $.task set visible_at = now() + $4 * interval '1 ms' where tenant = $1 and id = $2 and deliveries = $3`,
          [...own, ms],
        );
      return {
        task: taskOf(row),
        deliveries: row.deliveries,
        prolong: async () => void (await visible(this.hideMs)),
        release: async delayMs => void (await visible(delayMs)),
        done: () => this.#remove(row.tenant, row.id),
      };
    });
  }

  async #remove(tenant: string, id: string): Promise<void> {
    await this.#query('remove', 'delete from $.task where tenant = $1 and id = $2', [tenant, id]);
  }

  async #wakeUp(topic: string): Promise<{ next(): Promise<void> } & AsyncDisposable> {
    let wake: () => void = () => undefined;
    const listening = await this.#notices.listen(topic, () => wake());
    return {
      next: () => new Promise(resolve => (wake = resolve)),
      [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose](),
    };
  }

  // What no reader is given any more.
  async #sweep(): Promise<void> {
    await this.#query('sweep', 'delete from $.lease where until < now()', []);
    await this.#query('sweep', 'delete from $.blob where until < now()', []);
    await this.#query('sweep', 'delete from $.state where forget_at < now()', []);
    await this.#query('sweep', "delete from $.message where at < now() - $1 * interval '1 ms'", [2 * EXEC_MS]);
    await this.#query('sweep', "delete from $.log where at < now() - $1 * interval '1 ms'", [LOG_KEEP_MS]);
  }

  #channel(): string {
    return `acode_${this.#schema}`;
  }

  // `$.task` is the table `task` of this fleet’s schema, whose name is checked.
  async #query<Row extends QueryResultRow>(
    operation: string,
    sql: string,
    values: readonly unknown[],
    signal?: AbortSignal,
    deadlineMs?: number,
  ): Promise<Row[]> {
    const text = sql.replaceAll('$.', `"${this.#schema}".`);
    const about = { operation, isPassing, signal, ...(deadlineMs === undefined ? {} : { deadlineMs }) };
    return retried(async () => (await this.#pool.query<Row>(text, [...values])).rows, about);
  }
}

async function configOf({
  url,
  caFile,
  unencrypted,
}: PostgresEngineOptions): Promise<{ config: PoolConfig; engine: string }> {
  let address: URL;
  try {
    address = new URL(url);
  } catch (cause) {
    throw FLEET_ERRORS.create('ACODE-FLT-001', { engine: 'postgres', reason: 'its address is not a URL' }, { cause });
  }
  // Without the password: it stands in messages.
  const engine = `postgres://${address.host}${address.pathname}`;
  const ssl = sslOf(address, caFile !== undefined);
  if (ssl === 'none' && unencrypted !== true && !isOfThisMachine(address))
    throw FLEET_ERRORS.create('ACODE-FLT-023', { engine });
  const config: PoolConfig = {
    connectionString: url,
    application_name: 'acode',
    max: 10,
    connectionTimeoutMillis: CONNECT_MS,
    query_timeout: ANSWER_MS,
    statement_timeout: ANSWER_MS,
    keepAlive: true,
    // What is acknowledged is on disk, whatever the server’s own default is.
    options: '-c synchronous_commit=on -c timezone=UTC',
    ...(caFile === undefined ? {} : { ssl: { ca: await readFile(caFile, 'utf8') } }),
  };
  return { config, engine };
}

// What the URL says comes before `ssl` of the options, and `prefer` takes a server without encryption for granted.
function sslOf({ searchParams }: URL, hasCertificates: boolean): 'checked' | 'none' {
  const mode = searchParams.get('sslmode');
  if (mode === null) return hasCertificates || searchParams.get('ssl') === 'true' ? 'checked' : 'none';
  return ['require', 'verify-ca', 'verify-full'].includes(mode) ? 'checked' : 'none';
}

// A socket is a directory in place of a name; and a parameter comes before the name.
function isOfThisMachine({ hostname, searchParams }: URL): boolean {
  const host = searchParams.get('host') ?? decodeURIComponent(hostname);
  const named = host === '' ? (process.env['PGHOST'] ?? 'localhost') : host;
  return named.startsWith('/') || isLoopback(named);
}

function taskOf({ tenant, id, pool, priority, body }: TaskRow): QueuedTask {
  return { tenant, id, pool, priority: PRIORITIES[priority] ?? 'normal', body };
}

function topicName(topic: Topic): string {
  if ('tenant' in topic) return `tenant:${checkedName('tenant', topic.tenant)}`;
  if ('worker' in topic) return `worker:${checkedName('worker', topic.worker)}`;
  if ('control' in topic) return `control:${checkedName('worker', topic.control)}`;
  return `offers:${checkedName('pool', topic.pool)}`;
}

async function paused(ms: number, signal?: AbortSignal): Promise<void> {
  await pause(ms, undefined, signal ? { signal } : {}).catch(() => undefined);
}

// Classes of SQLSTATE: connection, resources (a disk that is full may be emptied), operator (restart), rollback (conflict).
const PASSING = /^(?:08|53|57|40)/;

const FOR_GOOD = new Set(['AcodeError', 'AbortError', 'TypeError', 'RangeError']);

/** Whether a failure may be over in a moment. What is no error of the server is one of the connection. */
function isPassing(error: unknown): boolean {
  if (error instanceof DatabaseError) return PASSING.test(error.code ?? '');
  return error instanceof Error && !FOR_GOOD.has(error.name);
}
