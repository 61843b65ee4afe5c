// The names rows have, in one place: limits find their rows by them.
// @ts-check

/** Who was measured. */
export const NAMES = /** @type {const} */ ({
  bareEngine: 'bare engine',
  plainProcess: 'plain process',
  plainBubblewrap: 'plain bwrap',
  dockerRun: 'docker run --rm',
  cold: 'acode cold',
  warm: 'acode warm',
  commandCold: 'acode sandbox exec',
  commandServed: 'acode sandbox exec, acode serve running',
  commandBackground: 'acode run, background process ready',
  srt: 'srt true',
  commandVersion: 'acode --version',
  bareNode: 'node -e 0',
  resident: 'resident memory',
  heap: 'heap',
  noneTracked: 'beside none',
  mostTracked: 'beside the most',
  noFiles: 'in an empty workspace',
  mostFiles: 'in 1,000,000 files',
});

/** What each group of rows is, in the order in which they are shown. */
export const GROUPS = /** @type {const} */ ({
  'sequential.firstByte': 'echo, one after another: first byte',
  'sequential.result': 'echo, one after another: result',
  'staggered.firstByte': 'echo, one every quarter of a second: first byte',
  'staggered.result': 'echo, one every quarter of a second: result',
  'burst.firstByte': 'echo, fifty at once: first byte',
  'burst.result': 'echo, fifty at once: result',
  'parts.create': 'creating a container',
  'parts.remove': 'removing a container',
  'throughput.1': 'echo, sustained, 1 at a time',
  'throughput.4': 'echo, sustained, 4 at a time',
  'throughput.8': 'echo, sustained, 8 at a time',
  'throughput.16': 'echo, sustained, 16 at a time',
  'output.bandwidth': 'output of one command',
  'output.line': 'a line through cat, there and back',
  'command.start': 'the command, less node -e 0',
  'command.true': 'the command running true, less node -e 0',
  'command.background': 'the command running true, Node and all',
  'command.srt': 'the same, beside srt',
  'memory.tracked': 'memory of this process for each sandbox that runs',
  'memory.waiting': 'memory of this process for each sandbox that waits',
  'growth.tracked': 'echo beside other sandboxes of this process: result',
  'growth.files': 'echo in workspaces of many files: result',
});
