// What the doctor makes of the engine’s account of itself. Pure.

import type { Level } from '../../../contract/levels.ts';
import type { Diagnosis } from '../../../isolation/backend.ts';
import type { Check } from '../report.ts';
import { fail, ok, warn } from './machine.ts';

/** The engine’s account of itself. */
export interface Examined extends Diagnosis {
  /** The ids of sandboxes whose session is gone, or whose time is over. */
  readonly left: readonly string[];
}

/** What the engine’s account is held against. */
export interface EngineSurroundings {
  readonly image: string;
  /** Milliseconds since the epoch, here. */
  readonly now: number;
  readonly uid: number;
  /** The identity of this machine, as labels carry it. */
  readonly identity: string;
  /** Whether the kernel of this machine has AppArmor; null where that cannot be seen. */
  readonly appArmor: boolean | null;
}

const LEAST_API = [1, 41] as const;
const CLOCK_MS = 30_000;

/** Versions of parts with a known way out of a container, and where each branch was mended. */
const KNOWN_BAD: readonly {
  readonly part: string;
  readonly cve: string;
  readonly mended: readonly (readonly [number, number, number])[];
}[] = [
  { part: 'runc', cve: 'CVE-2024-21626', mended: [[1, 1, 12]] },
  {
    part: 'runc',
    cve: 'CVE-2025-31133, CVE-2025-52565, CVE-2025-52881',
    mended: [
      [1, 2, 8],
      [1, 3, 3],
    ],
  },
  {
    part: 'containerd',
    cve: 'CVE-2020-15257',
    mended: [
      [1, 3, 9],
      [1, 4, 3],
    ],
  },
];

/** Everything the engine can be judged by. */
export function engineChecks(diagnosis: Examined, around: EngineSurroundings): Check[] {
  return [
    reached(diagnosis),
    version(diagnosis),
    runtimes(diagnosis),
    limits(diagnosis),
    namespaces(diagnosis),
    seccomp(diagnosis),
    appArmor(diagnosis, around),
    knownBad(diagnosis),
    clock(diagnosis, around),
    leftovers(diagnosis, around),
    image(diagnosis, around),
  ];
}

/** The check for an engine that could not be asked. `level` is the one that commands get without an engine, if any. */
export function noEngine(reason: string, remedy: string, level: Level | null): Check {
  if (level === null) return fail('engine', 'Engine reachable', reason, remedy);
  const others = 'Images, networks and persistent sandboxes need one.';
  return warn(
    'engine',
    'Engine reachable',
    `${reason} Commands run at level ${level}, without it.`,
    `${others} ${remedy}`,
  );
}

function reached({ engine }: Diagnosis): Check {
  return ok('engine', 'Engine reachable', `${engine.socket} (found by ${engine.source})`);
}

function version({ engine }: Diagnosis): Check {
  const seen = `${engine.version}, API ${engine.apiVersion}, ${engine.operatingSystem}`;
  const [major = 0, minor = 0] = engine.apiVersion.split('.').map(Number);
  const enough = major > LEAST_API[0] || (major === LEAST_API[0] && minor >= LEAST_API[1]);
  return enough
    ? ok('engine-version', 'Engine version', seen)
    : fail(
        'engine-version',
        'Engine version',
        seen,
        `Install Docker Engine 20.10 (API ${LEAST_API.join('.')}) or newer.`,
      );
}

function runtimes({ engine, unprotecting = {} }: Diagnosis): Check {
  const names = engine.runtimes.map(name => (name === engine.defaultRuntime ? `${name} (default)` : name));
  const seen = names.join(', ') || 'the engine names none';
  const refused = Object.entries(unprotecting).map(
    ([name, lacked]) =>
      `To use ${name} in a workspace with .git, add \`${lacked}\` to its runtimeArgs in the engine’s daemon.json.`,
  );
  return refused.length === 0
    ? ok('runtimes', 'Runtimes', seen)
    : warn('runtimes', 'Runtimes', seen, refused.join(' '));
}

function limits({ engine, limits: supported }: Diagnosis): Check {
  const missing = Object.entries(supported).flatMap(([name, there]) => (there ? [] : [name]));
  const seen = `cgroup version ${engine.cgroupVersion || 'unknown'}, `;
  if (missing.length === 0)
    return ok('limits', 'Resource limits', `${seen}memory, swap, processes and cpu can be limited`);
  const text = `${seen}this kernel cannot limit: ${missing.join(', ')}`;
  const remedy = 'Boot with cgroup version 2, or with `cgroup_enable=memory swapaccount=1`.';
  return missing.some(name => name !== 'swap')
    ? fail('limits', 'Resource limits', text, remedy)
    : warn('limits', 'Resource limits', text, remedy);
}

function hasOption({ engine }: Diagnosis, name: string): boolean {
  return engine.securityOptions.some(option => option.split(',').includes(`name=${name}`));
}

function namespaces(diagnosis: Diagnosis): Check {
  const title = 'User namespaces';
  if (hasOption(diagnosis, 'rootless')) return ok('user-namespaces', title, 'the engine itself is rootless');
  if (hasOption(diagnosis, 'userns')) return ok('user-namespaces', title, 'users inside are mapped to others outside');
  return ok(
    'user-namespaces',
    title,
    'not used: sandboxes run as you, never as root; a rootless engine would add a layer',
  );
}

function seccomp(diagnosis: Diagnosis): Check {
  const option = diagnosis.engine.securityOptions.find(text => text.startsWith('name=seccomp'));
  if (option && !option.includes('profile=unconfined'))
    return ok('seccomp', 'System call filter', 'active; acode brings its own profile');
  return fail(
    'seccomp',
    'System call filter',
    option ? 'the engine runs containers unconfined' : 'the engine has no seccomp',
    'Use a kernel with CONFIG_SECCOMP_FILTER and an engine built with it; without a filter acode runs nothing.',
  );
}

function appArmor(diagnosis: Diagnosis, { appArmor: kernel }: EngineSurroundings): Check {
  const title = 'AppArmor';
  if (hasOption(diagnosis, 'apparmor')) return ok('apparmor', title, 'active');
  if (kernel !== true) return ok('apparmor', title, 'absent: this kernel has none; the other layers hold without it');
  return warn(
    'apparmor',
    title,
    'this kernel has it and the engine does not use it',
    'Install the `apparmor` package, so that the engine can load its profile, and restart the engine.',
  );
}

function knownBad({ components }: Diagnosis): Check {
  const title = 'Known escapes (CVEs)';
  const versions = components.map(({ name, version: text }) => `${name} ${text}`).join(', ');
  const bad = KNOWN_BAD.filter(({ part, mended }) =>
    components.some(({ name, version: text }) => name.toLowerCase() === part && isBefore(text, mended)),
  );
  if (bad.length === 0) return ok('known-bad', title, versions || 'the engine names no parts');
  const parts = [...new Set(bad.map(({ part }) => part))].join(' and ');
  const list = bad.map(({ part, cve }) => `${part}: ${cve}`).join('; ');
  return warn(
    'known-bad',
    title,
    `${list} (${versions})`,
    `Update ${parts}. A distribution may have fixed it without a new version number: see the changelog of the package. acode refuses the mounts and working directories that these escapes need.`,
  );
}

function isBefore(text: string, mended: readonly (readonly [number, number, number])[]): boolean {
  const found = /(\d+)\.(\d+)\.(\d+)/.exec(text);
  if (!found) return false;
  const [major, minor, patch] = [Number(found[1]), Number(found[2]), Number(found[3])];
  const branch = mended.find(([one, two]) => one === major && two === minor);
  if (branch) return patch < branch[2];
  const [oldest] = mended;
  return oldest !== undefined && (major < oldest[0] || (major === oldest[0] && minor < oldest[1]));
}

function clock({ systemTime }: Diagnosis, { now }: EngineSurroundings): Check {
  const theirs = Date.parse(systemTime);
  if (Number.isNaN(theirs)) return ok('clock', 'Clock', 'the engine does not tell its time');
  const apart = Math.abs(theirs - now);
  if (apart <= CLOCK_MS) return ok('clock', 'Clock', 'the engine’s agrees with this one');
  const seen = `the engine’s differs by ${Math.round(apart / 1000)} s`;
  return warn('clock', 'Clock', seen, 'Set both by NTP: expiry of sandboxes is told by them.');
}

function leftovers({ sandboxes, networks, left }: Examined, { uid, identity, now }: EngineSurroundings): Check {
  const isMine = (labels: Readonly<Record<string, string>>): boolean =>
    labels['acode.uid'] === String(uid) && labels['acode.host'] === identity;
  const expired = (labels: Readonly<Record<string, string>>): boolean =>
    Date.parse(labels['acode.expires'] ?? '') < now;
  const ended = sandboxes.filter(
    ({ labels, state, containerId }) =>
      left.includes(containerId) || (isMine(labels) && (state === 'exited' || state === 'dead')),
  );
  const old = networks.filter(({ labels }) => isMine(labels) && expired(labels));
  const running = sandboxes.length - ended.length;
  if (ended.length + old.length === 0)
    return ok(
      'leftovers',
      'Leftovers',
      `none; ${running === 1 ? '1 sandbox' : `${running || 'no'} sandboxes`} in use on this engine`,
    );
  return warn(
    'leftovers',
    'Leftovers',
    [...ended, ...old].map(({ name }) => name).join(', '),
    ended.length > 0 ? 'Remove them: acode sandbox cleanup' : 'Remove them: docker network rm <name>',
  );
}

function image({ imagePresent }: Diagnosis, { image: name }: EngineSurroundings): Check {
  return imagePresent
    ? ok('image', 'Default image', `${name} is there`)
    : warn('image', 'Default image', `${name} is not on this engine`, `Pull it: acode sandbox pull ${name}`);
}
