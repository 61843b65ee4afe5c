// The one Dockerfile that acode ever builds: files on top of a base image, and nothing that is executed. Pure.

// Where an image has its project. Not where sandboxes have their workspace: that mount would hide it.
const PROJECT_TARGET = '/project';

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
