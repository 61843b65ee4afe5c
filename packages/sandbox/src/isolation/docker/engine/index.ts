// The engine client as one object: a connection and the narrow clients on it.
import { Archive } from './archive.ts';
import { type ConnectionOptions, EngineConnection } from './connection.ts';
import { Containers } from './containers.ts';
import { Events } from './events.ts';
import { Exec } from './exec.ts';
import { Images } from './images.ts';
import { Networks } from './networks.ts';
import { System } from './system.ts';
import { Volumes } from './volumes.ts';

/**
 * One engine.
 *
 * @example
 * using engine = await Engine.open({ socketPath: '/var/run/docker.sock', signal });
 * const { id } = await engine.containers.create({ Image: imageId, Cmd: ['true'] }, { signal });
 */
export class Engine implements Disposable {
  readonly connection: EngineConnection;
  readonly containers: Containers;
  readonly images: Images;
  readonly networks: Networks;
  readonly volumes: Volumes;
  readonly exec: Exec;
  readonly archive: Archive;
  readonly events: Events;
  readonly system: System;

  private constructor(connection: EngineConnection) {
    this.connection = connection;
    this.containers = new Containers(connection);
    this.images = new Images(connection);
    this.networks = new Networks(connection);
    this.volumes = new Volumes(connection);
    this.exec = new Exec(connection);
    this.archive = new Archive(connection);
    this.events = new Events(connection);
    this.system = new System(connection);
  }

  /** Contacts the engine and agrees on a version. */
  static async open(options: ConnectionOptions): Promise<Engine> {
    return new Engine(await EngineConnection.open(options));
  }

  /** Gives up everything that is still under way. */
  close(): void {
    this.connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
