// Logins of a user: begun at a server of the test’s own, finished by a browser or by a code, and ended.

import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { LoginsOfUser } from '../contract/logins.ts';
import { Locks } from '../lifecycle/lock.ts';
import { systemClock } from '../lifecycle/clock.ts';
import { checkConfig } from '../policy/config/check.ts';
import { TokenServer } from '../egress/credentials/token-server.test.support.ts';
import { loginsOf } from './logins.ts';

const uid = process.getuid?.() ?? 0;
let root = '';
let server: TokenServer;
beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), 'acode-login-'));
  server = await TokenServer.start();
  writeFileSync(join(root, 'ca.pem'), server.pem);
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
  rmSync(root, { recursive: true, force: true });
});

function logins({ redirect, ...more }: { redirect?: string; [key: string]: unknown } = {}): LoginsOfUser {
  const { authorizeUrl, tokenUrl, clientId, revokeUrl } = server.definition;
  const corp = {
    ...{
      authorize_url: authorizeUrl,
      token_url: tokenUrl,
      client_id: clientId,
      revoke_url: revokeUrl,
      scopes: ['models'],
    },
    ...(redirect === undefined ? {} : { redirect_uri: redirect }),
  };
  const network = { ca_file: join(root, 'ca.pem'), logins: { corp }, ...more };
  const { mode } = more as { mode?: 'airgapped' };
  delete (network as Record<string, unknown>)['mode'];
  const config = checkConfig({ ...(mode ? { mode } : {}), sandbox: { network } }, 'config.yml');
  const locks = new Locks({ directory: join(root, 'run'), uid, clock: systemClock });
  const directories = { state: join(root, 'state') } as never;
  const closing = new AbortController().signal;
  const telemetry = { clock: systemClock } as never;
  return loginsOf(
    { config, machine: null, environmentMode: null, directories, locks, uid, closing, telemetry },
    () => undefined,
  );
}

const fileOf = (): Record<string, unknown> =>
  JSON.parse(readFileSync(join(root, 'state', 'logins', 'corp.json'), 'utf8')) as Record<string, unknown>;

/** Where the server sends the browser of somebody who agrees. */
function agree(url: string): Promise<URL> {
  return new Promise((resolve, reject) => {
    httpsRequest(url, { ca: server.pem }, response => {
      response.resume();
      resolve(new URL(response.headers.location ?? ''));
    })
      .once('error', reject)
      .end();
  });
}

function visit(url: URL | string): Promise<number> {
  return new Promise((resolve, reject) => {
    httpRequest(url, response => {
      response.resume();
      resolve(response.statusCode ?? 0);
    })
      .once('error', reject)
      .end();
  });
}

describe('a login', () => {
  it('is finished by the browser that comes to this host, kept, listed, and ended at its server', async () => {
    const user = logins();
    expect(await user.list()).toEqual([]);
    await using attempt = await user.begin('corp');
    const asked = new URL(attempt.url);
    expect(Object.fromEntries(asked.searchParams)).toMatchObject({
      ...{ response_type: 'code', client_id: 'acode-test', scope: 'models', code_challenge_method: 'S256' },
      redirect_uri: attempt.waitsAt,
    });
    expect(attempt.waitsAt).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/callback$/);
    // Not what another page of the browser asks for.
    expect(await visit(new URL('/favicon.ico', attempt.waitsAt!))).toBe(404);
    expect(await visit(await agree(attempt.url))).toBe(200);
    expect(await attempt.done).toMatchObject({ name: 'corp', server: 'localhost', state: 'valid' });
    expect(fileOf()).toMatchObject({ access: server.current.access, refresh: server.current.refresh });
    expect((await user.list()).map(({ name }) => name)).toEqual(['corp']);
    expect(await user.end('corp')).toEqual({ name: 'corp', removed: true, revoked: true });
    expect(server.isLoggedOut).toBe(true);
    expect(readdirSync(join(root, 'state', 'logins'))).toEqual([]);
    expect(await user.end('corp')).toEqual({ name: 'corp', removed: false, revoked: null });
  });

  it('is finished by a code that a page shows, and by no other code', async () => {
    await using attempt = await logins({ redirect: 'https://login.example/code' }).begin('corp');
    expect(attempt.waitsAt).toBeNull();
    const redirected = await agree(attempt.url);
    const { code, state } = Object.fromEntries(redirected.searchParams) as { code: string; state: string };
    await expect(attempt.enter(`${code}#of-another`)).rejects.toMatchObject({ code: 'ACODE-SBX-030' });
    await expect(attempt.enter('  ')).rejects.toThrow('that is not a code');
    await expect(attempt.enter('of-the-attacker')).rejects.toThrow('the server answered 400 (invalid_grant)');
    await expect(attempt.enter(`https://login.example/code?code=${code}&state=other`)).rejects.toThrow('another login');
    await expect(attempt.enter(`https://login.example/code?state=${state}&error=access_denied`)).rejects.toThrow(
      'the server refused (access_denied)',
    );
    expect(await attempt.enter(`${code}#${state}\n`)).toMatchObject({ name: 'corp', state: 'valid' });
  });

  it('fails where a browser with another state comes, the server cannot be trusted, or there is none', async () => {
    await using attempt = await logins().begin('corp');
    const redirected = await agree(attempt.url);
    redirected.searchParams.set('state', 'of-the-attacker');
    expect(await visit(redirected)).toBe(200);
    await expect(attempt.done).rejects.toThrow('another login');
    await using stranger = await TokenServer.start();
    writeFileSync(join(root, 'ca.pem'), stranger.pem);
    await using other = await logins({ redirect: 'https://login.example/code' }).begin('corp');
    await expect(other.enter('a-code')).rejects.toThrow('the server localhost cannot be reached (untrusted-server');
    // A program may name a server that the configuration has not, but not another one in its place.
    const given = { ...server.definition, authorizeUrl: 'https://given.example/authorize' };
    await using named = await logins().begin('other', { server: given });
    expect(named.url).toMatch(/^https:\/\/given\.example\//);
    await using own = await logins().begin('corp', { server: given });
    expect(own.url).toMatch(/^https:\/\/localhost:/);
    await expect(logins().begin('other')).rejects.toMatchObject({
      code: 'ACODE-SBX-030',
      hint: 'Name its server in `sandbox.network.logins.other`.',
    });
    await expect(logins({ mode: 'airgapped' }).begin('corp')).rejects.toThrow('air-gapped');
    await expect(logins({ allow_credentials: false }).begin('corp')).rejects.toThrow('allow_credentials');
    await expect(logins().begin('../corp')).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
  });
});
