// Program of an agent: which packages it is made of for a platform, and how they come into acode’s store. Each is compared with the
// integrity that the preset pins, and nothing of it runs on this machine.

import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { AcodeError } from '@acode/sandbox';
import type { Acode, ProgramRequest } from '@acode/sandbox';
import { unpack } from './archive.ts';
import { agentError } from './errors.ts';
import { NpmFailure, fetchPackage } from './npm.ts';
import type { NpmSurroundings } from './npm.ts';
import type { AgentPreset, ProgramPackage } from './preset.ts';

/** What a program has to run on. */
export interface Platform {
  readonly arch: string;
  readonly libc: 'glibc' | 'musl';
}

/** How far a download is. */
export interface ProgramProgress {
  readonly package: string;
  readonly bytes: number;
  /** Absent where it is not known. */
  readonly totalBytes?: number;
}

/** Where the program of an agent is inside. */
export function programTarget({ name }: Pick<AgentPreset, 'name'>): string {
  return `/opt/${name}`;
}

/** How a program gets into the store. */
export interface Fetching extends NpmSurroundings {
  readonly platform: Platform;
  /** The image, for an error. */
  readonly image?: string | undefined;
  readonly signal: AbortSignal;
  readonly progress?: ((progress: ProgramProgress) => void) | undefined;
}

/** The program of an agent in the store, fetched where it is not there yet; null for a program of the image. */
export async function addProgram(
  { programs }: Pick<Acode, 'programs'>,
  preset: AgentPreset,
  fetching: Fetching,
): Promise<ProgramRequest | null> {
  const packages = packagesFor(preset, fetching);
  if (packages === null) return null;
  const id = programId(preset, packages);
  const fill = async (directory: string, signal: AbortSignal): Promise<void> => {
    for (const one of packages) await addPackage(preset, one, directory, { ...fetching, signal });
  };
  await programs.add(id, fill, { signal: fetching.signal });
  return { id, target: programTarget(preset) };
}

/** Whether the program of an agent is in the store, for a platform; true for a program of the image. */
export function hasProgram({ programs }: Pick<Acode, 'programs'>, preset: AgentPreset, platform: Platform): boolean {
  const packages = suiting(preset, platform);
  return packages === null || (packages.length > 0 && programs.has(programId(preset, packages)));
}

/** A package as npm names it, with the integrity that it must have. */
export interface PinnedPackage {
  readonly spec: string;
  readonly integrity: string;
  readonly of: ProgramPackage;
}

/** The packages for a platform; null for a program of the image. Throws where there are none for it. */
function packagesFor(preset: AgentPreset, { platform, image }: Fetching): readonly PinnedPackage[] | null {
  const packages = suiting(preset, platform);
  if (packages === null || packages.length > 0) return packages;
  throw agentError('ACODE-AGT-002', {
    agent: preset.name,
    platform: platformText(platform),
    ...(image === undefined ? {} : { image }),
    others: platformsOf(preset).map(platformText),
  });
}

// A platform has a build if every kind of package that the program is made of has one for it.
function suiting({ program, version = '' }: AgentPreset, { arch, libc }: Platform): readonly PinnedPackage[] | null {
  if (program === undefined) return null;
  const found = grouped(program.packages).map(kind =>
    kind.find(one => (one.arch ?? arch) === arch && (one.libc ?? libc) === libc && integrityOf(one, program, version)),
  );
  if (found.some(one => one === undefined)) return [];
  return found.flatMap(one => {
    const integrity = one && integrityOf(one, program, version);
    return one && integrity ? [{ spec: specOf(one, version), integrity, of: one }] : [];
  });
}

// Packages that stand for each other put their files in the same place.
function grouped(packages: readonly ProgramPackage[]): ProgramPackage[][] {
  const kinds = new Map<string, ProgramPackage[]>();
  for (const one of packages) {
    const kind = one.files.map(({ to }) => to).join(' ');
    kinds.set(kind, [...(kinds.get(kind) ?? []), one]);
  }
  return [...kinds.values()];
}

function integrityOf(
  one: ProgramPackage,
  { integrity }: NonNullable<AgentPreset['program']>,
  version: string,
): string | undefined {
  return integrity[specOf(one, version)];
}

/** A package with its version. */
export function specOf({ name, version }: Pick<ProgramPackage, 'name' | 'version'>, agentVersion: string): string {
  return `${name}@${version.replaceAll('{version}', agentVersion)}`;
}

const PLATFORMS: readonly Platform[] = ['x64', 'arm64'].flatMap(arch => [
  { arch, libc: 'glibc' as const },
  { arch, libc: 'musl' as const },
]);

/** The platforms that an agent has a build for. */
export function platformsOf(preset: AgentPreset): readonly Platform[] {
  return PLATFORMS.filter(platform => suiting(preset, platform)?.length !== 0);
}

/** A platform in words. */
export function platformText({ arch, libc }: Platform): string {
  return `linux ${arch} with ${libc}`;
}

function programId({ name, version = '' }: AgentPreset, packages: readonly PinnedPackage[]): string {
  const what = packages.map(({ spec, integrity, of: { files } }) => ({ spec, integrity, files }));
  const hash = createHash('sha256').update(JSON.stringify(what)).digest('hex');
  return `agent-${name}-${version.toLowerCase().replaceAll(/[^a-z0-9.-]/g, '-')}-${hash.slice(0, 16)}`;
}

async function addPackage(
  { name: agent }: AgentPreset,
  { spec, integrity, of: { bytes: totalBytes, files } }: PinnedPackage,
  into: string,
  { signal, progress, ...around }: Fetching,
): Promise<void> {
  const directory = join(into, '.fetched');
  await mkdir(directory, { mode: 0o700 });
  const told = (bytes: number): void =>
    progress?.({ package: spec, bytes, ...(totalBytes === undefined ? {} : { totalBytes }) });
  try {
    const archive = await fetchPackage(spec, directory, around, { signal, progress: told });
    const found = await integrityOfFile(archive);
    if (found !== integrity) throw agentError('ACODE-AGT-004', { agent, package: spec, expected: integrity, found });
    const count = await unpack(archive, into, files, signal);
    if (count === 0) throw new NpmFailure('it has none of the files that the preset names');
  } catch (error) {
    if (error instanceof AcodeError || signal.aborted) throw error;
    throw agentError(
      'ACODE-AGT-003',
      { agent, package: spec, reason: error instanceof Error ? error.message : String(error) },
      { cause: error },
    );
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function integrityOfFile(path: string): Promise<string> {
  const hash = createHash('sha512');
  await pipeline(createReadStream(path), hash);
  return `sha512-${hash.digest('base64')}`;
}
