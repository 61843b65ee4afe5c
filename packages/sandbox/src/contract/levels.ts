// The isolation levels, in order: the one scale that policy, backends and results share.

/** Isolation levels, weakest first. `web` stands outside the order: it needs no host. */
export const LEVELS = ['none', 'ulimit', 'bubblewrap', 'docker', 'gvisor', 'microvm'] as const;

/** How strongly a sandbox is separated from the host. */
export type Level = (typeof LEVELS)[number];

/** How dangerous the caller believes a command to be. */
export const RISKS = ['low', 'medium', 'high', 'critical'] as const;

/** One of {@link RISKS}. */
export type Risk = (typeof RISKS)[number];

/**
 * Whether `level` is at least as strong as `floor`.
 *
 * @example
 * isAtLeast('gvisor', 'docker'); // true
 */
export function isAtLeast(level: Level, floor: Level): boolean {
  return LEVELS.indexOf(level) >= LEVELS.indexOf(floor);
}
