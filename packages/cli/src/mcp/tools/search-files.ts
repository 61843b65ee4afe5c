// search_files: by name and by content, with programs of the sandbox and no shell.

import { AcodeError } from '@acode/sandbox';
import type { RunResult } from '@acode/sandbox';
import * as z from 'zod';
import { oneLine } from '../../terminal/text.ts';
import { tool } from '../tool.ts';
import { inside, nameText, path, sandboxId } from './arguments.ts';

const MAX_FOUND = 200;
const MAX_PER_FILE = '50';
const MAX_LINE = 300;
const TIMEOUT_MS = 30_000;
const NOT_EXECUTABLE = 126;
const NOT_FOUND = 127;
// What git keeps there is its own, and finds itself in every search otherwise.
const OWN_OF_GIT = /(?:^|\/)\.git\//;

const matchSchema = z.object({
  path: z.string(),
  line: z.int().optional(),
  text: z.string().optional(),
});

/** The tool. */
export const searchFiles = tool({
  name: 'search_files',
  title: 'Search files',
  description:
    'Searches inside the sandbox, below path (default: the workspace). by: "name" finds files by a pattern such as *.ts; by: "content" finds lines that hold the text, or match it as an extended regular expression with regex: true. At most 200 matches; what is in .git is left out.',
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  lane: 'short',
  input: z.strictObject({
    by: z.enum(['name', 'content']),
    pattern: z
      .string()
      .min(1)
      .max(1000)
      .refine(text => !/[\0\n\r]/.test(text), 'holds a line break or a NUL character'),
    path: path.optional(),
    regex: z.boolean().optional().describe('by content only: the pattern is an extended regular expression.'),
    ignore_case: z.boolean().optional(),
    sandbox_id: sandboxId,
  }),
  output: z.object({
    matches: z.array(matchSchema),
    complete: z.boolean().describe('false where there is more, or the search took too long.'),
  }),
  perform: ({ sandbox_id: id, ...search }, { session, signal }) =>
    inside(session, id, async sandbox => {
      const argv = searchWords(search);
      const result = await sandbox.commands.run(argv, { timeoutMs: TIMEOUT_MS, signal });
      assertSearched(result, argv[0] ?? '', search.pattern);
      const found = matchesIn(result.stdout, search.by);
      const matches = found.slice(0, MAX_FOUND);
      const complete = found.length <= MAX_FOUND && !result.timedOut && result.dropped.stdout === 0;
      const lines = matches.map(({ path: at, line, text }) =>
        line === undefined ? nameText(at) : `${nameText(at)}:${line}: ${oneLine(text ?? '')}`,
      );
      const text = [
        ...(complete ? [] : ['[more matches not shown]']),
        ...(lines.length === 0 ? ['Nothing was found.'] : lines),
      ];
      return { text: text.join('\n'), structured: { matches, complete } };
    }),
});

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
export function matchesIn(printed: string, by: Search['by']): z.output<typeof matchSchema>[] {
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
    throw new AcodeError('ACODE-MCP-001', {
      tool: 'search_files',
      field: 'pattern',
      reason: `${JSON.stringify(pattern.slice(0, 100))} is not a regular expression: ${JSON.stringify(stderr.trim().slice(0, 200))}`,
    });
}
