// Sentences about denials: what happened and by which rule, who set it, what to do next. One text for every audience; the
// terms it is rendered in, and remedies of its own, are what an audience brings.

import type { Denial, Remedy, RuleId, WritablePlace } from './denials.ts';
import { formatBytes } from './units.ts';
import { BUILT_IN_RULE, LIBRARY_TERMS, rendered, text } from './wording.ts';
import type { Terms, Text } from './wording.ts';

/** How one audience puts a denial. */
export interface DenialStyle {
  /** The names of fields and layers. */
  readonly terms: Terms;
  /** A remedy in words of the audience’s own, as a clause; null for the usual ones. */
  readonly remedy?: (remedy: Remedy, denial: Denial) => Text | null;
}

const LIBRARY_STYLE: DenialStyle = { terms: LIBRARY_TERMS };

interface RuleText {
  /** What happened and by which rule, as a clause that who set it can follow. */
  readonly what: (denial: Denial) => string;
  /** What `use-less` means for it, as a clause. */
  readonly less?: string;
  /** Whether the same command fails the same way each time, so that trying again is in vain. */
  readonly final?: true;
  /** What the sign of it is, before its quotation. */
  readonly sign?: string;
}

const bytes = ({ value }: Denial): string => formatBytes(Number(value));
const seconds = ({ value }: Denial): string => `${Number(value) / 1000} s`;
const path = ({ value }: Denial): string => String(value);
// As a person names it, who stands in the workspace.
const pathInWorkspace = (denial: Denial): string => path(denial).replace(/^\/workspace\/(?=.)/, '');
const isGit = (denial: Denial): boolean => /(?:^|\/)\.git$/.test(path(denial));
const isOfState = ({ remedies }: Denial): boolean =>
  remedies.some(remedy => remedy.kind === 'raise-limit' && remedy.field.startsWith('policy.state'));
const WRITE = 'suspected write to';
const FROM_OUTPUT = 'inferred from the output';

const RULES: Readonly<Record<RuleId, RuleText>> = {
  'limit.time': {
    what: denial => `the command was stopped at the time limit of ${seconds(denial)}`,
    less: 'make the command do less',
  },
  'limit.memory': {
    what: denial => `a process was killed at the memory limit of ${bytes(denial)}`,
    less: 'use less memory',
  },
  'limit.pids': {
    what: ({ value }) => `a new process was refused at the process limit of ${value}`,
    less: 'start fewer processes at once',
  },
  'limit.output': {
    what: denial =>
      `${droppedText(denial)} dropped, and what came before was kept, at the output limit of ${bytes(denial)}`,
    less: 'print less, or print to a file in the workspace',
  },
  'limit.tmp': {
    what: denial => `/tmp or the home directory was full at the temporary storage limit of ${bytes(denial)}`,
    less: 'write large files to the workspace',
    sign: FROM_OUTPUT,
  },
  'limit.open-files': {
    what: ({ value }) => `a program could open no more files at the open file limit of ${value}`,
    less: 'open fewer files at once',
    sign: FROM_OUTPUT,
  },
  'limit.network-time': {
    what: denial =>
      denial.effect?.kind === 'command-ended'
        ? `the command was stopped, because its network could not be disconnected at the network time limit of ${seconds(denial)}`
        : `the network was disconnected at the network time limit of ${seconds(denial)}, and the command went on without it`,
    less: 'fetch less, or fetch once and keep it in the workspace',
  },
  'limit.network-bytes': {
    what: denial => `connections were refused at the limit of ${bytes(denial)} for the network`,
    less: 'fetch less',
  },
  'limit.requests': {
    what: ({ value }) => `the command was stopped at its budget of ${value} requests`,
    less: 'ask for less at a time',
  },
  'limit.tokens': {
    what: ({ value }) => `the command was stopped at its budget of ${value} tokens`,
    less: 'ask for less at a time',
  },
  'limit.disk': {
    what: denial =>
      denial.effect === undefined
        ? `the fork was full at its hard disk limit of ${bytes(denial)}`
        : `the command was stopped: ${isOfState(denial) ? 'its state directory' : 'its fork'} reached the disk limit of ${bytes(denial)}`,
    sign: FROM_OUTPUT,
    less: 'write less, or take changes back (`acode fork undo`)',
  },
  'limit.free-space': {
    what: denial => `the command was stopped: less than ${bytes(denial)} was free on the disk of the forks`,
    less: 'write less',
  },
  'network.none': { what: () => 'the sandbox has no network', final: true, sign: 'suspected use of the network:' },
  'network.air-gapped': {
    what: () => 'air-gapped mode: no sandbox has a network',
    final: true,
    sign: 'suspected use of the network:',
  },
  'network.not-listed': {
    what: ({ value, suspected }) =>
      value === null || value === undefined
        ? `${suspected === undefined ? 'further hosts that the command asked for are' : 'a host that the command asked for is perhaps'} not on the allow-list`
        : `the host ${value} is not on the allow-list`,
    final: true,
    sign: 'suspected use of the network:',
  },
  'network.denied-host': { what: ({ value }) => `a rule denies the connection to ${value}`, final: true },
  'network.private-address': {
    what: ({ value }) => `the connection to ${value} was refused, because its address is private`,
    final: true,
  },
  'network.request': {
    what: ({ value }) => `a request to ${value} is not one that the allow-list lets through`,
    final: true,
  },
  'root.none': { what: () => 'nothing runs as root in a sandbox', final: true, sign: FROM_OUTPUT },
  'read-only.root': { what: () => 'the sandbox’s own file system is read-only', final: true, sign: WRITE },
  'read-only.workspace': { what: () => 'the workspace is read-only', final: true, sign: WRITE },
  'read-only.protected': {
    what: denial =>
      `${pathInWorkspace(denial)} is read-only in a sandbox, because ${isGit(denial) ? 'git on this machine runs what is configured there' : 'programs on this machine trust what is in it'}`,
    final: true,
    sign: WRITE,
  },
  'read-only.mount': { what: denial => `the mount ${path(denial)} is read-only`, final: true, sign: WRITE },
  'read-only.masked': {
    what: denial =>
      `${pathInWorkspace(denial)} is masked: it holds secrets, so a command sees it empty and cannot write it`,
    final: true,
    sign: WRITE,
  },
  'read-only.ca-bundle': {
    what: denial => `${path(denial)}, the bundle of CA certificates, is read-only`,
    final: true,
    sign: WRITE,
  },
};

/** The parts of a text about a denial. */
export interface DenialParts {
  /** What happened, by which rule and who set it, as a clause. */
  readonly summary: string;
  /** What happened and by which rule, as a clause. */
  readonly what: string;
  /** The layer that set the rule. */
  readonly setBy: string;
  /** What to do next, in sentences. */
  readonly remedy: string;
  /**
   * The evidence that acode used, with quotations of what the command printed. A text has it last, in brackets, where it can pass for
   * nothing of acode’s. Null where there is nothing to add.
   */
  readonly note: string | null;
}

/**
 * A denial as a text: what happened and by which rule, who set it, what to do next. A number in place of the style is
 * ignored, so that `result.denials.map(denialText)` works.
 */
export function denialText(denial: Denial, style?: DenialStyle | number): string {
  const used = styleOf(style);
  return rendered(denialWording(denial, used), used.terms);
}

function styleOf(style: DenialStyle | number | undefined): DenialStyle {
  return typeof style === 'object' ? style : LIBRARY_STYLE;
}

/** The same with its references, to stand inside another text. */
export function denialWording(denial: Denial, style: DenialStyle = LIBRARY_STYLE): Text {
  const note = noteOf(denial);
  const sentences = text`${capitalised(summaryOf(denial))}. ${remedyOf(denial, style)}`;
  return note === null ? sentences : text`${sentences} [${note}]`;
}

/** The same in parts, for an audience that arranges them itself. As with {@link denialText}, a number is ignored. */
export function denialParts(denial: Denial, style?: DenialStyle | number): DenialParts {
  const used = styleOf(style);
  const note = noteOf(denial);
  return {
    summary: rendered(summaryOf(denial), used.terms),
    what: RULES[denial.rule].what(denial),
    setBy: used.terms.source(denial.setBy),
    remedy: rendered(remedyOf(denial, used), used.terms),
    note: note === null ? null : rendered(note, used.terms),
  };
}

/** What happened, by which rule and who set it, as a clause. */
export function summaryOf(denial: Denial): Text {
  const { rule, setBy } = denial;
  const what = RULES[rule].what(denial);
  if (setBy.layer === 'built-in')
    return `${what} (built-in ${setBy.where === BUILT_IN_RULE.where ? 'rule' : 'default'})`;
  // A limit is what the clause ends with, and “set by …” can follow it; after any other rule it would hang in the air.
  return RULES[rule].less === undefined
    ? text`${what} (set by ${{ source: setBy }})`
    : text`${what}, set by ${{ source: setBy }}`;
}

/** What to do next, in sentences. */
export function remedyOf(denial: Denial, style: DenialStyle = LIBRARY_STYLE): Text {
  const clauses = denial.remedies.map(remedy => style.remedy?.(remedy, denial) ?? clauseOf(remedy, denial));
  const ways = clauses.reduce((before, clause) => text`${before}; or ${clause}`);
  return RULES[denial.rule].final === true
    ? text`Retrying does not help. ${capitalised(ways)}.`
    : text`${capitalised(ways)}.`;
}

function noteOf({ rule, effect, suspected }: Denial): Text | null {
  if (effect?.kind === 'request-ignored') {
    const { value, ...source } = effect.asked;
    return text`${String(value)} was asked for by ${{ source }}`;
  }
  if (suspected === undefined) return null;
  if (effect?.kind === 'command-ended')
    return `suspected: it had no network, which may be what it waited for: "${suspected}"`;
  return `${RULES[rule].sign ?? FROM_OUTPUT} "${suspected}"`;
}

// The lines of a Dockerfile that install something: two common images have another package manager, or none.
function installing(image: string): string {
  const install = /alpine/.test(image)
    ? 'apk add --no-cache <package>'
    : 'apt-get update && apt-get install -y <package>';
  const from = /(?:^|\/)busybox(?::|@|$)/.test(image) ? 'debian:12' : image;
  return `\`FROM ${from}\` and a line that installs it, such as \`RUN ${install}\``;
}

type RemedyOf<Kind extends Remedy['kind']> = Extract<Remedy, { readonly kind: Kind }>;

// Each remedy as a clause.
const CLAUSES: { readonly [Kind in Remedy['kind']]: (remedy: RemedyOf<Kind>, denial: Denial) => Text } = {
  'use-less': (_, { rule }) => RULES[rule].less ?? 'use less',
  'raise-limit': ({ field, suggested }) =>
    text`raise the limit: ${{ field, value: suggested }} (up to the maximum in your configuration)`,
  'change-request': requestClause,
  'change-setting': settingClause,
  'add-setting': ({ field, suggested }) =>
    text`if sandboxes may reach it: ${{ setting: { key: field, value: suggested.split(' '), add: true } }}`,
  'unset-variable': ({ field }) => `unset ${field} if the task really needs a network`,
  'choose-image': ({ field, image }, { rule }) =>
    rule === 'root.none'
      ? text`to install software, write a Dockerfile with ${installing(image ?? '<image>')}; build it with \`docker build -t acode-tools .\`, and use ${{ field, value: 'acode-tools' }}`
      : text`choose an image that already has what must be installed: ${{ field }}`,
  'leave-out': ({ suggested }, { rule }) =>
    rule === 'root.none' ? `run it without ${suggested}` : `leave ${suggested} out`,
  'write-elsewhere': ({ suggested }, { rule }) =>
    rule === 'read-only.protected' ? 'write to another path of the workspace' : `write to ${placesText(suggested)}`,
  'provide-offline': () => 'put what the command needs into the workspace, the image or a cache (docs/caches.md)',
  'work-offline': () => 'work without a network',
  'copy-file': ({ suggested }) =>
    `copy it to /tmp, change the copy, and name the copy in the variable that your program reads, such as ${suggested}`,
  'change-on-host': () => 'leave it as it is: the user can change it on the host',
  'free-space': () => 'free disk space: `acode fork list` shows the forks, `acode fork discard <fork>` removes one',
  'ask-administrator': () => 'ask the administrator of this machine',
};

function clauseOf<Kind extends Remedy['kind']>(remedy: RemedyOf<Kind> & { readonly kind: Kind }, denial: Denial): Text {
  return CLAUSES[remedy.kind](remedy, denial);
}

function requestClause({ field, suggested, consent }: Extract<Remedy, { kind: 'change-request' }>): Text {
  if (field === 'policy.mounts') return text`ask for the mount to be writable: ${{ field, value: suggested }}`;
  if (field === 'policy.fork')
    return text`to let it commit, use a fork, from which commits come back and nothing else of .git: ${{ field, value: suggested }}`;
  const ask = text`ask for ${{ field, value: suggested }}`;
  if (consent === undefined) return ask;
  return text`${ask}, which needs the user’s consent: ${{ setting: { key: consent, value: true } }}`;
}

function settingClause({ field, suggested, where }: Extract<Remedy, { kind: 'change-setting' }>): string {
  if (where !== undefined) return `take \`${field}\` out of ${where} if the task really needs a network`;
  return `the user can ${suggested ?? 'change'} it: \`acode config set ${field} <value>\``;
}

function placesText(places: readonly WritablePlace[]): string {
  const names = { workspace: 'the workspace', tmp: '/tmp', home: 'the home directory' };
  const [last = '', ...rest] = places.map(place => names[place]).reverse();
  return rest.length === 0 ? last : `${rest.reverse().join(', ')} or ${last}`;
}

function droppedText({ effect }: Denial): string {
  const dropped = effect?.kind === 'output-dropped' ? effect.bytes : 0;
  return `the last ${formatBytes(dropped)} of output ${dropped === 1 ? 'was' : 'were'}`;
}

/** The text as the beginning of a sentence. */
export function capitalised(sentence: Text): Text {
  const [first = '', ...rest] = typeof sentence === 'string' ? [sentence] : sentence;
  return typeof first === 'string' ? text`${first.charAt(0).toUpperCase()}${first.slice(1)}${rest}` : sentence;
}
