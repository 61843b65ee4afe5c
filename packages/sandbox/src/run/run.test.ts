// Notes for the user about a run are logged as warnings, each once.

import { describe, expect, it } from 'vitest';
import { report } from './run.ts';
import type { Planned } from './host.ts';

describe('a run', () => {
  it('warns of what its plan notes, such as a worktree that will not work, and of what was lowered, each once', () => {
    const said: string[] = [];
    const planned = {
      notes: ['The repository of this worktree is not mounted.', 'twice'],
      policy: { warnings: ['limits.pids was lowered.', 'twice'], timeoutMs: { value: 1 } },
      spec: { identity: {}, image: {}, limits: {}, network: 'none' },
    } as unknown as Planned;
    report({ note: () => undefined, step: (level, message) => void (level === 'warn' && said.push(message)) }, planned);
    expect(said).toEqual(['limits.pids was lowered.', 'twice', 'The repository of this worktree is not mounted.']);
  });
});
