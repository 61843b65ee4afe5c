// OCI runtimes by name: how strongly each isolates, what it applies, and the proof that it is what its name says.

import { readFile } from 'node:fs/promises';
import { release } from 'node:os';
import { AcodeError } from '../../contract/errors.ts';
import type { Level } from '../../contract/levels.ts';
import type { SandboxSpec } from '../../contract/spec.ts';
import { demultiplex } from './engine/streams.ts';
import type { Engine, EngineInfo } from './engine/index.ts';
import { engineFailure } from './failure.ts';
import type { EngineFacts } from './request.ts';
import { architectureOf, seccompProfile } from '../seccomp/profile.ts';

/** What a sandbox can see of the kernel it runs on. */
export interface Seen {
  /** The text of /proc/version. */
  readonly version: string;
  readonly release: string;
  readonly bootId: string;
  readonly uidMap: string;
  /** The kernel log, as far as it is readable. */
  readonly log: string;
}

/** The kernel that the engine itself runs on. */
export interface HostKernel {
  readonly release: string;
  /** Null if the engine is not on this machine, since acode cannot read its boot id then. */
  readonly bootId: string | null;
}

/** A family of runtimes. */
export interface RuntimeKind {
  readonly level: Level;
  /**
   * Whether its sandboxes run on the host’s kernel. If so, the filter applies, and what the kernel reports about a
   * sandbox’s first process describes the sandbox and not the runtime.
   */
  readonly hostKernel: boolean;
  /** The check that a sandbox of it must pass; null if the usual verification is enough. */
  readonly proof: ((seen: Seen, host: HostKernel) => boolean) | null;
  /** The runtime argument without which a command can change read-only mounts; null if none is needed. */
  readonly readOnlyNeeds: string | null;
  /** The names of its processes on the host, each of which a sandbox needs; null if they are unknown. */
  readonly processes: readonly string[] | null;
  /** What the check proves, as text. */
  readonly claim: string;
}

const ORDINARY: RuntimeKind = {
  level: 'docker',
  hostKernel: true,
  processes: null,
  proof: null,
  claim: '',
  readOnlyNeeds: null,
};

const KINDS: readonly (readonly [names: RegExp, kind: RuntimeKind])[] = [
  [
    /^(?:runsc|io\.containerd\.runsc)/,
    {
      level: 'gvisor',
      hostKernel: false,
      // The kernel inside, and the process that accesses the host’s files for it.
      processes: ['runsc-sandbox', 'runsc-gofer'],
      proof: isGvisor,
      claim: 'the kernel inside is gVisor’s',
      // With direct access to host files, opening a read-only file for truncation fails inside the sandbox but empties
      // the file outside.
      readOnlyNeeds: '--directfs=false',
    },
  ],
  [
    /^(?:kata|io\.containerd\.kata)/,
    {
      level: 'microvm',
      hostKernel: false,
      processes: null,
      proof: isOtherKernel,
      claim: 'the kernel inside is another than the host’s',
      readOnlyNeeds: null,
    },
  ],
  [
    /^sysbox/,
    {
      level: 'docker',
      hostKernel: true,
      processes: null,
      proof: hasMappedUsers,
      claim: 'users inside are others on the host',
      readOnlyNeeds: null,
    },
  ],
];

// A runtime with its own kernel has threads of its own in the sandbox’s control group. If the limit leaves no room for
// them, gVisor does not fail: it hangs during startup, and so does the engine.
const OWN_TASKS = 64;
const CALL_MS = 10_000;
const PROOF_MS = 20_000;
const MAX_OUTPUT = 64 * 1024;

// Uses only shell built-ins, except for the kernel log, which needs a program that most images have.
const LOOK = `for f in version sys/kernel/random/boot_id self/uid_map; do
  l=; [ -r /proc/$f ] && IFS= read -r l </proc/$f; printf '%s\\n' "$l"
done; dmesg 2>/dev/null; exit 0`;

/** The family of a runtime, by its name. */
export function runtimeKind(name: string): RuntimeKind {
  return KINDS.find(([names]) => names.test(name))?.[1] ?? ORDINARY;
}

/** The runtimes of one engine: selected by name, and each proven once before any sandbox of it receives a command. */
export class Runtimes {
  readonly #engine: Engine;
  readonly #proven = new Set<string>();
  #info: EngineInfo | null = null;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /** Stores the engine’s description of itself. */
  learn(info: EngineInfo): void {
    this.#info = info;
  }

  /** Every runtime that the engine lists, with its level. */
  get levels(): Readonly<Record<string, Level>> {
    return Object.fromEntries(this.#names().map(name => [name, runtimeKind(name).level]));
  }

  /**
   * The runtimes that, as configured in the engine, do not enforce read-only mounts, each with the missing argument.
   */
  get unprotecting(): Readonly<Record<string, string>> {
    return unprotectingIn(this.#info);
  }

  /** The runtime of a sandbox that does not name one. */
  get standard(): string {
    const name = this.#info?.DefaultRuntime ?? 'runc';
    // Podman may report a path.
    return this.#isPodman ? (name.split('/').at(-1) ?? name) : name;
  }

  /** What is known without querying the engine: the runtime’s name, and the filter if the runtime applies one. */
  facts(spec: SandboxSpec): Pick<EngineFacts, 'runtime' | 'seccomp' | 'ownTasks'> {
    const runtime = spec.runtime ?? this.standard;
    const shared = runtimeKind(runtime).hostKernel;
    return { runtime, seccomp: shared ? this.#filter(spec) : null, ownTasks: shared ? 0 : OWN_TASKS };
  }

  /** Like {@link facts}, for a sandbox about to be created: throws if the engine does not list the runtime. */
  async choose(spec: SandboxSpec, signal: AbortSignal): Promise<Pick<EngineFacts, 'runtime' | 'seccomp' | 'ownTasks'>> {
    try {
      this.#info ??= await this.#engine.system.info({ signal, deadlineMs: CALL_MS });
    } catch (error) {
      throw engineFailure(error, signal);
    }
    const facts = this.facts(spec);
    if (!this.#names().includes(facts.runtime))
      throw unknown(`the engine has no runtime ${facts.runtime}; it has ${this.#names().join(', ')}`);
    this.#holdReadOnly(facts.runtime, spec);
    return facts;
  }

  // If read-only mounts are not enforced, the protected parts of a workspace are not protected.
  #holdReadOnly(runtime: string, spec: SandboxSpec): void {
    const needed = lackedBy(this.#info, runtime);
    if (needed === null || !spec.mounts.some(({ readOnly }) => readOnly)) return;
    throw new AcodeError('ACODE-SBX-010', {
      violation: 'ReadOnlyNotHeld',
      detail: `with ${runtime} as the engine starts it, a command can empty files that are mounted read-only, such as those in .git`,
      remedy: `Add \`${needed}\` to the runtimeArgs of ${runtime} in the engine’s daemon.json and reload the engine.`,
    });
  }

  /** Proves the runtime of a waiting container, unless it was already proven. */
  async prove(runtime: string, containerId: string, signal: AbortSignal): Promise<void> {
    const { proof, claim } = runtimeKind(runtime);
    if (proof === null || this.#proven.has(runtime)) return;
    const seen = await this.#look(containerId, signal);
    const host = await hostKernel(this.#info?.KernelVersion ?? '');
    if (proof(seen, host)) {
      this.#proven.add(runtime);
      return;
    }
    // A container that has ended shows nothing; the verification that follows refuses it.
    if (await this.#runs(containerId, signal)) throw unknown(notProven(runtime, claim, seen, host));
  }

  /** For an image without a shell, in which the check cannot run: another image must have proven its runtime. */
  requireProven(runtime: string, image: string): void {
    if (runtimeKind(runtime).proof === null || this.#proven.has(runtime)) return;
    throw unknown(
      `${image} has no shell to show what ${runtime} really is; run any command with an image that has /bin/sh first`,
    );
  }

  get #isPodman(): boolean {
    return this.#engine.connection.isPodman;
  }

  async #runs(containerId: string, signal: AbortSignal): Promise<boolean> {
    try {
      return (await this.#engine.containers.inspect(containerId, { signal, deadlineMs: CALL_MS })).State.Running;
    } catch (error) {
      throw engineFailure(error, signal);
    }
  }

  #names(): string[] {
    // Podman lists every runtime it knows, installed or not, and supports only its default one.
    if (this.#isPodman) return this.#info === null ? [] : [this.standard];
    return Object.keys(this.#info?.Runtimes ?? {}).sort();
  }

  #filter({ disk }: Pick<SandboxSpec, 'disk'>): string {
    const name = this.#info?.Architecture ?? '';
    const architecture = architectureOf(name);
    if (architecture === null)
      throw new AcodeError('ACODE-SBX-012', {
        required: 'docker',
        available: `none (there is no system call filter for ${name === '' ? 'an unknown architecture' : name})`,
      });
    return seccompProfile(architecture, { diskLimited: disk !== undefined });
  }

  async #look(containerId: string, signal: AbortSignal): Promise<Seen> {
    const within = AbortSignal.any([signal, AbortSignal.timeout(PROOF_MS)]);
    const { exec } = this.#engine;
    try {
      const argv = ['/bin/sh', '-c', LOOK];
      const id = await exec.create(containerId, { argv }, { signal: within, deadlineMs: CALL_MS });
      const stream = await exec.start(id, { signal: within, deadlineMs: CALL_MS });
      let text = '';
      const stdout = (data: Buffer): void => {
        if (text.length < MAX_OUTPUT) text += data.toString('utf8');
      };
      await demultiplex(stream, { stdout, stderr: () => undefined });
      return parseSeen(text);
    } catch (error) {
      throw engineFailure(error, signal);
    }
  }
}

/** Parses what a sandbox printed about its kernel. */
export function parseSeen(text: string): Seen {
  const [version = '', bootId = '', uidMap = '', ...log] = text.split('\n').map(line => line.trim());
  // “Linux version 6.1.0 (…”: gVisor has no file that contains only the release.
  const kernel = /^Linux version (\S+)/.exec(version)?.[1] ?? '';
  return { version, release: kernel, bootId, uidMap: uidMap.replaceAll(/\s+/g, ' '), log: log.join('\n') };
}

// gVisor identifies itself in its kernel log. If the log cannot be read, its version text contains no host name of a
// build machine and differs from the host’s.
function isGvisor({ version, release: inside, log }: Seen, host: HostKernel): boolean {
  if (/gvisor/i.test(log) || /gvisor/i.test(version)) return true;
  return inside !== '' && inside !== host.release && version.startsWith('Linux version 4.4.0 #1 SMP ');
}

function isOtherKernel({ release: inside, bootId }: Seen, host: HostKernel): boolean {
  if (inside !== '' && inside !== host.release) return true;
  return bootId !== '' && host.bootId !== null && bootId !== host.bootId;
}

function hasMappedUsers({ uidMap }: Seen): boolean {
  return uidMap !== '' && !uidMap.startsWith('0 0 ');
}

async function hostKernel(engineRelease: string): Promise<HostKernel> {
  if (engineRelease !== release()) return { release: engineRelease, bootId: null };
  const bootId = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => null);
  return { release: engineRelease, bootId: bootId?.trim() ?? null };
}

function notProven(runtime: string, claim: string, seen: Seen, host: HostKernel): string {
  const inside = seen.version === '' ? 'nothing' : seen.version.slice(0, 120);
  return (
    `${runtime} is registered with the engine but does not behave like it: nothing shows that ${claim} ` +
    `(seen inside: ${inside}, uid map ${seen.uidMap || 'empty'}; the host’s kernel is ${host.release})`
  );
}

/** The runtimes of an engine that do not enforce read-only mounts, each with the missing argument. */
export function unprotectingIn(info: EngineInfo | null): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.keys(info?.Runtimes ?? {}).flatMap(name => {
      const lacked = lackedBy(info, name);
      return lacked === null ? [] : [[name, lacked]];
    }),
  );
}

function lackedBy(info: EngineInfo | null, runtime: string): string | null {
  const needed = runtimeKind(runtime).readOnlyNeeds;
  return needed === null || argumentsOf(info, runtime).includes(needed) ? null : needed;
}

function argumentsOf(info: EngineInfo | null, runtime: string): unknown[] {
  const entry = info?.Runtimes?.[runtime];
  if (typeof entry !== 'object' || entry === null || !('runtimeArgs' in entry)) return [];
  return Array.isArray(entry.runtimeArgs) ? entry.runtimeArgs : [];
}

function unknown(detail: string): AcodeError {
  return new AcodeError('ACODE-SBX-010', { violation: 'UnknownRuntime', detail });
}
