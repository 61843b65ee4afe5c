// The E2B server without an engine: what it refuses before any sandbox is asked, and its wire format.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { insidePath } from './files.ts';
import { ApiKeys, keysFrom, ownKey, readKeys } from './keys.ts';
import { E2bSandboxes } from './sandboxes.ts';
import { E2bServer } from './server.ts';
import { MAX_JSON_BYTES, envelopedMessage, filesOfForm, messageOf, refusalOf } from './wire.ts';

const KEY = 'e2b_0123456789abcdef0123456789abcdef01234567';
const directory = mkdtempSync(join(tmpdir(), 'acode-e2b-'));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const noEngine = (): never => {
  throw new Error('the engine was asked');
};
const sandboxes = new E2bSandboxes({
  acode: {
    create: noEngine,
    inspect: noEngine,
    get forks() {
      return noEngine();
    },
  },
  templates: new Map([['base', 'busybox']]),
  sandboxes: 2,
  policy: {},
  onFault: (what, error) => {
    throw new Error(what, { cause: error });
  },
});
const keys = keysFrom({ tenants: { acme: { keys: [KEY] } } }, 'keys.yml');
const settings = { sandboxes, keys, host: '127.0.0.1', port: 0, tls: null, onFault: noEngine };

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: unknown;
}

describe('the E2B server', () => {
  let server: E2bServer;
  let at: URL;
  beforeAll(async () => {
    server = await E2bServer.listen(settings);
    at = new URL(server.url);
  });
  afterAll(() => server[Symbol.asyncDispose]());

  async function ask(
    method: string,
    path: string,
    { headers = {}, body }: { readonly headers?: Record<string, string>; readonly body?: Buffer | string } = {},
  ): Promise<Answer> {
    const sent = request({ host: '127.0.0.1', port: at.port, method, path, headers });
    // What is refused is not read to its end.
    sent.on('error', () => undefined);
    sent.end(body);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    let text = '';
    for await (const piece of response) text += String(piece);
    return { status: response.statusCode ?? 0, headers: response.headers, body: text === '' ? null : JSON.parse(text) };
  }
  const withKey = { 'x-api-key': KEY };

  it('answers nobody without a key of its own, and everybody with one', async () => {
    for (const headers of [{}, { 'x-api-key': '' }, { 'x-api-key': `${KEY}0` }, { authorization: `Bearer ${KEY}` }])
      for (const [method, path] of [
        ['GET', '/v2/sandboxes'],
        ['POST', '/sandboxes'],
        ['DELETE', '/sandboxes/some'],
        ['GET', '/templates'],
      ] as const) {
        const refused = await ask(method, path, { headers });
        expect(refused).toMatchObject({ status: 401, body: { code: 401, acode: { code: 'ACODE-FLT-041' } } });
        expect(JSON.stringify(refused.body)).toContain('E2B_API_KEY');
      }
    // Control.
    expect(await ask('GET', '/v2/sandboxes', { headers: withKey })).toMatchObject({ status: 200, body: [] });
  });

  it('answers only for its own host, whatever the name leads to', async () => {
    for (const host of [
      'attacker.example',
      `localhost.attacker.example:${at.port}`,
      '127.0.0.1:1',
      'localhost',
      '[::1',
    ])
      expect(await ask('GET', '/v2/sandboxes', { headers: { ...withKey, host } }), host).toMatchObject({
        status: 421,
        body: { acode: { code: 'ACODE-FLT-047' } },
      });
    for (const host of [at.host, `localhost:${at.port}`, `[::1]:${at.port}`])
      expect((await ask('GET', '/v2/sandboxes', { headers: { ...withKey, host } })).status, host).toBe(200);
  });

  it('reads no more of a body than it takes', async () => {
    const large = JSON.stringify({ templateID: 'x'.repeat(MAX_JSON_BYTES) });
    for (const [body, headers] of [
      [large, {}],
      [gzipSync(large), { 'content-encoding': 'gzip' }],
    ] as const)
      expect(await ask('POST', '/v2/sandboxes', { headers: { ...withKey, ...headers }, body })).toMatchObject({
        status: 413,
        body: { acode: { code: 'ACODE-FLT-044' } },
      });
    // One that says nothing of its length is counted.
    const socket = connect(Number(at.port), '127.0.0.1');
    socket.on('error', () => undefined);
    const head = `POST /v2/sandboxes HTTP/1.1\r\nhost: ${at.host}\r\nx-api-key: ${KEY}\r\ntransfer-encoding: chunked\r\n\r\n`;
    socket.write(head);
    const piece = `10000\r\n${'x'.repeat(0x1_0000)}\r\n`;
    for (let sent = 0; sent <= MAX_JSON_BYTES; sent += 0x1_0000) socket.write(piece);
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 413 .*^connection: close\r$/ims);
    socket.destroy();
    // Control: a body that is small enough is read, and refused for what it says.
    expect(await ask('POST', '/v2/sandboxes', { headers: withKey, body: '{"templateID":"other"}' })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('the template \\"other\\"'.replaceAll('\\', '')) },
    });
  });

  it('names what it does not have, and ignores nothing', async () => {
    const create = (body: object): Promise<Answer> =>
      ask('POST', '/v2/sandboxes', { headers: withKey, body: JSON.stringify({ templateID: 'none', ...body }) });
    for (const [field, value] of [
      ['mcp', {}],
      ['volumeMounts', [{ name: 'a', path: '/a' }]],
      ['allow_internet_access', true],
      ['network', { allowOut: ['1.1.1.1'] }],
      ['autoPause', true],
      ['secure', false],
      ['unknownField', 1],
      ['timeout', 86_401],
      ['timeout', 0],
      ['metadata', { key: 1 }],
    ] as const) {
      const name = field === 'allow_internet_access' ? 'allowInternetAccess' : field;
      expect(await create({ [field]: value }), field).toMatchObject({
        status: 400,
        body: { acode: { code: 'ACODE-FLT-043' }, message: expect.stringContaining(name) },
      });
    }
    // Control: what asks for nothing comes to the template, which is refused last.
    const asked = {
      autoPause: false,
      allow_internet_access: false,
      secure: true,
      mcp: null,
      timeout: 60,
      envVars: { A_b: '1' },
    };
    expect(await create(asked)).toMatchObject({ body: { message: expect.stringContaining('the template "none"') } });
    expect(await ask('POST', '/sandboxes/some/pause', { headers: withKey })).toMatchObject({ status: 501 });
    expect(await ask('GET', '/sandboxes/some', { headers: withKey })).toMatchObject({ status: 404 });
    expect(await ask('GET', '/nowhere')).toMatchObject({ status: 502 });
    expect(await ask('GET', 'http://server/health')).toMatchObject({ status: 400 });
  });

  it('has no sandbox for who names none, or one that is over', async () => {
    const headers = { 'e2b-sandbox-id': 'some', 'x-access-token': 'any' };
    expect(await ask('GET', '/health', { headers })).toMatchObject({ status: 502, body: { code: 502 } });
    expect(await ask('GET', '/files?path=/etc/passwd', { headers })).toMatchObject({ status: 502 });
    expect(await ask('POST', '/process.Process/List', { headers })).toMatchObject({ body: { code: 'unavailable' } });
    expect(await ask('GET', '/files?path=a&signature=v1_x')).toMatchObject({ status: 401 });
  });

  it('listens on other addresses with a certificate only, and is what the certificate names', async () => {
    await expect(E2bServer.listen({ ...settings, host: '0.0.0.0' })).rejects.toMatchObject({ code: 'ACODE-FLT-040' });
    const [key, cert] = ['key.pem', 'cert.pem'].map(name => join(directory, name));
    const subject = ['-subj', '/CN=box', '-addext', 'subjectAltName=DNS:box.example,IP:10.0.0.1'];
    const make = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
    execFileSync('openssl', [...make, '-keyout', key ?? '', '-out', cert ?? '', ...subject], { stdio: 'ignore' });
    const tls = { cert: readText(cert), key: readText(key) };
    await using secure = await E2bServer.listen({ ...settings, host: '0.0.0.0', tls });
    expect(secure.url).toMatch(/^https:\/\/box\.example:\d+$/);
    const { request: requestSecurely } = await import('node:https');
    const statusFor = async (host: string): Promise<number | undefined> => {
      const { port } = new URL(secure.url);
      const options = { host: '127.0.0.1', port, path: '/v2/sandboxes', headers: { ...withKey, host } };
      const sent = requestSecurely({ ...options, ca: tls.cert, servername: 'box.example' });
      sent.end();
      const [response] = (await once(sent, 'response')) as [IncomingMessage];
      response.resume();
      return response.statusCode;
    };
    expect(await statusFor('box.example')).toBe(200);
    expect(await statusFor('10.0.0.1')).toBe(200);
    expect(await statusFor('attacker.example')).toBe(421);
  });
});

function readText(path: string | undefined): string {
  return execFileSync('cat', [path ?? ''], { encoding: 'utf8' });
}

describe('keys of the E2B server', () => {
  it('are read from a file of this user alone, as they are or as hashes', () => {
    const file = join(directory, 'keys.yml');
    const hash = `sha256:${createHash('sha256').update(KEY).digest('hex')}`;
    writeFileSync(file, `tenants: { acme: { keys: ['${hash}'], sandboxes: 3 } }\n`, { mode: 0o600 });
    const read = readKeys(file);
    expect(read.tenantOf(KEY)).toEqual({ name: 'acme', sandboxes: 3 });
    // Who has read the file has no key.
    expect(read.tenantOf(hash)).toBeNull();
    chmodSync(file, 0o666);
    expect(() => readKeys(file)).toThrow(/others may read it/);
    expect(() => readKeys(join(directory, 'none.yml'))).toThrow(/no such file/);
    for (const content of [
      {},
      { tenants: {} },
      { tenants: { 'a.b': { keys: [KEY] } } },
      { tenants: { a: { keys: ['short'] } } },
    ])
      expect(() => keysFrom(content, file)).toThrow(/tenant/);
    const twice = { tenants: { one: { keys: [KEY] }, two: { keys: [hash] } } };
    expect(() => keysFrom(twice, file)).toThrow(/twice/);
  });

  it('are made once where none are named', () => {
    const made = ownKey(directory);
    expect(made.keys).toBeInstanceOf(ApiKeys);
    const key = readText(made.file).trim();
    expect(key).toMatch(/^e2b_[0-9a-f]{40}$/);
    expect(ownKey(directory).keys.tenantOf(key)).toMatchObject({ name: 'local' });
  });
});

describe('the wire format', () => {
  it('reads messages in both spellings, and leaves the names of callers alone', () => {
    const message = messageOf(Buffer.from('{"include_entry":true,"process":{"envs":{"A_b":"1"},"cwd":"/a_b"}}'));
    expect(message).toEqual({ includeEntry: true, process: { envs: { A_b: '1' }, cwd: '/a_b' } });
    const enveloped = Buffer.concat([Buffer.from([0, 0, 0, 0, 2]), Buffer.from('{}')]);
    expect(envelopedMessage(enveloped)).toEqual({});
    for (const broken of [
      Buffer.alloc(0),
      Buffer.from([1, 0, 0, 0, 0]),
      Buffer.from([0, 0, 0, 0, 9, 1]),
      Buffer.from('{}'),
    ])
      expect(() => envelopedMessage(broken)).toThrow(/Connect protocol/);
    expect(() => messageOf(Buffer.from('{'))).toThrow(/not JSON/);
  });

  it('reads every file of a form whatever is in it, and refuses a form that is cut off', async () => {
    const content = fc.uint8Array({ maxLength: 200 });
    const names = fc.string({
      minLength: 1,
      maxLength: 30,
      unit: fc.constantFrom('a', '/', '.', ' ', 'ä', '"', '-', '\r', '\n'),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(names, content), { minLength: 1, maxLength: 4 }), async files => {
        const form = new FormData();
        for (const [name, bytes] of files) form.append('file', new Blob([new Uint8Array(bytes)]), name);
        const sent = new Response(form);
        const type = sent.headers.get('content-type') ?? '';
        const body = Buffer.from(await sent.arrayBuffer());
        const read = filesOfForm(body, type);
        expect(read.map(one => one.path)).toEqual(files.map(([name]) => name));
        expect(read.map(one => [...one.content])).toEqual(files.map(([, bytes]) => [...bytes]));
        expect(() => filesOfForm(body.subarray(0, body.length - 8), type)).toThrow(/form/);
      }),
      { numRuns: 100 },
    );
    expect(() => filesOfForm(Buffer.from(''), 'multipart/form-data')).toThrow(/boundary/);
  });

  it('keeps every path inside the sandbox and absolute', () => {
    expect(
      ['a', '../x', '/etc/passwd', '~', '~/b', '~user', './a//b/../c', '/../../a'].map(path => insidePath(path)),
    ).toEqual([
      '/home/user/a',
      '/home/x',
      '/etc/passwd',
      '/home/user',
      '/home/user/b',
      '/home/user/~user',
      '/home/user/a/c',
      '/a',
    ]);
    for (const path of ['', 'a\0b', 'x'.repeat(5000)]) expect(() => insidePath(path)).toThrow(/path/);
  });

  it('tells nothing of faults of its own', () => {
    const fault = refusalOf(new Error('at /home/operator/secret'));
    expect(fault).toMatchObject({ status: 500, code: 'internal', acode: null });
    expect(fault.message).not.toContain('secret');
  });
});
