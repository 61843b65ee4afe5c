// The conformance suite on level none, as far as its behaviours apply there.

import { conformance } from './suite.ts';

conformance(({ level }) => level === 'none');
