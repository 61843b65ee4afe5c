// The one Dockerfile that acode ever builds: files on top of a base image, and nothing that is executed. Pure.

import { createHash } from 'node:crypto';

// Where an image has its project. Not where sandboxes have their workspace: that mount would hide it.
const PROJECT_TARGET = '/project';

/** The name of the Dockerfile in the build’s context. */
export const TEMPLATE_NAME = 'Dockerfile';

/** The directory of the context that holds the project, so that no file of it can stand in the template’s place. */
export const PROJECT_FOLDER = 'project';

/** The tag of every project image. */
const TAG = 'project';

/** Local names: they are built here, and a registry that has one of them has a stranger’s. */
const REPOSITORY = 'acode-sandbox';

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

/** The name of a project’s image: readable, and different for every directory and user. */
export function projectReference(root: string, uid: number): string {
  const name = root.slice(root.lastIndexOf('/') + 1);
  const slug = name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .slice(0, 40)
    .replaceAll(/^-+|-+$/g, '');
  const digest = createHash('sha256').update(`${uid}:${root}`).digest('hex').slice(0, 12);
  return `${[REPOSITORY, slug, digest].filter(part => part !== '').join('-')}:${TAG}`;
}
