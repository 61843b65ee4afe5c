// What an image has: which C library, which shells, and whether git is there. Asked in a sandbox without a network, once for each image.

import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { AcodeError, policyFrom } from '@acode/sandbox';
import type { Acode, PolicyFields } from '@acode/sandbox';
import * as z from 'zod';

/** What an image has. */
export interface ImageTraits {
  readonly libc: 'glibc' | 'musl';
  readonly git: boolean;
  /** Those of bash and zsh that it has. */
  readonly shells: readonly Shell[];
}

type Shell = (typeof SHELLS)[number];
const SHELLS = ['bash', 'zsh'] as const;

/** An image, as it will be used. */
export interface AgentImage extends ImageTraits {
  readonly reference: string;
  /** Where the workspace is inside. */
  readonly workspace: string;
}

const traitsSchema = z.object({
  libc: z.enum(['glibc', 'musl']),
  git: z.boolean(),
  shells: z.array(z.enum(SHELLS)),
});
const rememberedSchema = z.record(z.string(), traitsSchema);
const MAX_REMEMBERED = 64;
const PROBE_BYTES = 256 * 1024 ** 2;

// Both C libraries have their loader at a fixed place.
const PROBE =
  'for loader in /lib/ld-musl-*; do [ -e "$loader" ] && echo libc=musl; done; for program in git bash zsh; do command -v $program >/dev/null 2>&1 && echo $program=yes; done; :';

/** Finds out what the image of a policy has. A first run of an image takes the time of a short command. */
export async function imageOf(
  acode: Pick<Acode, 'run' | 'explain'>,
  policy: PolicyFields,
  { env, signal }: { readonly env: Readonly<Record<string, string | undefined>>; readonly signal: AbortSignal },
): Promise<AgentImage> {
  const { profile, image, pull, level, runtime, askedBy } = policy;
  const about = Object.fromEntries(
    Object.entries({ profile, image, pull, level, runtime, askedBy }).filter(([, value]) => value !== undefined),
  );
  const probe = policyFrom({
    ...about,
    limits: { memoryBytes: PROBE_BYTES },
    network: 'none',
    workspace: 'readonly',
    services: {},
    caches: false,
  });
  const file = join(stateOf(env), 'images.json');
  const known = await remembered(file);
  const planned = await acode
    .explain(['true'], { policy: policyFrom({ ...about, workspace: policy.workspace }), signal })
    .catch(ignoreMissing);
  const digest = planned?.spec.image.digest;
  const found = digest === undefined ? undefined : known[digest];
  if (planned && found)
    return { ...found, reference: planned.spec.image.reference, workspace: workspaceIn(planned.spec) };
  const result = await acode.run(['/bin/sh', '-c', PROBE], { policy: probe, taskId: 'agent-image', signal });
  const traits: ImageTraits = {
    libc: result.stdout.includes('libc=musl') ? 'musl' : 'glibc',
    git: result.stdout.includes('git=yes'),
    shells: SHELLS.filter(shell => result.stdout.includes(`${shell}=yes`)),
  };
  const { reference, digest: id } = result.image ?? { reference: '', digest: '' };
  if (id !== '') await remember(file, { ...known, [id]: traits });
  const { spec } =
    planned ??
    (await acode.explain(['true'], { policy: policyFrom({ ...about, workspace: policy.workspace }), signal }));
  return { ...traits, reference, workspace: workspaceIn(spec) };
}

// An image that the engine does not have yet.
function ignoreMissing(error: unknown): null {
  if (error instanceof AcodeError && error.is('ACODE-SBX-009')) return null;
  throw error;
}

function workspaceIn({ workdir }: { readonly workdir: string }): string {
  return workdir;
}

function stateOf(env: Readonly<Record<string, string | undefined>>): string {
  const state = env['XDG_STATE_HOME'];
  return join(state?.startsWith('/') ? state : join(env['HOME'] ?? '', '.local', 'state'), 'acode', 'agents');
}

async function remembered(file: string): Promise<Readonly<Record<string, ImageTraits>>> {
  try {
    return rememberedSchema.parse(JSON.parse(await readFile(file, 'utf8')));
  } catch {
    return {};
  }
}

// Only a time saver: what cannot be written is asked again.
async function remember(file: string, all: Readonly<Record<string, ImageTraits>>): Promise<void> {
  try {
    await mkdir(join(file, '..'), { recursive: true, mode: 0o700 });
    const kept = Object.fromEntries(Object.entries(all).slice(-MAX_REMEMBERED));
    const draft = `${file}.${process.pid}`;
    await writeFile(draft, JSON.stringify(kept), { mode: 0o600 });
    await rename(draft, file);
  } catch {
    // As above.
  }
}
