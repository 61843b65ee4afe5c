// Holds the directions in which modules may import each other, and which files may stand at the top of the library.
// @ts-check

import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SANDBOX = 'packages/sandbox/src';
const CLI = 'packages/cli/src';
const ENGINE = 'isolation/docker/engine';

/** The files of the library that stand outside every room. They may import anything below them but the levels. */
const TOP = [
  'index.ts',
  'acode.ts',
  'artifacts.ts',
  'attack.ts',
  'build-turn.ts',
  'building.ts',
  'built-images.ts',
  'ca-bundle.ts',
  'cache-plan.ts',
  'capabilities.ts',
  'command-handle.ts',
  'commands.ts',
  'compose.ts',
  'creating.ts',
  'denials.ts',
  'e2b.ts',
  'examine.ts',
  'host.ts',
  'images.ts',
  'installing.ts',
  'inventory.ts',
  'kept.ts',
  'level.ts',
  'obtaining.ts',
  'options.ts',
  'outcome.ts',
  'planning.ts',
  'planned.ts',
  'project-base.ts',
  'pulls.ts',
  'removing.ts',
  'pull-once.ts',
  'pulling.ts',
  'reconnecting.ts',
  'repository.ts',
  'record.ts',
  'request-check.ts',
  'run.ts',
  'running.ts',
  'sandbox.ts',
  'scanning.ts',
  'unused.ts',
  'sweep.ts',
  'trail.ts',
  'uninstall.ts',
  'user-files.ts',
  'warm.ts',
  'web.ts',
  'without-network.ts',
];

/** The rooms of isolation/ that are no level: what several levels are made of. */
const SHARED = ['isolation/handover', 'isolation/seccomp', 'isolation/process'];

/** The one file that may name a level: everybody else knows the Backend interface only. */
const COMPOSITION_ROOT = 'compose.ts';

/** The level that needs no host, and the entry of it: they run in browsers, so that nothing of Node’s may be in them. */
const WEB = 'isolation/web';
const WEB_ENTRY = 'web.ts';

/**
 * What each room may import besides itself: a room, or one file of a room where the rest of it is none of its business.
 * A level (a folder of isolation/ that implements Backend) is a room of its own, so that no level can lean on another.
 *
 * @type {Readonly<Record<string, readonly string[]>>}
 */
const ROOMS = {
  contract: [],
  config: ['contract'],
  policy: ['contract', 'config', 'workspace/within.ts'],
  workspace: ['contract', 'config'],
  // What looks like a secret is the same in an id as in a log.
  lifecycle: ['contract', 'telemetry/redact.ts'],
  output: ['contract', 'config'],
  telemetry: ['contract'],
  // What looks like a secret is the same in a record as in a log line.
  audit: ['contract', 'config/directories.ts', 'telemetry/redact.ts'],
  // Whose turn it is to pull is told by the same lock as whose turn it is to write a record.
  registry: [
    'contract',
    'config/bounded-file.ts',
    'config/directories.ts',
    'audit/turn.ts',
    'audit/holder.ts',
    'workspace/within.ts',
  ],
  // It attacks and examines through what the top hands it; of a level it knows the interface only.
  doctor: ['contract', 'config', 'workspace', 'isolation', 'output/terminal.ts'],
  // It knows programs that run inside, and not what the inside is.
  files: [
    'contract',
    'tar',
    'isolation/inside.ts',
    'lifecycle/deadline.ts',
    'lifecycle/pauses.ts',
    'telemetry/clock.ts',
    // What comes out of a sandbox is scanned like what a run leaves.
    'workspace/risky.ts',
    'workspace/risky-names.ts',
  ],
  // The same, for streams in place of files.
  forwarding: ['contract', 'isolation/inside.ts'],
  // Two processes of one user, over the commands of a sandbox that both use.
  relay: ['contract', 'lifecycle/ownership.ts', 'output/capture.ts', 'output/text.ts'],
  // Another shape of what the top hands it.
  e2b: ['contract'],
  // What an image is made of; who builds it, the top knows.
  'project-image': ['contract', 'tar', 'config', 'workspace', 'lifecycle/pauses.ts'],
  // What archives are made of, whoever they are for.
  tar: [],
  isolation: ['contract', 'policy', 'workspace', 'isolation/handover'],
  'isolation/handover': ['contract'],
  // The system call filter, in the form of the engine and in that of the kernel.
  'isolation/seccomp': [],
  // What levels share whose sandboxes are processes of this host.
  'isolation/process': ['contract', 'workspace', 'isolation', 'isolation/handover'],
  'isolation/docker': [
    'contract',
    'workspace',
    'isolation',
    'isolation/handover',
    'isolation/seccomp',
    // A container’s first process is one of this host’s, where the engine is on it.
    'isolation/process/held.ts',
    'isolation/process/identity.ts',
    ENGINE,
    'lifecycle/labels.ts',
  ],
  'isolation/bubblewrap': [
    'contract',
    'workspace',
    'isolation',
    'isolation/handover',
    'isolation/seccomp',
    'isolation/process',
  ],
  'isolation/ulimit': ['contract', 'workspace', 'isolation', 'isolation/handover', 'isolation/process'],
  'isolation/none': ['contract', 'workspace', 'isolation', 'isolation/handover', 'isolation/process'],
  [WEB]: ['contract', 'isolation/waiting.ts', 'policy/environment.ts', 'policy/profiles.ts', 'policy/risk.ts'],
  // The client of the engine knows the Engine API and nothing of sandboxes.
  [ENGINE]: [],
};

/** Ways to talk to a server. Only the engine client has one, so nothing else can reach an engine, or the outside. */
const WIRE = /^(?:node:)?(?:https?|http2|net|tls|dgram)$|^undici$/;

/**
 * The files besides that open a socket: a session’s own, to show that it lives and to offer its commands, the way to that of
 * another session, and one on the host’s loopback that only leads inside what comes there.
 */
const LISTENERS = new Set([
  'lifecycle/ownership.ts',
  'relay/elsewhere.ts',
  'relay/offer.ts',
  'relay/wire.ts',
  'forwarding/ports.ts',
]);

/** The room of the command line whose two ends talk over a socket of the user’s own. */
const SERVE = `${CLI}/serve/`;

/** The one file of the command line that listens for clients of the Model Context Protocol, on the loopback. */
const MCP_LISTENER = `${CLI}/mcp/listener.ts`;

const ONLY_DOCKER = 'only isolation/docker/ knows the engine client';
const ONLY_CLIENT = 'only the engine client talks to a server';

/** @typedef {{ file: string, line: number, specifier: string }} Import */

/**
 * @param {string} directory
 * @returns {string[]}
 */
function sources(directory) {
  return readdirSync(join(ROOT, directory), { recursive: true, encoding: 'utf8' })
    .map(name => `${directory}/${name.split(sep).join('/')}`)
    .filter(name => /\.[cm]?tsx?$/.test(name) && !name.endsWith('.test.ts'))
    .sort();
}

/**
 * Every module a file names: imports, re-exports, `import()` in code and in types, `require`.
 *
 * @param {string} file
 */
function importsOf(file) {
  const source = ts.createSourceFile(file, readFileSync(join(ROOT, file), 'utf8'), ts.ScriptTarget.Latest, true);
  /** @type {Import[]} */
  const imports = [];
  /** @param {ts.Node} node */
  const visit = node => {
    const name = moduleNamedBy(node);
    if (name && ts.isStringLiteralLike(name)) {
      const { line } = source.getLineAndCharacterOfPosition(name.getStart(source));
      imports.push({ file, line: line + 1, specifier: name.text });
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  return imports;
}

/**
 * @param {ts.Node} node
 * @returns {ts.Node | undefined}
 */
function moduleNamedBy(node) {
  if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return node.moduleSpecifier;
  if (ts.isImportTypeNode(node)) return ts.isLiteralTypeNode(node.argument) ? node.argument.literal : undefined;
  if (ts.isExternalModuleReference(node)) return node.expression;
  if (!ts.isCallExpression(node)) return undefined;
  const { expression } = node;
  const loads =
    expression.kind === ts.SyntaxKind.ImportKeyword || (ts.isIdentifier(expression) && expression.text === 'require');
  return loads ? node.arguments[0] : undefined;
}

/**
 * The innermost room that holds a file; `top` where it stands outside all of them.
 *
 * @param {string} file
 */
function roomOf(file) {
  const rooms = Object.keys(ROOMS).filter(room => file.startsWith(`${room}/`));
  return rooms.sort((one, other) => other.length - one.length)[0] ?? 'top';
}

/** @param {string} room */
function isLevel(room) {
  return room.startsWith('isolation/') && !SHARED.includes(room);
}

/**
 * A new level, or a new file at the top, is entered in the tables above before it is used.
 *
 * @param {string} file
 */
function isStray(file) {
  const own = relative(SANDBOX, file);
  const room = roomOf(own);
  return room === 'top' ? !TOP.includes(own) : room === 'isolation' && own.split('/').length > 2;
}

/**
 * The rule that an import of one file of the library by another breaks.
 *
 * @param {string} from
 * @param {string} to
 */
function ruleBetween(from, to) {
  const [here, there] = [roomOf(from), roomOf(to)];
  if (here === 'top') return ruleAtTop(from, there);
  if (there === 'top') return 'a room never imports the files at the top';
  if (here === there || (ROOMS[here] ?? []).some(allowed => allowed === there || allowed === to)) return null;
  if (here === 'contract') return 'contract/ imports nothing of ours';
  if (there === ENGINE) return ONLY_DOCKER;
  return `${here}/ may import ${ROOMS[here]?.join(', ') || 'nothing of ours'} only`;
}

/**
 * @param {string} from
 * @param {string} room
 */
function ruleAtTop(from, room) {
  if (room === ENGINE) return ONLY_DOCKER;
  if (from === WEB_ENTRY && room === WEB) return null;
  return isLevel(room) && from !== COMPOSITION_ROOT ? `only ${COMPOSITION_ROOT} knows the levels` : null;
}

/** @param {Import} at */
function ruleInSandbox({ file, specifier }) {
  const own = relative(SANDBOX, file);
  if (WIRE.test(specifier)) return own.startsWith(`${ENGINE}/`) || LISTENERS.has(own) ? null : ONLY_CLIENT;
  const inBrowsers = own === WEB_ENTRY || roomOf(own) === WEB;
  if (inBrowsers && specifier.startsWith('node:')) return 'what runs in browsers imports nothing of Node';
  if (!specifier.startsWith('.')) return isOurs(specifier) ? 'the library imports no package of ours' : null;
  const target = relative(join(ROOT, SANDBOX), resolve(ROOT, dirname(file), specifier))
    .split(sep)
    .join('/');
  return target.startsWith('..') ? 'the library imports nothing outside its own src/' : ruleBetween(own, target);
}

/** @param {Import} at */
function ruleInCli({ file, specifier }) {
  if (WIRE.test(specifier)) return mayListen(file, specifier) ? null : ONLY_CLIENT;
  if (!specifier.startsWith('.')) {
    const deep = isOurs(specifier) && specifier !== '@acode/sandbox';
    return deep ? 'the command line imports the public entry of @acode/sandbox only' : null;
  }
  const inside = resolve(ROOT, dirname(file), specifier).startsWith(join(ROOT, CLI) + sep);
  return inside ? null : 'the command line imports nothing outside its own src/';
}

/**
 * @param {string} file
 * @param {string} specifier
 */
function mayListen(file, specifier) {
  return (specifier === 'node:net' && file.startsWith(SERVE)) || (specifier === 'node:http' && file === MCP_LISTENER);
}

/** @param {string} specifier */
function isOurs(specifier) {
  return /^(?:acode|@acode\/[^/]+)(?:\/|$)/.test(specifier);
}

/**
 * @param {readonly string[]} files
 * @param {(at: Import) => string | null} ruleFor
 */
function violations(files, ruleFor) {
  return files.flatMap(importsOf).flatMap(at => {
    const rule = ruleFor(at);
    return rule === null ? [] : [`${at.file}:${at.line} imports ${at.specifier}: ${rule}`];
  });
}

const library = sources(SANDBOX);
const complaints = [
  ...library.filter(isStray).map(file => `${file}:1 stands in no room that scripts/check-imports.mjs knows`),
  ...violations(library, ruleInSandbox),
  ...violations(sources(CLI), ruleInCli),
];
for (const complaint of complaints) console.error(complaint);
if (complaints.length > 0) process.exitCode = 1;
else console.log('imports: every direction is as it should be');
