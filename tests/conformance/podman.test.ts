// The conformance suite on Podman’s Docker-compatible socket.

import { conformance } from './suite.ts';

conformance(({ engine }) => engine.name === 'podman');
