// Converts the engine’s descriptions of containers and of itself into acode’s types.

import * as z from 'zod';
import type { SandboxDetails, SandboxInfo, SandboxState, Status } from '../../contract/host.ts';
import { LEVELS } from '../../contract/levels.ts';
import { LEVEL, MANAGED, SANDBOX, SESSION, TASK, givenNameIn, serviceIn } from '../../lifecycle/labels.ts';
import { WORKSPACE_TARGET } from '../plan.ts';
import type { Diagnosis } from '../backend.ts';
import type { ContainerDetails, ContainerSummary } from './engine/containers.ts';
import type { Engine, EngineInfo } from './engine/index.ts';
import { isNotFound } from './engine/protocol.ts';
import { engineFailure } from './failure.ts';
import { unprotectingIn } from './runtime.ts';

const STATES: readonly SandboxState[] = ['created', 'running', 'paused', 'restarting', 'removing', 'exited', 'dead'];

/** A sandbox, from its entry in the engine’s container list. */
export function sandboxInfo(container: ContainerSummary): SandboxInfo {
  return {
    containerId: container.id,
    name: container.names[0] ?? '',
    image: container.image,
    state: stateOf(container.state),
    createdAt: new Date(container.created * 1000).toISOString(),
    ...workspaceOf(container.sourceAt[WORKSPACE_TARGET]),
    ...labelled(container.labels),
  };
}

/** The details of a container, from the engine. The environment is omitted, since no caller needs it. */
export function sandboxDetails(details: ContainerDetails): SandboxDetails {
  const { HostConfig: host } = details;
  return {
    containerId: details.Id,
    name: details.Name.replace(/^\//, ''),
    image: details.Config.Image,
    imageId: details.Image,
    state: stateOf(details.State.Status),
    createdAt: details.Created,
    startedAt: details.State.StartedAt,
    user: details.Config.User ?? '',
    limits: {
      memoryBytes: Number(host['Memory'] ?? 0),
      cpus: Number(host['NanoCpus'] ?? 0) / 1e9,
      pids: Number(host['PidsLimit'] ?? 0),
    },
    network: typeof host['NetworkMode'] === 'string' ? host['NetworkMode'] : '',
    mounts: details.Mounts.map(mount => ({
      source: mount.Source ?? '',
      target: mount.Destination,
      readOnly: !mount.RW,
    })),
    ...workspaceOf(details.Mounts.find(({ Destination }) => Destination === details.Config.WorkingDir)?.Source),
    ...labelled(details.Config.Labels ?? {}),
  };
}

/** The engine’s section of `status`. */
export function engineStatus(engine: Engine, source: string, info: EngineInfo): NonNullable<Status['engine']> {
  return {
    socket: engine.connection.socketPath,
    source,
    version: info.ServerVersion,
    apiVersion: engine.connection.apiVersion,
    operatingSystem: info.OperatingSystem,
    cpus: info.NCPU,
    memoryBytes: info.MemTotal,
    runtimes: Object.keys(info.Runtimes ?? {}).sort(),
    defaultRuntime: info.DefaultRuntime ?? '',
    cgroupVersion: info.CgroupVersion ?? '',
    securityOptions: info.SecurityOptions ?? [],
  };
}

function workspaceOf(source: string | undefined): Pick<SandboxInfo, 'workspace'> {
  return source === undefined || source === '' ? {} : { workspace: source };
}

function stateOf(state: string): SandboxState {
  return STATES.find(known => known === state) ?? 'unknown';
}

function labelled(
  labels: Readonly<Record<string, string>>,
): Pick<SandboxInfo, 'sandboxId' | 'givenName' | 'service' | 'sessionId' | 'taskId' | 'level' | 'labels'> {
  const givenName = givenNameIn(labels);
  const service = serviceIn(labels);
  return {
    ...(givenName === null ? {} : { givenName }),
    ...(service === null ? {} : { service }),
    sandboxId: labels[SANDBOX] ?? '',
    sessionId: labels[SESSION] ?? '',
    taskId: labels[TASK] ?? '',
    level: LEVELS.find(level => level === labels[LEVEL]) ?? 'docker',
    labels,
  };
}

// Diagnosis of the engine for the doctor: the engine, its host, and acode’s resources on it, in one query.

const CALL_MS = 1500;

// Field names of the engine’s API. If a field is missing (as on Podman), the feature is unknown rather than absent.
const flags = z.looseObject({
  DockerRootDir: z.string().optional(),
  MemoryLimit: z.boolean().optional(),
  SwapLimit: z.boolean().optional(),
  PidsLimit: z.boolean().optional(),
  CpuCfsQuota: z.boolean().optional(),
  CPUCfsQuota: z.boolean().optional(),
  SystemTime: z.string().optional(),
  Warnings: z.array(z.string()).nullish(),
});

/** Queries everything that the doctor checks on the engine. */
export async function diagnoseEngine(
  engine: Engine,
  source: string,
  image: string,
  signal: AbortSignal,
): Promise<Diagnosis> {
  const call = { signal, deadlineMs: CALL_MS };
  const ours = { labels: [`${MANAGED}=true`], ...call };
  try {
    const [info, version, containers, networks, imagePresent] = await Promise.all([
      engine.system.info(call),
      engine.system.version(call),
      engine.containers.list({ ...ours, all: true }),
      engine.networks.list(ours),
      hasImage(engine, image, call),
    ]);
    return {
      engine: engineStatus(engine, source, info),
      unprotecting: unprotectingIn(info),
      kernel: info.KernelVersion,
      architecture: info.Architecture,
      components: (version.Components ?? []).map(({ Name, Version }) => ({ name: Name, version: Version })),
      ...factsIn(info),
      sandboxes: containers.map(sandboxInfo),
      networks: networks.map(({ Name, Labels }) => ({ name: Name, labels: Labels ?? {} })),
      imagePresent,
    };
  } catch (error) {
    throw engineFailure(error, signal);
  }
}

/** Where an engine keeps its images and containers, if it says so. */
export function rootDirectoryIn(info: EngineInfo): { rootDirectory?: string } {
  const { DockerRootDir } = flags.parse(info);
  return DockerRootDir === undefined ? {} : { rootDirectory: DockerRootDir };
}

function factsIn(info: EngineInfo): Pick<Diagnosis, 'rootDirectory' | 'limits' | 'systemTime' | 'warnings'> {
  const said = flags.parse(info);
  return {
    rootDirectory: said.DockerRootDir ?? '',
    limits: {
      memory: said.MemoryLimit ?? true,
      swap: said.SwapLimit ?? true,
      pids: said.PidsLimit ?? true,
      cpu: said.CpuCfsQuota ?? said.CPUCfsQuota ?? true,
    },
    systemTime: said.SystemTime ?? '',
    warnings: said.Warnings ?? [],
  };
}

async function hasImage(
  engine: Engine,
  image: string,
  call: { readonly signal: AbortSignal; readonly deadlineMs: number },
): Promise<boolean> {
  try {
    await engine.images.inspect(image, call);
    return true;
  } catch (error) {
    if (isNotFound(error)) return false;
    throw error;
  }
}
