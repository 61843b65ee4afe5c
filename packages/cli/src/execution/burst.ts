// Mode `burst`: a command for which this machine has no room runs on the user’s fleet, with a copy of the workspace. What it left there
// comes back as a fork.

import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from '@acode/sandbox';
import { environmentOf } from '../arguments/environment-options.ts';
import { requestOf } from '../arguments/request.ts';
import type { RequestOptions } from '../arguments/request.ts';
import type { Call } from '../call.ts';
import { askFleet } from '../fleet/ask.ts';
import { plural } from '../terminal/text.ts';
import { renderNotice } from '../terminal/notice.ts';
import type { Notice } from '../terminal/notice.ts';

// What a task of a fleet can be given. The rest belongs to this machine.
const PORTABLE: ReadonlySet<string> = new Set([
  'image',
  'level',
  'timeout',
  'memory',
  'cpus',
  'pids',
  'network',
  'env',
  'envFile',
  'workdir',
  'readonly',
  // Recorded here only.
  'risk',
  'session',
  'task',
  // About this call.
  'color',
  'json',
  'verbose',
  'workspace',
  'config',
  'socket',
]);
const ON_FLEET = ['docker', 'gvisor', 'microvm'] as const;

/** A command that found no room here. */
export interface Overflow {
  readonly command: Command;
  readonly options: RequestOptions;
  /** Whether standard input held something: a fleet could not be given it. */
  readonly hasInput: boolean;
}

/** Runs it on the fleet and returns the exit status; null where that is not wanted, or cannot be. */
export async function onFleet(call: Call, code: string, overflow: Overflow): Promise<number | null> {
  const { value: mode } = await call.withObserver(observer => observer.mode());
  if (mode !== 'burst') return null;
  const obstacle = obstacleOf(overflow);
  if (obstacle !== null) {
    await say(call, { text: `mode burst: the fleet cannot run this command, because of ${obstacle}.` });
    return null;
  }
  const text = `no room here (${code}): the command runs on your fleet, with a copy of the workspace and no standard input.`;
  await say(call, { text });
  const directory = await mkdtemp(join(tmpdir(), 'acode-burst-'));
  try {
    return await sent(call, overflow, join(directory, 'files.tar'));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

function obstacleOf({ options, hasInput }: Overflow): string | null {
  if (hasInput) return 'its standard input';
  const given = Object.entries(options).filter(([name, value]) => value !== undefined && !PORTABLE.has(name));
  const [first] = given.filter(([name, value]) => !(name === 'caches' && value === true));
  if (first) return `--${first[0].replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`;
  const { network, level } = options;
  if (network !== undefined && network !== 'none' && allowedBy(network) === undefined) return '--network';
  return level !== undefined && !isOnFleet(level) ? '--level' : null;
}

function allowedBy(network: RequestOptions['network']): readonly string[] | undefined {
  return typeof network === 'object' && 'allow' in network ? network.allow : undefined;
}

function isOnFleet(level: string): level is (typeof ON_FLEET)[number] {
  return ON_FLEET.some(one => one === level);
}

async function sent(call: Call, { command, options }: Overflow, archive: string): Promise<number> {
  const place = await call.place();
  const { timeout: timeoutMs, memory: memoryBytes, cpus, pids, workdir } = options;
  const cwd = workdir ?? place.inside;
  const request = {
    verb: 'run',
    command,
    timeoutMs,
    memoryBytes,
    cpus,
    pids,
    allow: allowedBy(options.network),
    ...(await likeHere(call, command, options)),
    env: await environmentOf(options, { env: call.io.env, here: place.here }),
    workspace: place.root,
    stdin: false,
    ...(cwd === '.' || cwd === '' ? {} : { cwd }),
    ...(options.readonly ? {} : { files: archive }),
  };
  const status = await askFleet(call, request, async (schema, value) => call.print(schema, value, () => ''));
  if (!options.readonly) await broughtBack(call, archive);
  return status;
}

// The image that this machine would take, and a level that is as strong at least. Without an engine it cannot say more than was asked for.
async function likeHere(
  call: Call,
  command: Command,
  options: RequestOptions,
): Promise<{ readonly image?: string | undefined; readonly level?: string | undefined }> {
  const request = await requestOf(options, await call.place(), call.io.env);
  const { image, level } = options;
  const asked = { image, level: level !== undefined && isOnFleet(level) ? level : undefined };
  return call.withHost(acode =>
    acode.explain(command, request).then(
      ({ policy: { image: chosen, required } }) => ({
        image: chosen.value,
        level: asked.level ?? (isOnFleet(required.value) ? required.value : undefined),
      }),
      () => asked,
    ),
  );
}

// Only what differs from the workspace is a change: a command that changed nothing leaves no fork.
async function broughtBack(call: Call, archive: string): Promise<void> {
  const file = await open(archive).catch(() => null);
  if (file === null) return;
  const read = file.createReadStream({ highWaterMark: 256 * 1024 });
  const kept = await call.withHost(async ({ forks }) => {
    const { id } = await call.progress.during('Reading what it left…', forks.import({ source: read }));
    const { changes } = await forks.diff({ fork: id });
    if (changes.length > 0) return { id, changes: changes.length };
    await forks.discard(id);
    return null;
  });
  if (kept === null) return;
  const hint = `\`acode fork diff ${kept.id}\` shows it, \`acode fork apply ${kept.id}\` applies it. Files that it deleted are not part of it.`;
  await say(call, {
    text: `what it left on the fleet is fork ${kept.id}, with ${plural(kept.changes, 'change')}.`,
    hint,
  });
}

async function say(call: Call, notice: Notice): Promise<void> {
  const look = call.errorLook;
  await call.say(renderNotice(notice, look, look.colours.yellow));
}
