// The built-in values: what a sandbox gets when nobody says anything, and the most anybody can ask for.

import type { Limits } from '../contract/policy.ts';

const MIB = 1024 ** 2;

/** The limits of each profile. */
export const PROFILES: Readonly<Record<'exec' | 'task', Limits>> = {
  exec: {
    memoryBytes: 512 * MIB,
    swapBytes: 0,
    cpus: 1,
    pids: 256,
    openFiles: 1024,
    tmpBytes: 64 * MIB,
    outputBytes: 10 * MIB,
  },
  task: {
    memoryBytes: 512 * MIB,
    swapBytes: 0,
    cpus: 0.5,
    pids: 256,
    openFiles: 1024,
    tmpBytes: 64 * MIB,
    outputBytes: 10 * MIB,
  },
};

/** The most that any layer may ask for. */
export const CEILINGS: Readonly<Limits & { timeoutMs: number }> = {
  memoryBytes: 8 * 1024 * MIB,
  swapBytes: 8 * 1024 * MIB,
  cpus: 4,
  pids: 2048,
  openFiles: 10_000,
  tmpBytes: 4 * 1024 * MIB,
  outputBytes: 256 * MIB,
  timeoutMs: 24 * 3600 * 1000,
};

/** Below this the engine refuses to start anything. */
export const LEAST_MEMORY = 6 * MIB;

/** How long a command may run when nobody says. */
export const TIMEOUT_MS = 300_000;

/** The image when nobody names one. */
export const DEFAULT_IMAGE = 'ubuntu:22.04';
