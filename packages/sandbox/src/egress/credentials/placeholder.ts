// Placeholder of a credential: what stands for its value inside one sandbox. Another sandbox has another one, and no server knows any.

import { createHash } from 'node:crypto';
import type { EgressCredential, PlannedCredential } from '../../contract/credentials.ts';
import { endpointOf, refusedEndpoints } from './login.ts';

const SIGNS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** The placeholder of a credential in a sandbox. The same two always have the same one. */
export function placeholderFor({ name, placeholder }: EgressCredential, sandboxId: string): string {
  let block = Buffer.alloc(0);
  let taken = 0;
  return placeholder.replaceAll('*', () => {
    if (taken % 32 === 0)
      block = createHash('sha256')
        .update(JSON.stringify(['acode placeholder', sandboxId, name, taken]))
        .digest();
    return SIGNS[(block[taken++ % 32] ?? 0) % SIGNS.length] ?? '0';
  });
}

/** The placeholder of the refresh token of a login in a sandbox. */
export function refreshPlaceholderFor(credential: EgressCredential, sandboxId: string): string {
  // Another name than any credential can have.
  return placeholderFor({ ...credential, name: `${credential.name} refresh` }, sandboxId);
}

/** What the proxy of a sandbox knows of credentials, without their values. */
export function plannedCredentials(
  credentials: readonly EgressCredential[] | undefined,
  sandboxId: string,
): readonly PlannedCredential[] {
  return (credentials ?? []).map(one => ({
    name: one.name,
    as: one.as,
    placeholder: placeholderFor(one, sandboxId),
    ...(one.login
      ? {
          login: {
            token: endpointOf(one.login.tokenUrl),
            refused: refusedEndpoints(one.login),
            refreshPlaceholder: refreshPlaceholderFor(one, sandboxId),
          },
        }
      : {}),
  }));
}
