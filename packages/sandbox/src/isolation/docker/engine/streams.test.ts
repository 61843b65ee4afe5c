// Shows that the two streams are told apart however the bytes arrive, and that hostile frames cost nothing.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { demultiplex, Demultiplexer, type OutputPiece } from './streams.ts';

interface Frame {
  readonly id: number;
  readonly data: Uint8Array;
}

function encode(frames: readonly Frame[]): Buffer {
  return Buffer.concat(
    frames.flatMap(({ id, data }) => {
      const header = Buffer.alloc(8);
      header.writeUInt8(id, 0);
      header.writeUInt32BE(data.length, 4);
      return [header, data];
    }),
  );
}

/** The runs of bytes per stream, in the order of arrival: what must not depend on the splitting. */
function runs(pieces: readonly OutputPiece[]): [string, string][] {
  const merged: [string, Buffer][] = [];
  for (const { stream, data } of pieces) {
    const last = merged.at(-1);
    if (last?.[0] === stream) last[1] = Buffer.concat([last[1], data]);
    else merged.push([stream, data]);
  }
  return merged.map(([stream, data]) => [stream, data.toString('hex')]);
}

function split(bytes: Buffer, sizes: readonly number[]): Buffer[] {
  const chunks: Buffer[] = [];
  let start = 0;
  for (const size of sizes) {
    chunks.push(bytes.subarray(start, start + size));
    start += size;
  }
  return [...chunks, bytes.subarray(start)];
}

async function* from(chunks: readonly Buffer[]): AsyncGenerator<Buffer> {
  yield* chunks;
}

const frame = fc.record({ id: fc.constantFrom(0, 1, 2), data: fc.uint8Array({ maxLength: 40 }) });
const sizes = fc.array(fc.integer({ min: 0, max: 20 }), { maxLength: 80 });

describe('Demultiplexer', () => {
  it('gives the same streams for any splitting of any frames', () => {
    fc.assert(
      fc.property(fc.array(frame), sizes, (frames, cuts) => {
        const demultiplexer = new Demultiplexer();
        const pieces = split(encode(frames), cuts).flatMap(chunk => demultiplexer.push(chunk));
        demultiplexer.finish();
        const whole = frames
          .filter(({ data }) => data.length > 0)
          .map(({ id, data }): OutputPiece => ({ stream: id === 2 ? 'stderr' : 'stdout', data: Buffer.from(data) }));
        expect(runs(pieces)).toEqual(runs(whole));
      }),
    );
  });

  it('gives what came before a failure, and then the failure, for any splitting', () => {
    const bad = fc.constantFrom(
      { bytes: encode([{ id: 3, data: Buffer.from('disk gone') }]), kind: 'status' },
      { bytes: encode([{ id: 3, data: Buffer.alloc(0) }]), kind: 'status' },
      { bytes: encode([{ id: 4, data: Buffer.from('x') }]), kind: 'protocol' },
      { bytes: Buffer.from([1, 0, 1, 0, 0, 0, 0, 1, 65]), kind: 'protocol' },
      { bytes: Buffer.from([1, 0, 0, 0, 0, 0, 0, 9, 65]), kind: 'disconnected' },
      { bytes: Buffer.from([1, 0, 0, 0]), kind: 'disconnected' },
    );
    const good = frame.map(({ data }): Frame => ({ id: 2, data }));
    fc.assert(
      fc.property(fc.array(good), bad, sizes, (frames, { bytes, kind }, cuts) => {
        const demultiplexer = new Demultiplexer();
        const pieces: OutputPiece[] = [];
        const readAll = () => {
          for (const chunk of split(Buffer.concat([encode(frames), bytes]), cuts))
            pieces.push(...demultiplexer.push(chunk));
          demultiplexer.finish();
        };
        expect(readAll).toThrow(expect.objectContaining({ kind }));
        const errors = Buffer.concat(pieces.filter(({ stream }) => stream === 'stderr').map(({ data }) => data));
        expect(errors.equals(Buffer.concat(frames.map(({ data }) => data)))).toBe(true);
      }),
    );
  });

  it('gives views of the chunk, not copies', () => {
    const bytes = encode([{ id: 1, data: Buffer.from('abc') }]);
    const [piece] = new Demultiplexer().push(bytes);
    expect(piece?.data.buffer).toBe(bytes.buffer);
    expect(piece?.data.byteOffset).toBe(bytes.byteOffset + 8);
  });

  it('takes a frame of 4 GiB as it comes and allocates nothing for it', () => {
    const demultiplexer = new Demultiplexer();
    const before = process.memoryUsage().arrayBuffers;
    expect(demultiplexer.push(Buffer.from([1, 0, 0, 0, 255, 255, 255, 255]))).toEqual([]);
    expect(demultiplexer.push(Buffer.from('abc'))).toEqual([{ stream: 'stdout', data: Buffer.from('abc') }]);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(1024 * 1024);
  });

  it("keeps the engine's message of a system error, up to 4 KiB of it", () => {
    const demultiplexer = new Demultiplexer();
    const bytes = encode([{ id: 3, data: Buffer.alloc(100_000, 'e') }]);
    for (const chunk of split(bytes, [5, 3, 1000])) demultiplexer.push(chunk);
    expect(demultiplexer.failure).toMatchObject({ kind: 'status', engineMessage: 'e'.repeat(4096) });
    expect(() => demultiplexer.push(Buffer.from('x'))).toThrow('e'.repeat(4096));
  });
});

describe('demultiplex', () => {
  it('waits for a slow sink before it reads on', async () => {
    let taken = 0;
    async function* counted() {
      for (let index = 0; index < 5; index++) {
        taken++;
        yield encode([{ id: 1 + (index % 2), data: Buffer.from([index]) }]);
      }
    }
    const log: string[] = [];
    const slow = (name: string) => async (data: Buffer) => {
      const before = taken;
      await new Promise(resolve => setTimeout(resolve, 2));
      expect(taken).toBe(before);
      log.push(`${name}${data[0]}`);
    };
    await demultiplex(counted(), { stdout: slow('out'), stderr: slow('err') });
    expect(log).toEqual(['out0', 'err1', 'out2', 'err3', 'out4']);
  });

  it('delivers to a sink that answers at once', async () => {
    const seen: string[] = [];
    const bytes = encode([
      { id: 1, data: Buffer.from('a') },
      { id: 2, data: Buffer.from('b') },
    ]);
    await demultiplex(from([bytes]), {
      stdout: data => void seen.push(`out ${data.toString()}`),
      stderr: data => void seen.push(`err ${data.toString()}`),
    });
    expect(seen).toEqual(['out a', 'err b']);
  });

  it('rejects at a system error after everything before it was delivered', async () => {
    const seen: string[] = [];
    const bytes = encode([
      { id: 1, data: Buffer.from('before') },
      { id: 3, data: Buffer.from('no more') },
      { id: 1, data: Buffer.from('after') },
    ]);
    const sink = { stdout: (data: Buffer) => void seen.push(data.toString()), stderr: () => undefined };
    await expect(demultiplex(from([bytes]), sink)).rejects.toMatchObject({ engineMessage: 'no more' });
    expect(seen).toEqual(['before']);
  });

  it('rejects when the stream ends inside a frame', async () => {
    const sink = { stdout: () => undefined, stderr: () => undefined };
    await expect(demultiplex(from([Buffer.from([1, 0, 0])]), sink)).rejects.toMatchObject({ kind: 'disconnected' });
  });

  it("passes a sink's failure on", async () => {
    const failure = new Error('disk full');
    const sink = { stdout: () => Promise.reject(failure), stderr: () => undefined };
    await expect(demultiplex(from([encode([{ id: 1, data: Buffer.from('x') }])]), sink)).rejects.toBe(failure);
  });
});
