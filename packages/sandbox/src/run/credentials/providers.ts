// Providers of the credentials of one sandbox. Each is asked once before anything runs, so that one that cannot be had is a refusal.

import type { EgressCredential } from '../../contract/credentials.ts';
import { AcodeError } from '../../contract/errors.ts';
import { CREDENTIAL_MS, CredentialUnavailable } from '../../egress/credentials/provider.ts';
import type { CredentialProvider } from '../../egress/credentials/provider.ts';
import { providerOf } from './sources.ts';
import type { SourceSurroundings } from './sources.ts';

/** The providers of these credentials, by name. Throws where one has no value. */
export async function providersOf(
  credentials: readonly EgressCredential[],
  around: SourceSurroundings,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, CredentialProvider>> {
  const until = AbortSignal.any([signal, AbortSignal.timeout(CREDENTIAL_MS)]);
  const providers = credentials.map(credential => {
    const provider = providerOf(credential, around);
    return { credential, provider };
  });
  await Promise.all(
    providers.map(({ credential, provider }) =>
      provider.current({ signal: until }).catch((error: unknown) => {
        throw unavailable(credential, error);
      }),
    ),
  );
  return new Map(providers.map(({ credential, provider }) => [credential.name, provider]));
}

function unavailable({ name }: EgressCredential, error: unknown): AcodeError {
  const known = error instanceof CredentialUnavailable;
  return new AcodeError('ACODE-SBX-029', {
    credential: name,
    reason: known ? error.message : 'its source failed',
    ...(known ? { remedy: error.remedy } : {}),
  });
}
