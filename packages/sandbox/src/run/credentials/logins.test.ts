// Logins: one refresher at a time, and no refresh token that is lost where that can be helped. With real processes and a server of the
// test’s own.

import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { CredentialProvider } from '../../egress/credentials/provider.ts';
import { Locks, holderText, parseHolder, thisHolder } from '../../lifecycle/lock.ts';
import { systemClock } from '../../lifecycle/clock.ts';
import { Logins } from './logins.ts';
import { TokenServer } from '../../egress/credentials/token-server.test.support.ts';
import type { TokenServerOptions } from '../../egress/credentials/token-server.test.support.ts';

const uid = process.getuid?.() ?? 0;
const NAME = 'corp';
let state = '';
let server: TokenServer;
beforeEach(() => {
  state = mkdtempSync(join(tmpdir(), 'acode-logins-'));
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
  rmSync(state, { recursive: true, force: true });
});

const signal = (): AbortSignal => AbortSignal.timeout(30_000);
const fileOf = (suffix = ''): string => join(state, 'logins', `${NAME}.json${suffix}`);
const stored = (): Record<string, unknown> => JSON.parse(readFileSync(fileOf(), 'utf8')) as Record<string, unknown>;

/** As another process of the user would have them. */
function logins(): Logins {
  const locks = new Locks({ directory: join(state, 'run'), uid, clock: systemClock });
  return new Logins({ state, uid, clock: systemClock, locks });
}

function provider(): CredentialProvider {
  return logins().provider(NAME, server.definition, () => Promise.resolve({ ca: server.pem }));
}

/** A login whose access token has expired unless `seconds` are given. */
async function loggedIn(options: TokenServerOptions = {}, seconds: number | null = 0): Promise<void> {
  server = await TokenServer.start(options);
  await logins().keep(NAME, server.definition, { ...server.current, expiresInSeconds: seconds }, signal());
}

async function refresherPid(): Promise<number> {
  for (;;) {
    const text = existsSync(fileOf('.next')) ? readFileSync(fileOf('.next'), 'utf8') : '';
    const found = /"holder":"([^"]+)"/.exec(text);
    if (found) return parseHolder(found[1] ?? '')?.pid ?? 0;
    await new Promise(resolve => setTimeout(resolve, 5));
  }
}

/** Holds the server at a point until released; says when it is there. */
function hold(point: 'arrived' | 'rotated'): { readonly there: Promise<void>; release(): void } {
  let release = (): void => undefined;
  const held = new Promise<void>(resolve => (release = resolve));
  const there = new Promise<void>(resolve => {
    server.crossing = {
      [point]: () => {
        resolve();
        return held;
      },
    };
  });
  return {
    there,
    release: () => {
      server.crossing = {};
      release();
    },
  };
}

describe('a login', () => {
  it('is used while it is valid, and refreshed before it expires; the new tokens are on the disk by then', async () => {
    await loggedIn({}, 3600);
    const before = server.current;
    expect(await provider().current({ signal: signal() })).toMatchObject({ value: before.access });
    expect(server.came).toEqual([]);
    await logins().keep(NAME, server.definition, { ...before, expiresInSeconds: 0 }, signal());
    const { value, validMs = 0 } = await provider().current({ signal: signal() });
    expect(value).toBe(server.current.access);
    expect(validMs).toBeGreaterThan(3_400_000);
    expect(server.came).toEqual([before.refresh]);
    expect(stored()).toMatchObject({ access: value, refresh: server.current.refresh });
    expect(statSync(fileOf()).mode & 0o777).toBe(0o600);
    expect(statSync(join(state, 'logins')).mode & 0o777).toBe(0o700);
    expect(readdirSync(join(state, 'logins'))).toEqual([`${NAME}.json`]);
  });

  it('is refreshed once, however many ask at the same time; what a server refused is replaced, but not again at once', async () => {
    await loggedIn();
    const all = await Promise.all(Array.from({ length: 8 }, () => provider().current({ signal: signal() })));
    expect(new Set(all.map(({ value }) => value))).toEqual(new Set([server.current.access]));
    expect(server.rotations).toBe(1);
    const refused = server.current.access;
    expect(await provider().current({ signal: signal(), refused })).toMatchObject({ value: refused });
    expect(server.rotations).toBe(1);
    // As if it had been given a while ago.
    writeFileSync(fileOf(), JSON.stringify({ ...stored(), obtainedAt: Date.now() - 20_000 }));
    expect((await provider().current({ signal: signal(), refused })).value).not.toBe(refused);
    expect(server.rotations).toBe(2);
  });

  it('survives the death of who asked: the refresher writes what it asked for, and the next waits for it', async () => {
    await loggedIn();
    const point = hold('rotated');
    const gone = new AbortController();
    const asking = provider().current({ signal: gone.signal });
    await point.there;
    const pid = await refresherPid();
    gone.abort();
    await expect(asking).rejects.toThrow('the login corp was not refreshed in time');
    const words = ['cmdline', 'environ'].map(name => readFileSync(`/proc/${pid}/${name}`, 'latin1')).join('\n');
    expect(words).toContain('acode-refresher');
    expect(words).not.toContain(server.came[0]);
    const next = provider().current({ signal: signal() });
    point.release();
    expect(await next).toMatchObject({ value: server.current.access });
    expect(server).toMatchObject({ rotations: 1, isLoggedOut: false });
  });

  it('takes over what a dead refresher had read of an answer, and asks no server for it', async () => {
    await loggedIn();
    const answer = { access_token: 'at-of-a-dead-one', refresh_token: 'rt-of-a-dead-one', expires_in: 3600 };
    const holder = holderText({ ...thisHolder(), pid: 4_194_303 });
    const head = JSON.stringify({ holder, generation: stored()['generation'] });
    writeFileSync(fileOf('.next'), `${head.padEnd(511)}\n${JSON.stringify(answer).padEnd(65_536)}`, { mode: 0o600 });
    expect(await provider().current({ signal: signal() })).toMatchObject({ value: answer.access_token });
    expect(stored()).toMatchObject({ refresh: answer.refresh_token });
    expect(server.came).toEqual([]);
    expect(readdirSync(join(state, 'logins'))).toEqual([`${NAME}.json`]);
  });

  it.each([
    ['before the server did anything', 'arrived', 0, true],
    ['after the server replaced the token, where it still takes the old one', 'rotated', 30_000, true],
    // What no client can help: the answer was in the dead process alone.
    ['after the server replaced the token, which it took for theft', 'rotated', 0, false],
  ] as const)('whose refresher is killed %s', async (_title, point, graceMs, survives) => {
    await loggedIn({ graceMs });
    const held = hold(point);
    const first = provider().current({ signal: signal() });
    first.catch(() => undefined);
    await held.there;
    process.kill(await refresherPid(), 'SIGKILL');
    await expect.poll(() => server.connections).toBe(0);
    held.release();
    await first.catch(() => undefined);
    const next = provider().current({ signal: signal() });
    if (survives) {
      expect(await next).toMatchObject({ value: server.current.access });
      expect(stored()).toMatchObject({ refresh: server.current.refresh });
      return;
    }
    await expect(next).rejects.toMatchObject({
      message:
        'the login corp has ended: its server refused the refresh token (invalid_grant), after a refresh that was interrupted before its answer had been read',
      remedy: 'Type `acode login corp`.',
    });
    const asked = server.came.length;
    await expect(provider().current({ signal: signal() })).rejects.toThrow('has ended');
    expect(server.came).toHaveLength(asked);
  });

  it('that cannot be refreshed is used while it is valid, and not longer', async () => {
    await loggedIn({}, 3600);
    server.failing = 503;
    // A minute before its end.
    writeFileSync(
      fileOf(),
      JSON.stringify({ ...stored(), obtainedAt: Date.now() - 3_570_000, expiresAt: Date.now() + 30_000 }),
    );
    const { value, validMs = 0 } = await provider().current({ signal: signal() });
    expect(value).toBe(server.current.access);
    expect(validMs).toBeLessThanOrEqual(10_000);
    writeFileSync(fileOf(), JSON.stringify({ ...stored(), expiresAt: Date.now() - 1 }));
    await expect(provider().current({ signal: signal() })).rejects.toMatchObject({
      message: 'the login corp cannot be refreshed: the server answered 503 (temporarily_unavailable)',
    });
    expect(existsSync(fileOf('.next'))).toBe(false);
    server.failing = null;
    expect(await provider().current({ signal: signal() })).toMatchObject({ value: server.current.access });
  });

  it('is not there for a file that others may read, another server, or a server with another certificate', async () => {
    await loggedIn();
    const other = { ...server.definition, tokenUrl: 'https://localhost:1/oauth/token' };
    const way = (ca: string) => () => Promise.resolve({ ca });
    await expect(logins().provider(NAME, other, way(server.pem)).current({ signal: signal() })).rejects.toThrow(
      'was made at another server',
    );
    await using stranger = await TokenServer.start();
    await expect(
      logins().provider(NAME, server.definition, way(stranger.pem)).current({ signal: signal() }),
    ).rejects.toThrow(/cannot be refreshed: the server cannot be reached/);
    expect(server.came).toEqual([]);
    writeFileSync(fileOf('.copy'), readFileSync(fileOf()), { mode: 0o644 });
    rmSync(fileOf());
    writeFileSync(fileOf(), readFileSync(fileOf('.copy')), { mode: 0o644 });
    await expect(provider().current({ signal: signal() })).rejects.toMatchObject({
      message: 'there is no login corp',
      remedy: 'Type `acode login corp`.',
    });
  });
});
