// The conformance suite on level bubblewrap, in a control group where the tests were started in one.

import { conformance } from './suite.ts';

conformance(({ level }) => level === 'bubblewrap');
