// Profiles and built-in values: limits, ceilings, default images, trusted repositories. A browser uses them too: nothing of Node
// is imported here.

import type { Language } from '../contract/languages.ts';
import type { Limits } from '../contract/policy.ts';
import type { ProfileName } from '../contract/profiles.ts';

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;

const exec: Limits = {
  memoryBytes: 512 * MIB,
  swapBytes: 0,
  cpus: 1,
  pids: 256,
  openFiles: 1024,
  tmpBytes: 64 * MIB,
  outputBytes: 10 * MIB,
};

/** The limits of a profile. */
export type ProfileLimits = Limits & { readonly timeoutMs: number };

/** The machine that sandboxes run on. */
export interface Machine {
  readonly cpus: number;
  readonly memoryBytes: number;
}

/** The limits of the profiles that are the same everywhere. */
export const PROFILES: Readonly<Record<Exclude<ProfileName, 'dev' | 'agent'>, ProfileLimits>> = {
  exec: { ...exec, timeoutMs: 300_000 },
  task: { ...exec, cpus: 0.5, timeoutMs: 300_000 },
  // A swarm’s agent builds and tests a whole project: limits and time only, the isolation is the same.
  swarm: { ...exec, memoryBytes: 4 * GIB, swapBytes: 4 * GIB, cpus: 2, pids: 1000, timeoutMs: 4 * 3600 * 1000 },
};

/** The limits of a profile on a machine. */
export function profileLimits(profile: ProfileName, machine: Machine): ProfileLimits {
  if (profile === 'agent') return agentLimits(machine);
  return profile === 'dev' ? devLimits(machine) : PROFILES[profile];
}

// A coding agent with its own tools, and the builds and tests that it runs. Its home holds what it unpacks and writes down.
function agentLimits(machine: Machine): ProfileLimits {
  const memory = Math.min(3 * GIB, Math.max(2 * GIB, Math.floor(machine.memoryBytes / 4 / MIB) * MIB));
  return { ...devLimits(machine), memoryBytes: memory, pids: 512, tmpBytes: GIB / 2, timeoutMs: 8 * 3600 * 1000 };
}

// A person’s own builds and tests: most of what docs/limits.md measured fits, and the machine remains usable.
function devLimits({ cpus, memoryBytes }: Machine): ProfileLimits {
  const memory = Math.floor(Math.min(4 * GIB, Math.max(GIB, memoryBytes / 4)) / MIB) * MIB;
  return {
    ...exec,
    memoryBytes: memory,
    cpus: Math.min(4, Math.max(1, cpus)),
    pids: 1024,
    // `npm ci` of a thousand packages opens more than 1,024 files at once.
    openFiles: 8192,
    tmpBytes: Math.min(GIB, memory / 4),
    timeoutMs: 600_000,
  };
}

/** The most that any layer may ask for. */
export const CEILINGS: Readonly<Limits & { timeoutMs: number }> = {
  memoryBytes: 8 * GIB,
  swapBytes: 8 * GIB,
  cpus: 4,
  pids: 2048,
  openFiles: 10_000,
  tmpBytes: 4 * GIB,
  outputBytes: 256 * MIB,
  timeoutMs: 24 * 3600 * 1000,
};

/** The image when no layer names one, and the workspace shows no language. */
export const DEFAULT_IMAGE = 'ubuntu:22.04';

/** The image of each language when no layer names one: official ones, whose names no one else can take. */
export const LANGUAGE_IMAGES: Readonly<Record<Language, string>> = {
  dotnet: 'mcr.microsoft.com/dotnet/sdk:8.0',
  go: 'golang:1-bookworm',
  node: 'node:20-alpine',
  python: 'python:3.12-slim',
  rust: 'rust:1-slim-bookworm',
};

/** The same for whole coding agents: these images have git, and the bash that agents run their commands with. */
export const AGENT_IMAGES: Readonly<Record<Language | 'default', string>> = {
  ...LANGUAGE_IMAGES,
  default: 'buildpack-deps:22.04-scm',
  node: 'node:20-bookworm',
  python: 'python:3.12-bookworm',
  rust: 'rust:1-bookworm',
};

/** Repositories whose images may be run by anybody: official ones, whose names no one else can take. */
export const TRUSTED_REPOSITORIES: readonly string[] = ['docker.io/library/*', 'mcr.microsoft.com/dotnet/*'];
