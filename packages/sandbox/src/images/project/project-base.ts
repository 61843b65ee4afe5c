// Base of a project image: chosen like the image of any command here, checked, and the template of the build.

import type { Command } from '../../contract/command.ts';
import { ERRORS } from '../../contract/error-table.ts';
import { AcodeError } from '../../contract/errors.ts';
import type { Text } from '../../contract/wording.ts';
import { usesEngine } from '../../contract/levels.ts';
import { policyFrom } from '../../contract/policy.ts';
import type { BuildProjectOptions } from '../../contract/project-image.ts';
import type { Host, Planned } from '../../run/host.ts';
import type { BuiltImage, EngineBackend } from '../../isolation/backend.ts';
import { plan } from '../../run/planning.ts';
import { fullName } from '../../policy/images.ts';
import type { Operation } from '../../records/telemetry.ts';

/** Inputs of the search for the base. */
export interface Basing {
  readonly host: Host;
  readonly options: BuildProjectOptions;
  readonly operation: Operation;
  readonly signal: AbortSignal;
}

const NO_COMMAND: Command = ['true'];

/**
 * Plans a command on the base of a project image: the install command, or one that does nothing. As for any command in this
 * workspace, the same voices choose the image, and the same lists decide whether it may be used.
 */
export async function planBase(
  { host, options, operation, signal }: Basing,
  engine: Pick<EngineBackend, 'builds'>,
): Promise<Planned> {
  refuseImpossible(engine);
  const { install, base } = options;
  const policy = policyFrom({ ...install?.policy, ...(base === undefined ? {} : { image: base }) });
  const request = { command: install?.command ?? NO_COMMAND, request: { policy } };
  const of = { correlationId: operation.correlationId, preview: false, tells: false };
  const planned = await plan(host, request, of, signal).catch((error: unknown) => {
    throw aboutBase(error);
  });
  if (usesEngine(planned.spec.level)) return planned;
  throw new AcodeError('ACODE-SBX-016', {
    what: `A project image at level ${planned.spec.level}`,
    instead: 'Set sandbox.level to auto or docker: images are an engine’s.',
  });
}

/** An error about the image of a command, in the terms of a caller that names a base. */
export function aboutBase(error: unknown): unknown {
  if (!(error instanceof AcodeError)) return error;
  const { cause } = error;
  if (error.is('ACODE-SBX-017')) {
    const { field, remedy, ...rest } = error.context;
    const told = remedy === undefined ? {} : { remedy: ofBase(remedy) };
    return new AcodeError('ACODE-SBX-017', { ...rest, field: field === IMAGE ? 'base' : field, ...told }, { cause });
  }
  if (!error.is('ACODE-SBX-009')) return error;
  const remedy = ofBase(ERRORS['ACODE-SBX-009'].hint(error.context));
  return new AcodeError('ACODE-SBX-009', { ...error.context, remedy }, { cause });
}

const IMAGE = 'policy.image';

// The same text about the field that names a base.
function ofBase(remedy: Text): Text {
  if (typeof remedy === 'string') return remedy;
  return remedy.map(part =>
    typeof part === 'object' && 'field' in part && part.field === IMAGE ? { ...part, field: 'base' } : part,
  );
}

function refuseImpossible({ builds: { impossible } }: Pick<EngineBackend, 'builds'>): void {
  if (impossible === null) return;
  throw new AcodeError('ACODE-SBX-016', {
    what: `A project image on this engine (${impossible})`,
    instead: 'Build it on a Docker Engine: name its socket with DOCKER_HOST or --socket.',
  });
}

/**
 * Refuses the image that is to be built as its own base: it would grow with each build and never be unchanged. That comes
 * where a configuration names the project image as the image of commands here.
 */
export function refuseItself(base: string, reference: string): void {
  if (fullName(base) !== fullName(reference)) return;
  throw new AcodeError('ACODE-SBX-017', {
    field: 'base',
    reason: `commands here get ${reference}, which is the image that is to be built`,
    remedy: 'Name the image to build on with --base, as it was named the first time.',
  });
}

/** The base as a build needs to know it; refused if it has ONBUILD triggers. */
export async function baseOf(
  engine: EngineBackend,
  { id, reference }: { readonly id: string; readonly reference: string },
  signal: AbortSignal,
): Promise<BuiltImage> {
  const base = await engine.builds.find(id, signal);
  if (!base) throw new AcodeError('ACODE-SBX-009', { image: reference });
  if (base.triggers.length === 0) return base;
  throw new AcodeError('ACODE-SBX-010', {
    violation: 'DangerousImage',
    detail: `${reference} has ONBUILD triggers, which would run as root while the project image is built (built-in rule)`,
    remedy: 'Name another image with --base, or rebuild this one without ONBUILD.',
  });
}

/** Where an image has its project. Not where sandboxes have their workspace: that mount would hide it. */
export const PROJECT_TARGET = '/project';

/** The name of the Dockerfile in the build’s context. */
export const TEMPLATE_NAME = 'Dockerfile';

/** The directory of the context that holds the project, so that no file of it can stand in the template’s place. */
export const PROJECT_FOLDER = 'project';

// What a container inherits must not look like what acode puts on its own: `acode.` is reserved for that.
const PREFIX = 'dev.acode.image';

/** The label with the checksum of everything an image was made of. */
export const CHECKSUM_LABEL = `${PREFIX}.checksum`;

/** The label with what the parts of the checksum were, to say which of them has changed. */
export const INPUTS_LABEL = `${PREFIX}.inputs`;

/** The label with the directories of dependencies in an image, and the lockfiles they were installed by. */
export const DEPENDENCIES_LABEL = `${PREFIX}.dependencies`;

/** The label that tells what kind of image this is. */
export const KIND_LABEL = `${PREFIX}.kind`;

const IMAGE_ID = /^sha256:[0-9a-f]{64}$/;

/**
 * The Dockerfile for a base image. There is no RUN in it: a build’s commands run as root and outside of every policy, so
 * what has to be executed is executed in a sandbox before, and comes in as files.
 */
export function templateFor(baseId: string): string {
  // An id alone: a name could be moved, or be another line of the file.
  if (!IMAGE_ID.test(baseId)) throw new TypeError('the base of a project image is named by its id');
  return [
    `FROM ${baseId}`,
    `COPY ${PROJECT_FOLDER}/ ${PROJECT_TARGET}/`,
    `ENV ACODE_PROJECT=${PROJECT_TARGET}`,
    'USER 1000:1000',
    '',
  ].join('\n');
}
