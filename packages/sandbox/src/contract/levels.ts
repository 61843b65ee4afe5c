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

/** A level as every other file knows it. */
interface LevelFacts {
  readonly backend: BackendName;
  /** What a sandbox of it is: a container of an engine, processes in namespaces of their own, or plain processes of this host. */
  readonly kind: 'container' | 'namespaces' | 'host';
  /** The program or machine that provides it, as a status shows it. */
  readonly madeBy: string;
}

const FACTS: Readonly<Record<Level, LevelFacts>> = {
  none: { backend: 'none', kind: 'host', madeBy: 'this host' },
  ulimit: { backend: 'ulimit', kind: 'host', madeBy: 'this host' },
  bubblewrap: { backend: 'bubblewrap', kind: 'namespaces', madeBy: 'bwrap' },
  docker: { backend: 'docker', kind: 'container', madeBy: 'Docker' },
  gvisor: { backend: 'docker', kind: 'container', madeBy: 'Docker' },
  microvm: { backend: 'docker', kind: 'container', madeBy: 'Docker' },
};

/** The strongest level that needs no engine: what may stand in for one where the user allows it. */
export const WITHOUT_ENGINE: Level = 'bubblewrap';

/** What is known of a level. */
export function levelFacts(level: Level): LevelFacts {
  return FACTS[level];
}

/** What makes the sandboxes of a level. */
export function backendOf(level: Level): BackendName {
  return FACTS[level].backend;
}

/** Whether sandboxes of a level are made by an engine. */
export function usesEngine(level: Level): boolean {
  return FACTS[level].kind === 'container';
}

/** Whether anything stands between a command of a level and this host. */
export function isBoundary(level: Level): boolean {
  return FACTS[level].kind !== 'host';
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
