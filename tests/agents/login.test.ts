// Eight real agents at once on one login whose server replaces the refresh token at every use: none of them is logged out, and none has
// a token. `npm run ci:long agents` runs this; tests/egress/logins.test.ts has a scripted client whose processes are killed.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Script } from '../../packages/cli/src/hooks/scripted-model.ts';
import { TokenServer } from '../../packages/sandbox/src/egress/credentials/token-server.test.support.ts';
import { systemClock } from '../../packages/sandbox/src/lifecycle/clock.ts';
import { Locks } from '../../packages/sandbox/src/lifecycle/lock.ts';
import { Logins } from '../../packages/sandbox/src/run/credentials/logins.ts';
import { ONE, withoutNames } from '../egress/servers.ts';
import { images, withoutEngines } from '../support/engines.ts';
import { ModelHost, agentsEntry, lineOf } from './model-host.ts';
import { AgentPlace, agents, titleOf, wordsOf } from './place.ts';
import { report } from './results.ts';

const SESSIONS = 8;
const ROTATIONS = 20;
const EXPIRES_S = 5;
const NAME = 'corp';
// All of them together need less than what a user’s sandboxes may have.
const MEMORY = 1536 * 1024 ** 2;

/** The model of each agent. */
class Models extends Map<string, ModelHost> implements AsyncDisposable {
  async [Symbol.asyncDispose](): Promise<void> {
    for (const host of this.values()) await host[Symbol.asyncDispose]();
  }
}

async function keep(state: string, server: TokenServer): Promise<void> {
  const uid = process.getuid?.() ?? 0;
  const locks = new Locks({ directory: join(state, 'run'), uid, clock: systemClock });
  const logins = new Logins({ state, uid, clock: systemClock, locks });
  const signal = AbortSignal.timeout(10_000);
  await logins.keep(NAME, server.definition, { ...server.current, expiresInSeconds: 1 }, signal);
}

describe.skipIf(withoutEngines || withoutNames)('eight agents at once on one login', () => {
  it(`all go on while the server replaces the refresh token ${ROTATIONS} times`, { timeout: 600_000 }, async () => {
    await using server = await TokenServer.start({ name: ONE, expiresIn: EXPIRES_S });
    await using place = await AgentPlace.open(agents[0] ?? 'claude');
    await using models = new Models();
    let isDone = false;
    for (const name of agents) {
      // Some agents end a conversation in which a call comes over and over.
      let turn = 0;
      const move: Script = () => (isDone ? { say: 'All is done.' } : lineOf(name, `sleep 1; echo turn ${(turn += 1)}`));
      const host = await ModelHost.listen(move);
      host.takes = key => server.takes(key);
      models.set(name, host);
      place.addProgram(name);
    }
    const roots = join(place.home, 'roots.pem');
    writeFileSync(roots, [server.pem, ...[...models.values()].map(({ site }) => site.pem)].join('\n'));
    const { authorizeUrl, tokenUrl, clientId } = server.definition;
    await place.bench.configure({
      images: { default: images.debian },
      network: {
        private_hosts: ['*.acode.test'],
        ca_file: roots,
        logins: { [NAME]: { authorize_url: authorizeUrl, token_url: tokenUrl, client_id: clientId } },
        credentials: { [NAME]: { hosts: [...models.values()].map(({ host }) => host), from: { login: NAME } } },
      },
    });
    const entries = [...models].map(
      ([name, { host }]) =>
        [name, { ...agentsEntry(name, host, { credential: NAME }), limits: { memoryBytes: MEMORY } }] as const,
    );
    writeFileSync(place.agentsFile, JSON.stringify({ agents: Object.fromEntries(entries) }));
    await keep(join(place.bench.env['XDG_STATE_HOME'] ?? '', 'acode'), server);

    const used = Array.from({ length: SESSIONS }, (_, at) => agents[at % agents.length] ?? 'claude');
    const sessions = used.map(name => place.bench.start(wordsOf(name, '--fresh', '-p', 'Do the work.')).ended);
    const early = sessions.map(async ended => {
      const { status, stderr } = await ended;
      if (!isDone) throw new Error(`one ended early with ${status}: ${stderr}`);
    });
    const goOn = async (): Promise<void> => {
      while ((await place.bench.left()).length < SESSIONS) await new Promise(resolve => setTimeout(resolve, 200));
      const from = server.rotations;
      while (server.rotations < from + ROTATIONS && !server.isLoggedOut)
        await new Promise(resolve => setTimeout(resolve, 200));
    };
    await Promise.race([goOn(), Promise.all(early)]);
    const secrets = [server.current.access, server.current.refresh];
    isDone = true;
    const ends = await Promise.all(sessions);
    expect(ends.map(({ status, stderr }) => (status === 0 ? 0 : stderr))).toEqual(used.map(() => 0));
    expect(server.isLoggedOut).toBe(false);
    // Each refresh token was used once: a second use would have ended the login.
    expect(new Set(server.came).size).toBe(server.came.length);
    expect([...models.values()].map(({ site }) => site.seen.length > SESSIONS)).not.toContain(false);
    const printed = ends.map(({ stdout, stderr }) => `${stdout.toString()}${stderr}`).join('');
    for (const secret of secrets) expect(printed).not.toContain(secret);
    const refused = [...models.values()].reduce((sum, one) => sum + one.refused, 0);
    const text = `${SESSIONS} real programs, ${server.rotations} rotations, 0 logged out, ${refused} requests with an old token`;
    process.stdout.write(`FIGURE one login: ${text}\n`);
    for (const name of agents)
      report(titleOf(name), `one login, ${SESSIONS} agents at once, ${ROTATIONS} rotations`, '0 logged out');
  });
});
