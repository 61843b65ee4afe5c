// Repositories of Git: how a rule names one, over SSH and over HTTPS; what a client inside asks for over SSH, and what is run outside.
// Pure, without Node.

import type { EgressRequests, EgressRule } from '../contract/egress.ts';

/** The service that fetches, as Git names it. */
export const FETCH = 'git-upload-pack';

/** The service that pushes. */
export const PUSH = 'git-receive-pack';

const MAX_PATH = 300;
const SEGMENT = /^[A-Za-z0-9._+][A-Za-z0-9._+-]*$/;

/**
 * The path of a repository as a rule has it, without `.git` and without a slash at its end; null if it is none. It is quoted for a
 * server’s shell and read by programs of Git: nothing in it means anything to either, and no part of it leads elsewhere.
 */
export function parseRepository(text: string): string | null {
  if (text.length > MAX_PATH) return null;
  const root = text.startsWith('/') ? '/' : '';
  const bare = text
    .slice(root.length)
    .replace(/\/$/, '')
    .replace(/\.git$/, '');
  const segments = bare.split('/');
  // `~owner` is a directory on some servers, and only as the first part.
  const parts = segments.map((segment, at) => (at === 0 && root === '' ? segment.replace(/^~/, '') : segment));
  return parts.every(part => SEGMENT.test(part) && part !== '.' && part !== '..') ? `${root}${bare}` : null;
}

/** The requests over HTTPS that fetch from a repository, and push to it: exactly these, with and without `.git`. */
export function requestsOf(path: string, mayPush: boolean): EgressRequests[] {
  return [`/${path}`, `/${path}.git`].flatMap(at => [
    { methods: ['GET'], path: `${at}/info/refs$` },
    { methods: ['POST'], path: `${at}/${FETCH}$` },
    ...(mayPush ? [{ methods: ['POST'], path: `${at}/${PUSH}$` }] : []),
  ]);
}

/** What a client inside asks for. */
export interface AskedRepository {
  /** The login; null if the client named none. */
  readonly login: string | null;
  /** The path, as the client wrote it. */
  readonly path: string;
  /** The program to run on the server, as the client wrote it. */
  readonly service: string;
}

/** A repository that a rule allows. */
export interface AllowedRepository {
  readonly allowed: true;
  readonly login: string;
  /** What ssh asks the server to run: made of the rule, with nothing that the client wrote. */
  readonly command: string;
}

/** What is decided about a repository. */
export type RepositoryDecision =
  AllowedRepository | { readonly allowed: false; readonly reason: 'repository' | 'service'; readonly rule: EgressRule };

/** Decides what a rule for Git over SSH lets a client do. */
export function decideRepository(rule: EgressRule, { login, path, service }: AskedRepository): RepositoryDecision {
  if (service !== FETCH && service !== PUSH) return { allowed: false, reason: 'service', rule };
  const asked = parseRepository(path);
  const named = (rule.requests ?? []).map(({ methods, path: of }) => ({ methods, ...partsOf(of) }));
  // A URL has a slash before every path; where the rule has none, the repository is the one below the login’s directory.
  const isSame = (repository: string): boolean => asked === repository || asked === `/${repository}`;
  const found = named.find(one => isSame(one.repository) && (login ?? one.login) === one.login);
  if (!found) return { allowed: false, reason: 'repository', rule };
  if (!found.methods.includes(service)) return { allowed: false, reason: 'service', rule };
  return { allowed: true, login: found.login, command: `${service} '${found.repository}'` };
}

function partsOf(path: string): { readonly login: string; readonly repository: string } {
  const [login = '', repository = ''] = path.split('@');
  return { login, repository };
}
