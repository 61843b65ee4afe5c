// Group E: a process that leaves its session and forgets where it came from, to live on when its command has ended.

import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { exists } from '../../../workspace/locate.ts';
import type { Trial } from '../trial.ts';

// It ends by itself soon, wherever it got to. Its command waits until it has left.
const LIVE_ON = `
command -v setsid > /dev/null && command -v env > /dev/null || { echo missing; exit 0; }
setsid env -i /bin/sh -c 'echo x > up; sleep 1; echo x > late' > /dev/null 2>&1 < /dev/null &
while [ ! -e up ]; do sleep 0.1 2> /dev/null || sleep 1; done;`;
const MAX_MS = 2500;
const LOOK_MS = 100;

/** A process in a session of its own, with an environment of its own. */
export const survivor: Trial = {
  about: 'what lives on',
  needsShell: true,
  onHost: 'same',
  attacks: [{ id: 'E10', title: 'survivor in a session of its own' }],
  async run(bench) {
    const [left, awaited] = await Promise.all([bench.workspace(), bench.workspace()]);
    const [result] = await Promise.all([
      bench.run(`${LIVE_ON} true`, { workspace: left }),
      bench.run(`${LIVE_ON} sleep 3`, { workspace: awaited }),
    ]);
    if (result.stdout.includes('missing')) return { E10: { untried: 'the image has no setsid, or no env' } };
    const lives = await appears(join(left, 'late'));
    return {
      E10: {
        stopped: !lives,
        observed: lives ? 'it wrote a file when its command had long ended' : 'it ended with its command',
        controlled: await exists(join(awaited, 'late')),
        control: 'it writes its file where its command waits for it',
      },
    };
  },
};

async function appears(path: string): Promise<boolean> {
  for (let waited = 0; waited < MAX_MS; waited += LOOK_MS) {
    if (await exists(path)) return true;
    await sleep(LOOK_MS);
  }
  return false;
}
