// The terms of the command line: options in place of the fields of a request that the library speaks of.

import { layerText } from '@acode/sandbox';
import type { Terms } from '@acode/sandbox';

/** Which option sets which field of the policy. */
export const POLICY_OPTIONS: Readonly<Record<string, string>> = {
  'policy.image': '--image',
  'policy.runtime': '--runtime',
  'policy.profile': '--profile',
  'policy.limits.memoryBytes': '--memory',
  'policy.limits.swapBytes': '--swap',
  'policy.limits.cpus': '--cpus',
  'policy.limits.pids': '--pids',
  'policy.limits.openFiles': '--open-files',
  'policy.limits.tmpBytes': '--tmp',
  'policy.limits.outputBytes': '--max-output',
  'policy.timeoutMs': '--timeout',
  'policy.network': '--network',
  'policy.networkLimits': '--network-rate',
  'policy.networkLimits.bytesPerSecond': '--network-rate',
  'policy.networkLimits.bytes': '--network-bytes',
  'policy.dns': '--dns',
  'policy.ports': '--publish',
  'policy.services': '--service',
  'policy.mounts': '--mount',
  'policy.caches': '--caches',
  'policy.caches.fill': '--fill-cache',
  'policy.deps': '--deps',
  'policy.workspace': '--readonly',
  'policy.workspacePath': '--workspace-path',
  'policy.fork': '--fork',
  'policy.forkCopy': '--fork-copy',
  'policy.disk': '--disk',
  'policy.disk.bytes': '--disk',
  'policy.disk.hard': '--disk-hard',
  'policy.user': '--user',
  'policy.onOutOfMemory': '--on-oom',
  'policy.pull': '--pull',
  'policy.level': '--level',
};

// Fields of a request beside the policy.
const REQUEST_OPTIONS: Readonly<Record<string, string>> = {
  artifacts: '--artifact',
  cwd: '--workdir',
  base: '--base',
  name: '--name',
  env: '--env',
  sessionId: '--session',
  taskId: '--task',
  timeoutMs: '--timeout',
};

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;

// Values as the option takes them, where that is not how the field has them.
const OPTION_VALUES: Readonly<Record<string, (value: number) => string>> = {
  '--timeout': milliseconds => String(milliseconds / 1000),
  '--memory': size,
  '--swap': size,
  '--tmp': size,
  '--disk': size,
  '--disk-hard': size,
  '--network-rate': size,
  '--network-bytes': size,
  '--max-output': size,
};

/** The terms of the command line: a field is its option, and what an option set was set by that option. */
export const OPTION_TERMS: Terms = {
  field: (name, value) => {
    const option = optionFor(name);
    if (option === null) return value === undefined ? name : `${name}: ${value}`;
    // A mount is written in one word.
    if (option === '--mount' && value !== undefined) return '--mount source:target:rw';
    return value === undefined ? option : `${option} ${valueFor(option, value)}`;
  },
  source: source => (source.layer === 'request' ? (optionFor(source.where) ?? layerText(source)) : layerText(source)),
};

// A field by its whole name, or with what follows it in a list: `policy.ports.0.host`.
function optionFor(name: string): string | null {
  const segments = name.split('.');
  for (let length = segments.length; length > 0; length -= 1) {
    const field = segments.slice(0, length).join('.');
    const rest = segments[length];
    if (rest !== undefined && !/^\d+$/.test(rest)) continue;
    // The name may be a caller’s, and one that every object has.
    for (const options of [POLICY_OPTIONS, REQUEST_OPTIONS]) {
      const option = Object.hasOwn(options, field) ? options[field] : undefined;
      if (option !== undefined) return option;
    }
  }
  return null;
}

function valueFor(option: string, value: string | number): string {
  return typeof value === 'number' ? (OPTION_VALUES[option]?.(value) ?? String(value)) : value;
}

function size(bytes: number): string {
  if (bytes > 0 && bytes % GIB === 0) return `${bytes / GIB}g`;
  return bytes >= MIB ? `${Math.ceil(bytes / MIB)}m` : `${Math.max(1, bytes)}b`;
}
