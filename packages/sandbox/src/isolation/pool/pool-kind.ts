// One kind of sandboxes that wait: what they are made from, which there are, and what is known for deciding how many there should be.

import type { RestPeriod } from '../../contract/scan.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { isSameFile } from '../../workspace/file-identity.ts';
import type { WaitingSandbox } from '../backend.ts';
import { exposedTo, reachOf } from '../kernel.ts';
import type { KindState } from './pool-size.ts';

// What a sandbox takes to be made before one was.
const FIRST_LEAD_MS = 300;

/** What sandboxes of one kind are made from. Two templates with the same key make sandboxes that are interchangeable. */
export interface SandboxTemplate {
  readonly key: string;
  /** The plan; its identity is that of the run it was planned for, and is replaced. */
  readonly spec: SandboxSpec;
  readonly profile: string;
}

/** A sandbox that was made, verified, and has run nothing. */
export interface PreparedSandbox {
  readonly sandbox: WaitingSandbox;
  /** Its plan, with its own identity. */
  readonly spec: SandboxSpec;
  /** When nothing of it existed yet, by the clock of the kernel. */
  readonly sinceMs: number;
  /** When it waited and nothing of it ran; absent where that is not known, or it still waits. */
  readonly rest?: RestPeriod;
  /** Hash of the request it was made by, for the record of its command. */
  readonly requestHash: string;
}

/** One that waits. */
export interface Waiting extends PreparedSandbox {
  /** Since when, in milliseconds of the clock that never jumps. */
  readonly since: number;
  /** Gives up what it waits for of its engine. */
  readonly stop: AbortController;
}

/** All that is known of one kind. */
export interface Kind {
  template: SandboxTemplate;
  readonly waiting: Map<string, Waiting>;
  making: number;
  requests: number[];
  lastAsked: number;
  leadMs: number;
  failures: number;
  failedAt: number;
  /** Why the last one could not be made; null once one was. */
  failure: unknown;
  unfit: boolean;
  /** How many callers have a sandbox made beside which none of these may be. */
  held: number;
  readonly underWay: Set<Promise<void>>;
}

/** A kind of which nothing is known yet. */
export function kindOf(template: SandboxTemplate, lastAsked: number): Kind {
  return {
    template,
    waiting: new Map(),
    making: 0,
    requests: [],
    lastAsked,
    leadMs: FIRST_LEAD_MS,
    failures: 0,
    failedAt: 0,
    failure: null,
    unfit: false,
    held: 0,
    underWay: new Set(),
  };
}

/** What a decision needs to know of a kind; of one that is `crowded` none may be made now. */
export function stateOf(kind: Kind, crowded: boolean): KindState {
  return {
    ...kind,
    key: kind.template.key,
    memoryBytes: kind.template.spec.limits.memoryBytes,
    waiting: [...kind.waiting].map(([id, { since }]) => ({ id, since })),
    unfit: kind.unfit || kind.held > 0 || crowded,
  };
}

/** Removes one that has run nothing. */
export async function dispose({ sandbox, stop }: Waiting): Promise<void> {
  try {
    await sandbox[Symbol.asyncDispose]();
  } finally {
    // What it still waits for of the engine, such as its exit.
    stop.abort();
  }
}

/** The one that waits for the shortest time: the others may go meanwhile, where there are too many. */
export function newest({ waiting }: Kind): Waiting | undefined {
  return [...waiting.values()].at(-1);
}

/** Whether a sandbox of a kind could exchange what one of this plan has mounted. */
export function isExposed(spec: SandboxSpec, { template }: Kind): boolean {
  return exposedTo([reachOf(template.spec)], spec).length > 0;
}

/**
 * Whether an old plan cannot come again, now that there is this one: the same image by name and another by content, or the
 * same directory by path and another by identity.
 */
export function isOvertaken(old: SandboxSpec, now: SandboxSpec): boolean {
  const moved = old.image.reference === now.image.reference && old.image.id !== now.image.id;
  const swapped = old.mounts.some(({ source, identity }) => {
    const same = now.mounts.find(other => other.source === source);
    return same && !isSameFile(same.identity, identity);
  });
  return moved || swapped;
}
