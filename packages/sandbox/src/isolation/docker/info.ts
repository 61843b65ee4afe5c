// A container as the contract shows it.

import { LEVEL, SANDBOX, SESSION, TASK } from '../../lifecycle/labels.ts';
import { LEVELS } from '../../contract/levels.ts';
import type { SandboxDetails, SandboxInfo, SandboxState, Status } from '../../contract/host.ts';
import type { ContainerDetails, ContainerSummary } from './engine/containers.ts';
import type { Engine } from './engine/index.ts';
import type { EngineInfo } from './engine/system.ts';

const STATES: readonly SandboxState[] = ['created', 'running', 'paused', 'restarting', 'removing', 'exited', 'dead'];

/** What the engine’s list says about one of our containers. */
export function sandboxInfo(container: ContainerSummary): SandboxInfo {
  return {
    containerId: container.id,
    name: container.names[0] ?? '',
    image: container.image,
    state: stateOf(container.state),
    createdAt: new Date(container.created * 1000).toISOString(),
    ...labelled(container.labels),
  };
}

/** What the engine says about one container when asked closely. Its environment is left out: nobody needs it. */
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
    ...labelled(details.Config.Labels ?? {}),
  };
}

/** The engine as `status` shows it. */
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

function stateOf(state: string): SandboxState {
  return STATES.find(known => known === state) ?? 'unknown';
}

function labelled(
  labels: Readonly<Record<string, string>>,
): Pick<SandboxInfo, 'sandboxId' | 'sessionId' | 'taskId' | 'level' | 'labels'> {
  return {
    sandboxId: labels[SANDBOX] ?? '',
    sessionId: labels[SESSION] ?? '',
    taskId: labels[TASK] ?? '',
    level: LEVELS.find(level => level === labels[LEVEL]) ?? 'docker',
    labels,
  };
}
