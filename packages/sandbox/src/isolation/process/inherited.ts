// Descriptors that this process was started with and would pass on to everything it starts, whoever opened them and for what.
//
// Node marks its own descriptors and the first few others; one that a terminal, an editor or a build tool left open under a
// higher number goes on into every child. In a sandbox it would be a way out that no mount and no namespace closes.

import { readFileSync, readdirSync } from 'node:fs';

// O_CLOEXEC as the kernel prints it, in octal.
const CLOSED_ON_EXEC = 0o2_000_000;

/** The descriptors from `first` on that a child would inherit; none where the system does not say. */
export function inheritedDescriptors(first: number): number[] {
  try {
    return readdirSync('/proc/self/fd')
      .map(Number)
      .filter(descriptor => descriptor >= first && isPassedOn(descriptor));
  } catch {
    return [];
  }
}

function isPassedOn(descriptor: number): boolean {
  try {
    const flags = /^flags:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'utf8'))?.[1];
    return flags === undefined || (Number.parseInt(flags, 8) & CLOSED_ON_EXEC) === 0;
  } catch {
    // Closed meanwhile: the one that listed them.
    return false;
  }
}
