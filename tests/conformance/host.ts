// One opened host on any target: what the behaviours use of it, with or without an engine.

import { readFileSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { Acode } from '@acode/sandbox';
import type { PolicyInput } from '@acode/sandbox';
import { TestHost, makeWorkspace, untilOneWaits, warmth } from '../support/engines.ts';
import type { Target } from './targets.ts';

const SETTLING_MS = 60_000;
const LOOK_MS = 10;

/** A host with a workspace of its own; closing it removes both and fails if anything of a sandbox is left. */
export interface ConformanceHost extends AsyncDisposable {
  readonly acode: Acode;
  readonly session: string;
  readonly workspace: string;
  /** Where commands find the workspace. */
  readonly inside: string;
  /** A file of the workspace, on this host. */
  file(name: string): string;
  /** What there is of its sandboxes now, asked past the library: containers, or processes. */
  remains(): Promise<string[]>;
  /** The part of a policy that asks for an image; nothing where there are none, since programs are the host’s. */
  image(reference: string): Pick<PolicyInput, 'image'>;
}

/** Opens one. */
export function openHost(target: Target): Promise<ConformanceHost> {
  return target.lacks.engine === undefined ? openOnEngine(target) : openWithoutEngine(target);
}

async function openOnEngine({ engine, options }: Target): Promise<ConformanceHost> {
  const host = await TestHost.open(engine, options);
  return {
    acode: host.acode,
    session: host.session,
    workspace: host.workspace,
    inside: '/workspace',
    file: name => host.file(name),
    remains: async () => (await host.containers()).map(({ id, state }) => `${id} ${state}`),
    image: reference => ({ image: reference }),
    [Symbol.asyncDispose]: () => host[Symbol.asyncDispose](),
  };
}

async function openWithoutEngine({ engine, options, lacks }: Target): Promise<ConformanceHost> {
  const workspace = makeWorkspace();
  const session = `test-${process.pid}-${Math.random().toString(36).slice(2, 10)}`;
  const acode = await Acode.open({
    engine: { socket: engine.socket },
    sessionId: session,
    ...warmth,
    ...options,
    workspace,
  });
  await untilOneWaits(acode);
  return {
    acode,
    session,
    workspace,
    inside: lacks.walls === undefined ? '/workspace' : workspace,
    file: name => join(workspace, name),
    remains: async () => processesOn(workspace),
    image: () => ({}),
    [Symbol.asyncDispose]: async () => {
      await acode.close();
      const left = await leftOn(workspace);
      rmSync(workspace, { recursive: true, force: true });
      if (left.length > 0) throw new Error(`left behind: ${left.join(', ')}`);
    },
  };
}

// What ends is not gone at once: a guard notices that it is not needed any more, and leaves.
async function leftOn(workspace: string): Promise<string[]> {
  const until = performance.now() + SETTLING_MS;
  while (processesOn(workspace).length > 0 && performance.now() < until)
    await new Promise(resolve => void setTimeout(resolve, LOOK_MS));
  return processesOn(workspace);
}

/** The living processes that are in a workspace, have it mounted, or descend from this process, whoever their parent is now. */
function processesOn(workspace: string): string[] {
  const parents = new Map(
    readdirSync('/proc').flatMap(name => (/^\d+$/.test(name) ? [[Number(name), parentOf(name)]] : [])),
  );
  const descends = (pid: number): boolean => {
    const parent = parents.get(pid) ?? 0;
    return parent === process.pid || (parent > 1 && descends(parent));
  };
  return [...parents.keys()]
    .filter(pid => parents.get(pid) !== 0 && (descends(pid) || isIn(workspace, pid)))
    .map(pid => `${pid} ${textOf(pid, 'cmdline').replaceAll('\0', ' ')}`);
}

/** Zero for one that has ended, buried or not. */
function parentOf(pid: string): number {
  const [, state = 'X', parent = '0'] = /^\d+ \(.*\) (\S) (\d+)/s.exec(textOf(pid, 'stat')) ?? [];
  return ['Z', 'X'].includes(state) ? 0 : Number(parent);
}

function isIn(workspace: string, pid: number): boolean {
  // By its last part: what comes before it depends on where its file system is mounted.
  if (textOf(pid, 'mountinfo').includes(`/${basename(workspace)} `)) return true;
  try {
    return `${readlinkSync(`/proc/${pid}/cwd`)}/`.startsWith(`${workspace}/`);
  } catch {
    return false;
  }
}

function textOf(pid: number | string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return '';
  }
}
