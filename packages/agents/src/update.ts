// Another version of an agent: what the registry offers, and the line of the user’s own file that pins it.

import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { parseDocument } from 'yaml';
import * as z from 'zod';
import { agentError } from './errors.ts';
import { agentsFile } from './known.ts';
import { NpmFailure, viewPackage } from './npm.ts';
import type { NpmSurroundings } from './npm.ts';
import type { AgentPreset } from './preset.ts';
import { specOf } from './program.ts';

/** A version that can be pinned. */
export interface OfferedVersion {
  readonly version: string;
  /** The integrity of its packages, by `name@version`. */
  readonly integrity: Readonly<Record<string, string>>;
}

const seenSchema = z.object({ version: z.string(), 'dist.integrity': z.string().startsWith('sha512-') });

/** Asks the registry for a version of an agent: the newest, unless one is named. */
export async function offeredVersion(
  preset: AgentPreset,
  wanted: string,
  around: NpmSurroundings & { readonly signal: AbortSignal },
): Promise<OfferedVersion> {
  const own = preset.program?.packages.filter(({ version }) => version.includes('{version}')) ?? [];
  const [first] = own;
  if (!first)
    throw agentError('ACODE-AGT-007', { agent: preset.name, what: 'be updated: its program is that of the image' });
  const directory = await mkdtemp(join(tmpdir(), 'acode-update-'));
  const see = async (spec: string): Promise<z.output<typeof seenSchema>> => {
    const seen = seenSchema.safeParse(await viewPackage(spec, directory, around, around.signal));
    if (!seen.success) throw new NpmFailure(`the registry names no integrity of ${spec}`);
    return seen.data;
  };
  try {
    // A tag is of the package and not of its builds; a build for a platform may be a version of the same package.
    const { version } = await see(`${first.name}@${wanted}`);
    const integrity: Record<string, string> = {};
    for (const one of own) {
      const spec = specOf(one, version);
      const seen = await see(spec).catch((error: unknown) => {
        if (error instanceof NpmFailure) return null;
        throw error;
      });
      if (seen) integrity[spec] = seen['dist.integrity'];
    }
    return { version, integrity };
  } catch (error) {
    if (!(error instanceof NpmFailure)) throw error;
    throw agentError(
      'ACODE-AGT-003',
      { agent: preset.name, package: `${first.name}@${wanted}`, reason: error.message },
      { cause: error },
    );
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Pins a version of an agent in the user’s own file; returns the file. What else is in it stays. */
export async function pinVersion(
  { name }: Pick<AgentPreset, 'name'>,
  { version, integrity }: OfferedVersion,
  env: Readonly<Record<string, string | undefined>>,
): Promise<string> {
  const file = agentsFile(env);
  const document = parseDocument(await readFile(file, 'utf8').catch(() => ''));
  document.setIn(['agents', name, 'version'], version);
  document.setIn(['agents', name, 'integrity'], integrity);
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const draft = `${file}.${process.pid}`;
  await writeFile(draft, document.toString(), { mode: 0o600 });
  await rename(draft, file);
  return file;
}
