// Servers of the test’s own, on this machine only, that write down who reached them.

import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo, Server } from 'node:net';

/** Servers on the loopback, on an abstract socket and on one with a path. */
export class Canaries implements AsyncDisposable {
  readonly tcp: number;
  readonly udp: number;
  readonly abstract: string;
  readonly path: string;
  /** How often somebody came, by server. */
  readonly reached = { tcp: 0, udp: 0, abstract: 0, path: 0 };
  readonly #close: () => void;

  private constructor(
    ports: { tcp: number; udp: number },
    names: { abstract: string; path: string },
    close: () => void,
  ) {
    this.tcp = ports.tcp;
    this.udp = ports.udp;
    this.abstract = names.abstract;
    this.path = names.path;
    this.#close = close;
  }

  static async start(): Promise<Canaries> {
    const directory = mkdtempSync('/var/tmp/acode-test-canary-');
    const names = { abstract: `acode-test-${process.pid}-${Date.now()}`, path: `${directory}/socket` };
    let made: Canaries | null = null;
    const serve = async (kind: keyof Canaries['reached'], where: object): Promise<Server> => {
      const server = createServer(socket => {
        if (made) made.reached[kind]++;
        socket.on('error', () => undefined).end('canary');
      });
      server.listen(where);
      await once(server, 'listening');
      return server;
    };
    const tcp = await serve('tcp', { host: '127.0.0.1', port: 0 });
    const abstract = await serve('abstract', { path: `\0${names.abstract}` });
    const path = await serve('path', { path: names.path });
    const udp = createSocket('udp4', () => {
      if (made) made.reached.udp++;
    });
    udp.bind(0, '127.0.0.1');
    await once(udp, 'listening');
    const close = (): void => {
      for (const server of [tcp, abstract, path]) server.close();
      udp.close();
      rmSync(directory, { recursive: true, force: true });
    };
    made = new Canaries({ tcp: (tcp.address() as AddressInfo).port, udp: udp.address().port }, names, close);
    return made;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#close();
  }
}

/** A python program (node binds an abstract name with all the room there is for it) that tries to reach the canaries named in its arguments, and prints what came of each. */
export const REACH = `
import errno, socket, sys
def attempt(family, kind, address, say=b''):
    s = socket.socket(family, kind)
    s.settimeout(3)
    try:
        s.connect(address)
        if say: s.send(say)
        return 'sent' if say else s.recv(16).decode()
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
tcp, udp, abstract, path = sys.argv[1:]
print('tcp', attempt(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', int(tcp))))
print('udp', attempt(socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', int(udp)), b'x'))
print('abstract', attempt(socket.AF_UNIX, socket.SOCK_STREAM, ('\\0' + abstract).ljust(108, '\\0')))
print('path', attempt(socket.AF_UNIX, socket.SOCK_STREAM, path))
print('outside', attempt(socket.AF_INET, socket.SOCK_STREAM, ('192.0.2.1', 80)))
`;
