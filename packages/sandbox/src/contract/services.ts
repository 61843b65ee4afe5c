// Services: sandboxes beside a command that share its loopback and end with it. As callers write them, and resolved.

/** A service as a caller writes it, where its image alone does not say enough. */
export interface ServiceInput {
  /** The image, such as `postgres:16`. It is trusted, pulled and recorded like the image of a command. */
  image: string;
  /** The TCP port that it listens on when it is ready; by default, the only one that its image exposes. */
  port?: number | undefined;
  /**
   * Variables that its image needs. Every program in the sandbox can reach the service, so its password is not a secret. acode passes
   * them with the start of the service: they are not in the engine’s description of its container.
   *
   * @example
   * const policy: PolicyInput = {
   *   services: { db: { image: 'postgres:16', user: '999:999', env: { POSTGRES_PASSWORD: 'test' } } },
   * };
   */
  env?: Record<string, string> | undefined;
  /** The arguments in place of those that its image names. The entrypoint of the image gets them. */
  command?: readonly string[] | undefined;
  /** The user inside, as `uid:gid`; by default, the one that its image names. Never root. */
  user?: `${number}:${number}` | undefined;
  /** Memory of all its processes together, in bytes; 512 MiB by default, and never more than the command has. */
  memoryBytes?: number | undefined;
  /** Directories in memory that it can write, besides `/tmp`, `/run`, its home and the volumes of its image. */
  writable?: readonly string[] | undefined;
  /** How long it may take until it listens on its port, in milliseconds; a minute by default. */
  readyMs?: number | undefined;
}

/** A service that a policy asks for. */
export interface ServiceRequest {
  /** The name that resolves to the loopback inside. */
  readonly name: string;
  /** The image, as a reference. */
  readonly image: string;
  /** The port; null for the only one that the image exposes. */
  readonly port: number | null;
  /** Variables. */
  readonly env: Readonly<Record<string, string>>;
  /** The arguments; null for those of the image. */
  readonly command: readonly string[] | null;
  /** The user inside; null for the one that the image names. */
  readonly user: {
    /** The user id. */
    readonly uid: number;
    /** The group id. */
    readonly gid: number;
  } | null;
  /** Memory, in bytes; null for the default. */
  readonly memoryBytes: number | null;
  /** Further directories in memory. */
  readonly writable: readonly string[];
  /** How long it may take to be ready, in milliseconds. */
  readonly readyMs: number;
}

/** What an image says about how its program is started. */
export interface ImageProgram {
  /** The user that it names, such as `999:999` or `postgres`; empty for root. */
  readonly user: string;
  /** What is started. */
  readonly entrypoint: readonly string[];
  /** Its arguments. */
  readonly command: readonly string[];
  /** The working directory; empty for `/`. */
  readonly workdir: string;
  /** The TCP ports that it exposes. */
  readonly ports: readonly number[];
}
