// Gives every test process configuration and state directories of its own, so that no test sees the user’s or leaves any.

import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll } from 'vitest';

const home = mkdtempSync('/var/tmp/acode-test-home-');
process.env['XDG_CONFIG_HOME'] = join(home, 'config');
process.env['XDG_STATE_HOME'] = join(home, 'state');
afterAll(() => rmSync(home, { recursive: true, force: true }));
