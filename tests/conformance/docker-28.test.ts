// The conformance suite on Docker 28 with runc, and whatever else is not named elsewhere.

import { conformance } from './suite.ts';

conformance(({ engine, level }) => engine.name !== 'docker20' && level === 'docker');
