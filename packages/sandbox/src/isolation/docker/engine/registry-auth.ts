// Credentials as the engine takes them.

/** Credentials for one registry; sent to the engine and kept nowhere. */
export interface RegistryAuth {
  readonly username?: string;
  readonly password?: string;
  readonly identitytoken?: string;
  readonly serveraddress?: string;
}

/** The header that carries them. Filled up to whole groups of four: the engine reads nothing else, and then pulls without. */
export function authHeaders(auth: RegistryAuth | undefined): Record<string, string> {
  if (!auth) return {};
  const words = Buffer.from(JSON.stringify(auth)).toString('base64url');
  return { 'X-Registry-Auth': words.padEnd(Math.ceil(words.length / 4) * 4, '=') };
}
