// What a command is told that had no network and seems to have wanted one. Pure.
//
// A sandbox without a network sees no attempts: what a program prints, and what it is for, are all there is to go by. So
// everything here is called suspected.

import type { Command } from '../../contract/command.ts';
import type { EffectivePolicy } from '../../contract/policy.ts';
import type { Denial } from '../../contract/denials.ts';
import { allowNetworks } from '../../policy/network.ts';
import { quotable } from '../output/capture.ts';

/** What the policy says about networks. */
export type NetworkRules = Pick<EffectivePolicy, 'network' | 'mode'>;

/** How a command without a network ended. */
export interface WithoutNetwork {
  readonly policy: NetworkRules;
  readonly command: Command;
  readonly timedOut: boolean;
  /** Null where the command was killed by us. */
  readonly exitCode: number | null;
  /** The last lines of its standard error. */
  readonly lines: readonly string[];
  /** The last lines of its standard output. */
  readonly printed: () => readonly string[];
}

const NETWORK_WORDS =
  /bad address|could ?n[o']t resolve|could not resolve|failed to resolve|temporary failure (?:in name resolution|resolving)|name or service not known|name does not resolve|nodename nor servname|no address associated with hostname|network is unreachable|network unreachable|failed to lookup address|unknownhostexception|no such host|name resolution|\b(?:ENOTFOUND|EAI_AGAIN|EAI_NONAME|ENETUNREACH|getaddrinfo)\b/i;

// What package managers say that were told to work offline (policy/environment.ts) and do not have what they need; and
// npm’s crash, which is what some of its versions make of a registry that cannot be reached.
const OFFLINE_WORDS =
  /\bENOTCACHED\b|Exit handler never called|\bERR_PNPM_NO_OFFLINE_|\bYN0080\b|no matching distribution found for|network was disabled|you're using offline mode|disabled by GOPROXY=off|network disabled, request cancell?ed/i;

// A package manager with a verb that fetches: what only builds or tests may take its time for reasons of its own.
const FETCHES =
  /(?:^|[\s;&|(/'"])((?:npm|pnpm|bun)(?: +-\S+)* +(?:ci|i|install|add|update|up|upgrade)|yarn +(?:install|add|up|upgrade|dlx)|yarn(?= *(?:$|[;&|]| -))|npx|(?:pip3?|pipx|uv|poetry|pdm)(?: +-\S+| +pip)* +(?:install|download|sync|add|update|lock)|cargo +(?:fetch|install|update|add)|go +(?:get|install|mod +(?:download|tidy))|dotnet +(?:restore|add)|nuget +(?:restore|install)|(?:apt|apt-get|apk|dnf|yum)(?: +-\S+)* +(?:install|update|upgrade|add)|gem +install|bundle +(?:install|update)|composer +(?:install|update|require))(?=$|[\s;&|)'"])/;
// A command that says this chose to work offline.
const OFFLINE = /(?:^|\s)--(?:offline|no-index)(?=$|[\s;&|)'"=])/;
const MAX_COMMAND = 4096;

/** The rule that is suspected to have stopped a command; none where nothing points to it. */
export function suspectedNetwork(ended: WithoutNetwork): Denial[] {
  if (ended.policy.network.value.kind !== 'none') return [];
  const sign = ended.timedOut ? waitedInVain(ended) : saidSo(ended);
  if (sign === null) return [];
  const effect = ended.timedOut ? ({ effect: { kind: 'command-ended' } } as const) : {};
  return [{ ...noNetwork(ended.policy), ...effect, suspected: quotable(sign) }];
}

/** The rule by which a sandbox has no network, who set it, and the ways to do without or to get one. */
export function noNetwork({ network, mode }: NetworkRules): Denial {
  if (mode.value === 'airgapped')
    return {
      rule: 'network.air-gapped',
      setBy: mode,
      count: 1,
      remedies: [{ kind: 'provide-offline' }, allowNetworks(mode)],
    };
  const { layer, where } = network;
  return {
    rule: 'network.none',
    setBy: { value: 'none', layer, where },
    count: 1,
    remedies: [{ kind: 'provide-offline' }, BRIDGE],
  };
}

const BRIDGE = {
  kind: 'change-request',
  field: 'policy.network',
  suggested: 'bridge',
  consent: 'sandbox.network.allow_bridge',
} as const;

/** The part of a command that fetches packages, as far as its words tell; null where none does. */
export function fetching(command: Command): string | null {
  const line = lineOf(command);
  if (OFFLINE.test(line)) return null;
  // Without its options, which may hold anything.
  return FETCHES.exec(line)?.[1]?.replaceAll(/ +-\S+/g, '') ?? null;
}

function saidSo(ended: WithoutNetwork): string | null {
  return ended.exitCode === 0 ? null : (signOf(ended) ?? null);
}

// Some try for minutes and say nothing meanwhile, so that what a program is for has to do.
function waitedInVain(ended: WithoutNetwork): string | null {
  return signOf(ended) ?? fetching(ended.command);
}

// Some package managers (Yarn, pnpm) print their errors to standard output, where other programs print anything at all.
function signOf({ command, lines, printed }: WithoutNetwork): string | undefined {
  const offline = !OFFLINE.test(lineOf(command));
  return signIn(lines, offline) ?? (fetching(command) === null ? undefined : signIn(printed(), offline));
}

function signIn(lines: readonly string[], offline: boolean): string | undefined {
  return lines.find(line => NETWORK_WORDS.test(line) || (offline && OFFLINE_WORDS.test(line)));
}

function lineOf(command: Command): string {
  return (typeof command === 'string' ? command : command.join(' ')).slice(0, MAX_COMMAND);
}
