// Makes images on the engine from a template and files of acode’s own, and holds what was made against what was asked for.

import { AcodeError } from '../../../contract/errors.ts';
import type { BuiltImage, ImageBuild, ImageBuilds } from '../../backend.ts';
import { EngineError, isNotFound } from '../engine/error.ts';
import { Builds } from '../engine/build.ts';
import type { Engine } from '../engine/index.ts';
import { engineFailure } from '../failure.ts';

/** The builds of one engine. */
export class DockerBuilds implements ImageBuilds {
  readonly impossible: string | null;
  readonly #builds: Builds;

  constructor(engine: Engine) {
    // It executes them all the same, as root.
    this.impossible = engine.connection.isPodman ? 'Podman does not say which ONBUILD triggers a base image has' : null;
    this.#builds = new Builds(engine.connection);
  }

  async find(reference: string, signal: AbortSignal): Promise<BuiltImage | null> {
    try {
      return await this.#builds.inspect(reference, { signal });
    } catch (error) {
      if (isNotFound(error)) return null;
      throw engineFailure(error, signal);
    }
  }

  async build(build: ImageBuild, signal: AbortSignal): Promise<BuiltImage> {
    const { reference, base, template, labels, context, timeoutMs, onOutput } = build;
    let said: string | null;
    try {
      said = await this.#builds.build(
        { reference, dockerfile: template, labels, context },
        { signal, deadlineMs: timeoutMs, ...(onOutput ? { onOutput } : {}) },
      );
    } catch (error) {
      throw buildFailure(reference, error, signal);
    }
    const made = await this.find(reference, signal);
    const difference = made ? differenceOf(made, { base, labels, said }) : 'the engine has no image of that name';
    if (made && difference === null) return made;
    // Under its name it would be taken for the project’s. Only what this build made: the name may be another’s by now, whose
    // image is none of ours to remove.
    if (said !== null) await this.#discard(said, signal);
    throw new AcodeError('ACODE-IMG-001', {
      image: reference,
      reason: `what the engine made is not what was asked for (${difference ?? 'nothing'})`,
      remedy: 'Do not use the image. If nobody else builds on this engine, treat this as an attack.',
    });
  }

  // What is wrong with it is the error, and not that it could not be removed.
  async #discard(id: string, signal: AbortSignal): Promise<void> {
    try {
      await this.remove(id, signal);
    } catch {
      signal.throwIfAborted();
    }
  }

  async remove(id: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#builds.remove(id, { signal });
    } catch (error) {
      // Somebody uses it, under this name or another.
      if (!(error instanceof EngineError && error.status === 409)) throw engineFailure(error, signal);
    }
  }
}

// One layer on top of the base, with our labels: a build that pulled, or executed something, would show here.
function differenceOf(
  made: BuiltImage,
  asked: Pick<ImageBuild, 'base' | 'labels'> & { readonly said: string | null },
): string | null {
  const { base, labels, said } = asked;
  if (said !== null && said !== made.id) return 'its name is another image’s';
  if (base.layers.some((layer, index) => made.layers[index] !== layer)) return 'it is not built on its base';
  if (made.layers.length !== base.layers.length + 1) return 'it has other layers than the project’s';
  const label = Object.keys(labels).find(name => made.labels[name] !== labels[name]);
  return label === undefined ? null : `its label ${label} is another one`;
}

function buildFailure(image: string, error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  // A file that changed while it was sent is the reason, and not that the sending ended.
  if (error instanceof EngineError && error.cause instanceof AcodeError) return error.cause;
  if (!(error instanceof EngineError)) return error;
  return new AcodeError(
    'ACODE-IMG-001',
    { image, reason: error.engineMessage ?? error.message },
    { cause: engineFailure(error, signal) },
  );
}
