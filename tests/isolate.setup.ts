// Gives every test file directories of its own, so that no test sees the user’s or leaves any, and none is of the same host
// as another: whatever one of them cleans up, the sandboxes of the others are not its own.

import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll } from 'vitest';

// Where somebody runs the tests at a terminal: no command of theirs may leave a background process.
process.env['CI'] = 'true';
const home = mkdtempSync('/var/tmp/acode-test-home-');
process.env['XDG_CONFIG_HOME'] = join(home, 'config');
process.env['XDG_STATE_HOME'] = join(home, 'state');
process.env['XDG_RUNTIME_DIR'] = join(home, 'run');
afterAll(() => rmSync(home, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }));
