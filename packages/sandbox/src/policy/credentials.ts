// Credentials of an allow-list: those of the user’s own file and of the request, lent to the rules that may have them. Never their values.

import type * as z from 'zod';
import { credentials as credentialsSchema, logins as loginsSchema } from './config/values.ts';
import type { ConfiguredCredential, ConfiguredLogin } from './config/values.ts';
import { issueText } from './config/issue-text.ts';
import { isDangerous } from './environment.ts';
import type {
  CredentialRequest,
  CredentialSource,
  EgressCredential,
  LoginDefinition,
} from '../contract/credentials.ts';
import type { EgressRule } from '../contract/egress.ts';
import { AcodeError } from '../contract/errors.ts';
import type { AllowedHosts, PolicyFields } from '../contract/policy.ts';
import type { Source, Sourced } from '../contract/sourced.ts';
import { brokered } from '../egress/credentials/brokering.ts';
import type { Lent } from '../egress/credentials/brokering.ts';
import { knownCredential, placeholderOf } from '../egress/credentials/known.ts';
import type { KnownCredential } from '../egress/credentials/known.ts';
import { withLoginHosts } from '../egress/credentials/login.ts';
import { placeOf, sourceIn, sourceOf } from './layers.ts';
import type { Layers } from './layers.ts';

const KEY = 'sandbox.network.credentials';
const FORBIDS = 'sandbox.network.allow_credentials';
const LOGINS = 'sandbox.network.logins';
const FIELD = 'policy.network.credentials';

/** The rules of an allow-list with the credentials that they get, and those credentials. Throws where one cannot be lent. */
export function withCredentials(
  rules: readonly EgressRule[],
  request: PolicyFields,
  layers: Layers,
): { readonly rules: readonly EgressRule[]; readonly credentials: readonly EgressCredential[] } {
  const asked = requested(request, layers);
  const forbidden = forbiddenBy(layers);
  if (forbidden && asked.length > 0)
    throw denied(asked.map(({ credential }) => credential.name).join(','), 'no credentials are added', forbidden);
  const lent = forbidden ? [] : [...configured(layers), ...asked];
  const result = brokered(rules, lent);
  if (!('fault' in result)) {
    checkVariables(result.credentials);
    return { rules: withLoginHosts(result.rules, result.credentials), credentials: result.credentials };
  }
  const { name, rule } = result;
  if (result.fault === 'not-tls')
    throw new AcodeError('ACODE-SBX-017', {
      field: 'policy.network',
      reason: `${rule.id} is not encrypted, so that everybody on the way could read the credential ${name}`,
      remedy: `Allow the host over TLS, or take it out of \`${KEY}.${name}.hosts\`.`,
    });
  if (forbidden) throw denied(name, 'its preset needs a credential, and no credentials are added', forbidden);
  throw new AcodeError('ACODE-SBX-005', {
    network: rule.id,
    rule: `it needs the credential ${name}, and your configuration has none`,
    remedy: `To lend it to every command that may reach ${rule.host}, type \`acode config set ${KEY}.${name} '{ from: { env: ${knownCredential(name)?.variable ?? 'TOKEN'} } }'\`. The sandbox never has its value.`,
  });
}

function configured({ user }: Layers): Lent[] {
  const found = user.config.sandbox?.network?.credentials ?? {};
  return Object.entries(found).map(([name, one]) => {
    const setBy = sourceIn(user, `${KEY}.${name}`);
    const lent = lentBy(name, one, setBy);
    const login = 'login' in one.from ? configuredLogin(user, one.from.login) : null;
    if ('login' in one.from && !login)
      throw new AcodeError('ACODE-SBX-013', {
        source: setBy.where,
        key: `${KEY}.${name}.from.login`,
        reason: `names ${one.from.login}, which ${LOGINS} does not have`,
      });
    return login ? withLogin(lent, login) : lent;
  });
}

/** The server of a login, as the user’s own file has it; null for none. */
export function configuredLogin({ config }: Layers['user'], name: string): LoginDefinition | null {
  const found = config.sandbox?.network?.logins ?? {};
  const one = Object.hasOwn(found, name) ? found[name] : undefined;
  return one ? definitionOf(one) : null;
}

/** The server of a login that a program names, checked like a file’s. Throws where it is not valid. */
export function requestedLogin(field: string, name: string, asked: LoginDefinition): LoginDefinition {
  const { authorizeUrl, tokenUrl, clientId, scopes, redirectUri, tokenRequest, revokeUrl, refusedUrls } = asked;
  const one = defined({
    authorize_url: authorizeUrl,
    token_url: tokenUrl,
    client_id: clientId,
    scopes: scopes && [...scopes],
    redirect_uri: redirectUri,
    token_request: tokenRequest,
    revoke_url: revokeUrl,
    refused_urls: refusedUrls && [...refusedUrls],
  });
  const parsed = loginsSchema.safeParse({ [name]: one }, { error: issueText });
  if (parsed.success) return definitionOf(parsed.data[name] ?? one);
  const [issue] = parsed.error.issues;
  const key = [field, ...(issue?.path.slice(1) ?? [])].join('.');
  throw new AcodeError('ACODE-SBX-017', { field: key, reason: issue?.message ?? 'is not valid' });
}

function definitionOf(one: ConfiguredLogin): LoginDefinition {
  return defined({
    authorizeUrl: one.authorize_url,
    tokenUrl: one.token_url,
    clientId: one.client_id,
    scopes: one.scopes,
    redirectUri: one.redirect_uri,
    tokenRequest: one.token_request,
    revokeUrl: one.revoke_url,
    refusedUrls: one.refused_urls,
  });
}

function withLogin({ credential, mode }: Lent, login: LoginDefinition): Lent {
  return { mode, credential: { ...credential, login } };
}

// A program that asks has read no value either: it names where acode reads it. A model has no say in credentials.
function requested({ network, askedBy }: PolicyFields, { user }: Layers): Lent[] {
  const asked = typeof network === 'object' && 'allow' in network ? network.credentials : undefined;
  if (asked === undefined) return [];
  if (askedBy === 'model')
    throw new AcodeError('ACODE-SBX-017', { field: FIELD, reason: 'is not for a model to ask for' });
  const parsed = credentialsSchema.safeParse(asConfigured(asked), { error: issueText });
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new AcodeError('ACODE-SBX-017', {
      field: [FIELD, ...(issue?.path ?? [])].join('.'),
      reason: issue?.message ?? 'is not valid',
    });
  }
  return Object.entries(parsed.data).map(([name, one]) => {
    const where = `${FIELD}.${name}`;
    const lent = lentBy(name, one, { layer: 'request', where });
    if (!('login' in one.from)) return lent;
    const given = asked[name]?.login;
    const login =
      configuredLogin(user, one.from.login) ?? (given ? requestedLogin(`${where}.login`, one.from.login, given) : null);
    if (login) return withLogin(lent, login);
    throw new AcodeError('ACODE-SBX-017', {
      field: `${where}.from.login`,
      reason: `names ${one.from.login}, which neither the request nor ${LOGINS} has`,
    });
  });
}

function asConfigured(asked: NonNullable<AllowedHosts['credentials']>): z.input<typeof credentialsSchema> {
  return Object.fromEntries(
    Object.entries(asked).map(([name, request]: [string, CredentialRequest]) => {
      const { baseUrlVariable, refreshVariable, login: _apart, from, hosts, ...one } = request;
      const written = {
        ...one,
        from: configuredSource(from),
        ...(hosts === undefined ? {} : { hosts: [...hosts] }),
        ...(baseUrlVariable === undefined ? {} : { base_url_variable: baseUrlVariable }),
        ...(refreshVariable === undefined ? {} : { refresh_variable: refreshVariable }),
      };
      return [name, written];
    }),
  );
}

function configuredSource(from: CredentialSource): ConfiguredCredential['from'] {
  if ('secretService' in from) return { secret_service: { ...from.secretService } };
  return 'command' in from ? { command: [...from.command] } : from;
}

function lentBy(name: string, one: ConfiguredCredential, setBy: Source): Lent {
  const { hosts, from, mode = 'inspect' } = one;
  const { as, variable, placeholder, ...base } = withKnown(name, one);
  const credential: EgressCredential = {
    name,
    as,
    from: 'secret_service' in from ? { secretService: from.secret_service } : from,
    placeholder,
    setBy,
    ...(hosts === undefined ? {} : { hosts }),
    ...(variable === undefined ? {} : { variable }),
    ...(one.refresh_variable === undefined ? {} : { refreshVariable: one.refresh_variable }),
    ...(mode === 'base-url' ? base : {}),
  };
  return { credential, mode };
}

// What the name says where the file does not.
function withKnown(
  name: string,
  one: ConfiguredCredential,
): Pick<EgressCredential, 'as' | 'variable' | 'placeholder' | 'baseUrlVariable' | 'basePath'> {
  const known: Partial<KnownCredential> = knownCredential(name) ?? {};
  const { variable = known.variable, placeholder = placeholderOf(variable) } = one;
  const isKnown = variable === known.variable && one.placeholder === undefined;
  return defined({
    as: one.as ?? known.as ?? 'bearer',
    variable,
    placeholder: isKnown ? (known.placeholder ?? placeholder) : placeholder,
    baseUrlVariable: one.base_url_variable ?? known.baseUrlVariable,
    basePath: known.basePath,
  });
}

function defined<Value extends object>(value: Value): { [Name in keyof Value]: Exclude<Value[Name], undefined> } {
  const entries = Object.entries(value).filter(([, one]) => one !== undefined);
  // oxlint-disable-next-line no-unsafe-type-assertion -- what is left out is absent
  return Object.fromEntries(entries) as { [Name in keyof Value]: Exclude<Value[Name], undefined> };
}

// A variable that changes how programs load code would be one way more to do so; of two for one variable, one would be lost.
function checkVariables(credentials: readonly EgressCredential[]): void {
  const seen = new Map<string, string>();
  for (const { name, variable, baseUrlVariable, refreshVariable, setBy } of credentials)
    for (const one of [variable, baseUrlVariable, refreshVariable]) {
      if (one === undefined) continue;
      const other = seen.get(one);
      const reason = isDangerous(one)
        ? `has the variable ${one}, which changes how programs load code`
        : `has the variable ${one}, as ${other ?? ''} has`;
      if (other !== undefined || isDangerous(one))
        throw new AcodeError('ACODE-SBX-013', { source: setBy.where, key: `${KEY}.${name}`, reason });
      seen.set(one, name);
    }
}

function forbiddenBy({ machine, user }: Layers): Sourced<false> | null {
  if (machine?.config.sandbox?.network?.allow_credentials === false)
    return { value: false, layer: 'machine', where: placeOf(machine, FORBIDS) };
  if (user.config.sandbox?.network?.allow_credentials === false) return { value: false, ...sourceIn(user, FORBIDS) };
  return null;
}

function denied(name: string, rule: string, by: Sourced<false>): AcodeError {
  return new AcodeError('ACODE-SBX-005', {
    network: name,
    rule,
    setBy: sourceOf(by),
    remedy: by.layer === 'machine' ? 'Ask the administrator of this machine.' : `Change \`${FORBIDS}\` in your file.`,
  });
}
