// The words of level ulimit: numbers, and never anything a shell would read as more.

import { describe, expect, it } from 'vitest';
import type { SandboxSpec } from '../../contract/spec.ts';
import { WAITING_COMMAND } from '../handover/script.ts';
import { ulimitCommand, ulimitLimits } from './backend.ts';

const MIB = 1024 ** 2;
const spec = { limits: { memoryBytes: 64 * MIB, openFiles: 99 } } as SandboxSpec;

describe('the limits', () => {
  it('are those of the plan, and the defaults', () => {
    expect(ulimitLimits(spec, {}, 'linux')).toEqual({
      cpuSeconds: 300,
      fileBytes: 100 * MIB,
      openFiles: 99,
      virtualMemoryBytes: 64 * MIB,
    });
  });

  it('leave memory alone where the settings or the system do', () => {
    expect(ulimitLimits(spec, { virtualMemoryBytes: null }, 'linux').virtualMemoryBytes).toBeNull();
    expect(ulimitLimits(spec, {}, 'darwin').virtualMemoryBytes).toBeNull();
    expect(ulimitLimits(spec, { virtualMemoryBytes: MIB }, 'linux').virtualMemoryBytes).toBe(MIB);
  });
});

describe('the command', () => {
  it('is one fixed text, the numbers, and the shell that waits', () => {
    const one = ulimitCommand(ulimitLimits(spec, {}, 'linux'));
    const other = ulimitCommand(ulimitLimits(spec, { cpuSeconds: 1, virtualMemoryBytes: null }, 'linux'));
    expect(one.slice(0, 4)).toEqual(other.slice(0, 4));
    expect(one.slice(4)).toEqual(['300', '204800', '99', '65536', ...WAITING_COMMAND]);
    expect(other.slice(4)).toEqual(['1', '204800', '99', '-', ...WAITING_COMMAND]);
  });
});
