// Credential of an agent: where acode reads the key of its model. The sandbox gets a placeholder and a base URL.

import { homedir } from 'node:os';
import type { CredentialRequest, CredentialSource, LoginDefinition } from '@acode/sandbox';
import * as z from 'zod';
import { agentError } from './errors.ts';
import type { AgentPreset } from './preset.ts';

type Wanted = NonNullable<NonNullable<AgentPreset['network']>['credential']>;

/** A credential in the user’s configuration, as far as it matters here. */
const configuredSchema = z.looseObject({
  from: z.union([
    z.strictObject({ env: z.string() }),
    z.strictObject({ file: z.string() }),
    z.strictObject({ command: z.array(z.string()).min(1) }),
    z.strictObject({ secret_service: z.record(z.string(), z.string()) }),
    z.strictObject({ login: z.string() }),
  ]),
});

/** The value of a key among values that may be of a section above it; undefined where there is none. */
export function valueAt(values: readonly { readonly key: string; readonly value: unknown }[], key: string): unknown {
  const above = values.find(one => key === one.key || key.startsWith(`${one.key}.`));
  const names = above === undefined || above.key === key ? [] : key.slice(above.key.length + 1).split('.');
  return names.reduce<unknown>((value, name) => {
    const section = sectionSchema.safeParse(value).data ?? {};
    return Object.hasOwn(section, name) ? section[name] : undefined;
  }, above?.value);
}

const sectionSchema = z.record(z.string(), z.unknown());

/** Values of the user’s configuration by key. */
export type ConfiguredValue = (key: string) => Promise<unknown>;

/** The credential that a sandbox of an agent is lent, by its name; empty for an agent that needs none. */
export async function credentialsOf(
  { name: agent, network, login }: Pick<AgentPreset, 'name' | 'network' | 'login'>,
  env: Readonly<Record<string, string | undefined>>,
  configured: ConfiguredValue,
): Promise<Readonly<Record<string, CredentialRequest>>> {
  const wanted = network?.credential;
  if (wanted === undefined) return {};
  const { name, variables = [], mode = 'base-url', hosts, as, variable, baseUrlVariable, placeholder } = wanted;
  const from = await sourceOf(wanted, env, configured);
  if (from === null) throw agentError('ACODE-AGT-005', { agent, credential: name, variables });
  const request: CredentialRequest = { from, mode, hosts, as, variable, placeholder };
  if (mode === 'base-url') request.baseUrlVariable = baseUrlVariable;
  if ('login' in from && from.login === agent) request.login = loginServerOf({ login }) ?? undefined;
  return { [name]: request };
}

/** The server where a person logs in for an agent, for `acode login`; null for an agent without one. */
export function loginServerOf({ login }: Pick<AgentPreset, 'login'>): LoginDefinition | null {
  if (login === undefined) return null;
  const { authorize, token, client, scopes, redirect, request } = login;
  return {
    authorizeUrl: authorize,
    tokenUrl: token,
    clientId: client,
    scopes,
    redirectUri: redirect,
    tokenRequest: request,
  };
}

async function sourceOf(
  { name, from, variables = [] }: Wanted,
  env: Readonly<Record<string, string | undefined>>,
  configured: ConfiguredValue,
): Promise<CredentialSource | null> {
  if (from !== undefined) return 'file' in from ? { file: atHome(from.file) } : from;
  const found = configuredSchema.safeParse(await configured(`sandbox.network.credentials.${name}`));
  if (found.success) {
    const { from: source } = found.data;
    return 'secret_service' in source ? { secretService: source.secret_service } : source;
  }
  const variable = variables.find(one => (env[one] ?? '') !== '');
  return variable === undefined ? null : { env: variable };
}

function atHome(path: string): string {
  return path.startsWith('~/') ? `${homedir()}${path.slice(1)}` : path;
}
