// Environment variables: those that may enter a sandbox, and those that acode sets itself.

import type { Command } from '../contract/command.ts';
import { AcodeError } from '../contract/errors.ts';
import { isBoundary } from '../contract/levels.ts';
import type { NetworkMode } from '../contract/network.ts';
import type { SandboxSpec } from '../contract/spec.ts';
import { isRepository } from '../egress/plan.ts';

// Variables that make programs load or run other code, or that the shell which hands the command over needs for itself. Handing one over would let a caller’s mistake, or an image’s
// author, change what every program in the sandbox is.
const DANGEROUS =
  /^(?:PATH|IFS|ENV|BASH_ENV|SHELLOPTS|NODE_OPTIONS|NODE_PATH|LD_.*|DYLD_.*|PYTHON(?:STARTUP|PATH|HOME|INSPECT)|PERL5.*|RUBYOPT|JAVA_TOOL_OPTIONS|GIT_(?:SSH.*|EXEC_PATH|PAGER|EDITOR|EXTERNAL_DIFF|PROXY_COMMAND|CONFIG.*|TEMPLATE_DIR)|DOCKER_.*|TINI_.*|_acode_.*|_|OPTIND|PPID|UID|EUID|BASHOPTS)$/;

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Whether a variable changes how programs load code. */
export function isDangerous(name: string): boolean {
  return DANGEROUS.test(name);
}

/** Checks the environment of a request; throws at the first variable that may not enter. */
export function checkEnvironment(env: Readonly<Record<string, string>>, command?: Command): void {
  for (const [name, value] of Object.entries(env)) {
    if (!NAME.test(name))
      throw new AcodeError('ACODE-SBX-017', { field: 'env', reason: `${JSON.stringify(name)} is not a variable name` });
    if (value.includes('\0'))
      throw new AcodeError('ACODE-SBX-017', { field: `env.${name}`, reason: 'holds a NUL character' });
    if (isDangerous(name)) {
      throw new AcodeError('ACODE-SBX-010', {
        violation: 'DangerousEnvironment',
        detail: `${name} changes how programs load code`,
        remedy: `To set it for the command alone, and not for what starts it, put it into the command line: \`acode run "${name}=… ${typable(command)}"\`.`,
      });
    }
  }
}

// As it can stand between double quotes; what a shell would expand is not repeated.
function typable(command: Command = ''): string {
  const line = typeof command === 'string' ? command : command.join(' ');
  return /^[\w@%+=:,./ -]+$/.test(line) ? line : '<command>';
}

// What package managers read to work offline. Without a network they would otherwise repeat every request for up to a
// minute or more before they fail. Only names that the tool documents; Yarn 1, Maven, Bundler and NuGet have none, or fail
// at once anyway. pnpm read the first name up to version 10, and reads the second since version 11.
const OFFLINE: Readonly<Record<string, string>> = {
  npm_config_offline: 'true',
  pnpm_config_offline: 'true',
  YARN_ENABLE_NETWORK: 'false',
  PIP_NO_INDEX: '1',
  UV_OFFLINE: '1',
  CARGO_NET_OFFLINE: 'true',
  GOPROXY: 'off',
  COMPOSER_DISABLE_NETWORK: '1',
};

// What programs read to use a proxy, in both spellings, since each reads one of them. Names of an allow-list also have addresses
// inside, for programs that read neither. Node.js reads them only if it is told to, from version 24 on.
const PROXY_URL = 'http://127.0.0.1:3128';
const NOT_PROXIED = 'localhost,127.0.0.0/8,127.0.0.1,::1';
const PROXY: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY'].flatMap(name => [
      [name, PROXY_URL],
      [name.toLowerCase(), PROXY_URL],
    ]),
  ),
  NO_PROXY: NOT_PROXIED,
  no_proxy: NOT_PROXIED,
  NODE_USE_ENV_PROXY: '1',
  // npm tries again after 10 and 60 seconds what the proxy refuses: it takes a connection that is closed for a bad network.
  npm_config_fetch_retry_mintimeout: '1000',
  npm_config_fetch_retry_factor: '2',
};

// Git’s client for SSH inside, which has no key: acode connects outside. Git is told what it is instead of asking it.
const GIT_SSH: Readonly<Record<string, string>> = {
  GIT_SSH_COMMAND: '/.acode/forwarder git',
  GIT_SSH_VARIANT: 'ssh',
};

/** Where a sandbox has the user’s bundle of CA certificates. */
export const CA_TARGET = '/etc/acode/ca.pem';

/** The directory of the proxy inside a sandbox with an allow-list. */
export const RELAY_TARGET = '/.acode/relay';

/** The certificate authority with which the proxy inspects connections, in that directory. */
export const PROXY_CA = 'ca.pem';

/** The same with all others that programs are to trust. */
export const PROXY_CA_BUNDLE = 'ca-bundle.pem';

/** The same for Java, in a format of its own. */
export const PROXY_CA_JAVA = 'ca.jks';

// What clients read to find CA certificates. Node.js and Deno add the file to their own; the others read it in place of the
// image’s, which is why it has to be a complete bundle. Only names that the tool documents.
const ADDING_CA: readonly string[] = ['NODE_EXTRA_CA_CERTS', 'DENO_CERT'];
const REPLACING_CA: readonly string[] = [
  'SSL_CERT_FILE',
  'NIX_SSL_CERT_FILE',
  'REQUESTS_CA_BUNDLE',
  'PIP_CERT',
  'CURL_CA_BUNDLE',
  'npm_config_cafile',
  'YARN_HTTPS_CA_FILE_PATH',
  'CARGO_HTTP_CAINFO',
  'GIT_SSL_CAINFO',
  'AWS_CA_BUNDLE',
  'COMPOSER_CAFILE',
  'BUNDLE_SSL_CA_CERT',
  'CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE',
  'GRPC_DEFAULT_SSL_ROOTS_FILE_PATH',
];

/**
 * The variables that acode sets for a command unless the request sets them. With a bundle of CA certificates, clients are
 * given its path; it has precedence over what the image sets, since the user named it for every image. Without a network,
 * package managers are set to work offline, so that they fail at once; there, what the image sets is not changed. With an
 * allow-list, programs are told where its proxy is, and which certificate authority it has if it inspects connections. Levels
 * without walls have the host’s own network, whatever the policy says, and get none of these.
 */
export function defaultEnvironment({
  network,
  level,
  image,
  mounts,
  services,
}: Pick<SandboxSpec, 'network' | 'level' | 'image' | 'mounts' | 'services'>): Readonly<Record<string, string>> {
  const hasBundle = mounts.some(({ purpose }) => purpose === 'ca');
  if (network.kind === 'allow' && isBoundary(level)) {
    const trusted = isInspected(network)
      ? trusting(`${RELAY_TARGET}/${PROXY_CA}`, `${RELAY_TARGET}/${PROXY_CA_BUNDLE}`)
      : hasBundle && trusting(CA_TARGET);
    const git = network.rules.some(isRepository) ? GIT_SSH : {};
    return { ...PROXY, ...unproxied(services), ...git, ...trusted, ...(trusted ? JAVA : {}) };
  }
  if (hasBundle) return trusting(CA_TARGET);
  if (network.kind !== 'none' || !isBoundary(level)) return {};
  return notInImage(OFFLINE, { image });
}

// Services are on the loopback, whatever they are called.
function unproxied(services: SandboxSpec['services'] = []): Readonly<Record<string, string>> {
  if (services.length === 0) return {};
  const names = [NOT_PROXIED, ...services.map(({ name }) => name)].join(',');
  return { NO_PROXY: names, no_proxy: names };
}

// No other variable makes Java trust anything; it prints a line about this one.
const JAVA = { JAVA_TOOL_OPTIONS: `-Djavax.net.ssl.trustStore=${RELAY_TARGET}/${PROXY_CA_JAVA}` };

function trusting(added: string, bundle = added): Readonly<Record<string, string>> {
  return {
    ...Object.fromEntries(ADDING_CA.map(name => [name, added])),
    ...Object.fromEntries(REPLACING_CA.map(name => [name, bundle])),
  };
}

// Whether the proxy of a network ends the TLS of some connections, so that programs have to trust its certificates.
function isInspected(network: NetworkMode): boolean {
  return (
    network.kind === 'allow' && network.rules.some(({ verdict, mode }) => verdict === 'allow' && mode === 'inspect')
  );
}

/**
 * Everything that a command gets besides the `env` of its request: that it is in a sandbox, and for which task; what
 * `defaultEnvironment` says; and those of the request’s own defaults that the image does not set.
 */
export function environmentBesides(
  spec: Pick<SandboxSpec, 'network' | 'level' | 'image' | 'mounts' | 'services' | 'identity'>,
  envDefaults: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  return {
    ACODE_SANDBOX: '1',
    ACODE_TASK_ID: spec.identity.labels['acode.task'] ?? '',
    ...defaultEnvironment(spec),
    ...notInImage(envDefaults, spec),
  };
}

/** Those of some variables that the image does not set itself. */
function notInImage(
  variables: Readonly<Record<string, string>>,
  { image }: Pick<SandboxSpec, 'image'>,
): Readonly<Record<string, string>> {
  const set = new Set(image.environment.map(variable => variable.replace(/=.*$/s, '')));
  return Object.fromEntries(Object.entries(variables).filter(([name]) => !set.has(name)));
}
