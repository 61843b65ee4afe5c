// A record is one line that says itself whether it is still the same.

import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { AuditEvent, AuditIntent } from '../../contract/audit.ts';
import { MAX_CONTENT, MAX_LINE, NO_HASH, contentOf, headOf, openLine, seal } from './record.ts';

const place = { seq: 1, ts: '2026-01-01T00:00:00.000Z', prev: NO_HASH };
const lineOf = (content: object): Buffer => Buffer.from(seal(place, 'event', { ...content }).line.trimEnd());

/** A line with a hash that fits it, whatever its body. */
function sealedAnyhow(body: string): Buffer {
  const hash = createHash('sha256').update(body).digest('hex');
  return Buffer.from(`${body.slice(0, -1)},"hash":"${hash}"}`);
}

describe('a sealed record', () => {
  it('opens as what it was, whatever it holds', () => {
    fc.assert(
      fc.property(
        fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 6 }),
        detail => {
          const line = lineOf({ detail });
          const opened = openLine(line);
          expect(opened.broken).toBeNull();
          expect(opened.record?.['detail']).toEqual(JSON.parse(JSON.stringify(detail)));
          expect(headOf(line)).toEqual({ seq: 1, kind: 'event', hash: opened.record?.hash });
        },
      ),
    );
  });

  it('carries the hash of exactly what stands before it', () => {
    const line = lineOf({ event: 'x' }).toString();
    const [, body = '', hash] = /^(.*),"hash":"([0-9a-f]{64})"\}$/.exec(line) ?? [];
    expect(createHash('sha256').update(`${body}}`).digest('hex')).toBe(hash);
  });

  it('is not opened once a byte of it is another', () => {
    const line = lineOf({ event: 'x', detail: { a: 'ü' } });
    fc.assert(
      fc.property(fc.nat(line.length - 1), fc.integer({ min: 1, max: 255 }), (at, by) => {
        const changed = Buffer.from(line);
        changed[at] = ((changed[at] ?? 0) + by) % 256;
        expect(openLine(changed).broken).not.toBeNull();
      }),
    );
  });

  it.each([
    ['white space', '{"kind":"event", "prev":"P","seq":1,"ts":"t","v":1}'],
    ['another order', '{"seq":1,"kind":"event","prev":"P","ts":"t","v":1}'],
    ['a key twice', '{"event":1,"event":2,"kind":"event","prev":"P","seq":1,"ts":"t","v":1}'],
    ['a hash inside', `{"hash":"${'0'.repeat(64)}","kind":"event","prev":"P","seq":1,"ts":"t","v":1}`],
    ['a number in other words', '{"kind":"event","prev":"P","seq":1.0,"ts":"t","v":1}'],
    ['an escape too many', '{"kind":"event","prev":"P","seq":1,"ts":"\\u0074","v":1}'],
    [
      'more depth than the stack',
      `{"a":${'['.repeat(50_000)}${']'.repeat(50_000)},"kind":"event","prev":"P","seq":1,"ts":"t","v":1}`,
    ],
  ])('has one way to be written, and not %s', (_, body) => {
    expect(openLine(sealedAnyhow(body.replace('P', NO_HASH))).broken).toBe('not-canonical');
  });

  it('of that form is good, so that the reasons above are the true ones', () => {
    const body = `{"10":{"10":1,"9":2},"kind":"event","prev":"${NO_HASH}","seq":1,"ts":"t","v":1}`;
    expect(openLine(sealedAnyhow(body)).broken).toBeNull();
  });

  it.each(['', '{', '[]', 'null', '{"v":1}', '{"v":2,"seq":1}', 'x'.repeat(100)])('is not %s', text => {
    expect(openLine(Buffer.from(text))).toEqual({ record: null, broken: 'not-json' });
    expect(headOf(Buffer.from(text))).toBeNull();
  });
});

describe('the content of a record', () => {
  const intent: AuditIntent = {
    kind: 'intent',
    operation: 'run',
    correlationId: 'c',
    sandbox_level: 'docker',
    policyHash: 'p',
    commandHash: 'c',
    cwd: '.',
    stdin: 'none',
    decision: 'allowed',
    command: ['true'],
  };

  it('is cut where it would be too long, says so, and still opens', () => {
    const command = Array.from({ length: 64 }, () => '"\u0001'.repeat(2000));
    const content = contentOf({
      ...intent,
      command,
      riskReasons: Array.from({ length: 5000 }, () => 'r'.repeat(4000)),
    });
    expect(content).toMatchObject({ cut: true, correlationId: 'c', decision: 'allowed' });
    const { line } = seal(place, 'intent', content);
    expect(Buffer.byteLength(line)).toBeLessThan(MAX_CONTENT + 1024);
    expect(Buffer.byteLength(line)).toBeLessThanOrEqual(MAX_LINE);
    expect(openLine(Buffer.from(line.trimEnd())).broken).toBeNull();
  });

  it('is whole where it fits', () => {
    expect(contentOf(intent)).toEqual({ ...intent });
  });

  it('has the names of variables and never a value, even of one that was handed over', () => {
    expect(contentOf({ ...intent, env: ['CI', 'KEY=a=b'] })['env']).toEqual(['CI', 'KEY']);
  });

  it.each([
    ['--flag=value', ['tool', '--api-key=hunter2']],
    ['--flag value', ['tool', '--password', 'hunter2']],
    ['a URL', ['git', 'clone', 'https://me:hunter2@example.org']],
    ['an assignment', ['sh', '-c', 'MY_TOKEN=hunter2 make']],
    ['a header', ['curl', '-H', 'Authorization: Bearer hunter2hunter2']],
    ['another header', ['curl', '-H', 'X-Api-Key: hunter2']],
    ['a user', ['curl', '-u', 'me:hunter2', 'x']],
  ])('hides a secret given as %s', (_, command) => {
    const text = JSON.stringify(contentOf({ ...intent, command }));
    expect(text).not.toContain('hunter2');
    expect(text).toContain('[redacted]');
    expect(text).toContain(command[0]);
  });

  it('hides secrets in messages and details too', () => {
    const refusal = { kind: 'refusal', operation: 'deny', correlationId: 'c', errorCode: 'E' } as const;
    expect(contentOf({ ...refusal, message: 'TOKEN=hunter2 is bad' })['message']).toBe('TOKEN=[redacted] is bad');
    const event: AuditEvent = {
      kind: 'event',
      operation: 'open',
      correlationId: 'c',
      event: 'e',
      detail: { token: 'hunter2' },
    };
    expect(contentOf(event)['detail']).toEqual({ token: '[redacted]' });
  });
});
