// From a reference to an image that may run: decided, pulled once for everybody who wants it, written down, decided again.

import { AcodeError } from '../contract/errors.ts';
import type { ImageFacts } from '../contract/spec.ts';
import { withDeadline } from '../lifecycle/clock.ts';
import { assertMayName, assertOrigin, decidePull, latestWarning } from '../policy/pull.ts';
import { decideImage, fullName, parseReference } from '../policy/images.ts';
import type { ImageHost, PullOutcome, Wanted } from './pulls.ts';

/** An image that may run, and how it was had. */
export interface Obtained {
  readonly image: ImageFacts;
  readonly notes: readonly string[];
  readonly outcome: PullOutcome;
}

const NOTHING_DONE: PullOutcome = { changed: false, previousDigest: null };
const VERIFY_MS = 30_000;

/** The image of a run: what the engine has, or what is pulled now. */
export async function imageForRun(host: ImageHost, wanted: Wanted, signal: AbortSignal): Promise<Obtained> {
  const obtained = await obtainImage(host, wanted, signal, true);
  // Off the caller’s path; what was not noted down is used a little less long ago.
  if (!wanted.preview) {
    const now = host.telemetry.clock.now();
    host.keep(host.pulls.index.used(obtained.image.id, now, host.closing).catch(() => undefined));
  }
  return obtained;
}

/** Obtains an image. With `cachedWillDo`, one that is there stands in where the registry cannot be reached. */
export async function obtainImage(
  host: ImageHost,
  wanted: Wanted,
  signal: AbortSignal,
  cachedWillDo: boolean,
): Promise<Obtained> {
  const { policy, preview } = wanted;
  assertMayName(policy);
  const store = (await host.engine()).images;
  const found = await (wanted.found ?? store.find(policy.image.value, signal));
  const { action, reason, warnings } = decidePull({ image: policy.image, present: found !== null, policy });
  if (preview && action === 'pull') return previewed(host, policy, found, reason, signal);
  if (action === 'use' && found) return accepted(host, policy, found, { notes: warnings }, signal);
  // Loaded when it is needed: most runs pull nothing.
  const { presentNow, pullShared } = await import('./pull-once.ts');
  const pull = { host, store, reference: policy.image.value, reason, wanted };
  try {
    const outcome = await pullShared(pull, signal);
    return await accepted(host, policy, await presentNow(pull, signal), { notes: warnings, outcome }, signal);
  } catch (error) {
    const instead = cachedWillDo ? found : null;
    if (!instead || !isUnreachable(error)) throw error;
    const note = `${policy.image.value} could not be pulled anew, so the image that is there is used: ${error.context.reason}.`;
    return accepted(host, policy, instead, { notes: [note, ...warnings] }, signal);
  }
}

async function previewed(
  host: ImageHost,
  policy: Wanted['policy'],
  found: ImageFacts | null,
  reason: string,
  signal: AbortSignal,
): Promise<Obtained> {
  const image = policy.image.value;
  const notes = [
    `The image ${image} would be pulled ${found ? 'anew ' : ''}first: ${reason}.`,
    ...latestWarning(image),
  ];
  if (found) return accepted(host, policy, found, { notes }, signal);
  const digest = parseReference(image)?.digest ?? '';
  const unknown = { reference: image, id: '', digest, environment: [], volumes: [], repositoryDigests: [] };
  return { image: unknown, notes, outcome: NOTHING_DONE };
}

// The decision about what may run is made on what the engine really has, whatever was decided about its name before.
async function accepted(
  host: ImageHost,
  policy: Wanted['policy'],
  found: ImageFacts,
  { notes, outcome = NOTHING_DONE }: { notes: readonly string[]; outcome?: PullOutcome },
  signal: AbortSignal,
): Promise<Obtained> {
  const { image, imageTrust } = policy;
  decideImage(image.value, found, imageTrust);
  assertOrigin(policy, found, await wasPulled(host, policy, found, signal));
  await assertSigned(host, found, signal);
  const latest = found.repositoryDigests.length > 0 ? latestWarning(image.value) : [];
  return { image: found, notes: [...new Set([...notes, ...latest])], outcome };
}

// Whether acode itself pulled this image under this name; asked only where the engine’s own account proves nothing.
async function wasPulled(
  host: ImageHost,
  { image, imageNaming }: Wanted['policy'],
  { id, namedOnly }: ImageFacts,
  signal: AbortSignal,
): Promise<boolean> {
  if (imageNaming.untrusted === null || namedOnly !== true) return false;
  const full = fullName(image.value);
  const engine = await (await host.engine()).images.engineId(signal);
  return (await host.pulls.index.on(engine)).some(entry => entry.reference === full && entry.id === id);
}

async function assertSigned(
  host: ImageHost,
  { reference, id, repositoryDigests }: ImageFacts,
  signal: AbortSignal,
): Promise<void> {
  const { verifySignature } = host.pulls;
  if (!verifySignature) return;
  const { clock } = host.telemetry;
  const reason = (): Error => new Error(`it was not verified in ${VERIFY_MS / 1000} s`);
  try {
    const image = { reference, id, repositoryDigests };
    await withDeadline({ clock, ms: VERIFY_MS, signal, reason }, within => verifySignature(image, within));
  } catch (error) {
    if (signal.aborted || error instanceof AcodeError) throw error;
    throw new AcodeError(
      'ACODE-SBX-010',
      {
        violation: 'UnverifiedImage',
        detail: `the signature of ${reference} was not accepted: ${error instanceof Error ? error.message : String(error)}`,
        remedy: 'Use an image with a signature that this program trusts.',
      },
      { cause: error },
    );
  }
}

function isUnreachable(error: unknown): error is AcodeError<'ACODE-SBX-002'> {
  return error instanceof AcodeError && error.is('ACODE-SBX-002') && error.context.kind === 'unreachable';
}
