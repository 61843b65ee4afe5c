// Link of a client to a gate: one message, one answer. What carries it is the engine’s server, or HTTP.

/** The way to a gate of a fleet, for one tenant. */
export interface GateLink {
  /** Sends a message to a gate and returns its answer; rejects where none answers in time. A failed call may have taken effect. */
  call(message: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
  /**
   * Sends a message straight to one of the tenant’s sandboxes and returns its answer; rejects with ACODE-FLT-050 where nobody answers.
   * Absent where gates pass such messages on.
   */
  ask?(sandbox: string, message: Uint8Array, signal: AbortSignal): Promise<Uint8Array>;
  /** Disconnects. */
  close(): Promise<void>;
}

/** Answers one message of a tenant. Null: the tenant sends so much that it gets no answer. */
export type GateHandler = (tenant: string, message: Uint8Array) => Promise<Uint8Array | null>;

/** The largest message and the largest answer, in bytes. */
export const MAX_GATE_MESSAGE = 640 * 1024;
