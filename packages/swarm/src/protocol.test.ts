import fc from 'fast-check';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  LineReader,
  MAX_LINE_BYTES,
  ProtocolViolation,
  Transcript,
  ending,
  messageSchema,
  parseFromAdapter,
  parseToAdapter,
} from './protocol.ts';
import type { AdapterMessage } from './protocol.ts';

const SWARM = '1f0c2d3e-0000-4000-8000-000000000000';
const envelope = {
  version: 1,
  timestamp: '2026-11-19T00:00:00.000Z',
  swarmId: SWARM,
  containerId: 'acode-1f0c2d3e-login',
};
const progress = (fields: object = {}): object => ({
  type: 'progress-update',
  ...envelope,
  payload: { storyId: 'US-001', status: 'in_progress', output: '', ...fields },
});
const completion = (fields: object = {}): object => ({
  type: 'completion',
  ...envelope,
  payload: { status: 'completed', prUrl: null, errors: [], ...fields },
});

const faultOf = (work: () => unknown): string => {
  try {
    work();
    return 'none';
  } catch (error) {
    return error instanceof ProtocolViolation ? error.fault : String(error);
  }
};

describe('a message of the swarm protocol', () => {
  it('is refused with its fault where it is not one', () => {
    const line = (value: unknown): string => JSON.stringify(value);
    const rows: [string, string][] = [
      ['not json', 'malformed'],
      ['[]', 'malformed'],
      ['null', 'malformed'],
      ['{"type":"progress-update"', 'malformed'],
      [line({}), 'schema'],
      [line({ ...progress(), type: 'hello' }), 'schema'],
      [line({ ...progress(), type: 'task-request' }), 'direction'],
      [line({ ...progress(), version: 2 }), 'version'],
      [line({ ...progress(), extra: 1 }), 'schema'],
      [line({ ...progress(), swarmId: 'x' }), 'schema'],
      [line({ ...progress(), timestamp: 'now' }), 'schema'],
      [line({ ...progress(), containerId: '../x' }), 'schema'],
      [line(progress({ storyId: 'US-1' })), 'schema'],
      [line(progress({ status: 'done' })), 'schema'],
      [line(progress({ output: 'x'.repeat(2001) })), 'schema'],
      [line(progress({ commit: '--help' })), 'schema'],
      [line(completion({ prUrl: 'javascript:alert(1)' })), 'schema'],
      [line(completion({ errors: Array.from({ length: 51 }, () => '') })), 'schema'],
      [line({ type: 'error', ...envelope, payload: { code: 'no', message: '' } }), 'schema'],
      ['{"__proto__":{"type":"completion"}}', 'schema'],
    ];
    expect(rows.map(([text]) => [text, faultOf(() => parseFromAdapter(text))])).toEqual(rows);
    expect(faultOf(() => parseToAdapter(line(completion())))).toBe('direction');
    expect(parseFromAdapter(line(progress())).type).toBe('progress-update');
  });

  it('comes out whole, wherever its bytes were cut', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'binary' })), fc.array(fc.nat(40)), (texts, cuts) => {
        const lines = texts.map(text => JSON.stringify({ text }));
        const bytes = Buffer.from(lines.map(line => `${line}\n`).join(''));
        const reader = new LineReader(MAX_LINE_BYTES);
        const found: string[] = [];
        let at = 0;
        for (const cut of [...cuts, bytes.length]) {
          for (const line of reader.feed(bytes.subarray(at, at + cut))) found.push(line);
          at += cut;
        }
        reader.end();
        expect(found).toEqual(lines);
      }),
    );
  });

  it('is refused where it is too long, cut off, or no text', () => {
    const feed = (...chunks: Uint8Array[]): string =>
      faultOf(() => {
        const reader = new LineReader(100);
        for (const chunk of chunks) for (const line of reader.feed(chunk)) expect(line).toBeDefined();
        reader.end();
      });
    expect(feed(Buffer.alloc(101, 'x'))).toBe('oversized');
    expect(feed(Buffer.alloc(60, 'x'), Buffer.alloc(60, 'x'))).toBe('oversized');
    expect(feed(Buffer.from([0xff, 0xfe, 10]))).toBe('encoding');
    expect(feed(Buffer.from('{"a":'))).toBe('cut');
    expect(feed(Buffer.from('\n\r\n{}\n'))).toBe('none');
  });

  it('is refused out of its order, and from another sandbox', () => {
    const feed = (...messages: object[]): string =>
      faultOf(() => {
        const transcript = new Transcript({ swarmId: SWARM, containerId: envelope.containerId }, ['US-001', 'US-002']);
        for (const message of messages) transcript.accept(parseFromAdapter(JSON.stringify(message)));
      });
    expect(
      feed(
        progress(),
        progress({ status: 'completed' }),
        progress({ storyId: 'US-002', status: 'skipped' }),
        completion(),
      ),
    ).toBe('none');
    expect(feed(completion(), completion())).toBe('order');
    expect(feed(completion(), progress())).toBe('order');
    expect(feed(progress({ storyId: 'US-009' }))).toBe('order');
    expect(feed(progress({ status: 'failed' }), progress({ status: 'completed' }))).toBe('order');
    expect(feed(progress(), progress({ status: 'pending' }))).toBe('order');
    expect(feed({ ...progress(), swarmId: '1f0c2d3e-0000-4000-8000-000000000001' })).toBe('identity');
    expect(feed({ ...progress(), containerId: 'acode-1f0c2d3e-other' })).toBe('identity');
  });

  it('is accepted or refused with a fault, whatever it holds', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.json(),
          fc.string(),
          fc
            .record({ type: fc.constantFrom('completion', 'error', 'x'), payload: fc.anything() })
            .map(value => JSON.stringify(value) ?? ''),
        ),
        text => {
          expect(faultOf(() => parseFromAdapter(text))).toMatch(/^(?:none|malformed|schema|direction|version)$/);
        },
      ),
    );
  });

  it('has whole characters where its text was cut', () => {
    expect(ending('ab😀', 3)).toBe('b😀');
    expect(ending('a😀', 1)).toBe('\ufffd');
  });

  it('is what docs/swarm-protocol.md shows', () => {
    const page = readFileSync(new URL('../../../docs/swarm-protocol.md', import.meta.url), 'utf8');
    const examples = [...page.matchAll(/^```json\n([\s\S]*?)^```$/gm)].map(([, text = '']) => text.trim());
    const types = examples.map(text => messageSchema.parse(JSON.parse(text)).type);
    expect([...new Set(types)].sort()).toEqual(['completion', 'error', 'progress-update', 'task-request']);
    const lines: AdapterMessage[] = [];
    for (const [, block = ''] of page.matchAll(/^```ndjson\n([\s\S]*?)^```$/gm)) {
      const transcript = new Transcript({ swarmId: SWARM, containerId: envelope.containerId }, ['US-001', 'US-002']);
      for (const line of block.trim().split('\n')) lines.push(transcript.accept(parseFromAdapter(line)));
      expect(transcript.completion?.payload.status).toBe('completed');
    }
    expect(lines.length).toBeGreaterThan(3);
  });
});
