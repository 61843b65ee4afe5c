// The conformance suite on Docker 28 with runc, and whatever else is not named elsewhere.

import { conformance } from './suite.ts';

conformance(({ engine, level }) => !['docker20', 'podman'].includes(engine.name) && level === 'docker');
