// What the engine says about itself, its host and what of ours is on it: everything the doctor asks it, in one go.

import * as z from 'zod';
import { MANAGED } from '../../lifecycle/labels.ts';
import type { Diagnosis } from '../backend.ts';
import { isNotFound } from './engine/error.ts';
import type { Engine } from './engine/index.ts';
import type { EngineInfo } from './engine/system.ts';
import { engineFailure } from './failure.ts';
import { engineStatus, sandboxInfo } from './info.ts';
import { unprotectingIn } from './runtime.ts';

const CALL_MS = 1500;

// Under the engine’s own names; an engine that leaves one out (Podman does) has not said that it lacks it.
const flags = z.looseObject({
  DockerRootDir: z.string().optional(),
  MemoryLimit: z.boolean().optional(),
  SwapLimit: z.boolean().optional(),
  PidsLimit: z.boolean().optional(),
  CpuCfsQuota: z.boolean().optional(),
  CPUCfsQuota: z.boolean().optional(),
  SystemTime: z.string().optional(),
  Warnings: z.array(z.string()).nullish(),
});

/** Asks the engine everything the doctor wants to know. */
export async function diagnoseEngine(
  engine: Engine,
  source: string,
  image: string,
  signal: AbortSignal,
): Promise<Diagnosis> {
  const call = { signal, deadlineMs: CALL_MS };
  const ours = { labels: [`${MANAGED}=true`], ...call };
  try {
    const [info, version, containers, networks, imagePresent] = await Promise.all([
      engine.system.info(call),
      engine.system.version(call),
      engine.containers.list({ ...ours, all: true }),
      engine.networks.list(ours),
      hasImage(engine, image, call),
    ]);
    return {
      engine: engineStatus(engine, source, info),
      unprotecting: unprotectingIn(info),
      kernel: info.KernelVersion,
      architecture: info.Architecture,
      components: (version.Components ?? []).map(({ Name, Version }) => ({ name: Name, version: Version })),
      ...factsIn(info),
      sandboxes: containers.map(sandboxInfo),
      networks: networks.map(({ Name, Labels }) => ({ name: Name, labels: Labels ?? {} })),
      imagePresent,
    };
  } catch (error) {
    throw engineFailure(error, signal);
  }
}

function factsIn(info: EngineInfo): Pick<Diagnosis, 'rootDirectory' | 'limits' | 'systemTime' | 'warnings'> {
  const said = flags.parse(info);
  return {
    rootDirectory: said.DockerRootDir ?? '',
    limits: {
      memory: said.MemoryLimit ?? true,
      swap: said.SwapLimit ?? true,
      pids: said.PidsLimit ?? true,
      cpu: said.CpuCfsQuota ?? said.CPUCfsQuota ?? true,
    },
    systemTime: said.SystemTime ?? '',
    warnings: said.Warnings ?? [],
  };
}

async function hasImage(
  engine: Engine,
  image: string,
  call: { readonly signal: AbortSignal; readonly deadlineMs: number },
): Promise<boolean> {
  try {
    await engine.images.inspect(image, call);
    return true;
  } catch (error) {
    if (isNotFound(error)) return false;
    throw error;
  }
}
