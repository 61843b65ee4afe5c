// File system error codes as text.

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  EACCES: 'access is denied',
  EPERM: 'is not permitted',
  EISDIR: 'is a directory',
  ENOTDIR: 'a part of it is not a directory',
  EEXIST: 'exists already',
  EROFS: 'is read-only',
  ENOSPC: 'there is no space left',
  ELOOP: 'is a link, or leads in a circle of them',
  ENAMETOOLONG: 'has a name that is too long',
};

/** The code of an error of a file system; null for any other. */
export function fileCode(error: unknown): string | null {
  const code = error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : '';
  return /^E[A-Z0-9]+$/.test(code) ? code : null;
}

/** What such a code means. */
export function fileReason(code: string): string {
  return REASONS[code] ?? `failed with ${code}`;
}
