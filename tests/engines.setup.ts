// Says once, and loudly, when the tests that need an engine cannot run.

import { existsSync } from 'node:fs';

export function setup(): void {
  const missing = !existsSync('/run/acode-engines/engines.json');
  const root = process.getuid?.() === 0;
  if (missing)
    process.stderr.write(
      '\nSKIPPING every test that needs an engine: none is up. `npm run engines:up` starts them.\n\n',
    );
  else if (root)
    process.stderr.write(
      '\nSKIPPING every test that runs a sandbox: acode never runs as root. Use `.ci/engines/as-user -- npm test`.\n\n',
    );
}
