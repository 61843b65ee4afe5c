// `acode fleet …`: from options to a request of the fleet’s program, and from its result to text for a person.

import { resolve } from 'node:path';
import * as z from 'zod';
import type { Call } from '../call.ts';
import type { AskedVariables } from '../arguments/environment.ts';
import { commandOf, quoted } from '../arguments/command-arguments.ts';
import { environmentOf } from '../arguments/environment-options.ts';
import { commandIn } from '../execution/execute.ts';
import { UsageError } from '../failure/usage.ts';
import { age, until } from '../terminal/age.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine, plural } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';
import { askFleet } from './ask.ts';
import type { OnValue } from './ask.ts';

/** Options of everything that a worker runs. */
interface PlaceOptions {
  readonly file?: string | undefined;
  readonly id?: string | undefined;
  readonly pool?: string | undefined;
  readonly priority?: 'high' | 'normal' | 'low' | undefined;
  readonly image?: string | undefined;
  readonly level?: 'docker' | 'gvisor' | 'microvm' | undefined;
  readonly timeout?: number | undefined;
  readonly memory?: number | undefined;
  readonly cpus?: number | undefined;
  readonly pids?: number | undefined;
  readonly allow?: readonly string[] | undefined;
  readonly env?: AskedVariables | undefined;
  readonly envFile?: readonly string[] | undefined;
  readonly empty?: true | undefined;
}

/** Options of a task. */
export interface TaskOptions extends PlaceOptions {
  readonly attempts?: number | undefined;
  readonly stdin?: true | undefined;
  readonly files?: string | undefined;
}

/** `acode fleet submit` and `run`. */
export async function task(
  call: Call,
  verb: 'submit' | 'run',
  argv: readonly string[],
  options: TaskOptions,
  flags: readonly string[],
): Promise<number> {
  const command = commandIn(call, argv, flags);
  const { root, inside, here } = await call.place();
  const { attempts, files, empty, stdin } = options;
  const request = {
    verb,
    ...(await placeOf(call, options, { root, here })),
    attempts,
    command,
    stdin: stdin === true,
    ...(empty || inside === '.' || inside === '' ? {} : { cwd: inside }),
    ...(files === undefined ? {} : { files: resolve(here, files) }),
  };
  return askFleet(call, request, shown(call, verb === 'submit' ? submitted : nothing), stdin === true);
}

async function placeOf(
  call: Call,
  options: PlaceOptions,
  { root, here }: { readonly root: string; readonly here: string },
): Promise<object> {
  const { id, pool, priority, image, level, cpus, pids, allow, file, empty, envFile } = options;
  const { timeout: timeoutMs, memory: memoryBytes } = options;
  const env = await environmentOf({ env: options.env, envFile }, { env: call.io.env, here });
  const limits = { image, level, cpus, pids, allow, timeoutMs, memoryBytes };
  return { ...withFile(call, file), id, pool, priority, ...limits, env, workspace: empty ? null : root };
}

/** Options of `acode fleet create`. */
export interface CreateOptions extends PlaceOptions {
  readonly for?: number | undefined;
  readonly idle?: number | undefined;
}

/** `acode fleet create`. */
export async function create(call: Call, options: CreateOptions): Promise<number> {
  const { root, here } = await call.place();
  const { for: expiresInMs, idle: idleMs } = options;
  const request = { verb: 'create', ...(await placeOf(call, options, { root, here })), expiresInMs, idleMs };
  return askFleet(call, request, async (schema, value) => {
    const { id, expiresAt } = sandboxSchema.parse(value);
    await call.print(schema, value, () => `${id}\n`);
    if (call.options.json) return;
    const { colours, now } = call.errorLook;
    await call.say(
      `${colours.cyan('acode:')} it expires ${until(expiresAt, now)}, or when it is unused for ${spanOf(idleMs)}; \`acode fleet kill\` removes it.\n`,
    );
  });
}

const IDLE_MS = 600_000;
const MINUTE_MS = 60_000;

function spanOf(ms = IDLE_MS): string {
  return ms < MINUTE_MS ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / MINUTE_MS)} min`;
}

/** Options of `acode fleet exec`. */
export interface ExecOptions extends Pick<PlaceOptions, 'file' | 'timeout' | 'env' | 'envFile'> {
  readonly stdin?: true | undefined;
}

/** `acode fleet exec`. */
export async function exec(
  call: Call,
  sandbox: string,
  argv: readonly string[],
  { file, timeout: timeoutMs, stdin, ...options }: ExecOptions,
  flags: readonly string[],
): Promise<number> {
  if (argv[0]?.startsWith('-') === true) throw optionsBehind(call, sandbox, argv);
  const called = `${call.called} ${quoted(sandbox)}`;
  const command = commandOf({ before: argv, after: call.argv, called, options: flags });
  const env = await environmentOf(options, { env: call.io.env, here: call.io.cwd() });
  const request = { verb: 'exec', ...withFile(call, file), sandbox, command, env, timeoutMs, stdin: stdin === true };
  return askFleet(call, request, shown(call, nothing), stdin === true);
}

function optionsBehind({ called, argv: after }: Call, sandbox: string, argv: readonly string[]): UsageError {
  const [options, command] = after
    ? [argv.map(quoted).join(' '), `-- ${after.map(quoted).join(' ')}`]
    : ['[options]', '"<line>"'];
  return new UsageError(
    'Options stand before the name of the sandbox.',
    `Write \`${called} ${options} ${quoted(sandbox)} ${command}\`.`,
  );
}

/** `acode fleet list`. */
export function list(call: Call, file: string | undefined): Promise<number> {
  return askFleet(call, { verb: 'list', ...withFile(call, file) }, shown(call, sandboxesText));
}

/** `acode fleet kill`. */
export function kill(call: Call, sandboxes: readonly string[], file: string | undefined): Promise<number> {
  return askFleet(call, { verb: 'kill', sandboxes, ...withFile(call, file) }, shown(call, killed));
}

/** `acode fleet logs`, `cancel` and `status`. */
export function about(
  call: Call,
  verb: 'logs' | 'cancel' | 'status',
  id: string | undefined,
  file: string | undefined,
): Promise<number> {
  const texts = { logs: nothing, cancel: cancelled, status: id === undefined ? fleetText : taskText };
  return askFleet(
    call,
    { verb, ...withFile(call, file), ...(id === undefined ? {} : { id }) },
    shown(call, texts[verb]),
  );
}

/** `acode fleet hosts`. */
export function hosts(call: Call, file: string | undefined): Promise<number> {
  return askFleet(call, { verb: 'hosts', ...withFile(call, file) }, shown(call, hostsText));
}

/** `acode fleet drain`. */
export function drain(call: Call, host: string, wait: boolean, file: string | undefined): Promise<number> {
  return askFleet(call, { verb: 'drain', host, wait, ...withFile(call, file) }, shown(call, drained));
}

/** `acode fleet doctor`. */
export function doctor(call: Call, file: string | undefined): Promise<number> {
  return askFleet(call, { verb: 'doctor', ...withFile(call, file) }, shown(call, doctorText));
}

/** Options of `acode fleet up`. */
export interface UpOptions {
  readonly image?: readonly string[] | undefined;
  readonly slots?: number | undefined;
  readonly level?: 'docker' | 'gvisor' | 'microvm' | undefined;
  readonly name?: string | undefined;
  readonly natsServer?: string | undefined;
  readonly postgres?: string | undefined;
  readonly listen?: string | undefined;
  readonly tlsCert?: string | undefined;
  readonly tlsKey?: string | undefined;
  readonly tlsCa?: string | undefined;
}

/** `acode fleet up`. */
export function up(call: Call, options: UpOptions): Promise<number> {
  const { image: images, name: fleet, slots, level, postgres, listen, natsServer, tlsCert, tlsKey, tlsCa } = options;
  const paths = { natsServer, tlsCert, tlsKey, tlsCa };
  const absolute: Record<string, unknown> = Object.fromEntries(
    Object.entries(paths).map(([key, path]) => [key, path && resolve(call.io.cwd(), path)]),
  );
  const { socket } = call.options;
  const request = { verb: 'up', images, fleet, slots, level, postgres, listen, socket, ...absolute };
  return askFleet(call, request, shown(call, upText));
}

/** Options of `acode fleet serve`. */
export interface ServeOptions {
  readonly e2b?: true | undefined;
  readonly image?: readonly string[] | undefined;
  readonly port?: number | undefined;
  readonly host?: string | undefined;
  readonly tlsCert?: string | undefined;
  readonly tlsKey?: string | undefined;
  readonly keys?: string | undefined;
  readonly sandboxes?: number | undefined;
  readonly level?: 'docker' | 'gvisor' | 'microvm' | undefined;
  readonly memory?: number | undefined;
  readonly cpus?: number | undefined;
  readonly pids?: number | undefined;
  readonly allow?: readonly string[] | undefined;
}

/** `acode fleet serve`. */
export function serve(
  call: Call,
  { e2b, image: images, memory: memoryBytes, ...options }: ServeOptions,
): Promise<number> {
  if (!e2b)
    throw new UsageError(
      '`acode fleet serve` does not know which interface to serve.',
      'There is one: `acode fleet serve --e2b --image node:20-alpine`.',
    );
  const { tlsCert, tlsKey, keys, port, host, sandboxes, level, cpus, pids, allow } = options;
  const absolute: Record<string, unknown> = Object.fromEntries(
    Object.entries({ tlsCert, tlsKey, keys }).map(([key, path]) => [key, path && resolve(call.io.cwd(), path)]),
  );
  const { socket } = call.options;
  const limits = { sandboxes, level, memoryBytes, cpus, pids, allow };
  const request = { verb: 'serve', images, host, port, socket, ...limits, ...absolute };
  return askFleet(call, request, shown(call, serveText));
}

/** `acode fleet join`. */
export function join(call: Call, from: string, replace: boolean): Promise<number> {
  const path = from === '-' ? from : resolve(call.io.cwd(), from);
  const { socket } = call.options;
  return askFleet(call, { verb: 'join', from: path, replace, socket }, shown(call, joinText), from === '-');
}

/** Options of `acode fleet tenant`. */
export interface TenantOptions {
  readonly directory?: string | undefined;
  readonly server?: readonly string[] | undefined;
  readonly monitor?: readonly string[] | undefined;
  readonly postgres?: string | undefined;
  readonly gate?: readonly string[] | undefined;
  readonly tlsCa?: string | undefined;
  readonly name?: string | undefined;
  readonly key?: string | undefined;
  readonly quota?: number | undefined;
  readonly queue?: number | undefined;
  readonly weight?: number | undefined;
  readonly replace?: true | undefined;
}

/** `acode fleet tenant add`, `list` and `remove`. */
export function tenants(
  call: Call,
  action: 'add' | 'list' | 'remove',
  name: string | undefined,
  options: TenantOptions,
): Promise<number> {
  const { directory, server: servers, monitor: monitors, postgres, gate: gates, tlsCa, name: fleet } = options;
  const { key, quota, queue, weight, replace } = options;
  const here = call.io.cwd();
  const request = {
    verb: 'tenant',
    action,
    name,
    fleet,
    key,
    quota,
    queue,
    weight,
    replace,
    servers,
    monitors,
    postgres,
    gates,
    directory: directory && resolve(here, directory),
    caFile: tlsCa && resolve(here, tlsCa),
  };
  const texts = { add: tenantAdded, list: tenantsText, remove: tenantRemoved };
  return askFleet(call, request, shown(call, texts[action]));
}

function withFile(call: Call, file: string | undefined): { readonly file?: string } {
  return file === undefined ? {} : { file: resolve(call.io.cwd(), file) };
}

type Text = (value: unknown, look: Look) => string;

function shown(call: Call, text: Text): OnValue {
  return async (schema, value) => call.print(schema, value, look => text(value, look));
}

const nothing: Text = () => '';

const sandboxSchema = z.object({
  id: z.string(),
  worker: z.string(),
  level: z.string(),
  image: z.string(),
  since: z.string(),
  expiresAt: z.string(),
});

const sandboxesText: Text = (value, look) => {
  const { items } = z.object({ items: z.array(sandboxSchema) }).parse(value);
  if (items.length === 0) return fitted('You have no sandbox on the fleet. `acode fleet create` makes one.\n', look);
  const rows = items.map(one => [
    one.id,
    one.image,
    one.level,
    age(one.since, look.now),
    until(one.expiresAt, look.now, 'letters'),
    one.worker,
  ]);
  return table(['SANDBOX', 'IMAGE', 'LEVEL', 'CREATED', 'EXPIRES', 'WORKER'], rows, look, [
    'WORKER',
    'LEVEL',
    'IMAGE',
    'CREATED',
  ]);
};

const killed: Text = value =>
  z
    .object({ removed: z.array(z.string()) })
    .parse(value)
    .removed.map(id => `${id}\n`)
    .join('');

const submitted: Text = value => `${z.object({ id: z.string() }).parse(value).id}\n`;

const cancelled: Text = (value, look) => {
  const { id, state } = z.object({ id: z.string(), state: z.string() }).parse(value);
  const text = state === 'claimed' ? `Task ${id} runs; its worker ends it now.` : `Task ${id}: ${state}.`;
  return fitted(`${text}\n`, look);
};

const positionSchema = z.object({
  id: z.string(),
  state: z.string(),
  attempt: z.number(),
  worker: z.string().nullable(),
  at: z.string().nullable(),
});

const TASK_TITLES = ['TASK', 'STATE', 'ATTEMPT', 'WORKER', 'SINCE'];

function taskRow({ id, state, attempt, worker, at }: z.infer<typeof positionSchema>, look: Look): string[] {
  return [id, state, String(attempt), worker ?? '', at === null ? '' : age(at, look.now)];
}

const taskText: Text = (value, look) =>
  table(TASK_TITLES, [taskRow(positionSchema.parse(value), look)], look, ['WORKER']);

const fleetText: Text = (value, look) => {
  const { fleet, engine, tenant, pools, tasks } = z
    .object({
      fleet: z.string(),
      engine: z.string(),
      tenant: z.string(),
      pools: z.array(
        z.object({ pool: z.string(), hosts: z.number(), slots: z.number(), busy: z.number(), queued: z.number() }),
      ),
      tasks: z.array(positionSchema),
    })
    .parse(value);
  const rows = pools.map(one => [one.pool, String(one.hosts), `${one.busy}/${one.slots}`, String(one.queued)]);
  const way = engine === 'gate' ? 'through a gate' : `on ${engine}`;
  const head = fitted(`Fleet ${fleet} ${way}, as tenant ${tenant}.\n`, look);
  const own =
    tasks.length === 0
      ? ''
      : `\n${table(
          TASK_TITLES,
          tasks.map(one => taskRow(one, look)),
          look,
          ['WORKER'],
        )}`;
  const all = rows.length === 0 ? '' : table(['POOL', 'HOSTS', 'BUSY', 'UNFINISHED'], rows, look);
  return `${head}${all}${own}`;
};

const hostsText: Text = (value, look) => {
  const host = z.object({
    worker: z.string(),
    name: z.string(),
    pool: z.string(),
    slots: z.number(),
    level: z.string(),
    key: z.string(),
    draining: z.boolean(),
    tasks: z.array(z.object({ tenant: z.string(), id: z.string() })),
  });
  const { items } = z.object({ items: z.array(host) }).parse(value);
  if (items.length === 0) return fitted('No worker has a lease. `acode fleet join` makes a machine one.\n', look);
  const rows = items.map(one => [
    one.name,
    one.pool,
    `${one.tasks.length}/${one.slots}`,
    one.level,
    one.draining ? 'draining' : 'ready',
    one.worker,
    one.key,
  ]);
  return table(['HOST', 'POOL', 'BUSY', 'LEVEL', 'STATE', 'WORKER', 'KEY'], rows, look, ['KEY', 'WORKER']);
};

const drained: Text = (value, look) => {
  const { host, items } = z
    .object({ host: z.string(), items: z.array(z.object({ worker: z.string(), left: z.boolean() })) })
    .parse(value);
  const left = items.every(one => one.left);
  const text = left
    ? `${host} has left the fleet.`
    : `${host} takes no more tasks (${plural(items.length, 'worker')}): it leaves when those that run have ended.`;
  return fitted(`${oneLine(text)}\n`, look);
};

const doctorText: Text = (value, look) => {
  const check = z.object({ title: z.string(), status: z.string(), observed: z.string(), remedy: z.string() });
  const { checks } = z.object({ checks: z.array(check) }).parse(value);
  return checks
    .map(one => {
      const remedy = one.remedy === '' ? '' : `\n         ${oneLine(one.remedy)}`;
      return `${one.status.padEnd(7)}  ${one.title}: ${oneLine(one.observed)}${remedy}\n`;
    })
    .map(line => fitted(line, look))
    .join('');
};

const changedSchema = z.object({
  name: z.string(),
  client: z.string().default(''),
  /** Null on PostgreSQL, which has no accounts for tenants. */
  accounts: z.string().nullable(),
  certificate: z.boolean().default(false),
  worker: z.string(),
  gate: z.string().default(''),
  operator: z.string().default(''),
  isFirst: z.boolean().default(false),
});

function onServers(accounts: string | null, effect: string): string[] {
  if (accounts === null) return [];
  return [
    `On every server: copy ${accounts} beside its configuration, and run \`nats-server --signal reload\`${effect}.`,
  ];
}

const tenantAdded: Text = (value, look) => {
  const { name, client, accounts, worker, gate, operator, isFirst, certificate } = changedSchema.parse(value);
  const first =
    accounts === null
      ? [
          ...(certificate
            ? [`Once: put the certificate and the key of the gate beside ${gate}: gate.pem and gate.key.`]
            : []),
          `Once: run \`acode fleet doctor --file ${operator}\`, which creates the tables, then \`acode gate --file ${gate}\`.`,
        ]
      : [
          'Once: put `include ./accounts.conf` into the configuration of every nats-server, in place of its own users.',
          `Once: run \`acode fleet doctor --file ${operator}\`, which creates the streams, then \`acode gate --file ${gate}\`.`,
        ];
  const lines = [
    `Tenant ${name}: give it ${client}. Who has this file is the tenant.`,
    ...(isFirst ? first : []),
    ...onServers(accounts, ''),
    `On every worker: take over the sections of ${worker}, and start it again.`,
  ];
  return lines.map(line => fitted(`${line}\n`, look)).join('');
};

const tenantRemoved: Text = (value, look) => {
  const { name, accounts, worker } = changedSchema.parse(value);
  const lines = [
    `Tenant ${name} is removed: gates refuse it within a second.`,
    ...onServers(accounts, ', which disconnects it'),
    `On every worker: take over the sections of ${worker}, and start it again.`,
  ];
  return lines.map(line => fitted(`${line}\n`, look)).join('');
};

const tenantsText: Text = (value, look) => {
  const one = z.object({
    name: z.string(),
    keys: z.array(z.string()),
    weight: z.number(),
    quota: z.number().optional(),
    queue: z.number(),
  });
  const { items } = z.object({ items: z.array(one) }).parse(value);
  if (items.length === 0) return fitted('There is no tenant. `acode fleet tenant add <name>` adds one.\n', look);
  const rows = items.map(({ name, weight, quota, queue, keys }) => [
    name,
    String(weight),
    quota === undefined ? 'none' : String(quota),
    String(queue),
    keys.join(' '),
  ]);
  return table(['TENANT', 'WEIGHT', 'QUOTA', 'QUEUE', 'KEY'], rows, look, ['KEY']);
};

const upText: Text = (value, look) => {
  const {
    server,
    worker,
    join: file,
  } = z
    .object({
      server: z.string(),
      join: z.string().nullable(),
      worker: z.object({ name: z.string(), slots: z.number(), images: z.array(z.string()) }),
    })
    .parse(value);
  const lines = [
    `The fleet is up: ${server}, and a worker with ${plural(worker.slots, 'slot')} for ${worker.images.join(', ')}.`,
    'Try it in another terminal: `acode fleet run -- echo hi`. A signal (Ctrl-C) ends it.',
    file === null
      ? 'Only this machine reaches it; --listen with a certificate lets others join.'
      : `For another host: copy ${file} there, and run \`acode fleet join join.yml\`.`,
  ];
  return lines.map(line => fitted(`${line}\n`, look)).join('');
};

const serveText: Text = (value, look) => {
  const {
    url,
    keyFile,
    tenants: count,
    templates,
  } = z
    .object({ url: z.string(), keyFile: z.string(), tenants: z.number(), templates: z.record(z.string(), z.string()) })
    .parse(value);
  const key = count === 1 && keyFile.endsWith('api-key') ? `$(cat '${keyFile}')` : `a key of ${keyFile}`;
  const names = Object.keys(templates).join(', ');
  const first = `Programs of E2B have sandboxes here (${plural(count, 'tenant')}; templates: ${names}). Set for them:`;
  // To be pasted: these are not folded.
  const variables = [`E2B_API_URL=${url}`, `E2B_SANDBOX_URL=${url}`, `E2B_API_KEY=${key}`].map(oneLine);
  const last = 'A signal (Ctrl-C) ends the server and its sandboxes.';
  return `${fitted(`${oneLine(first)}\n`, look)}${variables.map(line => `  ${line}\n`).join('')}${fitted(`${last}\n`, look)}`;
};

const joinText: Text = (value, look) => {
  const { worker } = z
    .object({ worker: z.object({ name: z.string(), pool: z.string(), slots: z.number(), key: z.string() }) })
    .parse(value);
  const { name, pool, slots, key } = worker;
  return fitted(`${name} works for the pool ${pool} with ${plural(slots, 'slot')}; its key is ${key}.\n`, look);
};
