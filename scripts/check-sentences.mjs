// Refuses code that reads acode’s own sentences: a message, hint, rule, remedy or reason is for people, and the same fact is
// data in the context of an error, in a denial or in a reference of a text.
// @ts-check

import { readFileSync, readdirSync } from 'node:fs';
import { join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PLACES = [
  'packages/sandbox/src',
  'packages/agents/src',
  'packages/swarm/src',
  'packages/fleet/src',
  'packages/cli/src',
];
const SENTENCE = String.raw`\b(?:message|hint|rule|remedy|reason|warmReason)\b`;
const MATCHING = [
  new RegExp(
    String.raw`${SENTENCE}\??\.(?:startsWith|endsWith|includes|indexOf|match|matchAll|replace|replaceAll|search|split)\(`,
  ),
  new RegExp(String.raw`\.(?:test|exec)\((?:[\w$]+\??\.)*${SENTENCE}\)`),
];

/**
 * Text that others wrote, or that is only shown otherwise. The line has to hold the fragment.
 *
 * @type {readonly (readonly [file: string, fragment: string, why: string])[]}
 */
const ALLOWED = [
  [
    'packages/fleet/src/engine/nats/connection.ts',
    "cause.message.includes('support')",
    'the client of NATS, which has no code',
  ],
  ['packages/cli/src/failure/parse-failure.ts', 'complaint.message', 'the parser of options, a dependency'],
  ['packages/cli/src/failure/report.ts', 'message.includes(text)', 'only whether a value is shown already'],
  ['packages/cli/src/mcp/risks.ts', 'reason.replaceAll(/[“”]/g', 'quotation marks'],
  ['packages/sandbox/src/policy/config/document.ts', "cause.message.includes('Excessive')", 'the YAML parser'],
  ['packages/sandbox/src/contract/system-error.ts', 'error.message.replace', 'errors of the system'],
  ['packages/sandbox/src/contract/system-error.ts', 'words.test(reason)', 'the kernel, in what engines pass on'],
  ['packages/sandbox/src/isolation/docker/resources/creation.ts', '.test(message)', 'the engine'],
  ['packages/sandbox/src/run/user-files.ts', 'error.context.reason.includes(draft)', 'the engine names the path'],
];

/** @param {string} directory */
function sourcesBelow(directory) {
  return readdirSync(join(ROOT, directory), { recursive: true, encoding: 'utf8' })
    .map(name => `${directory}/${name.split(sep).join('/')}`)
    .filter(name => name.endsWith('.ts') && !name.endsWith('.test.ts'));
}

const used = new Set();
const complaints = PLACES.flatMap(sourcesBelow).flatMap(file =>
  readFileSync(join(ROOT, file), 'utf8')
    .split('\n')
    .flatMap((line, at) => {
      if (!MATCHING.some(pattern => pattern.test(line))) return [];
      const allowed = ALLOWED.find(([name, fragment]) => name === file && line.includes(fragment));
      if (!allowed) return [`${file}:${at + 1}: reads a sentence; use data in its place: ${line.trim()}`];
      used.add(allowed);
      return [];
    }),
);
for (const row of ALLOWED)
  if (!used.has(row)) complaints.push(`scripts/check-sentences.mjs: not needed any more: ${row[0]}, ${row[1]}`);
for (const complaint of complaints) console.error(complaint);
if (complaints.length > 0) process.exitCode = 1;
else console.log(`sentences: none is read; ${ALLOWED.length} of others are`);
