// Services of a policy: which sandboxes a command has beside it, from the request or the configuration. Pure.

import { posix } from 'node:path';
import type { PolicyFields, Sourced, UserId } from '../contract/policy.ts';
import type { ServiceInput, ServiceRequest } from '../contract/services.ts';
import { serviceNameFault } from './config/values.ts';
import type { Config } from './config/schema.ts';
import { checkEnvironment } from './environment.ts';
import { pick } from './layers.ts';
import type { Layers } from './layers.ts';
import { invalid } from './request-policy.ts';

/** The most services of one command: each is a container. */
export const MAX_SERVICES = 8;

const READY_MS = 60_000;

type Configured = NonNullable<NonNullable<Config['sandbox']>['services']>[string];

/** The services that count: those of the request, else those of the configuration. */
export function resolveServices(request: PolicyFields, layers: Layers): Sourced<readonly ServiceRequest[]> {
  const { services } = request;
  const resolved = pick<readonly ServiceRequest[]>(layers, {
    field: 'services',
    request: services && Object.entries(services).map(([name, service]) => requested(name, asInput(service))),
    key: 'sandbox.services',
    read: sandbox =>
      sandbox.services &&
      Object.entries(sandbox.services).map(([name, service]) => requested(name, configured(service))),
    builtIn: [],
  });
  check(resolved);
  return resolved;
}

function asInput(service: string | ServiceInput): ServiceInput {
  return typeof service === 'string' ? { image: service } : service;
}

function configured(service: Configured): ServiceInput {
  if (typeof service === 'string') return { image: service };
  const { image, port, env, command, user, memory_mb, writable, ready_seconds } = service;
  return {
    image,
    port,
    env,
    command,
    user: user === undefined ? undefined : asUser(user),
    memoryBytes: memory_mb,
    writable,
    readyMs: ready_seconds === undefined ? undefined : ready_seconds * 1000,
  };
}

function asUser(user: string): `${number}:${number}` {
  const { uid, gid } = userIn(user);
  return `${uid}:${gid}`;
}

function userIn(user: string): UserId {
  const [uid = NaN, gid = NaN] = user.split(':').map(Number);
  return { uid, gid };
}

function requested(name: string, input: ServiceInput): ServiceRequest {
  return {
    name,
    image: input.image,
    port: input.port ?? null,
    env: input.env ?? {},
    command: input.command ?? null,
    user: input.user === undefined ? null : userIn(input.user),
    memoryBytes: input.memoryBytes ?? null,
    writable: input.writable ?? [],
    readyMs: input.readyMs ?? READY_MS,
  };
}

function check(services: Sourced<readonly ServiceRequest[]>): void {
  const refuse = (field: string, reason: string): never => {
    throw invalid(services.layer === 'request' ? `policy.services${field}` : services.where, reason);
  };
  if (services.value.length > MAX_SERVICES) refuse('', `names more than ${MAX_SERVICES} services`);
  for (const { name, user, writable, env } of services.value) {
    const fault = serviceNameFault(name);
    if (fault !== null) refuse('', `${JSON.stringify(name.slice(0, 80))} ${fault}`);
    if (user && !isOrdinary(user)) refuse(`.${name}.user`, 'must be uid:gid, and neither of them root');
    const wrong = writable.find(path => !isPlainPath(path));
    if (wrong !== undefined) refuse(`.${name}.writable`, `${JSON.stringify(wrong)} is not a plain absolute path`);
    checkEnvironment(env);
  }
}

/** Whether a user may be the one of a service: a number that is not root’s. */
export function isOrdinary({ uid, gid }: UserId): boolean {
  return [uid, gid].every(id => Number.isInteger(id) && id > 0 && id < 2 ** 31);
}

function isPlainPath(path: string): boolean {
  return path.startsWith('/') && path !== '/' && posix.resolve(path) === path && !/[\0,:\n]/.test(path);
}
