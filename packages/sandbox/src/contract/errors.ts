// Errors: the one class, made from a row of the table; tables of other packages; errors as data.

import type { RuleId } from './denials.ts';
import { ERRORS, entry as errorEntry } from './error-table.ts';
import type { AnyEntry, ErrorCode, ErrorContexts, ErrorEntry, ErrorFindings } from './error-table.ts';
import type { RiskyChange, RunResult } from './result.ts';
import type { Setting } from './setting.ts';
import { LIBRARY_TERMS, rendered, settingsIn } from './wording.ts';
import type { Terms } from './wording.ts';

/** The context of an error, where its code is one of the library’s. */
type ContextOf<Code extends string> = Code extends ErrorCode ? ErrorContexts[Code] : ErrorFindings;

/**
 * The one error class of acode. `code` tells which error it is, `context` its circumstances, `hint` what to do next.
 *
 * @example
 * try {
 *   await acode.run(['npm', 'test']);
 * } catch (error) {
 *   if (error instanceof AcodeError && error.is('ACODE-SBX-009')) console.error(error.context.image, error.hint);
 * }
 */
export class AcodeError<Code extends string = string> extends Error {
  /** Which error it is. */
  readonly code: Code;
  /** Its circumstances, typed by the code. */
  readonly context: ContextOf<Code>;
  /** What a person or an agent should do next. */
  readonly hint: string;
  /** The exit status the command line ends with. */
  readonly exitStatus: number;
  /** Ties the error to the log lines of its operation. */
  correlationId?: string;
  readonly #inTerms: (terms: Terms, hintTerms: Terms) => Pick<AcodeError, 'message' | 'hint'>;
  readonly #settings: () => readonly Setting[];

  /** Errors of other packages come from their own table: see {@link defineErrors}. */
  constructor(
    code: Code & ErrorCode,
    context: ContextOf<Code>,
    options?: {
      /** What led to it. */
      cause?: unknown;
    },
  );
  /** The row of another table. */
  constructor(code: Code, context: ContextOf<Code>, options: { cause?: unknown; row: AnyEntry });
  constructor(
    code: Code,
    context: ContextOf<Code>,
    { row = rowOf(code), ...options }: { cause?: unknown; row?: AnyEntry } = {},
  ) {
    // The code decides the type of the context, in this table and in every other; the compiler cannot see that here.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const own = row as unknown as ErrorEntry<ContextOf<Code>>;
    super(rendered(own.message(context)), options);
    this.#inTerms = (terms, hintTerms) => ({
      message: rendered(own.message(context), terms),
      hint: rendered(own.hint(context), hintTerms),
    });
    this.#settings = () => settingsIn(own.hint(context));
    this.name = 'AcodeError';
    this.code = code;
    this.context = context;
    this.hint = rendered(own.hint(context));
    this.exitStatus = own.exitFor?.(context) ?? own.exit;
  }

  /** What the scan of the workspace found, in the error itself or in the partial result it carries. */
  get riskyChanges(): readonly RiskyChange[] {
    const { riskyChanges, result }: ErrorFindings & { readonly result?: Pick<RunResult, 'riskyChanges'> } =
      this.context;
    return riskyChanges ?? result?.riskyChanges ?? [];
  }

  /** Message and hint in the terms of an audience: the command line says `--memory` for `policy.limits.memoryBytes`. */
  inTerms(terms: Terms = LIBRARY_TERMS, hintTerms = terms): Pick<AcodeError, 'message' | 'hint'> {
    return this.#inTerms(terms, hintTerms);
  }

  /** The settings that the hint proposes, as data: a terminal prints them as YAML to paste. */
  get settings(): readonly Setting[] {
    return this.#settings();
  }

  /** The error as data, for a wire; `errorFromJson` makes it again. Bytes are `{ base64 }`. */
  toJSON(): ErrorJson {
    const { code, message, hint, exitStatus, correlationId, cause } = this;
    return {
      code,
      message,
      hint,
      exitStatus,
      context: withoutBytes(this.context),
      ...(correlationId === undefined ? {} : { correlationId }),
      ...(cause instanceof Error ? { cause: causeJson(cause) } : {}),
    };
  }

  /** Narrows the error to one code, and with it the type of `context`. */
  is<Wanted extends ErrorCode>(code: Wanted): this is AcodeError<Wanted> {
    const own: string = this.code;
    return own === code;
  }
}

/** Whether a code is one of the library’s. */
export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code);
}

function rowOf(code: string): AnyEntry {
  if (isErrorCode(code)) return ERRORS[code];
  throw new TypeError(`${code} is not a code of this table`);
}

/** The errors of one package. */
export interface ErrorTable<Rows> {
  /** The rows, by code. */
  readonly rows: Rows;
  /** Makes an error. */
  readonly create: <Code extends keyof Rows & string>(
    code: Code,
    context: Rows[Code] extends ErrorEntry<infer Context> ? Context & ErrorFindings : never,
    options?: {
      /** What led to it. */
      cause?: unknown;
    },
  ) => AcodeError;
}

/**
 * A table of errors for a package besides the library. Its errors are {@link AcodeError}s: one class, one way to print them.
 *
 * @example
 * const { create } = defineErrors({
 *   'ACODE-FLT-001': errorEntry<{ host: string }>({
 *     title: 'host not reached',
 *     message: c => `The host ${c.host} did not answer.`,
 *     hint: () => 'Check that its agent runs.',
 *     exit: 125,
 *     example: { host: 'build-7' },
 *   }),
 * });
 * throw create('ACODE-FLT-001', { host: 'build-9' });
 */
export function defineErrors<Rows extends Readonly<Record<string, AnyEntry>>>(rows: Rows): ErrorTable<Rows> {
  return {
    rows,
    create: (code, context, options) => {
      const row = rows[code];
      if (!row) throw new TypeError(`${code} is not a code of this table`);
      return new AcodeError<string>(code, context, { ...options, row });
    },
  };
}

/**
 * An error of another package’s table, made again from its data: its texts come with it.
 *
 * @example
 * throw errorOfOtherTable({ code: 'ACODE-FLT-001', message: 'The host build-9 did not answer.', hint: '', exitStatus: 125, context: {} });
 */
export function errorOfOtherTable({
  code,
  message,
  hint,
  exitStatus,
  context,
}: Pick<ErrorJson, 'code' | 'message' | 'hint' | 'exitStatus'> & {
  /** Its circumstances, of which its texts were made. */
  readonly context: object;
}): AcodeError {
  const row = errorEntry<object>({
    title: code,
    message: () => message,
    hint: () => hint,
    exit: exitStatus,
    example: {},
  });
  return new AcodeError<string>(code, context, { row });
}

/** An error as data: what `JSON.stringify` makes of an {@link AcodeError}. */
export interface ErrorJson {
  /** The code. */
  readonly code: string;
  /** The message, in the terms of the library. */
  readonly message: string;
  /** What to do next, in the terms of the library. */
  readonly hint: string;
  /** The exit status of the command line. */
  readonly exitStatus: number;
  /** The circumstances; bytes are `{ base64 }`. */
  readonly context: unknown;
  /** Ties the error to the log lines of its operation. */
  readonly correlationId?: string;
  /** The cause: an error of acode in this form, or another one’s name and message. */
  readonly cause?: ErrorJson | ForeignErrorJson;
}

/** An error that is not acode’s, as data. */
export interface ForeignErrorJson {
  /** The name of its class. */
  readonly name: string;
  /** The message. */
  readonly message: string;
}

function causeJson(cause: Error): NonNullable<ErrorJson['cause']> {
  return cause instanceof AcodeError ? cause.toJSON() : { name: cause.name, message: cause.message };
}

function withoutBytes(value: unknown): unknown {
  if (value instanceof Uint8Array) {
    let binary = '';
    for (const byte of value) binary += String.fromCharCode(byte);
    return { base64: btoa(binary) };
  }
  if (Array.isArray(value)) return value.map(withoutBytes);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withoutBytes(item)]));
}

const LIMIT_CODES: Readonly<Partial<Record<RuleId, 'ACODE-SBX-004' | 'ACODE-SBX-007'>>> = {
  'limit.time': 'ACODE-SBX-007',
  'limit.memory': 'ACODE-SBX-004',
  'limit.pids': 'ACODE-SBX-004',
  'limit.output': 'ACODE-SBX-004',
  'limit.tmp': 'ACODE-SBX-004',
  'limit.open-files': 'ACODE-SBX-004',
  'limit.network-time': 'ACODE-SBX-004',
  'limit.requests': 'ACODE-SBX-004',
  'limit.tokens': 'ACODE-SBX-004',
  'limit.disk': 'ACODE-SBX-004',
  'limit.free-space': 'ACODE-SBX-004',
};

/**
 * The error for a command that hit a limit, for a caller to whom that is a failure; null where it hit none. `run` itself does
 * not throw it: a command that has started has a result.
 *
 * @example
 * const result = await acode.run('npm test');
 * const error = limitError(result);
 * if (error) throw error;
 */
export function limitError({
  denials,
}: Pick<RunResult, 'denials'>): AcodeError<'ACODE-SBX-004' | 'ACODE-SBX-007'> | null {
  for (const denial of denials) {
    const code = LIMIT_CODES[denial.rule];
    if (code !== undefined) return new AcodeError(code, { denial });
  }
  return null;
}
