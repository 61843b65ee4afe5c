// The caches of package managers: what there are, and how a sandbox may have one.

/** The tools whose caches outlive a sandbox. */
export const CACHE_TOOLS = ['npm', 'yarn', 'pnpm', 'pip', 'nuget', 'cargo', 'go'] as const;

/** A tool with a cache. */
export type CacheTool = (typeof CACHE_TOOLS)[number];

/** A cache by the name of the volume that holds it. */
export interface CacheVolume {
  /** The package manager. */
  readonly tool: CacheTool;
  /** The name of the volume on the engine. */
  readonly volume: string;
}

/** The caches that a sandbox is to have. */
export interface CachePolicy {
  /** One volume for each tool. */
  readonly volumes: readonly CacheVolume[];
  /**
   * Whether its changes persist for every later sandbox of this user. Otherwise each sandbox writes to a layer of its own over
   * the cache, removed with the sandbox, so that no task can put anything into the cache of another.
   */
  readonly fill: boolean;
}

/** A cache in the plan of a sandbox. */
export interface CacheSpec extends CacheVolume {
  /** Where it is mounted. */
  readonly target: string;
  /** Whether what the sandbox writes is kept for later sandboxes. */
  readonly fill: boolean;
  /** The variables that lead the tool there. */
  readonly environment: Readonly<Record<string, string>>;
}
