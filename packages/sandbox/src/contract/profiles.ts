// The names of the sets of built-in limits. Without imports: the command line loads them with every call.

/** The sets of built-in limits. `dev` and `agent` depend on the machine. */
export const PROFILE_NAMES = ['exec', 'dev', 'task', 'swarm', 'agent'] as const;

/** A set of built-in limits. */
export type ProfileName = (typeof PROFILE_NAMES)[number];
