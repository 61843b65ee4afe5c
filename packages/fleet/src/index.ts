// The public surface of @acode/fleet and nothing else.

export { FLEET_ERRORS } from './errors.ts';
export type {
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
} from './engine/engine.ts';
export type { GateLink } from './engine/link.ts';
export { MemoryEngine } from './engine/memory.ts';
export type { MemoryEngineOptions } from './engine/memory.ts';
export type { Priority, TaskKey } from './engine/names.ts';
export { NatsEngine } from './engine/nats/engine.ts';
export type { NatsEngineOptions } from './engine/nats/engine.ts';
export type { StreamSizes } from './engine/nats/streams.ts';
export { PostgresEngine } from './engine/postgres/engine.ts';
export type { PostgresEngineOptions } from './engine/postgres/engine.ts';
export { openEngine } from './connect/open-engine.ts';
export type { EngineAddress, FleetAddress } from './connect/open-engine.ts';
export { Fleet } from './client/fleet.ts';
export type { FleetOptions, FleetRunRequest, FleetSubmitter } from './client/fleet.ts';
export { fleetFileFrom, readFleetFile } from './client/file.ts';
export type { FleetFile, FleetIdentity, FleetReach } from './client/file.ts';
export type { GateAddress } from './connect/open-gate.ts';
export { FleetSandbox } from './client/sandbox.ts';
export type { FleetFiles, FleetSandboxInfo } from './client/sandbox.ts';
export type { FleetTask, TaskEnd, TaskFailure, TaskPosition } from './client/task.ts';
export { packWorkspace } from './client/pack.ts';
export type { PackOptions } from './client/pack.ts';
export type { LogChunk } from './tasks/log-pieces.ts';
export { makeKeys } from './tasks/signature.ts';
export type { KeyPair } from './tasks/signature.ts';
export type { FleetCreateRequest, TaskPolicy, TaskRequest } from './tasks/spec.ts';
export type { FinalState, TaskStateName } from './tasks/state.ts';
export { Gate } from './gate/gate.ts';
export type { GateOptions } from './gate/gate.ts';
export { gateFileFrom, readGateFile } from './gate/file.ts';
export type { GateFile, GateTenant } from './gate/file.ts';
export { readWorkerFile, workerFileFrom } from './worker/file.ts';
export type { WorkerFile } from './worker/file.ts';
export type { LeaseTimes } from './worker/lease-keeper.ts';
export { Worker } from './worker/worker.ts';
export type { WorkerOptions } from './worker/worker.ts';
