// `acode fleet …`: from options to a request of the fleet’s program, and from its result to text for a person.

import { resolve } from 'node:path';
import * as z from 'zod';
import type { Call } from '../call.ts';
import type { AskedVariables } from '../arguments/environment.ts';
import { environmentOf } from '../arguments/environment-options.ts';
import { commandIn } from '../execution/execute.ts';
import { age } from '../terminal/age.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine, plural } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';
import { askFleet } from './ask.ts';
import type { OnValue } from './ask.ts';

/** Options of a task. */
export interface TaskOptions {
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
  readonly attempts?: number | undefined;
  readonly empty?: true | undefined;
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
  const { id, pool, priority, image, level, cpus, pids, allow, attempts, files, file, empty, stdin, envFile } = options;
  const { timeout: timeoutMs, memory: memoryBytes } = options;
  const env = await environmentOf({ env: options.env, envFile }, { env: call.io.env, here });
  const request = {
    verb,
    ...withFile(call, file),
    id,
    pool,
    priority,
    image,
    level,
    cpus,
    pids,
    allow,
    attempts,
    command,
    timeoutMs,
    memoryBytes,
    env,
    workspace: empty ? null : root,
    stdin: stdin === true,
    ...(empty || inside === '.' || inside === '' ? {} : { cwd: inside }),
    ...(files === undefined ? {} : { files: resolve(here, files) }),
  };
  return askFleet(call, request, shown(call, verb === 'submit' ? submitted : nothing), stdin === true);
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

/** `acode fleet join`. */
export function join(call: Call, from: string, replace: boolean): Promise<number> {
  const path = from === '-' ? from : resolve(call.io.cwd(), from);
  const { socket } = call.options;
  return askFleet(call, { verb: 'join', from: path, replace, socket }, shown(call, joinText), from === '-');
}

function withFile(call: Call, file: string | undefined): { readonly file?: string } {
  return file === undefined ? {} : { file: resolve(call.io.cwd(), file) };
}

type Text = (value: unknown, look: Look) => string;

function shown(call: Call, text: Text): OnValue {
  return async (schema, value) => call.print(schema, value, look => text(value, look));
}

const nothing: Text = () => '';

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
  const head = fitted(`Fleet ${fleet} on ${engine}, as tenant ${tenant}.\n`, look);
  const own =
    tasks.length === 0
      ? ''
      : `\n${table(
          TASK_TITLES,
          tasks.map(one => taskRow(one, look)),
          look,
          ['WORKER'],
        )}`;
  return `${head}${table(['POOL', 'HOSTS', 'BUSY', 'UNFINISHED'], rows, look)}${own}`;
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

const joinText: Text = (value, look) => {
  const { worker } = z
    .object({ worker: z.object({ name: z.string(), pool: z.string(), slots: z.number(), key: z.string() }) })
    .parse(value);
  const { name, pool, slots, key } = worker;
  return fitted(`${name} works for the pool ${pool} with ${plural(slots, 'slot')}; its key is ${key}.\n`, look);
};
