// `acode uninstall`: shows everything that acode left on engine and disk, and removes it on request.

import { formatBytes } from '@acode/sandbox';
import type { OwnDirectory, SparedTrace, UninstallOptions, UninstallReport } from '@acode/sandbox';
import { quoted } from '../arguments/command-arguments.ts';
import type { Call } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import { ask, canAsk } from '../terminal/ask.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine, plural } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';

const FAILED = 125;
const STOP_MS = 15_000;
const ABOUT: Readonly<Record<OwnDirectory['what'], string>> = {
  config: 'your configuration',
  state: 'kept output, forks, trust, leases, compiled code, the audit log and its keys',
  runtime: 'sockets of sessions',
};

/** The options of the command. */
export interface UninstallFlags {
  readonly purge?: true | undefined;
  readonly force?: true | undefined;
  readonly withAudit?: true | undefined;
  readonly withConfig?: true | undefined;
  readonly withForks?: true | undefined;
}

/** Shows or removes every trace. */
export async function uninstall(call: Call, flags: UninstallFlags): Promise<number> {
  const { purge, force } = flags;
  if (purge !== true && (flags.withAudit ?? flags.withConfig ?? flags.withForks) !== undefined)
    throw new UsageError(
      '--with-audit, --with-config and --with-forks need --purge.',
      'Write `acode uninstall --purge --with-audit --with-config`, or leave out what you want to keep.',
    );
  const { signal } = call.interruption;
  const wanted = purge ? await alsoRemoved(call, flags) : {};
  if (purge) await endBackground(call);
  const report = await call.withHost(acode =>
    call.progress.during(
      purge ? 'Removing every trace…' : 'Looking for traces…',
      acode.uninstall({ purge: purge === true, force: force === true, ...wanted, signal }),
    ),
  );
  await call.print('acode.uninstall/1', report, look => renderUninstall(report, purge === true, look));
  return purge === true && !report.purged ? FAILED : 0;
}

// Nobody started them knowingly, and each is a session that lives: one would have to be spared.
async function endBackground(call: Call): Promise<void> {
  const { stopBackground } = await import('../serve/state.ts');
  await call.progress.during('Ending background processes…', stopBackground(call.io.env, STOP_MS));
}

const QUESTIONS = {
  audit: 'Also remove the audit log (the record of every run) and its keys?',
  config: 'Also remove your configuration?',
  forks: 'Also remove forks with changes? `acode fork list --all` shows them.',
} as const;

// The audit log and the configuration are removed only if an option or the person at the terminal says so.
async function alsoRemoved(
  call: Call,
  { withAudit, withConfig, withForks }: UninstallFlags,
): Promise<Pick<UninstallOptions, 'audit' | 'config' | 'forks'>> {
  const asks = canAsk(call.io) && !call.options.json;
  const agreed = async (what: keyof typeof QUESTIONS, option: true | undefined): Promise<boolean> =>
    option ?? (asks && (await ask(call.io, `acode: ${QUESTIONS[what]}`, call.interruption.signal)));
  const audit = await agreed('audit', withAudit);
  const config = await agreed('config', withConfig);
  const changed = async (): Promise<boolean> =>
    (await call.withHost(({ forks }) => forks.list({ all: true }))).some(({ commands }) => commands > 0);
  const forks = withForks ?? (asks && (await changed()) && (await agreed('forks', undefined)));
  return { audit, config, forks };
}

/** Every trace, for a person. */
export function renderUninstall(report: UninstallReport, purge: boolean, look: Look): string {
  const rows = [...engineRows(report), ...imageRows(report), ...elsewhereRows(report), ...diskRows(report)];
  const listed = rows.length > 0 ? table(['KIND', 'NAME', 'ABOUT'], rows, look) : '';
  const problem = report.engineProblem === null ? '' : `The engine was not asked: ${oneLine(report.engineProblem)}\n`;
  return fitted(`${listed}${problem}${closing(report, purge, look)}`, look);
}

function engineRows({ engine }: UninstallReport): string[][] {
  if (!engine) return [];
  const { removed, failed, belongings, dryRun } = engine;
  return [
    ...removed.map(({ name, givenName, state }) => ['sandbox', givenName ?? name, dryRun ? state : 'removed']),
    ...failed.map(({ sandbox, reason }) => ['sandbox', sandbox.givenName ?? sandbox.name, `failed: ${reason}`]),
    ...belongings.removed.map(({ kind, name }) => [kind, name, dryRun ? '' : 'removed']),
    ...belongings.failed.map(({ belonging, reason }) => [belonging.kind, belonging.name, `failed: ${reason}`]),
  ];
}

function imageRows({ images }: UninstallReport): string[][] {
  if (!images) return [];
  return [
    ...images.removed.map(({ reference, sizeBytes }) => [
      'image',
      reference,
      images.dryRun ? formatBytes(sizeBytes) : 'removed',
    ]),
    ...images.kept.map(({ reference, reason }) => ['image', reference, `kept: ${reason}`]),
    ...images.failed.map(({ reference, reason }) => ['image', reference, `failed: ${reason}`]),
  ];
}

function elsewhereRows({ elsewhere }: UninstallReport): string[][] {
  const called = (kind: string): string => (kind === 'container' ? 'sandbox' : kind);
  return elsewhere.map(({ kind, name }) => [called(kind), name, 'of another host, or from before a restart']);
}

function diskRows({ directories, copies, services }: UninstallReport): string[][] {
  const own = directories.map(({ what, path, files, bytes }) => [
    'directory',
    path,
    `${ABOUT[what]}: ${plural(files, 'file')}, ${formatBytes(bytes)}`,
  ]);
  return [
    ...own,
    ...copies.map(path => ['directory', path, 'a copy of a project, left by a build']),
    ...services.map(path => ['directory', path, 'a worker or an E2B server of a fleet']),
  ];
}

function closing(report: UninstallReport, purge: boolean, look: Look): string {
  const { purged, sessions, engineProblem } = report;
  const { bold, cyan, dim } = look.colours;
  const hint = (text: string): string => `${dim('╰▶')} ${cyan('hint:')} ${text}\n`;
  if (purged)
    return `${bold('Removed.')}\n${sparedText(report.spared, hint)}${servicesText(report, hint)}${hint('If you installed acode with npm, `npm uninstall -g acode` removes the command itself; add the --prefix that you installed it with.')}`;
  if (purge) return notPurged(report, bold, hint);
  if (isTraceless(report)) return 'There is no trace of acode here.\n';
  const live = sessions > 0 ? ` ${sessions} of your sessions still running: add --force.` : '';
  const how =
    engineProblem === null
      ? '`acode uninstall --purge` removes all of it except the audit log, your configuration and forks with changes; --with-audit, --with-config and --with-forks remove those too.'
      : 'Start the engine first, so that nothing is left on it; `acode uninstall --purge --force` removes what is listed without it.';
  return `Nothing was removed.${live}\n${hint(how)}`;
}

const SPARED: Readonly<Record<SparedTrace['what'], string>> = {
  audit: 'The audit log was kept',
  config: 'Your configuration was kept',
  forks: 'Forks with changes were kept',
};

function sparedText(spared: readonly SparedTrace[], hint: Say): string {
  if (spared.length === 0) return '';
  const kept = spared.map(({ what, path }) => `${SPARED[what]}: ${oneLine(path)}\n`).join('');
  const options = [...new Set(spared.map(({ what }) => `--with-${what}`))].join(' ');
  return `${kept}${hint(`\`acode uninstall --purge ${options}\` removes that too.`)}`;
}

// A worker that runs would lose its tasks.
function servicesText({ services }: UninstallReport, hint: Say): string {
  if (services.length === 0) return '';
  const paths = services.map(oneLine).join(' ');
  const words = services.map(quoted).join(' ');
  return `The worker or E2B server of a fleet was kept: ${paths}\n${hint(`When it is stopped: \`rm -rf ${words}\`.`)}`;
}

function isTraceless({ engine, images, elsewhere, directories, copies, services }: UninstallReport): boolean {
  const onEngine = [engine?.removed, engine?.belongings.removed, images?.removed, elsewhere];
  return [...onEngine, directories, copies, services].every(found => (found?.length ?? 0) === 0);
}

type Say = (text: string) => string;

function notPurged(report: UninstallReport, bold: Say, hint: Say): string {
  if (report.left.length > 0) {
    const names = report.left.map(path => `  ${oneLine(path)}\n`).join('');
    return `${bold('Removed, except for what acode did not put there:')}\n${names}${sparedText(report.spared, hint)}`;
  }
  const how = wasSpared(report)
    ? 'What other hosts or sessions of yours may still use was spared: `acode uninstall --purge --force` removes that too.'
    : 'Run it again when the engine is well.';
  return `${bold('Not everything could be removed, so the directories were left.')}\n${hint(how)}`;
}

function wasSpared({ elsewhere, engine, images }: UninstallReport): boolean {
  if (!engine || (images?.failed.length ?? 0) > 0) return false;
  const { failed, kept, belongings } = engine;
  return failed.length + belongings.failed.length === 0 && elsewhere.length + kept.length + belongings.kept.length > 0;
}
