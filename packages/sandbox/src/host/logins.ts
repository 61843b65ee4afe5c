// Logins of the user: begun, listed and ended, in acode’s own process.

import { readFile } from 'node:fs/promises';
import type { LoginDefinition } from '../contract/credentials.ts';
import { AcodeError } from '../contract/errors.ts';
import type { LoginAttempt, LoginInfo, LoginOptions, LoginsOfUser, LogoutReport } from '../contract/logins.ts';
import {
  AuthorizationError,
  authorizationOf,
  codeIn,
  exchangeCode,
  redirectOf,
  revokeToken,
  waitForBrowser,
} from '../egress/credentials/authorization.ts';
import type { Authorization, ServerWay, WaitingPage } from '../egress/credentials/authorization.ts';
import { endpointOf } from '../egress/credentials/login.ts';
import { CredentialUnavailable } from '../egress/credentials/provider.ts';
import { upstreamOf } from '../egress/plan.ts';
import { configuredLogin, requestedLogin } from '../policy/credentials.ts';
import { resolveMode } from '../policy/layers.ts';
import type { Layers } from '../policy/layers.ts';
import { isPrivateHost, resolveCaFile, resolveUpstreamProxy } from '../policy/network.ts';
import { Logins } from '../run/credentials/logins.ts';
import type { StoredLogin } from '../run/credentials/logins.ts';
import type { Host } from '../run/host.ts';

type LoginHost = Pick<
  Host,
  'closing' | 'config' | 'directories' | 'environmentMode' | 'locks' | 'machine' | 'telemetry' | 'uid'
>;

const NAME = /^[a-z0-9][a-z0-9_.-]{0,63}$/;
const BROWSER_MS = 15 * 60_000;

/** The logins of a host’s user. */
export function loginsOf(host: LoginHost, assertOpen: (name: string) => void): LoginsOfUser {
  const { directories, uid, locks, telemetry } = host;
  const logins = new Logins({ state: directories.state, uid, locks, clock: telemetry.clock });
  return {
    list: async () => {
      assertOpen('logins.list');
      const all = logins.names().map(name => logins.read(name));
      return all.filter(one => one !== null).map(one => infoOf(one, telemetry.clock.now()));
    },
    begin: async (name, options = {}) => {
      assertOpen('logins.begin');
      return begin(host, logins, name, options);
    },
    end: async (name, options = {}) => {
      assertOpen('logins.end');
      return end(host, logins, name, options);
    },
  };
}

async function begin(host: LoginHost, logins: Logins, name: string, options: LoginOptions): Promise<LoginAttempt> {
  const layers = layersOf(host);
  const server = serverOf(layers, name, options);
  if (!server)
    throw failed(
      name,
      'your configuration has no such login',
      `Name its server in \`sandbox.network.logins.${name}\`.`,
    );
  if (server.authorizeUrl === undefined) throw failed(name, 'its definition has no `authorize_url`', undefined);
  refuseWithoutNetwork(layers, name);
  const signal = signalOf(host, options);
  const redirect = redirectOf(server);
  const page = redirect.isHere ? await named(name, waitForBrowser(redirect.uri)) : null;
  const authorization = authorizationOf(server, page?.uri ?? redirect.uri);
  const ended = new AbortController();
  const until = AbortSignal.any([signal, ended.signal, AbortSignal.timeout(BROWSER_MS)]);
  const enter = async (text: string): Promise<LoginInfo> => {
    const way = await wayTo(layers, server.tokenUrl, until);
    const tokens = await named(name, exchangeCode(server, authorization, codeFor(name, text, authorization), way));
    await named(name, logins.keep(name, server, tokens, until));
    const kept = logins.read(name);
    if (!kept) throw failed(name, 'its tokens could not be kept', undefined);
    return infoOf(kept, host.telemetry.clock.now());
  };
  const done = page ? came(page, until, name).then(enter) : new Promise<LoginInfo>(() => undefined);
  done.catch(() => undefined);
  return {
    url: authorization.url,
    waitsAt: page?.uri ?? null,
    done,
    enter,
    async [Symbol.asyncDispose]() {
      ended.abort();
      await page?.[Symbol.asyncDispose]();
    },
  };
}

function came(page: WaitingPage, signal: AbortSignal, name: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const leave = (): void => reject(failed(name, 'the browser did not come', `Type \`acode login ${name}\` again.`));
    if (signal.aborted) leave();
    signal.addEventListener('abort', leave, { once: true });
    void page.came.then(resolve).finally(() => signal.removeEventListener('abort', leave));
  });
}

function codeFor(name: string, text: string, authorization: Authorization): string {
  try {
    return codeIn(text, authorization);
  } catch (error) {
    throw asFailure(name, error);
  }
}

async function end(host: LoginHost, logins: Logins, name: string, options: LoginOptions): Promise<LogoutReport> {
  const layers = layersOf(host);
  const server = serverOf(layers, name, options);
  const login = logins.read(name);
  const signal = signalOf(host, options);
  const { revokeUrl } = server ?? {};
  // Only the server that gave it hears a token.
  const isItsOwn = server?.tokenUrl === login?.tokenUrl;
  let revoked: boolean | null = null;
  if (login && server && revokeUrl !== undefined && isItsOwn && resolveMode(layers).value !== 'airgapped')
    revoked = await revokeToken(
      { ...server, revokeUrl },
      login.refresh ?? login.access,
      await wayTo(layers, revokeUrl, signal),
    );
  await named(name, logins.remove(name, signal));
  return { name, removed: login !== null, revoked };
}

function serverOf({ user }: Layers, name: string, { server }: LoginOptions): LoginDefinition | null {
  if (!NAME.test(name))
    throw new AcodeError('ACODE-SBX-017', {
      field: 'login',
      reason: 'is not a name of small letters, digits, dots and hyphens',
    });
  return configuredLogin(user, name) ?? (server ? requestedLogin('server', name, server) : null);
}

function refuseWithoutNetwork(layers: Layers, name: string): void {
  const mode = resolveMode(layers);
  if (mode.value === 'airgapped')
    throw failed(name, 'this machine is air-gapped, and a login needs its server', undefined);
  const isForbidden = [layers.machine, layers.user].some(
    layer => layer?.config.sandbox?.network?.allow_credentials === false,
  );
  if (isForbidden)
    throw failed(name, '`sandbox.network.allow_credentials` forbids credentials, and a login is one', undefined);
}

function layersOf({ config, machine, environmentMode }: LoginHost): Layers {
  return { machine, user: config, repository: null, environmentMode };
}

function signalOf({ closing }: LoginHost, { signal }: LoginOptions): AbortSignal {
  return signal ? AbortSignal.any([closing, signal]) : closing;
}

async function wayTo(layers: Layers, url: string, signal: AbortSignal): Promise<ServerWay> {
  const caFile = resolveCaFile(layers).value;
  const extraRoots = caFile === null ? '' : await readFile(caFile, 'utf8');
  const proxy = upstreamOf({ upstreamProxy: resolveUpstreamProxy(layers) });
  return { extraRoots, proxy: isPrivateHost(endpointOf(url).host, layers) ? undefined : proxy, signal };
}

// What fails names the login.
async function named<Value>(name: string, work: Promise<Value>): Promise<Value> {
  try {
    return await work;
  } catch (error) {
    throw asFailure(name, error);
  }
}

function asFailure(name: string, error: unknown): unknown {
  if (error instanceof CredentialUnavailable) return failed(name, error.message, error.remedy);
  return error instanceof AuthorizationError ? failed(name, error.message, undefined) : error;
}

function failed(login: string, reason: string, remedy: string | undefined): AcodeError {
  return new AcodeError('ACODE-SBX-030', { login, reason, ...(remedy === undefined ? {} : { remedy }) });
}

function infoOf({ name, tokenUrl, obtainedAt, expiresAt, refresh, ended }: StoredLogin, now: number): LoginInfo {
  const isOver = refresh === null && expiresAt !== null && expiresAt <= now;
  return {
    name,
    server: endpointOf(tokenUrl).host,
    state: ended ? 'ended' : isOver ? 'expired' : 'valid',
    obtainedAt: new Date(obtainedAt).toISOString(),
    expiresAt: expiresAt === null ? null : new Date(expiresAt).toISOString(),
    ...(ended ? { reason: ended.reason } : {}),
  };
}
