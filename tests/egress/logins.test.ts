// Logins of acode’s own: a sandbox uses one without having its tokens, and neither refreshes nor ends it. Real processes that are killed
// while a server replaces the refresh token at every use.

import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Locks, parseHolder } from '../../packages/sandbox/src/lifecycle/lock.ts';
import { systemClock } from '../../packages/sandbox/src/lifecycle/clock.ts';
import { Logins } from '../../packages/sandbox/src/run/credentials/logins.ts';
import { TokenServer } from '../../packages/sandbox/src/egress/credentials/token-server.test.support.ts';
import { Bench } from '../cli/bench.ts';
import type { Ended } from '../cli/bench.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';
import { everything } from '../support/targets.ts';
import { until } from '../support/waiting.ts';
import { AllowHost, ONE, mainPlaces, withoutNames } from './servers.ts';

const skipped = withoutEngines || withoutNames;
const NAME = 'corp';
const uid = process.getuid?.() ?? 0;

/** The sections of a user’s file for a login at a server. */
function network(server: TokenServer) {
  const { authorizeUrl, tokenUrl, clientId, revokeUrl, refusedUrls } = server.definition;
  const login = {
    ...{ authorize_url: authorizeUrl, token_url: tokenUrl, client_id: clientId, revoke_url: revokeUrl },
    refused_urls: refusedUrls,
  };
  const credential = {
    ...{ hosts: [`${ONE}:${server.port}`], from: { login: NAME } },
    ...{ variable: 'CORP_TOKEN', refresh_variable: 'CORP_REFRESH' },
  };
  return { logins: { [NAME]: login }, credentials: { [NAME]: credential } };
}

function keep(state: string, server: TokenServer, expiresInSeconds: number): Promise<void> {
  const locks = new Locks({ directory: join(state, 'run'), uid, clock: systemClock });
  const logins = new Logins({ state, uid, clock: systemClock, locks });
  return logins.keep(NAME, server.definition, { ...server.current, expiresInSeconds }, AbortSignal.timeout(10_000));
}

const ASK = (port: number): string => `
import json, os, urllib.request, urllib.error, urllib.parse
def ask(path, fields=None, text=None):
    data = text.encode() if text else urllib.parse.urlencode(fields).encode() if fields else None
    request = urllib.request.Request("https://${ONE}:${port}" + path, data, {"Content-Type": "application/json"} if text else {})
    try: answer = urllib.request.urlopen(request)
    except urllib.error.HTTPError as error: answer = error
    return answer.status, answer.read().decode().strip()
`;

describe.skipIf(skipped).each(mainPlaces)('on $name, a login', place => {
  it('is used, refreshed here and ended nowhere; its tokens are not in the sandbox', async () => {
    await using server = await TokenServer.start({ name: ONE });
    await using host = await AllowHost.open(place, { roots: [server.pem], network: network(server) });
    await keep(join(process.env['XDG_STATE_HOME'] ?? '', 'acode'), server, 0);
    const first = server.current;
    host.write(
      'ask.py',
      `${ASK(server.port)}
print(*ask("/api"))
token, refresh = os.environ["CORP_TOKEN"], os.environ["CORP_REFRESH"]
grant = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": "acode-test"}
status, body = ask("/oauth/token", grant)
tokens = json.loads(body)
print(status, tokens["access_token"] == token, tokens["refresh_token"] == refresh, tokens["expires_in"] > 3000)
print(ask("/oauth/token", text=json.dumps(grant))[0])
print(*ask("/oauth/token", {**grant, "refresh_token": "rt-of-the-attacker"}))
print(*ask("/oauth/token", {"grant_type": "authorization_code", "code": "of-the-attacker"}))
print(*ask("/oauth/revoke", {"token": token}))
print(*ask("/Logout/", {"all": "1"}))
print(*ask("/api"))`,
    );
    const result = await host.run('python3 ask.py; env', [`${ONE}:${server.port}`]);
    const lines = result.stdout.split('\n');
    expect(lines[0]).toMatch(/^200 answer \*+$/);
    expect(lines.slice(1, 3)).toEqual(['200 True True True', '200']);
    expect(lines[3]).toMatch(/^403 acode refused .*carries a credential/);
    for (const line of lines.slice(4, 7))
      expect(line, result.stderr).toMatch(/^403 acode refused .*acode keeps this login/);
    expect(lines[7]).toBe(lines[0]);
    // One refresh, by acode; nothing of what the sandbox asked for.
    expect(server).toMatchObject({ rotations: 1, isLoggedOut: false, came: [first.refresh] });
    expect(server.seen).toEqual(['/oauth/token', '/api', '/api']);
    expect(result.network).toContainEqual(expect.objectContaining({ host: ONE, reason: 'login-kept', count: 3 }));
    const { access, refresh } = server.current;
    for (const secret of [first.access, first.refresh, access, refresh]) {
      expect(result.stdout).not.toContain(secret);
      expect(JSON.stringify(result)).not.toContain(secret);
    }
  });
});

/** One of the processes with a sandbox that uses the login all the time. */
interface User {
  readonly pid: number;
  readonly ended: Promise<Ended>;
}

describe.skipIf(skipped)(`on '${mainEngine.name}', sandboxes of several processes on one login`, () => {
  let top = '';
  let bench: Bench;
  beforeEach(async () => {
    top = await mkdtemp('/var/tmp/acode-logins-');
    bench = await Bench.at(mainEngine);
  });
  afterEach(async () => {
    await bench[Symbol.asyncDispose]();
    await rm(top, { recursive: true, force: true });
  });
  const state = (): string => join(bench.env['XDG_STATE_HOME'] ?? '', 'acode');
  const next = (): string => join(state(), 'logins', `${NAME}.json.next`);

  // Until the server has no more to say: a sandbox that gets nothing for a while has lost its login.
  const LOOP = (port: number): string => `${ASK(port)}
import time
good = time.monotonic()
while True:
    try: status, body = ask("/api")
    except OSError as error: status, body = 0, str(error)
    if status == 200: good = time.monotonic()
    elif time.monotonic() - good > 30: raise SystemExit("logged out: " + str(status) + " " + body)
    if os.path.exists("stop") and status == 200: break
    time.sleep(0.05)
print("still logged in")`;

  async function begin(server: TokenServer): Promise<() => User> {
    const bundle = join(top, 'ca.pem');
    await writeFile(bundle, server.pem);
    await bench.configure({
      images: { default: images.debian },
      network: { private_hosts: [ONE], ca_file: bundle, ...network(server) },
    });
    await writeFile(join(bench.workspace, 'loop.py'), LOOP(server.port));
    await keep(state(), server, 1);
    // Eight at once need less than all that a user may have.
    const words = ['run', '--memory', '256m', '--network', `allow=${ONE}:${server.port}`, '--', 'python3', 'loop.py'];
    return () => {
      const { child, ended } = bench.start(words);
      return { pid: child.pid ?? 0, ended };
    };
  }

  // The process that refreshes now, and the one that asked it to.
  async function refresher(other: number): Promise<{ readonly pid: number; readonly parent: number }> {
    for (;;) {
      try {
        const [, holder = ''] = /"holder":"([^"]+)"/.exec(readFileSync(next(), 'utf8')) ?? [];
        const { pid = 0 } = parseHolder(holder) ?? {};
        const [, parent] = /\) \w (\d+) /.exec(readFileSync(`/proc/${pid}/stat`, 'latin1')) ?? [];
        if (pid !== other) return { pid, parent: Number(parent) };
      } catch {
        // Nobody refreshes just now.
      }
      await new Promise(resolve => setTimeout(resolve, 1));
    }
  }

  const [processes, rotations] = everything ? [8, 20] : [2, 2];

  it.each([
    // The process that asked for a refresh can be killed at any moment; its tokens are written nevertheless.
    ['who asked for a refresh', 'asking', 0],
    // In the process that refreshes, an answer can be lost. Servers take a token that was replaced for some time, so that it is asked again.
    ...(everything ? [['the process that refreshes', 'refreshing', 30_000] as const] : []),
  ] as const)(
    `stay logged in, ${processes} of them, while ${rotations} times the server replaces the refresh token and %s is killed`,
    async (_title, who, graceMs) => {
      await using server = await TokenServer.start({ name: ONE, graceMs, expiresIn: everything ? 2 : 1 });
      const start = await begin(server);
      let users = Array.from({ length: processes }, start);
      let last = 0;
      let killed = 0;
      // How long one takes that nobody disturbs.
      let usualMs = 100;
      for (let round = 0; (killed < rotations || server.rotations < rotations) && !server.isLoggedOut; round += 1) {
        const found = await Promise.race([refresher(last), ...users.map(endedEarly)]);
        last = found.pid;
        if (round % 2 === 0) {
          usualMs = await until(() => !isRunning(found.pid));
          continue;
        }
        await new Promise(resolve => setTimeout(resolve, Math.random() * usualMs));
        const victim = users.find(({ pid }) => pid === found.parent);
        const isThere = kill(who === 'asking' ? (victim?.pid ?? 0) : found.pid);
        if (isThere) killed += 1;
        if (isThere && who === 'asking') users = [...users.filter(user => user !== victim), start()];
      }
      await writeFile(join(bench.workspace, 'stop'), '');
      const ends = await Promise.all(users.map(({ ended }) => ended));
      const told = ends.map(({ status, stdout, stderr }) => (status === 0 ? String(stdout).trim() : stderr));
      expect(told).toEqual(users.map(() => 'still logged in'));
      expect(server.isLoggedOut).toBe(false);
      // Each token was used once where the server takes a second use for theft.
      if (graceMs === 0) expect(new Set(server.came).size).toBe(server.came.length);
      process.stdout.write(`FIGURE ${killed} killed, ${server.rotations} rotations, ${users.length} logged in\n`);
      await until(async () => (await bench.left()).length === 0);
    },
    900_000,
  );
});

// A sandbox that has ended will never need a refresh.
async function endedEarly({ pid, ended }: User): Promise<never> {
  const { status, stderr } = await ended;
  // Those that the test killed count no more.
  if (status === null) return new Promise<never>(() => undefined);
  throw new Error(`process ${pid} ended with ${status}: ${stderr}`);
}

function isRunning(pid: number): boolean {
  try {
    // Not one whose parent was killed and that nobody waits for.
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}

function kill(pid: number): boolean {
  try {
    if (pid > 0) process.kill(pid, 'SIGKILL');
    return pid > 0;
  } catch {
    return false;
  }
}
