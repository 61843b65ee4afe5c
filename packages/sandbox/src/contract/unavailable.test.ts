// Unavailable sandbox: a caller that only asked gets the reason, without “nothing was run”.

import { describe, expect, it } from 'vitest';
import { AcodeError } from './errors.ts';
import { unavailableReason } from './unavailable.ts';

describe('the reason for which there is no sandbox', () => {
  it('names the socket and what is wrong with it', () => {
    const error = new AcodeError('ACODE-SBX-008', { socket: '/s', reason: 'no permission' });
    expect(error.message).toContain('nothing was run');
    expect(unavailableReason(error)).toBe('no Docker Engine answered at /s (no permission).');
  });

  it('is the message of any other error', () => {
    const error = new AcodeError('ACODE-SBX-011', { uid: 0 });
    expect(unavailableReason(error)).toBe(error.message);
  });
});
