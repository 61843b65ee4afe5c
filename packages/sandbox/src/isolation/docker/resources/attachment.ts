// Attachments: what a sandbox is given besides its container, such as a network or caches. Each is acquired before the container
// is made, verified with it, and released when it is gone.

import type { SandboxSpec } from '../../../contract/spec.ts';
import type { KernelView } from '../../kernel.ts';
import type { Difference } from '../../mount-differences.ts';
import type { ContainerDetails } from '../engine/containers.ts';
import type { EngineFacts } from '../request.ts';
import type { Left } from './owned.ts';

/** What engine and kernel show of a container; `view` is null where the kernel shows nothing of it. */
export interface Seen {
  readonly details: ContainerDetails;
  readonly view: KernelView | null;
}

/** One thing that sandboxes are given. */
export interface Attachment {
  /** Finds or makes it for a plan; what the request for the container must know of it. */
  acquire(spec: SandboxSpec, signal: AbortSignal): Promise<Partial<EngineFacts>>;
  /** The container is made and not started: what can be done only then. */
  created?(spec: SandboxSpec, containerId: string, signal: AbortSignal): Promise<void>;
  /** What of it is not as planned. Pure. */
  verify(spec: SandboxSpec, facts: EngineFacts, seen: Seen): readonly Difference[];
  /** The sandbox is gone, or was never made. May be called more than once. */
  release(spec: SandboxSpec): void;
  /** Removes everything that was made, when no container is left; what could not be removed comes back. */
  close(): Promise<readonly Left[]>;
}

/** Facts about a container that is to be verified, with what verifies its attachments. */
export interface AttachedFacts extends EngineFacts {
  readonly attachments: Pick<Attachments, 'verify' | 'release'>;
}

/** All attachments of a backend: acquired in order, and each released whatever becomes of the others. */
export class Attachments {
  readonly #all: readonly Attachment[];

  constructor(all: readonly Attachment[]) {
    this.#all = all;
  }

  /** What the request must know of all of them. Where one fails, none is left. */
  async acquire(spec: SandboxSpec, signal: AbortSignal): Promise<Partial<EngineFacts>> {
    let facts: Partial<EngineFacts> = {};
    try {
      for (const one of this.#all) facts = { ...facts, ...(await one.acquire(spec, signal)) };
      return facts;
    } catch (error) {
      this.release(spec);
      throw error;
    }
  }

  async created(spec: SandboxSpec, containerId: string, signal: AbortSignal): Promise<void> {
    for (const one of this.#all) await one.created?.(spec, containerId, signal);
  }

  verify(spec: SandboxSpec, facts: EngineFacts, seen: Seen): Difference[] {
    return this.#all.flatMap(one => one.verify(spec, facts, seen));
  }

  release(spec: SandboxSpec): void {
    for (const one of this.#all) one.release(spec);
  }

  async close(): Promise<Left[]> {
    const left: Left[] = [];
    for (const one of this.#all) left.push(...(await one.close()));
    return left;
  }
}
