// The isolation levels, in order: the one scale that policy, backends and results share.

/** Isolation levels, weakest first. `web` stands outside the order: it needs no host. */
export const LEVELS = ['none', 'ulimit', 'bubblewrap', 'docker', 'gvisor', 'microvm'] as const;

/** How strongly a sandbox is separated from the host. */
export type Level = (typeof LEVELS)[number];

/** How dangerous the caller believes a command to be. */
export const RISKS = ['low', 'medium', 'high', 'critical'] as const;

/** One of {@link RISKS}. */
export type Risk = (typeof RISKS)[number];

/** What makes the sandboxes of a level. */
export type BackendName = 'docker' | 'bubblewrap' | 'ulimit' | 'none';

/** What makes the sandboxes of a level: every one from docker on is an engine’s. */
export function backendOf(level: Level): BackendName {
  return level === 'none' || level === 'ulimit' || level === 'bubblewrap' ? level : 'docker';
}

/** Whether sandboxes of a level are made by an engine. */
export function usesEngine(level: Level): boolean {
  return isAtLeast(level, 'docker');
}

/**
 * Whether `level` is at least as strong as `floor`.
 *
 * @example
 * isAtLeast('gvisor', 'docker'); // true
 */
export function isAtLeast(level: Level, floor: Level): boolean {
  return LEVELS.indexOf(level) >= LEVELS.indexOf(floor);
}
