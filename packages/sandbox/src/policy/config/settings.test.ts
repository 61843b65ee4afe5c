// Default settings, as far as they are promised.

import { describe, expect, it } from 'vitest';
import { parseConfig } from './parse.ts';
import { settingsOf } from './load.ts';

const settings = (text: string) => settingsOf(parseConfig(text, 'config.yml').config);

describe('the deadline of a pull', () => {
  it('is 300 s, and what the user says', () => {
    expect(settings('').pullTimeoutMs).toBe(300_000);
    expect(settings('sandbox: { containers: { pull_timeout_seconds: 7 } }').pullTimeoutMs).toBe(7000);
  });
});
