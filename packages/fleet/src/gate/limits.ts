// Limits of what one tenant may ask of a gate: requests a second, requests at once, bytes of workspaces. Time is passed in.

/** How much a tenant may ask. */
export interface GateLimits {
  /** Requests a second. */
  readonly perSecond: number;
  /** Requests at once beyond that. */
  readonly burst: number;
  /** Requests that are answered at the same time; most wait for something to happen. */
  readonly atOnce: number;
  /** Bytes of workspaces a second. */
  readonly bytesPerSecond: number;
  /** Bytes at once beyond that. */
  readonly bytesBurst: number;
}

const MIB = 1024 ** 2;
/** The limits of every tenant. */
export const GATE_LIMITS: GateLimits = {
  perSecond: 2000,
  burst: 4000,
  atOnce: 512,
  bytesPerSecond: 4 * MIB,
  bytesBurst: 512 * MIB,
};

class Bucket {
  #left: number;
  #at: number;
  readonly #rate: number;
  readonly #most: number;

  constructor(rate: number, most: number, now: number) {
    this.#rate = rate;
    this.#most = most;
    this.#left = most;
    this.#at = now;
  }

  take(amount: number, now: number): boolean {
    this.#left = Math.min(this.#most, this.#left + ((now - this.#at) / 1000) * this.#rate);
    this.#at = now;
    if (this.#left < amount) return false;
    this.#left -= amount;
    return true;
  }
}

/** What one tenant has used of its limits. */
export class TenantUse {
  readonly #limits: GateLimits;
  readonly #requests: Bucket;
  readonly #refusals: Bucket;
  readonly #bytes: Bucket;
  #open = 0;

  constructor(limits: GateLimits, now: number) {
    this.#limits = limits;
    this.#requests = new Bucket(limits.perSecond, limits.burst, now);
    // A flood is not answered with a flood.
    this.#refusals = new Bucket(limits.perSecond / 20, limits.burst / 20, now);
    this.#bytes = new Bucket(limits.bytesPerSecond, limits.bytesBurst, now);
  }

  /** Begins a request: it is answered, refused, or left without an answer. */
  begin(now: number): 'answered' | 'refused' | 'dropped' {
    if (this.#open < this.#limits.atOnce && this.#requests.take(1, now)) {
      this.#open += 1;
      return 'answered';
    }
    return this.#refusals.take(1, now) ? 'refused' : 'dropped';
  }

  /** Ends a request that was answered. */
  end(): void {
    this.#open -= 1;
  }

  /** Whether so many bytes may be stored now. */
  mayStore(bytes: number, now: number): boolean {
    return this.#bytes.take(bytes, now);
  }
}
