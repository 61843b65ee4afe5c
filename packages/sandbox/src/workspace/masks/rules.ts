// Rules of masks: the built-in table of files that hold secrets, and patterns of configuration files. Pure.

import type { MaskPolicy } from '../../contract/masks.ts';
import type { Source, Sourced } from '../../contract/sourced.ts';

/** One row of the built-in table. It applies to files that git does not track. */
interface BuiltInRule {
  readonly id: string;
  /** Last name of the path. With the flag `s`: a newline in a name must not hide it. */
  readonly name: RegExp;
  /** Name of the directory it is in, where the name alone says too little. */
  readonly inside?: RegExp;
  /** What the beginning of the file contains, where the name alone says too little. */
  readonly content?: RegExp;
  /** Bytes of the beginning; 4,096 unless given. */
  readonly head?: number;
  /** Reason for the row. */
  readonly why: string;
}

const HEAD = 4096;
/** Most bytes that any rule asks for. */
export const MAX_HEAD = 65_536;

const PRIVATE_KEY = /-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|^PuTTY-User-Key-File-\d/m;
// In a kubeconfig certificates stand before it, so it may be far from the beginning.
const CLUSTER_LOGIN = /^\s*(?:-\s+)?(?:client-key-data|token|password|id-token|refresh-token)\s*:\s*["']?[^"'\s]/m;
// A value that is a reference to a variable is not a secret: `${NPM_TOKEN}`.
const VALUE = String.raw`["']?(?!\$\{|\$\(|<|["'\s])\S`;

/**
 * Files that hold secrets. Not in the table, each for a reason: certificates and public keys (not secret); `*.tfstate` (an empty one makes
 * terraform create everything twice); `.git/config` (git needs it, and it is mounted as a whole); `.htpasswd` (hashes); `secrets.yml`
 * and the like (as often encrypted or a template as not: `sandbox.mask` is for those).
 */
const BUILT_IN: readonly BuiltInRule[] = [
  {
    id: 'env',
    name: /^(?!.*\.(?:example|sample|template|dist)$)(?:\.env(?:rc|[._-].*)?|.+\.env|\.dev\.vars(?:\..+)?)$/is,
    why: 'variables of a program on this machine: passwords and tokens; those for others to copy are named .example',
  },
  {
    id: 'ssh-key',
    name: /^id_(?:rsa|dsa|ecdsa|ed25519|ecdsa_sk|ed25519_sk|xmss)$/s,
    why: 'the names that ssh-keygen gives private keys',
  },
  {
    id: 'private-key',
    name: /\.(?:pem|key|p8|ppk|asc|gpg)$/is,
    content: PRIVATE_KEY,
    why: 'certificates and public keys have the same names, so the header decides',
  },
  {
    id: 'raw-key',
    name: /\.key$/is,
    content: /^[A-Za-z0-9+/_=-]{16,128}\s*$/,
    why: 'one line of hexadecimal or base64: master keys of Rails, keys of WireGuard',
  },
  {
    id: 'key-store',
    name: /\.(?:p12|pfx|jks|keystore|kdbx)$/is,
    why: 'containers of private keys, in binary formats without a header to look for',
  },
  {
    id: 'package-registry',
    name: /^(?:\.npmrc|\.yarnrc\.yml|\.yarnrc|bunfig\.toml)$/s,
    content: new RegExp(
      String.raw`(?:_authToken|_auth|_password|npmAuthToken|npmAuthIdent|^\s*token)["']?\s*[:=]\s*${VALUE}`,
      'im',
    ),
    why: 'most only name a registry; those with a token let others publish',
  },
  {
    id: 'package-registry',
    name: /^(?:\.pypirc|pip\.conf|auth\.json|nuget\.config|settings\.xml)$/is,
    content: new RegExp(
      String.raw`^\s*password\s*[:=]\s*${VALUE}|://[^/\s:@]+:[^/\s@$]+@|"(?:password|bearer|github-oauth|gitlab-token|http-basic)"\s*:\s*["{]|ClearTextPassword|<password>[^<$]`,
      'im',
    ),
    why: 'pip, twine, composer, NuGet and Maven, where they hold a password',
  },
  {
    id: 'package-registry',
    name: /^credentials(?:\.toml)?$/s,
    inside: /^\.(?:cargo|gem)$/,
    why: 'tokens of cargo and RubyGems',
  },
  {
    id: 'login',
    name: /^(?:\.netrc|_netrc|\.my\.cnf|\.pgpass|\.git-credentials|\.vault-token|\.dockercfg)$/s,
    content: /\bpassword\b\s*=?\s*\S|^[^#\s]\S*:\S+$|^hvs\.|^s\.|"auth"\s*:\s*"[^"]/m,
    why: 'passwords in files whose only use is to hold them',
  },
  {
    id: 'aws',
    name: /^(?:credentials|config)$/s,
    inside: /^\.aws$/,
    content: new RegExp(String.raw`aws_(?:secret_access_key|session_token)\s*=\s*${VALUE}`, 'i'),
    why: 'access keys; the same files also hold settings only',
  },
  {
    id: 'gcloud',
    name: /^(?:application_default_credentials\.json|credentials\.db|access_tokens\.db|legacy_credentials)$/s,
    inside: /^gcloud$/,
    why: 'logins of the gcloud command',
  },
  {
    id: 'gcloud',
    name: /^application_default_credentials\.json$/s,
    why: 'the same file, copied for a program to find',
  },
  {
    id: 'service-account',
    name: /(?:service[-_.]?account|credential|adminsdk|client[-_]secret|gcp|gcloud|google|firebase|key|token).*\.json$|-[0-9a-f]{12}\.json$/is,
    content: /"(?:private_key|client_secret|refresh_token)"\s*:\s*"[^"]/,
    why: 'keys of Google’s and other clouds are JSON of any name: the usual names, and the content decides',
  },
  {
    id: 'azure',
    name: /^(?:accessTokens\.json|azureProfile\.json|msal_token_cache\..+|service_principal_entries\..+)$/s,
    inside: /^\.azure$/,
    why: 'logins of the az command',
  },
  {
    id: 'kubeconfig',
    name: /kubeconfig/is,
    content: CLUSTER_LOGIN,
    head: MAX_HEAD,
    why: 'keys and tokens of clusters; the same files also only name clusters',
  },
  {
    id: 'kubeconfig',
    name: /^config$/s,
    inside: /^\.kube$/,
    content: CLUSTER_LOGIN,
    head: MAX_HEAD,
    why: 'the same file where kubectl looks for it',
  },
  {
    id: 'docker',
    name: /^config\.json$/s,
    inside: /^\.docker$/,
    content: /"(?:auth|identitytoken|registrytoken|password)"\s*:\s*"[^"]/,
    why: 'logins of registries; with a credential helper there are none in it',
  },
  {
    id: 'terraform',
    name: /(?:^|\.)(?:tfvars|tfvars\.json)$|^(?:\.terraformrc|terraform\.rc|credentials\.tfrc\.json)$/s,
    content: new RegExp(
      String.raw`["']?\w*(?:password|secret|token|api_?key|access_?key|private_?key)\w*["']?\s*[:=]\s*["'][^"'$<]`,
      'i',
    ),
    why: 'values of variables, where one of them is named as a secret; other files of values are needed inside',
  },
];

/** Directories that are looked into along a way, though git tracks nothing on it: `.config/gcloud`. */
export const DEEPER: Readonly<Record<string, string>> = { '.config': 'gcloud' };

/** Directories that are never looked into: packages of others, too many to list before each command. */
export const NEVER: ReadonlySet<string> = new Set(['node_modules', '.git']);

// One expression for all names, because every name of a workspace is asked.
const ANY_NAME = new RegExp(BUILT_IN.map(({ name }) => `(?:${name.source})`).join('|'), 'is');
// Source code is not a secret, whatever it is called, and most names are of source code.
const SOURCE = new Set(
  'c cc cpp cs css cts go h hpp htm html java js jsx kt less lua md mdx mjs cjs mts php png jpg svg py pyi rb rs scala scss snap swift ts tsx vue'.split(
    ' ',
  ),
);

/** Whether a name needs a closer look: some rule of the table may fit a file of that name. */
export function mayMatch(name: string): boolean {
  return (name.startsWith('.') || !SOURCE.has(name.slice(name.lastIndexOf('.') + 1))) && ANY_NAME.test(name);
}

/** The rules of the table that fit a file by its name and the name of its directory. */
export function builtInRules(name: string, directory: string): readonly BuiltInRule[] {
  return BUILT_IN.filter(rule => rule.name.test(name) && (rule.inside?.test(directory) ?? true));
}

/** The first rule that also fits by content; `head` reads the beginning of the file and is called at most once. */
export function fittingRule(rules: readonly BuiltInRule[], head: () => string): BuiltInRule | null {
  let beginning: string | null = null;
  for (const rule of rules) {
    if (!rule.content) return rule;
    beginning ??= head();
    if (rule.content.test(beginning.slice(0, rule.head ?? HEAD))) return rule;
  }
  return null;
}

/** A pattern of a configuration file: names with `*` and `?`, and `**` for any number of directories. */
export class MaskPattern {
  readonly text: string;
  readonly segments: readonly string[];
  /** Pattern of the last name. */
  readonly lastName: string;
  /** Whether only directories match: the pattern ends in a slash, or in all that is below one. */
  readonly isDirectory: boolean;

  constructor(text: string) {
    this.text = text;
    const plain = text.replace(/^\.\//, '');
    const trimmed = plain.replace(/(?:\/\*\*)+$/, '/').replace(/\/$/, '');
    this.isDirectory = trimmed !== plain;
    const segments = trimmed.split('/');
    // Without a slash before its end, the name may be anywhere, as in a .gitignore.
    this.segments = plain.replace(/\/$/, '').includes('/') ? segments : ['**', ...segments];
    this.lastName = segments.at(-1) ?? '';
  }

  /** Whether a path relative to the workspace fits. */
  matches(path: string, isDirectory: boolean): boolean {
    return (!this.isDirectory || isDirectory) && matchesSegments(this.segments, path.split('/'));
  }

  /** Whether a path, or a directory above it, fits. */
  covers(path: string, isDirectory: boolean): boolean {
    if (this.matches(path, isDirectory)) return true;
    for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1))
      if (this.matches(path.slice(0, at), true)) return true;
    return false;
  }
}

function matchesSegments(pattern: readonly string[], path: readonly string[]): boolean {
  return matchesAll(pattern, path, '**', matchesName);
}

/** Whether one name fits a pattern without slashes. */
export function matchesName(pattern: string, name: string): boolean {
  return matchesAll(pattern, name, '*', (sign, character) => sign === '?' || sign === character);
}

// Signs against items, where one sign stands for any number of items. It goes back to the last of these only, so that no pattern takes
// longer than its length times that of the path.
function matchesAll(
  signs: ArrayLike<string>,
  items: ArrayLike<string>,
  any: string,
  fits: (sign: string, item: string) => boolean,
): boolean {
  let [at, here, star, mark] = [0, 0, -1, 0];
  while (here < items.length) {
    const sign = signs[at];
    if (sign === any) {
      [star, mark] = [at, here];
      at += 1;
    } else if (sign !== undefined && fits(sign, items[here] ?? '')) {
      at += 1;
      here += 1;
    } else if (star >= 0) {
      mark += 1;
      [at, here] = [star + 1, mark];
    } else return false;
  }
  while (signs[at] === any) at += 1;
  return at === signs.length;
}

/** A pattern that adds masks. */
export interface AddedPattern {
  readonly pattern: MaskPattern;
  readonly setBy: Source;
  /** Whether it also applies to files that git tracks: not if a repository set it. */
  readonly includesTracked: boolean;
  /** Whether the user can remove it: not if the machine’s policy set it. */
  readonly isRemovable: boolean;
}

/** The policy with its patterns read. */
export interface MaskRules {
  readonly add: readonly AddedPattern[];
  readonly remove: readonly MaskPattern[];
}

/** Source of the built-in rules. */
export const BUILT_IN_SOURCE: Source = { layer: 'built-in', where: 'default' };

/** Text that is another where the same directory could give other names: the table and the patterns. */
export function ruleText({ add }: MaskRules): string {
  return JSON.stringify([BUILT_IN.map(({ name }) => name.source), add.map(({ pattern }) => pattern.text)]);
}

/** Reads the patterns of a policy. */
export function rulesOf({ add, remove }: MaskPolicy): MaskRules {
  return {
    add: add.map(({ value, layer, where }: Sourced<string>) => ({
      pattern: new MaskPattern(value),
      setBy: { layer, where },
      includesTracked: layer !== 'repository',
      isRemovable: layer !== 'machine',
    })),
    remove: remove.value.map(text => new MaskPattern(text)),
  };
}
