// The conformance suite on Docker 20.10 with runc, the floor.

import { conformance } from './suite.ts';

conformance(({ engine, level }) => engine.name === 'docker20' && level === 'docker');
