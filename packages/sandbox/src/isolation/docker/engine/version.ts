// Chooses the API version that both sides speak.
import { EngineError } from './error.ts';

/** A version of the Engine API, such as `1.41`. */
export type ApiVersion = `${number}.${number}`;

const oldest: ApiVersion = '1.41';
const newest: ApiVersion = '1.51';

/** Whether `version` is at least `minimum`. Compared as numbers: as text, 1.9 would be newer than 1.41. */
export function atLeast(version: ApiVersion, minimum: ApiVersion): boolean {
  const [major, minor] = numbersOf(version);
  const [minimumMajor, minimumMinor] = numbersOf(minimum);
  return major === minimumMajor ? minor >= minimumMinor : major > minimumMajor;
}

/** The version to use with an engine that offers `offered`: its own newest or ours, whichever is older. */
export function negotiate(offered: unknown, operation: string): ApiVersion {
  if (!isApiVersion(offered)) {
    throw new EngineError({
      kind: 'protocol',
      operation,
      detail: 'the answer names no API version; this is no Docker Engine API',
    });
  }
  if (!atLeast(offered, oldest)) {
    const detail = `the engine speaks API ${offered}, and at least ${oldest} (Docker 20.10) is needed`;
    throw new EngineError({ kind: 'protocol', operation, detail });
  }
  return atLeast(offered, newest) ? newest : offered;
}

function isApiVersion(value: unknown): value is ApiVersion {
  return typeof value === 'string' && /^\d{1,4}\.\d{1,4}$/.test(value);
}

function numbersOf(version: ApiVersion): readonly [number, number] {
  const [major = '', minor = ''] = version.split('.');
  return [Number(major), Number(minor)];
}
