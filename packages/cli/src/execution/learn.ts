// `acode run --learn`: repeats a command in forks, each time with the hosts that the person has accepted so far, until it is refused
// nothing that they want it to have. Ends with the list, to paste or to save.

import { policyFrom } from '@acode/sandbox';
import type { Acode, Command, NetworkAccess, RunRequest, RunResult } from '@acode/sandbox';
import { quoted } from '../arguments/command-arguments.ts';
import { requestOf } from '../arguments/request.ts';
import type { Call } from '../call.ts';
import { change } from '../commands/config-actions.ts';
import { UsageError } from '../failure/usage.ts';
import { ask, canAsk } from '../terminal/ask.ts';
import { oneLine } from '../terminal/text.ts';
import { commandIn, passedThrough, sayClosing, statusOf } from './execute.ts';
import type { FreshOptions } from './execute.ts';
import { preparing } from './preparing.ts';
import { terminalVariables } from './terminal-variables.ts';

// A command that asks for ever new hosts ends here; a person has had enough of questions long before.
const MAX_ROUNDS = 20;
const GRANTABLE: ReadonlySet<string> = new Set(['not-listed', 'other-port']);
const CONSENT = 'sandbox.network.allow_learning';
const CANNOT = 'Leave it out, or run the command without --learn.';

/** The options of a command that learns. */
export interface LearnOptions extends FreshOptions {
  readonly terminal?: true | undefined;
  /** Whether every public host is accepted unasked. */
  readonly isOpen: boolean;
}

/** Runs the command of a call, again and again, and returns the exit status of the last time. */
export async function learn(
  call: Call,
  argv: readonly string[],
  options: LearnOptions,
  flags: readonly string[],
): Promise<number> {
  refuse(call, options);
  if (options.isOpen) await assertConsent(call);
  const command = commandIn(call, argv, flags);
  const request = await requestOf(options, await call.place(), call.io.env);
  const learned = await call.withHost(acode => rounds(call, acode, { command, request, flags, options }));
  const { list, added, status } = learned;
  const { cyan, bold } = call.errorLook.colours;
  if (list.length === 0) {
    await call.say(`${cyan('acode:')} the command needs no host.\n`);
    return status;
  }
  const line = `${call.called} --network allow=${list.join(',')} -- ${wordsOf(command).map(quoted).join(' ')}`;
  await call.say(`${cyan('acode:')} what it may reach now:\n  ${bold(oneLine(line))}\n`);
  if (
    added.length > 0 &&
    canAsk(call.io) &&
    (await ask(call.io, 'acode: Add these hosts to your own list?', call.interruption.signal))
  )
    await change(call, { kind: 'add', key: 'sandbox.network.allow', values: added }, false);
  return status;
}

// Your own file alone can consent: not the team’s, and never a repository’s.
async function assertConsent(call: Call): Promise<void> {
  const { Acode } = await import('@acode/sandbox');
  const { workspace, configFile } = await call.hostOptions();
  const configuration = await Acode.configuration({
    ...(workspace === undefined ? {} : { workspace }),
    ...(configFile === undefined ? {} : { configFile }),
  });
  const values = await configuration.get(CONSENT);
  if (values.some(({ layer, value }) => layer === 'user' && value === true)) return;
  throw new UsageError(
    '--learn=open lets the command reach every public host that it asks for, so it needs your consent.',
    `If you accept that, consent once: \`acode config set ${CONSENT} true\`. Without it, --learn asks about each host.`,
  );
}

function refuse(call: Call, { network, fork, readonly, artifact, terminal, isOpen }: LearnOptions): void {
  if (call.options.json)
    throw new UsageError('--learn runs a command more than once, and --json prints one object.', CANNOT);
  if (!isOpen && !canAsk(call.io))
    throw new UsageError(
      '--learn asks about each host, and there is no terminal to ask at.',
      'Run it at a terminal. `acode egress test <url>` decides about one host, and `acode egress log --denied` shows what was refused.',
    );
  if (network !== undefined && !(typeof network === 'object' && 'allow' in network))
    throw new UsageError('--learn makes an allow-list, and --network asks for another network.', CANNOT);
  const given = { '--fork': fork, '--readonly': readonly, '--artifact': artifact, '--terminal': terminal };
  const [name] = Object.entries(given).find(([, value]) => value !== undefined) ?? [];
  if (name !== undefined)
    throw new UsageError(`--learn runs the command in forks of its own, without ${name}.`, CANNOT);
}

interface Learning {
  readonly command: Command;
  readonly request: RunRequest;
  readonly flags: readonly string[];
  readonly options: LearnOptions;
}

interface Learned {
  /** The whole list, for the command line. */
  readonly list: readonly string[];
  /** What the person accepted. */
  readonly added: readonly string[];
  readonly status: number;
}

async function rounds(call: Call, acode: Acode, learning: Learning): Promise<Learned> {
  const before = await listBefore(acode.network, learning.options.network);
  const added: string[] = [];
  const asked = new Set<string>();
  for (let round = 1; ; round += 1) {
    const list = [...before, ...added];
    const result = await once(call, acode, learning, list);
    const wanted = result === null ? [] : await newEntries(acode.network, result, list, asked);
    const accepted = learning.options.isOpen ? wanted.map(({ entry }) => entry) : await acceptedOf(call, wanted);
    added.push(...accepted);
    if (result === null) return { list, added, status: FAILED };
    if (accepted.length === 0 || round === MAX_ROUNDS) {
      await sayClosing(call, result, learning);
      return { list: [...before, ...added], added, status: statusOf(result) };
    }
    // The next time begins with the workspace as it is, and not with what a refused command left.
    if (result.fork) await acode.forks.discard(result.fork.id);
    await call.say(`${call.errorLook.colours.cyan('acode:')} once more, with ${accepted.join(', ')}.\n`);
  }
}

const FAILED = 125;

// Without a list of its own, a command begins with that of the configuration.
async function listBefore(access: NetworkAccess, network: FreshOptions['network']): Promise<readonly string[]> {
  if (typeof network === 'object' && 'allow' in network) return network.allow;
  const { list } = await access.test({ target: 'acode.invalid' });
  return list;
}

// Null where nobody reads the output any more.
async function once(
  call: Call,
  acode: Acode,
  { command, request }: Learning,
  list: readonly string[],
): Promise<RunResult | null> {
  const policy = policyFrom({ ...request.policy, workspace: 'fork', fork: 'new', network: { allow: list } });
  const ended = await passedThrough(call, given =>
    preparing(
      call,
      acode,
      acode.spawn(command, { ...request, policy, envDefaults: terminalVariables(call), ...given }),
    ),
  );
  return 'unread' in ended ? null : ended.result;
}

interface Wanted {
  readonly entry: string;
  readonly places: string[];
}

async function newEntries(
  access: NetworkAccess,
  { network = [] }: RunResult,
  allow: readonly string[],
  asked: Set<string>,
): Promise<Wanted[]> {
  const found = new Map<string, Wanted>();
  for (const { host, port, verdict, reason } of network) {
    if (verdict !== 'denied' || !GRANTABLE.has(reason ?? '')) continue;
    const target = `${host}:${port}`;
    const { entry } = await access.test({ target, network: { allow } }).catch(() => ({ entry: undefined }));
    if (entry === undefined || asked.has(entry)) continue;
    const wanted = found.get(entry) ?? { entry, places: [] };
    wanted.places.push(target);
    found.set(entry, wanted);
  }
  for (const entry of found.keys()) asked.add(entry);
  return [...found.values()];
}

async function acceptedOf(call: Call, wanted: readonly Wanted[]): Promise<string[]> {
  const accepted: string[] = [];
  for (const { entry, places } of wanted) {
    const question = `acode: Allow ${entry} for ${oneLine(places.join(', '))}?`;
    if (await ask(call.io, question, call.interruption.signal)) accepted.push(entry);
  }
  return accepted;
}

function wordsOf(command: Command): readonly string[] {
  return typeof command === 'string' ? ['sh', '-c', command] : command;
}
