// The conformance suite on level ulimit, as far as its behaviours apply there.

import { conformance } from './suite.ts';

conformance(({ level }) => level === 'ulimit');
