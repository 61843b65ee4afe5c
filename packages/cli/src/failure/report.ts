// Failure report: one shape for people and for programs, never with a stack trace.

import { AcodeError, settingCommand, settingYaml } from '@acode/sandbox';
import type { Setting, Terms } from '@acode/sandbox';
import { OPTION_TERMS } from '../arguments/option-names.ts';
import { UsageError } from './usage.ts';
import type { Look } from '../terminal/look.ts';
import { renderNotice } from '../terminal/notice.ts';

/** A failure as it is reported. */
export interface FailureReport {
  readonly code: string;
  readonly message: string;
  readonly hint: string;
  readonly context: Readonly<Record<string, unknown>>;
  readonly correlationId: string | null;
  readonly exitStatus: number;
  /** What lay behind it, outermost first. */
  readonly causes: readonly string[];
  /** Settings that the hint proposes. */
  readonly settings?: readonly Setting[];
}

// The command stands in the hint, and the YAML below it.
const ERROR_TERMS: Terms = { ...OPTION_TERMS, setting: setting => `\`${settingCommand(setting)}\`` };

const UNEXPECTED_CODE = 'ACODE-CLI-002';

const UNEXPECTED_STATUS = 125;
const MAX_CAUSES = 10;

/** The report on anything that was thrown, in the terms of whoever reads it. */
export function reportOn(error: unknown, terms: Terms = ERROR_TERMS): FailureReport {
  if (error instanceof UsageError) return usage(error);
  if (isKnown(error)) return known(error, terms);
  return {
    code: UNEXPECTED_CODE,
    message: `acode failed in a way it should not: ${messageOf(error)}.`,
    hint: 'This is a fault of acode. Run the same with --verbose and report what it prints.',
    context: {},
    correlationId: null,
    exitStatus: UNEXPECTED_STATUS,
    causes: causesOf(error),
  };
}

function isKnown(error: unknown): error is AcodeError {
  return error instanceof AcodeError;
}

function usage(error: UsageError): FailureReport {
  const { code, message, hint, exitStatus, option } = error;
  return {
    code,
    message,
    hint,
    exitStatus,
    context: option === undefined ? {} : { option },
    correlationId: null,
    causes: [],
  };
}

function known(error: AcodeError, terms: Terms): FailureReport {
  return {
    code: error.code,
    ...error.inTerms(terms),
    context: { ...error.context, ...optionIn(error.context) },
    correlationId: error.correlationId ?? null,
    exitStatus: error.exitStatus,
    causes: causesOf(error),
    ...(error.settings.length === 0 ? {} : { settings: error.settings }),
  };
}

// A program that called the command line knows its options, and not the fields of the library.
function optionIn(context: object): { readonly option?: string } {
  const option = 'field' in context && typeof context.field === 'string' ? OPTION_TERMS.field(context.field) : '';
  return option.startsWith('-') ? { option } : {};
}

function causesOf(error: unknown): string[] {
  const causes: string[] = [];
  let at = error;
  while (at instanceof Error && at.cause !== undefined && causes.length < MAX_CAUSES) {
    at = at.cause;
    causes.push(isKnown(at) ? `${at.code}: ${at.message}` : messageOf(at));
  }
  return causes;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/**
 * The lines about a failure. With `verbose`, also what lay behind it, and the id that its log lines have. `configFile` is
 * the user’s own, for settings to write.
 */
export function renderFailure(report: FailureReport, look: Look, verbose: boolean, configFile?: string): string {
  const { bold, red } = look.colours;
  const paste = (report.settings ?? []).flatMap(setting => pasteLines(setting, configFile));
  const notice = { text: report.message, details: details(report, verbose), hint: report.hint, paste };
  return renderNotice(notice, look, text => red(bold(text)));
}

// The file is a comment, so that all of it can be pasted.
function pasteLines(setting: Setting, configFile = 'your configuration file'): string[] {
  const how = setting.add ? 'or add it in' : 'or write it in';
  return [`# ${how} ${setting.file ?? configFile}`, ...settingYaml(setting).trimEnd().split('\n')];
}

function details(report: FailureReport, verbose: boolean): (readonly [name: string, value: string])[] {
  const { code, context, correlationId, message, hint, causes } = report;
  return [
    ['code', code] as const,
    ...Object.entries(context).flatMap(([name, value]) => {
      if (name === 'output' && typeof value === 'string' && value !== '')
        return value.split('\n').map(line => [name, line] as const);
      const text = name === 'reason' && REASON_SAID.has(code) ? null : plain(name, value);
      // Message and hint name most of the circumstances already.
      return text === null || text === '' || message.includes(text) || hint.includes(text)
        ? []
        : [[nameOf(name, context), text] as const];
    }),
    ...(verbose && correlationId !== null ? [['correlation id', correlationId] as const] : []),
    ...(verbose ? causes.map(cause => ['cause', cause] as const) : []),
  ];
}

// Where there is no engine, the sockets are those where one was looked for.
function nameOf(name: string, { absent }: FailureReport['context']): string {
  return name === 'socket' && absent === true ? 'looked in' : name;
}

// Circumstances that message and hint speak of in other words.
const SAID = new Set(['uid', 'kind', 'fault', 'violation', 'required', 'available']);
const REASON_SAID = new Set(['ACODE-SBX-008']);
// Circumstances that are the name of a field of the request.
const NAMES_FIELD = new Set(['field', 'limit']);

// Yes and no are for programs: message and hint say what follows from them.
function plain(name: string, value: unknown): string | null {
  if (SAID.has(name)) return null;
  if (typeof value === 'string') return NAMES_FIELD.has(name) ? OPTION_TERMS.field(value) : value;
  return typeof value === 'number' ? String(value) : null;
}
