// Tokens are counted as each protocol reports them, in whatever pieces an answer comes.

import { describe, expect, it } from 'vitest';
import { Budget } from './budget.ts';
import { Refused } from './dial.ts';
import { TokenCount } from './token-count.ts';

const event = (data: unknown): string => `data: ${JSON.stringify(data)}\n\n`;
const ANSWERS: Readonly<Record<string, readonly [text: string, tokens: number]>> = {
  'Messages, as events': [
    event({
      type: 'message_start',
      message: {
        usage: {
          ...{ input_tokens: 10, cache_creation_input_tokens: 200, cache_read_input_tokens: 3000, output_tokens: 1 },
          ...{ cache_creation: { ephemeral_5m_input_tokens: 200 }, service_tier: 'a } in a text' },
        },
      },
    }) +
      event({ type: 'content_block_delta', delta: { text: 'say "usage": {"input_tokens": 99999}' } }) +
      event({ type: 'message_delta', usage: { output_tokens: 40 } }),
    3250,
  ],
  'Responses, as events': [
    event({ type: 'response.created', response: { usage: null } }) +
      event({ response: { usage: { input_tokens: 7, input_tokens_details: {}, output_tokens: 5, total_tokens: 12 } } }),
    12,
  ],
  'chat completions, as one object': [
    JSON.stringify({ choices: [], usage: { prompt_tokens: 30, completion_tokens: 4, total_tokens: 34 } }, null, 2),
    34,
  ],
  'generateContent, as events': [
    event({ usageMetadata: { promptTokenCount: 8, totalTokenCount: 8 } }) +
      event({
        usageMetadata: { promptTokenCount: 8, candidatesTokenCount: 2, thoughtsTokenCount: 5, totalTokenCount: 15 },
      }),
    15,
  ],
  'no figures': ['x'.repeat(401), 101],
  'no end of its figures': [`{"usage": {"input_tokens": ${'1'.repeat(9000)}`, 2257],
};

function countOf(text: string, size: number): number {
  const count = new TokenCount();
  const bytes = Buffer.from(text);
  let sum = 0;
  for (let at = 0; at < bytes.length; at += size) sum += count.push(bytes.subarray(at, at + size));
  return sum + count.end();
}

describe('tokens of an answer', () => {
  it.each(Object.keys(ANSWERS))('are counted: %s', name => {
    const [text, tokens] = ANSWERS[name] ?? ['', 0];
    for (const size of [1, 7, 64, 1000, text.length]) expect([size, countOf(text, size)]).toEqual([size, tokens]);
  });
});

describe('a budget', () => {
  const refused = (take: () => void): string => {
    try {
      take();
      return 'taken';
    } catch (error) {
      return error instanceof Refused ? `${error.reason} ${error.rule}` : 'another error';
    }
  };

  it('of requests lets that many through, and tells once', () => {
    const told: string[] = [];
    const budget = new Budget(
      () => ({ requests: 2 }),
      spent => told.push(spent),
    );
    expect([1, 2, 3, 4].map(() => refused(() => budget.request('r')))).toEqual([
      'taken',
      'taken',
      'budget r',
      'budget r',
    ]);
    expect(told).toEqual(['requests']);
  });

  it('of tokens ends with the request after them; without a limit nothing ends', () => {
    const told: string[] = [];
    const budget = new Budget(
      () => ({ tokens: 100 }),
      spent => told.push(spent),
    );
    const steps = [99, 1, 1].map(tokens => {
      const taken = refused(() => budget.request('r'));
      budget.used(tokens);
      return taken;
    });
    expect(steps).toEqual(['taken', 'taken', 'budget r']);
    expect(told).toEqual(['tokens']);
    const unlimited = new Budget(
      () => ({}),
      spent => told.push(spent),
    );
    unlimited.used(1e9);
    expect(refused(() => unlimited.request('r'))).toBe('taken');
    expect(told).toEqual(['tokens']);
  });
});
