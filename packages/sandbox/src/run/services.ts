// Services of a run: the sandboxes beside a command, each planned like any other, with its image’s own user and program.

import { AcodeError } from '../contract/errors.ts';
import type { Level } from '../contract/levels.ts';
import { networkName } from '../contract/network.ts';
import type { EffectivePolicy, Limits, PolicyFields, Sourced, UserId } from '../contract/policy.ts';
import type { ImageProgram, ServiceRequest } from '../contract/services.ts';
import type { ImageFacts, SandboxIdentity, SandboxSpec, ServiceSpec } from '../contract/spec.ts';
import { formatBytes } from '../contract/units.ts';
import { text } from '../contract/wording.ts';
import type { Text } from '../contract/wording.ts';
import { planSandbox } from '../isolation/plan.ts';
import { MAX_LIST_BYTES } from '../isolation/user-entry.ts';
import type { ImageList } from '../isolation/user-entry.ts';
import { sourceOf } from '../policy/layers.ts';
import type { Layers } from '../policy/layers.ts';
import { resolveImageNaming } from '../policy/pull.ts';
import { isOrdinary } from '../policy/services.ts';
import type { Host } from './host.ts';
import { asImageReader, readUsers } from './user-files.ts';

const MEMORY_BYTES = 512 * 1024 ** 2;
// A file system in memory counts as memory of the service: what is written there and what its programs use.
const TMP_PART = 2;
const OUTPUT_BYTES = 64 * 1024;
const MAX_NAMED = 3;

/** What the services of a run are planned from. */
export interface ServicesFor {
  readonly level: Level;
  readonly policy: EffectivePolicy;
  readonly layers: Layers;
  readonly askedBy: PolicyFields['askedBy'];
  readonly correlationId: string;
  /** Whether the plan is only shown. */
  readonly preview: boolean;
  /** Whether the sandbox outlives its maker. */
  readonly outlives: boolean;
  /** Identifies a service by its name and the hash of its plan. */
  readonly identify: (service: string, specHash: string) => SandboxIdentity;
}

/** The services of a run, and what to say about them. */
interface PlannedServices {
  readonly services: readonly ServiceSpec[];
  readonly notes: readonly string[];
}

/** Plans the services that a policy names; refused where they could not be what they are meant to be. */
export async function planServices(host: Host, of: ServicesFor, signal: AbortSignal): Promise<PlannedServices> {
  const { services: asked } = of.policy;
  if (asked.value.length === 0) return { services: [], notes: [] };
  await refuseImpossible(host, of);
  const planned: ServiceSpec[] = [];
  const notes: string[] = [];
  for (const request of asked.value) {
    const { service, said } = await planService(host, { ...of, asked }, request, signal);
    const other = planned.find(({ port }) => port === service.port && port !== 0);
    if (other)
      throw invalid(
        asked,
        `.${service.name}.port`,
        `is ${service.port}, which ${other.name} has already: services share one loopback`,
        'Give one of them another port, and the settings that make it listen there.',
      );
    planned.push(service);
    notes.push(...said);
  }
  return { services: planned, notes };
}

async function refuseImpossible(host: Host, { level, policy, outlives }: ServicesFor): Promise<void> {
  const { services, network } = policy;
  const refuse = (why: Text, instead: Text): never => {
    throw new AcodeError('ACODE-SBX-016', {
      what: text`${[{ field: 'policy.services' }]} (set by ${sourceOf(services)}) ${why}`,
      instead,
    });
  };
  if (level !== 'docker')
    refuse(
      text`at level ${level}${level === 'gvisor' ? ', where each sandbox has a network stack of its own that no other joins,' : ''}`,
      text`Leave them out, or use ${{ field: 'policy.level', value: 'docker' }}.`,
    );
  const { withoutServices } = await host.engine();
  if (withoutServices !== null)
    refuse(
      `on this engine (${withoutServices}, so that acode could not verify it)`,
      'Leave them out, or use a Docker Engine.',
    );
  if (network.value.kind === 'bridge' || network.value.kind === 'named')
    refuse(
      text`on the network ${networkName(network.value)}, which a service would reach too,`,
      text`Leave ${{ field: 'policy.network' }} out, or use an allow-list.`,
    );
  if (outlives)
    refuse(
      'in a sandbox that outlives its maker, with which nothing would end them,',
      'Leave them out, or create the sandbox for as long as this process runs.',
    );
}

type Planning = ServicesFor & { readonly asked: Sourced<readonly ServiceRequest[]> };

async function planService(
  host: Host,
  of: Planning,
  request: ServiceRequest,
  signal: AbortSignal,
): Promise<{ readonly service: ServiceSpec; readonly said: readonly string[] }> {
  const { policy, asked } = of;
  const named = { value: request.image, layer: asked.layer, where: whereOf(asked, `.${request.name}`) };
  const imageNaming = resolveImageNaming(of.layers, named, of.askedBy, undefined);
  const wanted = { policy: { ...policy, image: named, imageNaming }, correlationId: of.correlationId };
  const { image: found, notes } = await host.images.forRun({ ...wanted, preview: of.preview }, signal);
  const image = { ...found, volumes: [...found.volumes, ...request.writable] };
  // An image that would be pulled says nothing yet.
  const isThere = image.id !== '';
  const program = image.program ?? NO_PROGRAM;
  const user = isThere ? await userOf(host, of, request, image, signal) : (request.user ?? policy.user.value);
  const { limits, said } = limitsOf(policy, request);
  const workdir = program.workdir.startsWith('/') ? program.workdir : '/';
  const spec = planSandbox(
    forService(policy, user, limits),
    { level: of.level, image, mounts: [], alone: { workdir } },
    specHash => of.identify(request.name, specHash),
  );
  const argv = [...program.entrypoint, ...(request.command ?? program.command)];
  if (isThere && argv.length === 0)
    throw invalid(asked, `.${request.name}.command`, `is missing, and ${request.image} names no program to start`);
  return {
    service: {
      name: request.name,
      port: isThere ? portOf(asked, request, program) : (request.port ?? 0),
      argv,
      environment: request.env,
      readyMs: request.readyMs,
      spec,
    },
    said: [...notes, ...said],
  };
}

const NO_PROGRAM: ImageProgram = { user: '', entrypoint: [], command: [], workdir: '', ports: [] };

function portOf(
  asked: Sourced<readonly ServiceRequest[]>,
  { name, image, port }: ServiceRequest,
  { ports }: ImageProgram,
): number {
  if (port !== null) return port;
  const [only, ...others] = ports;
  if (only !== undefined && others.length === 0) return only;
  throw invalid(
    asked,
    `.${name}.port`,
    `is missing, and ${image} exposes ${only === undefined ? 'no TCP port' : `several: ${ports.join(', ')}`}`,
    `Name the port: services: { ${name}: { image: '${image}', port: 5432 } }.`,
  );
}

type OwnLimits = Pick<Limits, 'memoryBytes' | 'swapBytes' | 'tmpBytes' | 'outputBytes'>;

// Nothing of the command’s own: no workspace, no mounts, no caches, no network, no ports, no fork.
/** A policy for a sandbox that runs beside another: with neither a network nor a workspace. */
export function forService(policy: EffectivePolicy, user: UserId, limits: OwnLimits): EffectivePolicy {
  const { network, ports, dns, workspace } = policy;
  const { memoryBytes, swapBytes, cpus, pids, openFiles, tmpBytes, outputBytes } = policy.limits;
  return {
    ...policy,
    user: { ...policy.user, value: user },
    network: { ...network, value: { kind: 'none' } },
    ports: { ...ports, value: [] },
    dns: { ...dns, value: [] },
    workspace: { ...workspace, value: 'readonly' },
    limits: {
      memoryBytes: { ...memoryBytes, value: limits.memoryBytes },
      swapBytes: { ...swapBytes, value: limits.swapBytes },
      cpus,
      pids,
      openFiles,
      tmpBytes: { ...tmpBytes, value: limits.tmpBytes },
      outputBytes: { ...outputBytes, value: limits.outputBytes },
    },
  };
}

function limitsOf(
  { limits }: EffectivePolicy,
  { name, memoryBytes }: Pick<ServiceRequest, 'name' | 'memoryBytes'>,
): { readonly limits: OwnLimits; readonly said: readonly string[] } {
  const most = limits.memoryBytes.value;
  const memory = Math.min(memoryBytes ?? MEMORY_BYTES, most);
  const isLowered = memoryBytes !== null && memoryBytes > most;
  return {
    limits: {
      memoryBytes: memory,
      swapBytes: 0,
      tmpBytes: Math.floor(memory / TMP_PART),
      outputBytes: OUTPUT_BYTES,
    },
    said: isLowered
      ? [
          `The memory of the service ${name} was lowered from ${formatBytes(memoryBytes)} to ${formatBytes(most)}: no service has more than its command.`,
        ]
      : [],
  };
}

// The user of a service: the one that was named, or the one of its image.

async function userOf(
  host: Host,
  of: Planning,
  request: ServiceRequest,
  image: ImageFacts,
  signal: AbortSignal,
): Promise<UserId> {
  if (request.user) return request.user;
  const named = (image.program ?? NO_PROGRAM).user;
  const [user = '', group] = named.split(':');
  const direct = userIn(NO_LISTS, user, group ?? 'none');
  if (isOrdinary(direct)) return direct;
  // A mere explanation makes no container.
  if (of.preview && !isRoot(user)) return of.policy.user.value;
  const lists = of.preview ? NO_LISTS : await readUsers(host, listing(host, of, image), signal);
  const found = userIn(lists, user, group);
  if (isOrdinary(found)) return found;
  throw noUser(of.asked, request, named, entriesOf(lists.passwd));
}

type UserLists = Readonly<Record<'passwd' | 'group', ImageList>>;

function userIn({ passwd, group: groups }: UserLists, user: string, group: string | undefined): UserId {
  const entry = entriesOf(passwd).find(one => one.name === user || one.uid === numberOf(user));
  // The third field of either list is the number.
  const named = entriesOf(groups).find(one => one.name === group);
  return {
    uid: entry?.uid ?? numberOf(user),
    gid: group === undefined ? (entry?.gid ?? numberOf(user)) : (named?.uid ?? numberOf(group)),
  };
}

function noUser(
  asked: Sourced<readonly ServiceRequest[]>,
  { name, image }: ServiceRequest,
  named: string,
  users: readonly UserEntry[],
): AcodeError {
  const who = isRoot(named.split(':')[0] ?? '')
    ? 'root'
    : `${JSON.stringify(named.slice(0, 80))}, which is not an ordinary user of its image`;
  return new AcodeError('ACODE-SBX-010', {
    violation: 'PrivilegedUser',
    detail: text`the service ${name} (set by ${sourceOf(asked)}) would run as ${who}: ${image} names no other user`,
    remedy: `Name an ordinary user: services: { ${name}: { image: '${image}', user: '${suggested(users)}' } }.${usersText(users)}`,
  });
}

const NO_LISTS: UserLists = { passwd: null, group: null };

function isRoot(user: string): boolean {
  return user === '' || user === 'root' || numberOf(user) === 0;
}

function numberOf(words: string): number {
  return /^\d{1,10}$/.test(words) ? Number(words) : NaN;
}

function listing(host: Host, planning: Planning, image: ImageFacts): SandboxSpec {
  const { level, policy } = planning;
  const { limits } = limitsOf(policy, { name: '', memoryBytes: null });
  const alone = forService(policy, policy.user.value, limits);
  return planSandbox(alone, { level, image, mounts: [], alone: { workdir: '/' } }, asImageReader(host, planning));
}

interface UserEntry {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
}

// What the image’s author wrote: names that are taken into a message are plain.
function entriesOf(list: ImageList): readonly UserEntry[] {
  if (list === null || 'unusable' in list || list.length > MAX_LIST_BYTES) return [];
  return list
    .toString('latin1')
    .split('\n')
    .map(line => line.split(':'))
    .flatMap(([name = '', , uid = '', gid = '']) =>
      /^[a-z_][a-z0-9_-]{0,31}$/i.test(name) ? [{ name, uid: numberOf(uid), gid: numberOf(gid) }] : [],
    );
}

// Images add the user of their program last.
function ownUsers(users: readonly UserEntry[]): readonly UserEntry[] {
  return users.filter(user => isOrdinary(user) && user.uid < 65_534).slice(-MAX_NAMED);
}

function suggested(users: readonly UserEntry[]): string {
  const last = ownUsers(users).at(-1);
  return last ? `${last.uid}:${last.gid}` : '1000:1000';
}

function usersText(users: readonly UserEntry[]): string {
  const own = ownUsers(users);
  if (own.length === 0) return '';
  return ` The last users of the image are ${own.map(({ name, uid, gid }) => `${name} (${uid}:${gid})`).join(', ')}.`;
}

function whereOf({ layer, where }: Sourced, field: string): string {
  return layer === 'request' ? `policy.services${field}` : where;
}

function invalid(asked: Sourced, field: string, reason: string, remedy?: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', {
    field: whereOf(asked, field),
    reason: asked.layer === 'request' ? reason : `${field.slice(1)} ${reason}`,
    ...(remedy === undefined ? {} : { remedy }),
  });
}
