// Certificate authority of one sandbox: in memory, for a day, for the inspected names alone. Trusted inside that sandbox only.
//
// Written as DER by hand. It is one fixed shape of certificate, and reading certificates is left to TLS libraries.

import { createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { SecureContext } from 'node:tls';

const DAY_MS = 86_400_000;
const MAX_CONTEXTS = 512;

const [BOOLEAN, INTEGER, BIT_STRING, OCTET_STRING, OBJECT_ID] = [0x01, 0x02, 0x03, 0x04, 0x06];
const [UTF8, UTC_TIME, GENERALIZED_TIME, SEQUENCE, SET] = [0x0c, 0x17, 0x18, 0x30, 0x31];
/** A field that its position tells: `[number]`. */
const field = (number: number): number => 0x80 + number;
const CONSTRUCTED = 0x20;

const OID = {
  ecdsaWithSha256: '1.2.840.10045.4.3.2',
  commonName: '2.5.4.3',
  subjectKeyIdentifier: '2.5.29.14',
  keyUsage: '2.5.29.15',
  subjectAltName: '2.5.29.17',
  basicConstraints: '2.5.29.19',
  nameConstraints: '2.5.29.30',
  authorityKeyIdentifier: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
  serverAuth: '1.3.6.1.5.5.7.3.1',
} as const;

const ALGORITHM = der(SEQUENCE, oid(OID.ecdsaWithSha256));
const ISSUER = 'acode sandbox CA';

/** The authority of one sandbox. */
export class SandboxAuthority {
  /** Its certificate, for the sandbox to trust. */
  readonly pem: string;
  readonly #key = newKey();
  readonly #leafKey = newKey();
  readonly #now: number;
  readonly #contexts = new Map<string, SecureContext>();

  /** An authority for these names and those below them. */
  constructor(names: readonly string[], now = Date.now()) {
    this.#now = now;
    const { publicKey } = this.#key;
    this.pem = this.#certificate(ISSUER, publicKey, [
      extension(
        OID.basicConstraints,
        true,
        der(SEQUENCE, der(BOOLEAN, Buffer.from([0xff])), integer(Buffer.from([0]))),
      ),
      // To sign certificates and nothing else.
      extension(OID.keyUsage, true, der(BIT_STRING, Buffer.from([2, 0x04]))),
      extension(OID.subjectKeyIdentifier, false, der(OCTET_STRING, keyId(publicKey))),
      extension(OID.nameConstraints, true, constraints(names)),
    ]);
    for (const name of names) this.context(name);
  }

  /** What a TLS server needs to be this host. Its certificate is made now unless it was before. */
  context(host: string): SecureContext {
    const known = this.#contexts.get(host);
    if (known) return known;
    const context = createSecureContext({
      cert: this.leaf(host) + this.pem,
      key: this.#leafKey.privateKey.export({ type: 'pkcs8', format: 'pem' }),
      minVersion: 'TLSv1.2',
    });
    if (this.#contexts.size < MAX_CONTEXTS) this.#contexts.set(host, context);
    return context;
  }

  /** The certificate of a host. */
  leaf(host: string): string {
    const { publicKey } = this.#leafKey;
    const issuer = der(field(0), keyId(this.#key.publicKey));
    return this.#certificate(host, publicKey, [
      extension(OID.basicConstraints, true, der(SEQUENCE)),
      extension(OID.keyUsage, true, der(BIT_STRING, Buffer.from([7, 0x80]))),
      extension(OID.extendedKeyUsage, false, der(SEQUENCE, oid(OID.serverAuth))),
      extension(OID.subjectAltName, false, der(SEQUENCE, dnsName(host))),
      extension(OID.subjectKeyIdentifier, false, der(OCTET_STRING, keyId(publicKey))),
      extension(OID.authorityKeyIdentifier, false, der(SEQUENCE, issuer)),
    ]);
  }

  #certificate(subject: string, publicKey: KeyObject, extensions: readonly Buffer[]): string {
    const serial = randomBytes(16);
    // Positive, and without a zero byte in front.
    serial[0] = ((serial[0] ?? 0) & 0x3f) | 0x40;
    const body = der(
      SEQUENCE,
      der(field(0) | CONSTRUCTED, integer(Buffer.from([2]))),
      integer(serial),
      ALGORITHM,
      commonName(ISSUER),
      der(SEQUENCE, time(this.#now - DAY_MS), time(this.#now + DAY_MS)),
      commonName(subject),
      publicKey.export({ type: 'spki', format: 'der' }),
      der(field(3) | CONSTRUCTED, der(SEQUENCE, ...extensions)),
    );
    const signature = sign('sha256', body, this.#key.privateKey);
    return pemOf(der(SEQUENCE, body, ALGORITHM, der(BIT_STRING, Buffer.from([0]), signature)));
  }
}

function newKey(): { publicKey: KeyObject; privateKey: KeyObject } {
  return generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
}

function keyId(publicKey: KeyObject): Buffer {
  return createHash('sha256')
    .update(publicKey.export({ type: 'spki', format: 'der' }))
    .digest()
    .subarray(0, 20);
}

// The names and those below them; no address of either family, of which the names say nothing.
function constraints(names: readonly string[]): Buffer {
  const permitted = names.map(name => der(SEQUENCE, dnsName(name)));
  const addresses = [8, 32].map(bytes => der(SEQUENCE, der(field(7), Buffer.alloc(bytes))));
  return der(SEQUENCE, der(field(0) | CONSTRUCTED, ...permitted), der(field(1) | CONSTRUCTED, ...addresses));
}

function extension(id: string, isCritical: boolean, value: Buffer): Buffer {
  const critical = isCritical ? [der(BOOLEAN, Buffer.from([0xff]))] : [];
  return der(SEQUENCE, oid(id), ...critical, der(OCTET_STRING, value));
}

function dnsName(name: string): Buffer {
  return der(field(2), Buffer.from(name, 'latin1'));
}

function commonName(text: string): Buffer {
  // At most 64 characters; clients read the alternative name.
  const value = der(UTF8, Buffer.from(text.slice(0, 64), 'utf8'));
  return der(SEQUENCE, der(SET, der(SEQUENCE, oid(OID.commonName), value)));
}

function time(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replaceAll(/[-:T]|\.\d+/g, '');
  const isLate = digits >= '2050';
  return der(isLate ? GENERALIZED_TIME : UTC_TIME, Buffer.from(isLate ? digits : digits.slice(2), 'latin1'));
}

function integer(bytes: Buffer): Buffer {
  return der(INTEGER, bytes);
}

function oid(text: string): Buffer {
  const [first = 0, second = 0, ...rest] = text.split('.').map(Number);
  return der(OBJECT_ID, Buffer.from([40 * first + second, ...rest.flatMap(base128)]));
}

function base128(number: number): number[] {
  const bytes = [number & 0x7f];
  for (let rest = number >> 7; rest > 0; rest >>= 7) bytes.unshift((rest & 0x7f) | 0x80);
  return bytes;
}

function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  if (length < 0x80) return Buffer.concat([Buffer.from([tag, length]), content]);
  const wide = length > 0xff ? [0x82, length >> 8, length & 0xff] : [0x81, length];
  return Buffer.concat([Buffer.from([tag, ...wide]), content]);
}

function pemOf(bytes: Buffer): string {
  const lines = bytes.toString('base64').match(/.{1,64}/g) ?? [];
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n');
}
