// The program of the proxy’s worker thread. Bundling the command, and loading the sources in tests, replace this module.

/** The address of the program. */
export function egressProgram(): URL {
  return new URL('./worker.js', import.meta.url);
}
