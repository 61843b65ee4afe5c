import { Duplex } from 'node:stream';
import { connect } from 'node:tls';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MAX_HELLO_BYTES, readClientHello } from './client-hello.ts';

/** The ClientHello of Node’s own TLS, as it goes over the wire. */
function helloFor(servername: string): Promise<Buffer> {
  return new Promise(resolve => {
    const wire = new Duplex({
      read() {},
      write(chunk: Buffer) {
        resolve(chunk);
      },
    });
    connect({ socket: wire, servername }).on('error', () => {});
  });
}

/** The same handshake message in records of these sizes. */
function split(hello: Buffer, sizes: readonly number[]): Buffer {
  let message = hello.subarray(5);
  const records: Buffer[] = [];
  for (let at = 0; message.length > 0; at += 1) {
    const part = message.subarray(0, Math.max(1, sizes[at % sizes.length] ?? 1));
    records.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]), part);
    message = message.subarray(part.length);
  }
  return Buffer.concat(records);
}

/** A ClientHello with these extensions. */
function made(extensions: readonly (readonly [type: number, content: Buffer])[], after = Buffer.alloc(0)): Buffer {
  const list = Buffer.concat(extensions.flatMap(([type, content]) => [two(type), two(content.length), content]));
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32),
    Buffer.from([0, 0, 2, 0x13, 1, 1, 0]),
    two(list.length),
    list,
  ]);
  const message = Buffer.concat([Buffer.from([1, 0]), two(body.length), body, after]);
  return Buffer.concat([Buffer.from([22, 3, 1]), two(message.length), message]);
}

function two(number: number): Buffer {
  return Buffer.from([number >> 8, number & 255]);
}

function sni(...names: readonly string[]): Buffer {
  const list = Buffer.concat(
    names.flatMap(name => [Buffer.from([0]), two(Buffer.byteLength(name, 'latin1')), Buffer.from(name, 'latin1')]),
  );
  return Buffer.concat([two(list.length), list]);
}

const found = (name: string | null): object => ({ kind: 'hello', serverName: name });
const MALFORMED = { kind: 'refused', why: 'malformed' };

describe('ClientHello', () => {
  it('has the name that Node asks for, whole, in pieces, and split over records', async () => {
    const hello = await helloFor('registry.example');
    expect(readClientHello(hello)).toEqual(found('registry.example'));
    for (let length = 0; length < hello.length; length += 1)
      expect(readClientHello(hello.subarray(0, length))).toEqual({ kind: 'more' });
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 8, max: 400 }), { minLength: 1, maxLength: 5 }), sizes => {
        expect(readClientHello(split(hello, sizes))).toEqual(found('registry.example'));
      }),
    );
  });

  it('is judged by its outer name where it has an encrypted inner one', () => {
    const outer: [number, Buffer] = [0, sni('outer.example')];
    expect(readClientHello(made([[0xfe0d, Buffer.alloc(300, 7)], outer]))).toEqual(found('outer.example'));
  });

  it('may have no name, which equals none', () => {
    expect(readClientHello(made([]))).toEqual(found(null));
  });

  it.each<[string, Buffer]>([
    ['two names in one extension', made([[0, sni('a.example', 'b.example')]])],
    [
      'two extensions with a name',
      made([
        [0, sni('a.example')],
        [0, sni('b.example')],
      ]),
    ],
    ['NUL in the name', made([[0, sni('a.example\0.evil')]])],
    ['an empty name', made([[0, sni('')]])],
    ['an empty list', made([[0, Buffer.from([0, 0])]])],
    ['bytes behind the list', made([[0, Buffer.concat([sni('a.example'), Buffer.from('x')])]])],
    ['a second message in the record', made([[0, sni('a.example')]], Buffer.from([1, 0, 0, 0]))],
    ['another message', Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 0])],
    ['an empty record', Buffer.from([22, 3, 1, 0, 0])],
    ['a record that is too long', Buffer.from([22, 3, 1, 0xff, 0xff])],
    ['an alert in the middle', Buffer.concat([Buffer.from([22, 3, 1, 0, 4, 1, 0, 1, 0]), Buffer.from([21])])],
  ])('is refused with %s', (_what, bytes) => {
    expect(readClientHello(bytes)).toEqual(MALFORMED);
  });

  it('is refused if it announces more than is read, or comes in too many records', () => {
    const large = { kind: 'refused', why: 'too-large' };
    expect(readClientHello(Buffer.from([22, 3, 1, 0, 4, 1, 1, 0, 0]))).toEqual(large);
    const record = Buffer.concat([Buffer.from([22, 3, 1, 0, 1]), Buffer.from([1])]);
    const many = Buffer.concat([record, ...Array<Buffer>(80).fill(Buffer.from([22, 3, 1, 0, 1, 0]))]);
    // Its length comes out as 0, so it ends before the limit on records: it is malformed then.
    expect(readClientHello(many).kind).toBe('refused');
  });

  it('is told from other protocols by the first bytes', () => {
    for (const text of ['GET / HTTP/1.1', 'SSH-2.0', '\x80\x2e\x01', '\x16\x02'])
      expect(readClientHello(Buffer.from(text, 'latin1'))).toEqual({ kind: 'refused', why: 'not-tls' });
  });

  it('survives any bytes, and never finds a name that is not in them', async () => {
    const hello = await helloFor('registry.example');
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(hello.length - 1), fc.nat(255)), { maxLength: 6 }),
        fc.nat(hello.length),
        (changes, length) => {
          const bytes = Buffer.from(hello.subarray(0, length));
          for (const [at, value] of changes) if (at < bytes.length) bytes[at] = value;
          const read = readClientHello(bytes);
          if (read.kind === 'hello' && read.serverName !== null)
            expect(bytes.includes(Buffer.from(read.serverName, 'latin1'))).toBe(true);
        },
      ),
      { numRuns: 2000 },
    );
    expect(readClientHello(Buffer.alloc(MAX_HELLO_BYTES * 2, 22)).kind).toBe('refused');
  });
});
