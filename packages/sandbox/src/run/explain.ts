// Explanation of a command: how it would run, and who set what. Runs nothing.

import { availableParallelism, totalmem } from 'node:os';
import type { Command, RunRequest } from '../contract/command.ts';
import type { Explanation } from '../contract/host.ts';
import { isAtLeast, usesEngine } from '../contract/levels.ts';
import type { EffectivePolicy } from '../contract/policy.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import { environmentBesides } from '../policy/environment.ts';
import { resolveRules } from '../policy/resolve.ts';
import { nearestReal } from '../workspace/locate.ts';
import { credentialEnvironment } from './credentials/environment.ts';
import type { Host } from './host.ts';
import { plan } from './planning.ts';
import { layersFor, workspaceOf } from './repository.ts';
import { checkRequest } from './run.ts';
import { warmthOf } from './warm.ts';

/** Explains how a command would run. */
export async function explain(
  host: Host,
  command: Command,
  request: RunRequest,
  signal: AbortSignal,
): Promise<Explanation> {
  checkRequest(command, request);
  const of = { correlationId: '', preview: true };
  const planned = await plan(host, { command, request }, of, signal);
  const { policy, spec, notes, asides = [], backend } = planned;
  const { warm, cause: warmCause, why: warmReason } = warmthOf(host, planned, request);
  const layers = await layersFor(host, nearestReal(await workspaceOf(host)));
  return {
    command,
    policy,
    rules: resolveRules(layers, { cpus: availableParallelism(), memoryBytes: totalmem() }),
    level: spec.level,
    spec,
    environment: environmentOf(spec, request),
    masked: planned.masked,
    engineRequest: backend.describe(spec),
    warm,
    warmReason,
    ...(warmCause === undefined ? {} : { warmCause }),
    notes: [...new Set([...notes, ...asides, ...backend.notes, ...notesOn(policy, spec)])],
  };
}

function environmentOf(spec: SandboxSpec, { env = {}, envDefaults }: RunRequest): Explanation['environment'] {
  const defaults = { ...environmentBesides(spec, envDefaults), ...credentialEnvironment(spec) };
  return Object.fromEntries(Object.entries(defaults).filter(([name]) => !Object.hasOwn(env, name)));
}

const COMPARED =
  'Before the command is handed over, engine and kernel are compared with this plan; any difference removes the sandbox.';
const OWN_KERNEL =
  'The runtime has a kernel of its own: it does not apply the system call filter, and is proven to be what its name says before the first sandbox of it is used.';
const NOT_SEEN =
  'Where the kernel’s view cannot be read (an engine in a virtual machine), the engine’s account alone is compared.';

function upstreamNote(url: string): string {
  return `Connections of the allow-list leave this host through ${url}, which resolves their names. acode checks names, TLS server names and requests as always, but cannot promise that a listed name has no private address there. Names of private_hosts and services of this host go past it.`;
}

function notesOn(policy: EffectivePolicy, spec: SandboxSpec): string[] {
  const { removed } = spec.image;
  return [
    ...policy.warnings,
    ...(spec.network.kind === 'allow' && policy.upstreamProxy.value !== null
      ? [upstreamNote(policy.upstreamProxy.value)]
      : []),
    ...(usesEngine(spec.level) ? [`The image is ${spec.image.reference} because ${policy.imageReason}.`] : []),
    ...(removed.length > 0 ? [`Removed from the image’s environment: ${removed.join(', ')}.`] : []),
    ...(usesEngine(spec.level) ? [COMPARED] : []),
    ...(isAtLeast(spec.level, 'gvisor') ? [OWN_KERNEL] : []),
    ...(usesEngine(spec.level) ? [NOT_SEEN] : []),
  ];
}
