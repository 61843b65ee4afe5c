// Files in and out of a container, as tar streams.
import type { Readable } from 'node:stream';
import { type CallOptions, type EngineConnection, termsOf } from './connection.ts';
import { isNotFound } from './error.ts';
import { PATH_STAT, type PathKind, pathKind } from './path-kind.ts';
import { path } from './path.ts';

const defaultDeadlineMs = 30_000;
const uploadDeadlineMs = 300_000;
const silenceMs = 60_000;

/** Tar streams from and to containers. */
export class Archive {
  readonly #connection: EngineConnection;

  constructor(connection: EngineConnection) {
    this.#connection = connection;
  }

  /**
   * What is at a path, as tar. The engine sends no faster than it is read. The bytes were made by whoever
   * wrote in the container: extract them with a policy.
   */
  async get(containerId: string, containerPath: string, options: CallOptions): Promise<Readable> {
    const { body } = await this.#connection.stream({
      method: 'GET',
      path: path`/containers/${containerId}/archive`,
      query: { path: containerPath },
      idleMs: silenceMs,
      ...termsOf(options, defaultDeadlineMs),
    });
    return body;
  }

  /** Whether there is anything at a path; works before the container was ever started. */
  async exists(containerId: string, containerPath: string, options: CallOptions): Promise<boolean> {
    try {
      await this.#connection.empty({
        method: 'HEAD',
        path: path`/containers/${containerId}/archive`,
        query: { path: containerPath },
        ...termsOf(options, defaultDeadlineMs),
      });
      return true;
    } catch (error) {
      if (isNotFound(error)) return false;
      throw error;
    }
  }

  /** What is at a path, where a link at its end is not followed; works before the container was ever started. */
  async kindAt(containerId: string, containerPath: string, options: CallOptions): Promise<PathKind> {
    const { status, headers, body } = await this.#connection.stream({
      method: 'HEAD',
      path: path`/containers/${containerId}/archive`,
      query: { path: containerPath },
      expect: [200, 404],
      ...termsOf(options, defaultDeadlineMs),
    });
    body.destroy();
    return pathKind(status, headers[PATH_STAT]);
  }

  /** Unpacks a tar into a directory that exists. A stream is always used up or destroyed. */
  async put(
    containerId: string,
    containerPath: string,
    tar: Readable | Uint8Array,
    options: CallOptions,
  ): Promise<void> {
    return this.#connection.empty({
      method: 'PUT',
      path: path`/containers/${containerId}/archive`,
      // A tar never turns a directory of the container into a file, or a file into a directory.
      query: { path: containerPath, noOverwriteDirNonDir: true },
      body: tar,
      ...termsOf(options, uploadDeadlineMs),
    });
  }
}
