// Tables of a fleet in PostgreSQL, created in a schema of their own; and the check of the server.

import { Client } from 'pg';
import type { Pool, PoolClient } from 'pg';
import { FLEET_ERRORS } from '../../errors.ts';

const VERSION = 1;
const MIN_SERVER = 130_000;
// Of this program: two workers that start together do not create the tables at once.
const LOCK = 0x61_63_6f_64;

// A server with one of these off can lose what it has acknowledged, or its files.
const NEEDED = { fsync: 'on', full_page_writes: 'on' } as const;

/** Refuses a server that may lose what it has acknowledged, or that is too old. */
export async function checkServer(pool: Pool, engine: string): Promise<void> {
  const { rows } = await pool.query<{ name: string; setting: string }>(
    'select name, setting from pg_settings where name = any($1)',
    [['server_version_num', 'server_version', ...Object.keys(NEEDED)]],
  );
  const found = new Map(rows.map(({ name, setting }) => [name, setting]));
  if (Number(found.get('server_version_num')) < MIN_SERVER) {
    const version = found.get('server_version') ?? 'unknown';
    throw FLEET_ERRORS.create('ACODE-FLT-002', {
      engine,
      setting: 'the version',
      found: version,
      needed: '13 or newer',
    });
  }
  for (const [setting, needed] of Object.entries(NEEDED)) {
    const value = found.get(setting) ?? 'unknown';
    if (value !== needed)
      throw FLEET_ERRORS.create('ACODE-FLT-002', { engine, setting, found: value, needed: `\`${needed}\`` });
  }
}

/** Creates the tables where they are missing. Those of another version are refused. */
export async function ensureTables(pool: Pool, schema: string): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query('begin');
    await client.query('select pg_advisory_xact_lock($1)', [LOCK]);
    await create(client, schema);
    await client.query('commit');
  } catch (error) {
    await client.query('rollback').catch(() => undefined);
    throw error;
  } finally {
    client.release();
  }
}

async function create(client: PoolClient, schema: string): Promise<void> {
  const found = await client.query<{ exists: boolean }>('select to_regclass($1) is not null as exists', [
    `"${schema}".about`,
  ]);
  if (found.rows[0]?.exists === true) {
    const { rows } = await client.query<{ version: number }>(`select version from "${schema}".about`);
    const version = rows[0]?.version ?? 0;
    if (version !== VERSION)
      throw FLEET_ERRORS.create('ACODE-FLT-003', {
        name: `The schema ${schema}`,
        setting: 'version',
        found: String(version),
        needed: String(VERSION),
      });
  } else await client.query(tables(schema));
  await client.query(messages(schema));
}

function tables(schema: string): string {
  return `
create schema if not exists "${schema}";
create table "${schema}".about (version int not null);
insert into "${schema}".about values (${VERSION});
create sequence "${schema}".revision;
create table "${schema}".task (
  tenant text not null, id text not null, pool text not null, priority smallint not null, body text not null,
  number bigint generated always as identity, visible_at timestamptz not null default now(), deliveries int not null default 0,
  primary key (tenant, id)
);
create index task_next on "${schema}".task (pool, priority, number);
create table "${schema}".state (
  tenant text not null, id text not null, revision bigint not null, text text not null, forget_at timestamptz,
  primary key (tenant, id)
);
create index state_forget on "${schema}".state (forget_at) where forget_at is not null;
create table "${schema}".lease (worker text primary key, body text not null, until timestamptz not null);
create table "${schema}".log (
  tenant text not null, id text not null, attempt int not null, sequence int not null, bytes bytea not null,
  at timestamptz not null default now(), primary key (tenant, id, attempt, sequence)
);
create index log_at on "${schema}".log using brin (at);
create table "${schema}".blob (
  tenant text not null, hash text not null, bytes bytea not null, until timestamptz not null, primary key (tenant, hash)
);
`;
}

// Messages to sandboxes and their answers. A crash of the server may empty this table: who waits for an answer asks again.
function messages(schema: string): string {
  return `
create unlogged table if not exists "${schema}".message (
  number uuid primary key, tenant text not null, sandbox text not null, message bytea not null, answer bytea,
  at timestamptz not null default now()
);
`;
}

/** Whether a server answers; rejects where it cannot be reached. */
export async function answers(url: string, deadlineMs: number): Promise<boolean> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: deadlineMs, query_timeout: deadlineMs });
  // A connection that is lost later is no crash of this process.
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query('SELECT 1');
    return true;
  } finally {
    await client.end();
  }
}
