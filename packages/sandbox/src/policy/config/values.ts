// The kinds of values that configuration keys have.

import * as z from 'zod';
import { LANGUAGES } from '../../contract/languages.ts';
import { credentialHostFault } from '../../egress/credentials/hosts.ts';
import { knownCredential } from '../../egress/credentials/known.ts';
import { PRESET_NAMES } from '../../egress/presets.ts';
import { entryFault } from '../../egress/rules.ts';
import type { EntryFault } from '../../egress/rules.ts';
import { nearestWord } from './keys.ts';
import { formatBytes, parseBytes, parseSeconds } from '../../contract/units.ts';

const MIB = 1024 ** 2;
/** Below this the engine refuses to start anything. */
export const LEAST_MEMORY = 6 * MIB;
/** Above this a size is a slip of the pen and not a wish. */
export const NONSENSE_BYTES = 1024 ** 4;

const TIME = 'must be seconds such as 600, or a time with its unit such as 10m or 1h30m';
const timeText = z.string().regex(/^\s*(?:\d+(?:\.\d+)?[sSmMhHdD])+\s*$/, TIME);

/** A number of seconds, or text with units such as `10m`; more than 0 (or from 0 on), and at most `most`. */
export function time(most: number, fromZero = false): z.ZodType<number, number | string> {
  return z.union([z.number(), timeText], { error: TIME }).transform((value, context) => {
    const found = typeof value === 'number' ? value : parseSeconds(value);
    if (found === null || Number.isNaN(found)) context.addIssue({ code: 'custom', message: TIME });
    else if (fromZero ? found < 0 : found <= 0)
      context.addIssue({ code: 'custom', message: `must be ${fromZero ? 'at least' : 'more than'} 0` });
    else if (found > most) context.addIssue({ code: 'custom', message: `must be at most ${most} seconds` });
    else return found;
    return z.NEVER;
  });
}

/** A number of seconds, or a time with units; at most a day. */
export const seconds = time(86_400);

const SIZE = 'must be a size such as 512 (MiB), 512m or 1.5g';
// Both cases are written out: the published JSON Schema knows no flags.
const sizeText = z.string().regex(/^\s*\d+(?:\.\d+)?\s*(?:[kKmMgGtT][iI]?[bB]?|[bB])?\s*$/, SIZE);

/** A number of megabytes, or text with a unit such as `512m` or `1.5g`; between two bounds. */
export function size(least: number): z.ZodType<number, number | string> {
  return z.union([z.number(), sizeText], { error: SIZE }).transform((value, context) => {
    const bytes = typeof value === 'number' ? Math.round(value * MIB) : parseBytes(value);
    if (bytes === null) context.addIssue({ code: 'custom', message: SIZE });
    else if (bytes < least) context.addIssue({ code: 'custom', message: `must be at least ${formatBytes(least)}` });
    else if (bytes > NONSENSE_BYTES)
      context.addIssue({ code: 'custom', message: `must be at most ${formatBytes(NONSENSE_BYTES)}` });
    else return bytes;
    return z.NEVER;
  });
}

/** A whole number of megabytes, as bytes. */
export const megabytes = z
  .int()
  .nonnegative()
  .max(NONSENSE_BYTES / MIB)
  .transform(value => value * MIB);

/** CPUs: the least an engine can hold anybody to is a hundredth; less would round to no limit at all. */
export const cpus = z.number().min(0.01).max(4096);
/** Processes: init, the shell that waits for the command, and the command with a few of its own. */
export const processes = z.int().min(8);

/** Open files: the engine itself needs some to start a container. */
export const openFiles = z.int().min(32);

/** The name of a network, as engines take them. */
export const networkName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/, 'expected the name of a network');

/** Why an entry of an allow-list is not one, with the preset that was probably meant; null where it is one. */
export function listFault(entry: string, verdict: 'allow' | 'deny' = 'allow'): EntryFault | null {
  const fault = entryFault(entry, verdict);
  const meant = fault && (presetMeant(entry) ?? nearestWord(entry, PRESET_NAMES));
  // A preset that lacks its value is the one that was meant.
  return fault && meant && meant !== entry.split('=', 1)[0]
    ? { ...fault, remedy: `You probably mean ${meant}` }
    : fault;
}

// `npm` and `github` name a site; what may be done there is the rest of the name, and reading comes first.
function presetMeant(entry: string): string | null {
  return PRESET_NAMES.find(name => name.startsWith(`${entry.toLowerCase()}:`)) ?? null;
}

/** An entry of a list that allows, or of one that denies: a preset, or a host. */
export function egressEntry(verdict: 'allow' | 'deny'): z.ZodString {
  return z.string().superRefine((entry, context) => {
    const fault = listFault(entry, verdict);
    // Of what has another form than a host or a preset, nothing is repeated: it may be a secret.
    const which = /^[\w.:*/=,-]{1,80}$/.test(entry) ? `"${entry}", which` : 'an entry that';
    if (fault) context.addIssue({ code: 'custom', message: `has ${which} ${fault.reason}. ${fault.remedy}` });
  });
}

/** A host, or every host below a suffix. */
export const hostPattern = z
  .string()
  .regex(
    /^(?:\*\.)?(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]*$/,
    'expected the name of a host, or *.suffix',
  );

/** The name of a runtime, as engines take them. */
export const runtimeName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/, 'expected the name of a runtime');

/** An absolute path without steps back. */
export const absolutePath = z
  .string()
  .regex(/^\/(?!.*(?:^|\/)\.\.(?:\/|$))[^\0]*$/, 'expected an absolute path without ..');

const REPOSITORY =
  /^(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+|[a-z0-9.-]+:[0-9]{1,5}|localhost:[0-9]{1,5})(?:\/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*(?:\/\*)?$/;

/** A repository of images with its registry; a trailing `*` stands for everything below. */
export const imagePattern = z
  .string()
  .max(255)
  .regex(REPOSITORY, {
    error: ({ input }) =>
      `expected a repository with its registry, such as docker.io/library/node or ghcr.io/me/*${writtenOut(input)}`,
  });

// Engines let people leave out the registry and name a tag. A rule about trust has neither form.
function writtenOut(input: unknown): string {
  const name = typeof input === 'string' ? input.replace(/:[\w.-]{1,128}$/, '') : '*';
  const registry = /^(?:localhost|[^/]*[.:][^/]*)\//.test(name)
    ? ''
    : name.includes('/')
      ? 'docker.io/'
      : 'docker.io/library/';
  const whole = `${registry}${name}`;
  return !name.startsWith('*') && REPOSITORY.test(whole) ? `; write ${whole}` : '';
}

/** The reference of an image; what it may be is decided where it is used. */
export const image = z.string().min(1).max(400);

/** Why a key of `sandbox.images.combined`, one of several, names no set of languages of its own; null where it does. */
export function combinationFault(key: string, keys: readonly string[] = [key]): string | null {
  const parts = key.split('+');
  const known = new Set<string>(LANGUAGES);
  const isSet = parts.length >= 2 && parts.every(part => known.has(part)) && new Set(parts).size === parts.length;
  if (!isSet) return `expected two or more of ${LANGUAGES.join(', ')}, each once, with + between them`;
  const other = keys.find(one => one !== key && sorted(one) === sorted(key));
  return other === undefined ? null : `names the same languages as ${other}`;
}

function sorted(key: string): string {
  return key.split('+').sort().join('+');
}

/** The volume of a cache: a name of its own, or none. */
export const cacheVolume = z.union([z.literal(false), z.string().regex(/^acode-cache-[a-z0-9][a-z0-9_.-]{0,63}$/)], {
  error: 'expected false, or a name such as acode-cache-mine',
});

// Names that every sandbox has already.
const TAKEN_NAMES = new Set(['localhost', 'sandbox', 'ip6-localhost', 'ip6-loopback', 'none']);

/** Why a service cannot have this name; null where it can. */
export function serviceNameFault(name: string): string | null {
  if (!/^[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?$/.test(name))
    return 'is not a name for a service: expected up to 32 small letters, digits and inner hyphens, such as db';
  return TAKEN_NAMES.has(name) ? 'is a name that every sandbox has already' : null;
}

/** A service beside the command. */
export const service = z.union([
  image,
  z.strictObject({
    image: image.describe('The image.'),
    port: z
      .int()
      .min(1)
      .max(65_535)
      .optional()
      .describe('The TCP port that it listens on when it is ready; the only one that its image exposes unless named.'),
    env: z
      .record(z.string(), z.string())
      .optional()
      .describe('Variables that its image needs. Every program in the sandbox can reach the service.'),
    command: z.array(z.string()).min(1).optional().describe('Arguments in place of those that its image names.'),
    user: z
      .string()
      .regex(/^\d+:\d+$/, 'expected uid:gid')
      .optional()
      .describe('The user inside, "uid:gid"; the one that its image names unless set. Never root.'),
    memory_mb: size(LEAST_MEMORY)
      .optional()
      .describe('Memory of all its processes: megabytes, or 512m; 512m unless set.'),
    writable: z
      .array(absolutePath)
      .max(16)
      .optional()
      .describe('Directories in memory that it can write, besides the volumes of its image.'),
    ready_seconds: time(900).optional().describe('How long it may take until it listens; 60 unless set.'),
  }),
]);

/** A port to be published on the loopback of the host. */
export const port = z.strictObject({
  container: z.int().min(1).max(65_535).describe('Port inside the sandbox.'),
  host: z.int().min(1).max(65_535).optional().describe('Port on 127.0.0.1; a free one unless named.'),
  protocol: z.enum(['tcp', 'udp']).optional().describe('tcp unless named.'),
});

/** A further directory of the host. */
export const mount = z.strictObject({
  source: z.string().min(1).describe('Directory of the host; a relative one is below the workspace.'),
  target: z.string().min(1).describe('Absolute path inside the sandbox.'),
  readonly: z.boolean().optional().describe('True by default.'),
});

// Only `*`, `?` and `**` are wildcards: other signs of patterns (`[`, `{`, `!`, `\\`) mean different things to different tools.
const MASK =
  'expected a path relative to the workspace, with * and ? in names and ** for directories, such as secrets/** or *.secret';

/** A pattern of paths below the workspace. */
export const maskPattern = z
  .string()
  .max(400)
  .regex(/^(?!\/)(?!(?:\.\/)*(?:\*\*\/?)+$)(?!\.?\/?$)(?!(?:.*\/)?\.\.(?:\/|$))(?!.*\/\/)[^\0\n\r\\[\]{}!]+$/, MASK);

/** The proxy of a company: its host and port, without a credential, which would be readable in a file of settings. */
export const upstreamProxy = z
  .string()
  .max(300)
  .regex(
    /^http:\/\/(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):\d{1,5}\/?$/,
    'expected http://host:port, without a user name or password',
  );

/** A file that ssh reads; without signs that its options give a meaning. */
export const sshFile = z
  .string()
  .max(400)
  .regex(/^\/[A-Za-z0-9._/@+-]+$/, 'expected an absolute path of letters, digits and . _ / @ + -');

/** The address of a name server. */
export const address = z.union([z.ipv4(), z.ipv6()], { error: 'expected an IP address' });

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/;
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]{0,99}$/;
const MIN_STARS = 16;
const attributes = z.record(z.string().regex(/^[a-zA-Z0-9_.:-]{1,100}$/), z.string().min(1).max(400));

const variableName = z.string().regex(VARIABLE, 'expected the name of a variable');

const credentialName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9_.-]{0,63}$/, 'expected a name of small letters, digits, dots and hyphens');

/** Where the value of a credential is: never the value itself, which would lie in a file of settings. */
const credentialSource = z.union(
  [
    z.strictObject({ env: variableName.describe('A variable of the environment of acode’s own process.') }),
    z.strictObject({ file: absolutePath.describe('A file that nobody else can write, outside every workspace.') }),
    z.strictObject({
      command: z
        .array(z.string().min(1).max(4000))
        .min(1)
        .max(100)
        .describe('A program of this machine and its arguments.'),
    }),
    z.strictObject({
      secret_service: attributes.describe('Attributes of an entry that `secret-tool lookup` finds.'),
    }),
    z.strictObject({
      login: credentialName.describe('A login of acode’s own: `acode login` makes it, acode refreshes it.'),
    }),
  ],
  { error: 'expected one of env, file, command, secret_service and login' },
);

const httpsUrl = z
  .string()
  .max(1000)
  .refine(text => /^https:\/\/[^/?#@\s]+\/[^?#\s]*$/.test(text) && URL.canParse(text) && new URL(text).href === text, {
    error: 'expected a whole https:// URL with a path, and without a query',
  });
// RFC 8252: the loopback by its address, or a page of the server’s.
const redirectUri = z
  .string()
  .max(1000)
  .regex(
    /^(?:https:\/\/[^\s#]+|http:\/\/(?:127\.0\.0\.1|localhost):\d{1,5}\/[^\s?#]*)$/,
    'expected http://127.0.0.1:<port>/<path>, or an https:// page that shows the code',
  );

const loginDefinition = z.strictObject({
  authorize_url: httpsUrl.optional().describe('The page that `acode login` opens a login with.'),
  token_url: httpsUrl.describe('Where codes and refresh tokens are exchanged for tokens.'),
  client_id: z.string().min(1).max(400).describe('The public client that acode is to the server.'),
  scopes: z
    .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]{1,200}$/))
    .max(50)
    .optional()
    .describe('What is asked for.'),
  redirect_uri: redirectUri
    .optional()
    .describe('Where the browser brings the code: to acode on the loopback, or to a page that shows it.'),
  token_request: z.enum(['form', 'json']).optional().describe('How exchanges are written; form unless named.'),
  revoke_url: httpsUrl.optional().describe('Where `acode logout` ends the login. Refused inside a sandbox.'),
  refused_urls: z
    .array(httpsUrl)
    .max(20)
    .optional()
    .describe('More addresses that would end the login: refused inside.'),
});

/** Servers of logins, by their names. */
export const logins = z.record(credentialName, loginDefinition);

/** The server of a login as a file has it. */
export type ConfiguredLogin = z.output<typeof loginDefinition>;

const credentialForm = z.union(
  [
    z.literal('bearer'),
    z.strictObject({
      header: z.string().regex(HEADER_NAME, 'expected the name of a header').describe('The name of the header.'),
    }),
    z.strictObject({
      basic: z
        .string()
        .regex(/^[\x21-\x39\x3b-\x7e]{1,200}$/, 'expected a user name without a colon')
        .describe('The user name.'),
    }),
    z.strictObject({
      query: z
        .string()
        .regex(/^[A-Za-z0-9_.-]{1,100}$/, 'expected the key of a query')
        .describe('The key of the query.'),
    }),
  ],
  { error: 'expected bearer, or one of header, basic and query with a name' },
);

const credential = z.strictObject({
  from: credentialSource.describe('Where the value is.'),
  hosts: z
    .array(
      z.string().superRefine((host, context) => {
        const fault = credentialHostFault(host);
        if (fault !== null) context.addIssue({ code: 'custom', message: fault });
      }),
    )
    .min(1)
    .max(50)
    .optional()
    .describe('Hosts that get it, if the list allows them. By default those of the preset with the same name.'),
  as: credentialForm.optional().describe('How it is added: bearer, or a header, a user name, or a key of the query.'),
  variable: variableName.optional().describe('The variable that holds its placeholder inside.'),
  placeholder: z
    .string()
    .regex(/^[\x21-\x7e]{16,400}$/)
    .refine(text => (text.match(/\*/g) ?? []).length >= MIN_STARS, `needs at least ${MIN_STARS} of *`)
    .optional()
    .describe('The form of the placeholder: each * becomes a letter or a digit.'),
  mode: z
    .enum(['inspect', 'base-url'])
    .optional()
    .describe('base-url: the hosts are reached by a URL of the sandbox’s own loopback, and not by their names.'),
  base_url_variable: variableName.optional().describe('The variable that holds this URL inside.'),
  refresh_variable: variableName
    .optional()
    .describe('The variable that holds the placeholder of the refresh token inside, where the value is of a login.'),
});

/** Credentials that the proxy adds to requests, by their names. */
export const credentials = z.record(credentialName, credential).superRefine((all, context) => {
  for (const [name, one] of Object.entries(all))
    for (const [key, message] of credentialFaults(name, one))
      context.addIssue({ code: 'custom', path: [name, key], message });
});

// Which keys need which others.
function credentialFaults(name: string, one: ConfiguredCredential): (readonly [key: string, message: string])[] {
  const isOfLogin = one.refresh_variable === undefined || 'login' in one.from;
  return [...(isOfLogin ? [] : [['refresh_variable', 'is only for a login'] as const]), ...placeFaults(name, one)];
}

function placeFaults(name: string, one: ConfiguredCredential): (readonly [key: string, message: string])[] {
  const { hosts, mode = 'inspect', base_url_variable: base } = one;
  const isKnown = knownCredential(name) !== null;
  const faults: [string, string][] = [];
  if (!hosts && !isKnown) faults.push(['hosts', 'is missing: no preset has a credential of that name']);
  if (mode === 'inspect') return base ? [...faults, ['base_url_variable', 'is only for mode base-url']] : faults;
  if (hosts && hosts.length > 1) faults.push(['hosts', 'may have one host in mode base-url']);
  if (!base && !isKnown) faults.push(['base_url_variable', 'is missing in mode base-url']);
  return faults;
}

/** A credential as a file has it. */
export type ConfiguredCredential = z.output<typeof credential>;
