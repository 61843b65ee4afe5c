// Whom the proxy trusts upstream: the certificate authorities of this host, and one that the user’s configuration adds.

import { readFileSync } from 'node:fs';
import { connect, createSecureContext, rootCertificates } from 'node:tls';
import type { SecureContext } from 'node:tls';
import type { Duplex } from 'node:stream';
import { codeOf } from '../../contract/system-error.ts';
import { Refused } from './dial.ts';

// Where distributions of Linux have them: Debian, Fedora, openSUSE, Alpine.
const BUNDLES = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
];

/** The certificate authorities of this host, as PEM; those of Node.js where the host has none. */
export function hostRoots(): string {
  for (const path of BUNDLES) {
    const text = readIfThere(path);
    if (text.includes('-----BEGIN CERTIFICATE-----')) return text;
  }
  return rootCertificates.join('\n');
}

function readIfThere(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** Encrypts connections upstream. The roots are read with the first of them. */
export class UpstreamTrust {
  readonly #extra: string;
  #context: SecureContext | null = null;

  /** `extra` has further certificate authorities, as PEM. */
  constructor(extra = '') {
    this.#extra = extra;
  }

  /** TLS on a connection to a host, whose certificate must be valid for it. */
  secure(socket: Duplex, host: string, ms: number): Promise<Duplex> {
    this.#context ??= createSecureContext({ ca: [hostRoots(), this.#extra].filter(text => text !== '') });
    const secureContext = this.#context;
    return new Promise((resolve, reject) => {
      const stream = connect({ socket, servername: host, secureContext, ALPNProtocols: ['http/1.1'] });
      const timer = setTimeout(() => stream.destroy(new Error('too slow')), ms);
      stream.once('secureConnect', () => {
        clearTimeout(timer);
        stream.off('error', fail).on('error', () => {});
        resolve(stream);
      });
      const fail = (error: Error): void => {
        clearTimeout(timer);
        stream.on('error', () => {});
        stream.destroy();
        socket.destroy();
        reject(new Refused(isCertificate(error) ? 'untrusted-server' : 'unreachable', null, codeOf(error)));
      };
      stream.once('error', fail);
    });
  }
}

// Node names them by OpenSSL’s constants, without a prefix of their own.
function isCertificate(error: Error): boolean {
  const code = codeOf(error);
  return code === 'ERR_TLS_CERT_ALTNAME_INVALID' || /CERT|SIGNATURE|ISSUER|CHAIN/.test(code);
}
