// Trust store for Java, which reads certificates from a file of its own format (JKS) and from no variable. Pure.

import { createHash } from 'node:crypto';

const MAGIC = 0xfeedfeed;
const VERSION = 2;
const TRUSTED_CERTIFICATE = 2;
const TYPE = 'X.509';
// Java needs a password to write such a file, and none to read it; what it protects is public.
const PASSWORD = 'changeit';
const SALT = 'Mighty Aphrodite';

/** A trust store with every certificate of a PEM text. */
export function javaTrustStore(pem: string): Buffer {
  const certificates = [...pem.matchAll(/-----BEGIN CERTIFICATE-----([^-]*)-----END CERTIFICATE-----/g)];
  const entries = certificates.flatMap(([, body = ''], at) => {
    const der = Buffer.from(body, 'base64');
    // A date of its own each time would make two stores of the same certificates differ.
    return [int(TRUSTED_CERTIFICATE), text(`ca${at}`), Buffer.alloc(8), text(TYPE), int(der.length), der];
  });
  const store = Buffer.concat([int(MAGIC), int(VERSION), int(certificates.length), ...entries]);
  const password = Buffer.from(PASSWORD, 'utf16le').swap16();
  const digest = createHash('sha1').update(password).update(SALT, 'latin1').update(store).digest();
  return Buffer.concat([store, digest]);
}

function int(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

// ASCII is the same in Java’s own form of UTF-8.
function text(value: string): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(value.length);
  return Buffer.concat([length, Buffer.from(value, 'latin1')]);
}
