// What looks like a secret in a user’s own configuration, and so is not copied into a sandbox.

// The shapes of keys of vendors that people have.
const SHAPES =
  /\b(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{30,}|AIza[\w-]{30,}|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{16}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*|ya29\.[\w-]{20,})|-----BEGIN [A-Z ]*PRIVATE KEY-----/;

const SECRET_NAME =
  /(?:api[-_]?key|token|secret|passw(?:or)?d|credential|auth(?:orization)?|bearer|cookie|session[-_]?id)/i;

/** Whether a text holds what looks like a key. */
export function holdsSecret(text: string): boolean {
  return SHAPES.test(text);
}

/** Whether arguments or an address of a server carry a secret: by the shape of a value, by the name of an option, or in the address. */
export function carriesSecret(value: unknown): boolean {
  if (typeof value === 'string') return holdsSecret(value) || isSecretOption(value) || isSecretAddress(value);
  if (Array.isArray(value)) return value.some(carriesSecret);
  if (typeof value !== 'object' || value === null) return false;
  return Object.entries(value).some(([name, one]) => SECRET_NAME.test(name) || carriesSecret(one));
}

// `--api-key`, `--token=…`, `API_KEY=…`, `--header=Authorization: …`.
function isSecretOption(text: string): boolean {
  return SECRET_NAME.test(text) && (text.startsWith('-') || /[=:]/.test(text)) && !/^[a-z]+:\/\//i.test(text);
}

// An address may have a password, and keys in its query. A path can be a secret, too: long words in it are not copied.
function isSecretAddress(text: string): boolean {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(text) || !URL.canParse(text)) return false;
  const { username, password, search, hash, pathname } = new URL(text);
  return `${username}${password}${search}${hash}` !== '' || /[A-Za-z0-9_-]{24,}/.test(pathname);
}
