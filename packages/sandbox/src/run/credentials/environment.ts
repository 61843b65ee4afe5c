// Variables that a command has because of credentials: placeholders, base URLs, and what git asks for a password.

import type { EgressCredential } from '../../contract/credentials.ts';
import { AcodeError } from '../../contract/errors.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { placeholderFor, refreshPlaceholderFor } from '../../egress/credentials/placeholder.ts';
import { baseUrlsOf } from '../../egress/plan.ts';

type Spec = Pick<SandboxSpec, 'network' | 'identity'>;

/** The variables of the credentials of a sandbox. */
export function credentialEnvironment({ network, identity }: Spec): Readonly<Record<string, string>> {
  if (network.kind !== 'allow' || !network.credentials) return {};
  const { credentials, rules } = network;
  const urls = baseUrlsOf(rules);
  const variables: Record<string, string> = {};
  for (const credential of credentials) {
    const { name, variable, refreshVariable, baseUrlVariable, basePath = '' } = credential;
    if (variable !== undefined) variables[variable] = placeholderFor(credential, identity.sandboxId);
    if (refreshVariable !== undefined)
      variables[refreshVariable] = refreshPlaceholderFor(credential, identity.sandboxId);
    const reached = rules.find(rule => rule.credential === name && rule.mode === 'base-url');
    const url = urls.find(({ host, port }) => host === reached?.host && port === reached.port);
    if (baseUrlVariable !== undefined && url) variables[baseUrlVariable] = `http://127.0.0.1:${url.at}${basePath}`;
  }
  return { ...variables, ...gitHelpers(credentials, rules, identity.sandboxId) };
}

// git asks a helper once a server wants a password. It gives the placeholder, which the proxy replaces.
function gitHelpers(
  credentials: readonly EgressCredential[],
  rules: Extract<SandboxSpec['network'], { kind: 'allow' }>['rules'],
  sandboxId: string,
): Record<string, string> {
  const entries = credentials.flatMap(credential => {
    const { as, name } = credential;
    if (typeof as === 'string' || !('basic' in as)) return [];
    const lines = ['username', as.basic, 'password', placeholderFor(credential, sandboxId)].map(quoted).join(' ');
    const helper = `!f() { printf '%s=%s\\n' ${lines}; }; f`;
    const hosts = rules.filter(rule => rule.credential === name && rule.mode === 'inspect');
    return hosts.map(({ host, port }): [string, string] => [
      `credential.https://${host}${port === 443 ? '' : `:${port}`}.helper`,
      helper,
    ]);
  });
  if (entries.length === 0) return {};
  const variables: Record<string, string> = { GIT_CONFIG_COUNT: String(entries.length), GIT_TERMINAL_PROMPT: '0' };
  for (const [at, [key, value]] of entries.entries()) {
    variables[`GIT_CONFIG_KEY_${at}`] = key;
    variables[`GIT_CONFIG_VALUE_${at}`] = value;
  }
  return variables;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Refuses an environment that gives a command what a credential is to keep from it. */
export function refusePrivateValues(
  env: Readonly<Record<string, string>> | undefined,
  network: SandboxSpec['network'],
): void {
  if (env === undefined || network.kind !== 'allow') return;
  const given = (network.credentials ?? [])
    .flatMap(({ name, variable, refreshVariable }) => [variable, refreshVariable].map(one => ({ name, variable: one })))
    .find(({ variable }) => variable !== undefined && Object.hasOwn(env, variable));
  if (!given) return;
  throw new AcodeError('ACODE-SBX-017', {
    field: `env.${given.variable ?? ''}`,
    reason: `is a variable of the credential ${given.name}, whose value no sandbox has`,
    remedy: 'Leave it out: the command gets a placeholder there, and acode adds the value outside the sandbox.',
  });
}
