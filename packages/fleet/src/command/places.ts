// Places of the fleet’s own files: configuration, state and sockets of this user.

import { userInfo } from 'node:os';
import { join } from 'node:path';
import { directoriesOf, homeOf } from '@acode/sandbox';

/** Where this user has what. */
export interface Places {
  /** The client’s file. */
  readonly fleetFile: string;
  /** The worker’s file. */
  readonly workerFile: string;
  /** Tenants of the fleet, for its operator. */
  readonly tenants: string;
  /** Tasks that were submitted and whose end was not read. */
  readonly outbox: string;
  /** What `acode fleet up` keeps: servers, keys, files. */
  readonly up: string;
  /** The worker’s own directory. */
  readonly workerRoot: string;
  /** Sockets of the worker. */
  readonly workerRuntime: string;
}

/** The places of this user. */
export function places(env: NodeJS.ProcessEnv = process.env): Places {
  const { config, state, runtime } = directoriesOf({ env, home: homeOf(env), uid: userInfo().uid });
  return {
    fleetFile: join(config, 'fleet.yml'),
    workerFile: join(config, 'worker.yml'),
    tenants: join(config, 'tenants'),
    outbox: join(state, 'fleet', 'outbox'),
    up: join(state, 'fleet', 'up'),
    workerRoot: join(state, '..', 'acode-worker'),
    workerRuntime: join(runtime, '..', 'acode-worker'),
  };
}
