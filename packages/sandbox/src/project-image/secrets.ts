// What never becomes part of an image, whatever a `.dockerignore` says: an image is copied about and its layers keep everything. Pure.

import { CREDENTIALS } from '../workspace/places.ts';

// Of repositories and agents: history holds what was deleted, and hooks are for the host.
const NEVER = ['.git', '.hg', '.svn', '.bzr', '.agent'];

const SECRET_NAMES = new Set(
  [
    ...NEVER,
    ...CREDENTIALS.filter(name => !name.includes('/')),
    '_netrc',
    '.dockercfg',
    '.dockerconfigjson',
    '.htpasswd',
    '.s3cfg',
    '.boto',
    'kubeconfig',
    'credentials',
    'credentials.json',
    'credentials.toml',
    'credentials.yml',
    'credentials.yaml',
    'secrets.json',
    'secrets.toml',
    'secrets.yml',
    'secrets.yaml',
    'master.key',
  ].map(name => name.toLowerCase()),
);

const SECRET_PATTERNS = [
  /^\.env/,
  /\.env$/,
  /\.(?:pem|key|p12|pfx|jks|keystore|kdbx?|ppk|ovpn|gpg|age)$/,
  /^id_(?:rsa|dsa|ecdsa|ed25519)/,
  /^(?:service[-_]?account|gcp[-_]key).*\.json$/,
  /\.tfstate(?:\.|$)|\.tfvars(?:\.|$)/,
  /^\..*_history$/,
];

// Those that are secret by where they are: `.config/gcloud`.
const SECRET_PLACES = CREDENTIALS.filter(name => name.includes('/')).map(name => name.toLowerCase());

/**
 * Whether a path of a project, or a directory by that path, holds secrets by its name. Letter case does not matter, since it
 * does not on the file systems of some hosts.
 */
export function isSecret(path: string): boolean {
  const key = path.toLowerCase();
  const name = key.slice(key.lastIndexOf('/') + 1);
  if (SECRET_NAMES.has(name) || SECRET_PATTERNS.some(pattern => pattern.test(name))) return true;
  return SECRET_PLACES.some(place => key === place || key.endsWith(`/${place}`));
}
