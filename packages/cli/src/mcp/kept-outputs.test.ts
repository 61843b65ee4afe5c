// Outputs are kept within bounds, the newest ones.

import { describe, expect, it } from 'vitest';
import { KeptOutputs } from './kept-outputs.ts';

describe('kept outputs', () => {
  it('are found by their address until newer ones need the place', () => {
    const outputs = new KeptOutputs({ outputs: 2, characters: 100 });
    const [first, second, third] = ['a', 'b', 'c'].map(text => outputs.keep(text));
    expect(outputs.find(first ?? '')).toBeNull();
    expect(outputs.find(second ?? '')).toBe('b');
    expect(outputs.list().map(({ uri }) => uri)).toEqual([second, third]);
  });

  it('never hold more characters than they may, however long one is', () => {
    const outputs = new KeptOutputs({ outputs: 10, characters: 10 });
    outputs.keep('12345');
    const long = outputs.keep('x'.repeat(50));
    expect(outputs.list()).toEqual([{ uri: long, characters: 10 }]);
    outputs.keep('1');
    expect(outputs.list().reduce((sum, { characters }) => sum + characters, 0)).toBeLessThanOrEqual(10);
  });

  it('know no other addresses', () => {
    const outputs = new KeptOutputs();
    outputs.keep('secret');
    for (const uri of ['acode://output/2', 'acode://output/../1', 'file:///etc/passwd', '__proto__', ''])
      expect(outputs.find(uri)).toBeNull();
  });
});
