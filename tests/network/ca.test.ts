// The CA certificates of a company: clients in a sandbox trust a server with them, and not without.

import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { Canary, UserNetwork, anyPort } from './canaries.ts';

const NAME = 'server.acode.test';
const KEY = '-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes';

// A CA, and a certificate of it for a server.
const MAKE = [
  `openssl req -x509 ${KEY} -keyout ca.key -out ca.pem -days 2 -subj "/CN=acode test CA"`,
  `openssl req ${KEY} -keyout server.key -out server.csr -subj "/CN=${NAME}"`,
  `printf 'subjectAltName=DNS:${NAME}\n' > server.ext`,
  'openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.pem',
].join(' && ');

// What a client of each kind says: that it trusts the server, or why it does not.
const inNode = (address: string, port: number) =>
  `node -e "require('https').get({ host: '${address}', port: ${port}, servername: '${NAME}' }, () => { console.log('trusted'); process.exit(); }).on('error', error => { console.log(error.code); process.exit(); })"`;
const inPython = (address: string, port: number) => `python3 -c "import socket, ssl
try:
    ssl.create_default_context().wrap_socket(socket.create_connection(('${address}', ${port})), server_hostname='${NAME}')
    print('trusted')
except ssl.SSLError as error:
    print(error.reason)"`;

describe.skipIf(withoutEngines)('a bundle of CA certificates', () => {
  it('lets clients in a sandbox trust a server that they do not trust without it', async () => {
    await using without = await TestHost.open(mainEngine, {
      config: { sandbox: { images: { default: images.debian } } },
    });
    expect(await without.acode.run(MAKE)).toMatchObject({ exitCode: 0 });
    const read = (name: string) => readFileSync(without.file(name)).toString('base64');
    const port = anyPort();
    const serve = [
      ...['server.pem', 'server.key'].map(name => `echo ${read(name)} | base64 -d > /tmp/${name}`),
      `exec openssl s_server -quiet -accept ${port} -cert /tmp/server.pem -key /tmp/server.key -www`,
    ].join('\n');
    const sign = `:${port.toString(16).toUpperCase()} `;
    await using network = await UserNetwork.create(mainEngine);
    await using server = await Canary.serve(mainEngine, network.name, serve, sign, images.debian);
    const open = (more: object) =>
      TestHost.open(mainEngine, {
        config: {
          sandbox: { images: { default: images.debian }, network: { allowed_networks: [network.name], ...more } },
        },
      });
    await using plain = await open({});
    await using host = await open({ ca_file: without.file('ca.pem') });
    const policy = { network: { name: network.name } };
    const clients = [inNode(server.address, port), inPython(server.address, port)].join('; ');
    const asked = async (of: TestHost, env: Record<string, string> = {}) =>
      (await of.acode.run(clients, { policy, env })).stdout.trim().split('\n');
    const distrusted = ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'CERTIFICATE_VERIFY_FAILED'];
    expect(await asked(host)).toEqual(['trusted', 'trusted']);
    expect(await asked(plain)).toEqual(distrusted);
    // A request’s own variables count before.
    expect(await asked(host, { NODE_EXTRA_CA_CERTS: '', SSL_CERT_FILE: '/nonexistent' })).toEqual(distrusted);
    // In a persistent sandbox, too, where it cannot be changed.
    await using sandbox = await host.acode.create({ policy });
    expect((await sandbox.commands.run(inNode(server.address, port))).stdout).toBe('trusted\n');
    const changed = await sandbox.commands.run('echo more >> /etc/acode/ca.pem; chmod 666 /etc/acode/ca.pem');
    expect(changed.exitCode).not.toBe(0);
    expect(changed.stderr).toMatch(/Read-only file system|Permission denied/);
    // Without a network there is nobody to trust, and nothing is mounted.
    expect((await host.acode.run('ls /etc/acode; echo "$SSL_CERT_FILE"')).stdout).toBe('\n');
    const { environment, spec } = await host.acode.explain('true', { policy });
    expect(environment).toMatchObject({ GIT_SSL_CAINFO: '/etc/acode/ca.pem' });
    expect(spec.mounts.find(({ purpose }) => purpose === 'ca')).toMatchObject({ readOnly: true });
    // A key never enters a sandbox, whoever named it.
    await using wrong = await open({ ca_file: without.file('ca.key') });
    await expect(wrong.acode.run('true', { policy })).rejects.toMatchObject({
      code: 'ACODE-SBX-013',
      message: expect.stringContaining('holds a private key'),
    });
  });
});
