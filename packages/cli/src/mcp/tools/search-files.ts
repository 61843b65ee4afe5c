// search_files: by name and by content, with programs of the sandbox and no shell.

import { AcodeError } from '@acode/sandbox';
import type { RunResult } from '@acode/sandbox';
import * as z from 'zod';
import { oneLine } from '../../terminal/text.ts';
import { READS, tool } from '../tool.ts';
import type { Answer } from '../tool.ts';
import { inside, nameText, path, sandboxId, within, withFile } from './arguments.ts';
import { mcpError } from '../errors.ts';

const MAX_FOUND = 200;
const MAX_PER_FILE = '50';
const MAX_LINE = 300;
const TIMEOUT_MS = 30_000;
const NOT_EXECUTABLE = 126;
const NOT_FOUND = 127;
// What git keeps there is its own, and finds itself in every search otherwise.
const OWN_OF_GIT = /(?:^|\/)\.git\//;

/** A file that was found, or a line in one. */
export interface Match {
  readonly path: string;
  readonly line?: number;
  readonly text?: string;
}

const NOTHING = 'Nothing was found.';

/** The tool. */
export const searchFiles = tool({
  name: 'search_files',
  title: 'Search files',
  description:
    'Finds files by name (by: "name", pattern such as *.ts) or lines by their text (by: "content"; regex: true for an extended regular expression) below path, by default the workspace. At most 200 matches, none in .git.',
  annotations: READS,
  lane: 'short',
  input: z.strictObject({
    by: z.enum(['name', 'content']),
    pattern: z
      .string()
      .min(1)
      .max(1000)
      .refine(text => !/[\0\n\r]/.test(text), 'holds a line break or a NUL character'),
    path: path.optional(),
    regex: z.boolean().optional(),
    ignore_case: z.boolean().optional(),
    sandbox_id: sandboxId,
  }),
  perform: ({ sandbox_id: id, path: asked, ...rest }, { session, signal }) =>
    inside(session, id, async sandbox => {
      const below = asked === undefined ? undefined : session.workspace.inside(asked);
      const search = { ...rest, path: below };
      const argv = searchWords(search);
      const result = await sandbox.commands.run(argv, { timeoutMs: TIMEOUT_MS, signal });
      assertSearched(result, argv[0] ?? '', search.pattern);
      const found = matchesIn(result.stdout, search.by);
      const matches = found.slice(0, MAX_FOUND);
      const complete = found.length <= MAX_FOUND && !result.timedOut && result.dropped.stdout === 0;
      // The programs say nothing of a directory that is not there.
      if (found.length === 0 && below !== undefined)
        await withFile('search_files', session, below, () => sandbox.files.stat(below, { signal: within(signal) }));
      return answerOf(matches, complete);
    }),
});

function answerOf(matches: readonly Match[], complete: boolean): Answer {
  const lines = matches.map(({ path: at, line, text }) =>
    line === undefined ? nameText(at) : `${nameText(at)}:${line}: ${oneLine(text ?? '')}`,
  );
  const more = complete ? [] : ['[more matches not shown]'];
  const notes = lines.length === 0 ? [NOTHING] : [];
  const structured = { complete: complete ? undefined : false, notes, matches };
  return { text: [...more, ...notes, ...lines].join('\n'), structured };
}

/** A search, as it was asked for. */
export interface Search {
  readonly by: 'name' | 'content';
  readonly pattern: string;
  readonly path?: string | undefined;
  readonly regex?: boolean | undefined;
  readonly ignore_case?: boolean | undefined;
}

/** The program and its arguments. Pattern and path are each one argument, in a position where none is taken for an option. */
export function searchWords({ by, pattern, path: below = '.', regex, ignore_case: ignoreCase }: Search): string[] {
  const place = below.startsWith('/') ? below : `./${below}`;
  if (by === 'name') return ['find', place, ignoreCase === true ? '-iname' : '-name', pattern];
  const how = regex === true ? '-E' : '-F';
  return [
    'grep',
    '-rnIsH',
    how,
    ...(ignoreCase === true ? ['-i'] : []),
    '-m',
    MAX_PER_FILE,
    '-e',
    pattern,
    '--',
    place,
  ];
}

/** What the program printed, taken apart. */
export function matchesIn(printed: string, by: Search['by']): Match[] {
  return printed.split('\n').flatMap(line => {
    if (line === '') return [];
    if (by === 'name') return isShown(line) ? [{ path: tidy(line) }] : [];
    const [, at = '', number = '', text = ''] = /^(.*?):(\d+):(.*)$/.exec(line) ?? [];
    return at === '' || !isShown(at) ? [] : [{ path: tidy(at), line: Number(number), text: text.slice(0, MAX_LINE) }];
  });
}

function isShown(at: string): boolean {
  return !OWN_OF_GIT.test(at);
}

function tidy(at: string): string {
  return at.replace(/^(?:\.\/)+/, '');
}

// grep ends with 1 where it finds nothing, and both programs with more than 0 where they may not look everywhere.
function assertSearched({ exitCode, stdout, stderr }: RunResult, program: string, pattern: string): void {
  if (exitCode === NOT_FOUND || exitCode === NOT_EXECUTABLE)
    throw new AcodeError('ACODE-FIL-001', { program, operation: 'search_files' });
  if (program === 'grep' && exitCode === 2 && stdout === '' && stderr !== '')
    throw mcpError('ACODE-MCP-001', {
      tool: 'search_files',
      field: 'pattern',
      reason: `${JSON.stringify(pattern.slice(0, 100))} is not a regular expression: ${JSON.stringify(stderr.trim().slice(0, 200))}`,
    });
}
