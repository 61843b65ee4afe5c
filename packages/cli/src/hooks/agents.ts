// Agents whose commands a hook can send into a sandbox. Every call loads this for the options of `acode hook`.

/** The agents. */
export const HOOKED = ['claude', 'codex', 'gemini', 'opencode'] as const;

/** One of {@link HOOKED}. */
export type Hooked = (typeof HOOKED)[number];
