// Unavailable sandbox: a caller that only asked gets the reason, without “nothing was run”.

import { describe, expect, it } from 'vitest';
import { AcodeError } from './errors.ts';
import { engineLate, unavailableReason } from './unavailable.ts';

describe('the reason for which there is no sandbox', () => {
  it('names the socket and what is wrong with it', () => {
    const what = { socket: '/s', reason: 'no permission' };
    const error = new AcodeError('ACODE-SBX-008', { ...what, required: 'docker', available: 'no isolation' });
    expect(error.message).toContain('Nothing was run');
    expect(new AcodeError('ACODE-SBX-008', what).message).not.toContain('Nothing was run');
    expect(unavailableReason(error)).toBe('no Docker Engine answered at /s (no permission).');
  });

  it('says of an engine that is late for how long acode waited, and no more than is known', () => {
    const late = { socket: 'unix:///s', reason: 'it did not answer within 1.2 s', lateMs: 1200 };
    const said = 'the engine at /s did not answer within 1.2 s: it is slow or hangs';
    expect(unavailableReason(new AcodeError('ACODE-SBX-008', late))).toBe(`${said}.`);
    expect(engineLate('/s', 1200)).toBe(said);
  });

  it('is the message of any other error', () => {
    const error = new AcodeError('ACODE-SBX-011', { uid: 0 });
    expect(unavailableReason(error)).toBe(error.message);
  });
});
