import { describe, expect, it } from 'vitest';
import { toldDenials } from './failure.ts';

const rule = { rule: 'memory limit of 64 MiB', setBy: 'the user' };

describe('what to do next that a model is told', () => {
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

  it('names the argument by which the call set the limit itself', () => {
    const remedy = 'Use less, or ask for more: policy.timeoutMs (on the command line --timeout 2).';
    for (const setBy of ['the request, policy.timeoutMs', 'the request, timeoutMs'])
      expect(toldDenials([{ rule: 'time limit of 1 s', setBy, remedy }])[0]?.remedy).toMatch(
        /^Use less, or give a larger timeout_seconds, /,
      );
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
