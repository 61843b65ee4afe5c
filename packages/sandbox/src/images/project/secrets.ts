// What never becomes part of an image, whatever a `.dockerignore` says: an image is copied about and its layers keep everything. Pure.

import { CREDENTIALS } from '../../workspace/places.ts';

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
    '.secrets',
    '.kubeconfig',
    '.yarnrc',
    '.my.cnf',
    '.mylogin.cnf',
    '.smbcredentials',
    '.fetchmailrc',
    '.msmtprc',
    '.terraformrc',
    '.vault_pass',
    '.vault_password',
    '.lesshst',
    '.viminfo',
    'rclone.conf',
    'auth.json',
    'application_default_credentials.json',
  ].map(name => name.toLowerCase()),
);

const SECRET_PATTERNS = [
  /^\.env/,
  /\.env$/,
  /\.(?:pem|key|p8|p12|pfx|pkcs8|pkcs12|jks|jceks|bks|keystore|keytab|kdbx?|ppk|ovpn|gpg|age|kubeconfig)$/,
  /^id_(?:rsa|dsa|ecdsa|ed25519)/,
  /^ssh_host_.*_key/,
  /^wg\d+\.conf$/,
  /(?:^|[-_.])(?:credentials?|secrets?)\.(?:json|ya?ml|toml|xml|ini|properties|txt)$/,
  /^client_secret.*\.json$|firebase-adminsdk.*\.json$/,
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
