// Credentials that acode knows by their names: how they are added, and under which variables programs look for them. Data.

import type { CredentialForm } from '../../contract/credentials.ts';

/** What a credential of a preset is like. */
export interface KnownCredential {
  readonly as: CredentialForm;
  readonly variable: string;
  readonly placeholder: string;
  readonly baseUrlVariable?: string;
  readonly basePath?: string;
  /** Whether the preset that names it is of no use without it. */
  readonly isNeeded: boolean;
}

const stars = (count: number): string => '*'.repeat(count);

const KNOWN: Readonly<Record<string, KnownCredential>> = {
  anthropic: {
    as: { header: 'x-api-key' },
    variable: 'ANTHROPIC_API_KEY',
    placeholder: `sk-ant-api03-${stars(95)}`,
    baseUrlVariable: 'ANTHROPIC_BASE_URL',
    isNeeded: true,
  },
  openai: {
    as: 'bearer',
    variable: 'OPENAI_API_KEY',
    placeholder: `sk-proj-${stars(48)}`,
    baseUrlVariable: 'OPENAI_BASE_URL',
    basePath: '/v1',
    isNeeded: true,
  },
  'google-ai': {
    as: { header: 'x-goog-api-key' },
    variable: 'GEMINI_API_KEY',
    placeholder: `AIza${stars(35)}`,
    baseUrlVariable: 'GOOGLE_GEMINI_BASE_URL',
    isNeeded: true,
  },
  // As a password, which is what git sends. The API takes it as well.
  github: { as: { basic: 'x-access-token' }, variable: 'GH_TOKEN', placeholder: `ghp_${stars(36)}`, isNeeded: false },
};

/** What acode knows of a credential by its name; null for nothing. */
export function knownCredential(name: string): KnownCredential | null {
  return Object.hasOwn(KNOWN, name) ? (KNOWN[name] ?? null) : null;
}

// Some programs look at the form of what they find before they use it.
const SHAPES: Readonly<Record<string, string>> = {
  NPM_TOKEN: `npm_${stars(36)}`,
  NODE_AUTH_TOKEN: `npm_${stars(36)}`,
  GITHUB_TOKEN: `ghp_${stars(36)}`,
  GH_TOKEN: `ghp_${stars(36)}`,
  GITLAB_TOKEN: `glpat-${stars(20)}`,
};

/** The form of the placeholder of a variable. */
export function placeholderOf(variable: string | undefined): string {
  return (variable === undefined ? undefined : SHAPES[variable]) ?? stars(40);
}
