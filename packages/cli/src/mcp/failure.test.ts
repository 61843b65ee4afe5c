import { describe, expect, it } from 'vitest';
import { toldDenials } from './failure.ts';

const rule = { rule: 'memory limit of 64 MiB', setBy: 'the user' };

describe('the way on that a model is told', () => {
  it('names no option of a command line, and says whom to ask where no tool can do it', () => {
    const remedy =
      'Use less, or ask for more: policy.limits.memoryBytes (on the command line --memory 128). A ceiling still counts.';
    expect(toldDenials([{ ...rule, remedy }])).toEqual([
      {
        ...rule,
        remedy:
          'Use less, or ask for more: policy.limits.memoryBytes. A ceiling still counts. No argument of these tools does that: tell the user what you need and why, and go on without it.',
      },
    ]);
  });

  it('names the argument where there is one', () => {
    const remedy = 'Choose one that has it with policy.image (on the command line --image).';
    expect(toldDenials([{ ...rule, remedy }])[0]?.remedy).toBe('Choose one that has it with the argument image.');
  });

  it('is left as it is where it says nothing of either', () => {
    const denial = { ...rule, remedy: 'Write to /tmp.', detail: 'suspected write to /etc/x' };
    expect(toldDenials([denial])).toEqual([denial]);
  });
});
