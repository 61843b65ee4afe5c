// The conformance suite on gVisor as a runtime of Docker.

import { conformance } from './suite.ts';

conformance(({ level }) => level === 'gvisor');
