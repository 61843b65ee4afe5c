// Project images as callers see them: what can be asked for, and what came of it.

import type { Command } from './command.ts';
import type { PolicyInput } from './policy.ts';

/** What a project image is made of. Any of them another one than before is a reason to build. */
export type ProjectInput = 'base' | 'template' | 'install' | 'ignore' | 'lockfiles' | 'context';

/** A command that installs what the project needs: in a sandbox, on a copy of the project, before the image is built. */
export interface ProjectInstall {
  /** The command, run in a sandbox on a copy of the project. */
  readonly command: Command;
  /** As for any other command, but the image is the base of the project image. */
  readonly policy?: Omit<PolicyInput, 'image' | 'workspace' | 'mounts'>;
}

/**
 * How a project image is to be built.
 *
 * @example
 * await acode.images.buildProject({ base: 'node:20-alpine', install: { command: ['npm', 'ci', '--ignore-scripts'] } });
 */
export interface BuildProjectOptions {
  /** The image it is built on; else the one that a command in this workspace gets. */
  readonly base?: string;
  /** A command that installs dependencies before the image is built; none by default. */
  readonly install?: ProjectInstall;
  /** Builds it although nothing has changed. */
  readonly force?: boolean;
  /** For everything together; ten minutes without it. */
  readonly timeoutMs?: number;
  /** The most bytes of files; 2 GiB without it. */
  readonly mostBytes?: number;
  /** The most files and directories; 200,000 without it. */
  readonly mostFiles?: number;
  /** Cancels the build. */
  readonly signal?: AbortSignal;
  /** What the engine, and the install command, print while it is built. */
  readonly onOutput?: (text: string) => void;
  /** Which step begins: the install command, or the build of the image. Neither where nothing has changed. */
  readonly onStep?: (step: 'install' | 'build') => void;
}

/** A project image. */
export interface ProjectImage {
  /** Its name on this engine, for `policy.image`. */
  readonly reference: string;
  /** The engine’s id of the image. */
  readonly id: string;
  /** Of all inputs; also a label of the image. */
  readonly checksum: string;
  /** Whether it was built now; false where nothing had changed. */
  readonly built: boolean;
  /** Which inputs have changed since it was built before; all of them for the first time. */
  readonly changed: readonly ProjectInput[];
  /** The image that it was built on. */
  readonly base: {
    /** The base as it was asked for. */
    readonly reference: string;
    /** The engine’s id of the base. */
    readonly id: string;
  };
  /** How many files and links of the project are in it; directories are not counted. */
  readonly files: number;
  /** The size of the files, in bytes. */
  readonly bytes: number;
  /** What was left out because images never hold it, such as secrets: some of them, and how many there are. */
  readonly withheld: {
    /** How many files were left out. */
    readonly count: number;
    /** Some of their paths, relative to the workspace. */
    readonly paths: readonly string[];
  };
  /** Directories of dependencies in it that `policy.deps` gives a sandbox, relative to the workspace, such as `node_modules`. */
  readonly dependencies: readonly string[];
  /** How long it took, in milliseconds. */
  readonly durationMs: number;
}
