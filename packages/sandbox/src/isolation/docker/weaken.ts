// Removes one protection from a finished request, so that a probe can show that it succeeds without it.
//
// Only the doctor’s controls use this. No policy, request or configuration can name a weakening, and no weakening makes a
// container privileged, root, or part of the host’s own namespaces.

import { randomBytes } from 'node:crypto';
import type { SandboxSpec } from '../../contract/spec.ts';
import { systemClock } from '../../lifecycle/clock.ts';
import type { CommandIo, Execution, WaitingSandbox, Weakening } from '../backend.ts';
import type { Handover } from '../handover/script.ts';
import type { RequestBuilder } from './resources/creation.ts';
import type { Engine } from './engine/index.ts';
import { removeNetwork } from './resources/networks.ts';
import { ownership } from '../../lifecycle/labels.ts';

type Fields = Record<string, unknown>;
type Edit = (request: Fields, host: Fields, spec: SandboxSpec) => void;

const CALL_MS = 10_000;
const MEBIBYTE = 1024 ** 2;

// Raised limits remain finite: a control must not harm the machine it runs on.
const EDITS: Readonly<Record<Exclude<Weakening, 'network' | 'verification'>, Edit>> = {
  seccomp: (_, host) => {
    host['SecurityOpt'] = [...options(host).filter(option => !option.startsWith('seccomp=')), 'seccomp=unconfined'];
  },
  'no-new-privileges': (_, host) => {
    host['SecurityOpt'] = options(host).filter(option => !option.startsWith('no-new-privileges'));
  },
  'read-only-root': (_, host) => {
    host['ReadonlyRootfs'] = false;
  },
  'protected-paths': (_, host, spec) => uncover(host, spec, 'protected'),
  masks: (_, host, spec) => uncover(host, spec, 'masked'),
  pids: (_, host) => {
    host['PidsLimit'] = 512;
  },
  memory: (_, host) => {
    host['Memory'] = 512 * MEBIBYTE;
    host['MemorySwap'] = 512 * MEBIBYTE;
  },
  'tmpfs-size': (_, host) => {
    const sized = Object.entries(host['Tmpfs'] ?? {}).map(([target, text]) => [
      target,
      String(text).replace(/size=\d+,nr_inodes=\d+/, `size=${64 * MEBIBYTE},nr_inodes=65536`),
    ]);
    host['Tmpfs'] = Object.fromEntries(sized);
    host['ShmSize'] = 160 * MEBIBYTE;
  },
  'open-files': (_, host) => {
    const isOpenFiles = (limit: unknown): boolean =>
      typeof limit === 'object' && limit !== null && 'Name' in limit && limit.Name === 'nofile';
    const others = list(host['Ulimits']).filter(limit => !isOpenFiles(limit));
    host['Ulimits'] = [...others, { Name: 'nofile', Soft: 1024, Hard: 1024 }];
  },
  environment: request => {
    request['Env'] = [...list(request['Env']), 'ACODE_DOCTOR_LEAK=1', 'HTTP_PROXY=http://user:secret@proxy.invalid:1'];
  },
};

/** The protections that the sandboxes of one backend lack. */
export class Weakness implements AsyncDisposable {
  readonly #engine: Engine;
  readonly #weakenings: readonly Weakening[];
  readonly #beforeCreate: () => Promise<void>;
  #network: Promise<string> | null = null;

  constructor(engine: Engine, weakenings: readonly Weakening[], beforeCreate = async (): Promise<void> => {}) {
    this.#engine = engine;
    this.#beforeCreate = beforeCreate;
    this.#weakenings = weakenings;
  }

  /** Whether sandboxes are still verified against their plan. */
  get verified(): boolean {
    return !this.#weakenings.includes('verification');
  }

  /** Wraps a request builder so that its requests lack the protections. */
  async apply(build: RequestBuilder, spec: SandboxSpec): Promise<RequestBuilder> {
    const network = this.#weakenings.includes('network') ? await (this.#network ??= this.#makeNetwork(spec)) : null;
    await this.#beforeCreate();
    return own => {
      const request = build(own);
      const host = record(request['HostConfig']);
      for (const weakening of this.#weakenings)
        if (weakening !== 'network' && weakening !== 'verification') EDITS[weakening](request, host, own);
      if (network !== null) host['NetworkMode'] = network;
      return { ...request, HostConfig: host };
    };
  }

  /** Removes the network, if one was created. The sandboxes must be removed first. */
  async [Symbol.asyncDispose](): Promise<void> {
    const id = await this.#network?.catch(() => null);
    this.#network = null;
    if (!id) return;
    // If the removal fails, cleanup finds the network by its labels.
    await removeNetwork(this.#engine, id, systemClock);
  }

  // An internal network: a control can reach only its own sandboxes and this machine.
  #makeNetwork(spec: SandboxSpec): Promise<string> {
    const body = {
      Name: `acode-doctor-${randomBytes(6).toString('hex')}`,
      CheckDuplicate: true,
      Driver: 'bridge',
      Internal: true,
      Attachable: false,
      EnableIPv6: false,
      Labels: ownership(spec),
    };
    return this.#engine.networks.create(body, { signal: AbortSignal.timeout(CALL_MS), deadlineMs: CALL_MS });
  }
}

/** A sandbox that receives its command without verification. */
export class UnverifiedSandbox implements WaitingSandbox {
  readonly #sandbox: WaitingSandbox;

  constructor(sandbox: WaitingSandbox) {
    this.#sandbox = sandbox;
  }

  get id(): string {
    return this.#sandbox.id;
  }

  get specHash(): string {
    return this.#sandbox.specHash;
  }

  get ports(): WaitingSandbox['ports'] {
    return this.#sandbox.ports;
  }

  async verify(): Promise<void> {}

  execute(handover: Handover, io: CommandIo, signal: AbortSignal): Promise<Execution> {
    return this.#sandbox.execute(handover, io, signal);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#sandbox[Symbol.asyncDispose]();
  }
}

// Takes the mounts away that lie over parts of the workspace.
function uncover(host: Fields, spec: SandboxSpec, over: 'protected' | 'masked'): void {
  const covers = new Set(spec.mounts.filter(({ purpose }) => purpose === over).map(({ target }) => target));
  const isCover = (mount: unknown): boolean =>
    typeof mount === 'object' && mount !== null && 'Target' in mount && covers.has(String(mount.Target));
  host['Mounts'] = list(host['Mounts']).filter(mount => !isCover(mount));
}

function options(host: Fields): string[] {
  return list(host['SecurityOpt']).map(String);
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? [...(value as unknown[])] : [];
}

function record(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}
