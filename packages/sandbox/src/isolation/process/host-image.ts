// What stands for an image where there is none: the system of this host, with the one variable its programs need.

import type { ImageFacts } from '../../contract/spec.ts';

/** The system of this host. */
export const HOST_IMAGE: ImageFacts = {
  reference: 'host',
  id: 'host',
  digest: 'host',
  environment: ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'],
  volumes: [],
  repositoryDigests: [],
};

/** Variables that no command may find; only a control of the doctor’s, which lacks that protection, has them. */
export const LEAKED_VARIABLES = {
  ACODE_DOCTOR_LEAK: '1',
  HTTP_PROXY: 'http://user:secret@proxy.invalid:1',
} as const;
