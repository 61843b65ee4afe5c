// Checks the directions in which modules may import each other, and that no imports form a circle.
// @ts-check

import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript-6';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SANDBOX = 'packages/sandbox/src';
const AGENTS = 'packages/agents/src';
const SWARM = 'packages/swarm/src';
const FLEET = 'packages/fleet/src';
const CLI = 'packages/cli/src';
const ENGINE = 'isolation/docker/engine';

/** The level that needs no host: it runs in browsers, so that nothing of Node’s may be in it. */
const WEB = 'isolation/web';

/** The one file that may name a level: every other file knows the Backend interface only. */
const COMPOSITION_ROOT = 'host/compose.ts';

/** What several levels are made of. */
const SHARED = ['isolation/handover', 'isolation/process', 'isolation/seccomp'];

/**
 * What each room may import besides itself. A level is a room of its own, so that no level can lean on another; a directory
 * that is not named here is a part of the room around it. The table holds no circle, and neither do the files: types and
 * `import()` count.
 *
 * @type {Readonly<Record<string, readonly string[]>>}
 */
const ROOMS = {
  contract: [],
  lifecycle: ['contract'],
  records: ['contract', 'lifecycle'],
  workspace: ['contract', 'lifecycle'],
  // The allow-list of a network: rules, decision, proxy, relay. It knows no sandbox and no engine.
  egress: ['contract', 'lifecycle'],
  policy: ['contract', 'lifecycle', 'workspace', 'egress'],
  'isolation/handover': ['contract'],
  // The system call filter, in the form of the engine and in that of the kernel.
  'isolation/seccomp': [],
  isolation: ['contract', 'lifecycle', 'policy', 'workspace', 'egress', 'isolation/handover'],
  // What levels share whose sandboxes are processes of this host.
  'isolation/process': ['contract', 'lifecycle', 'workspace', 'isolation', 'isolation/handover'],
  // The client of the engine knows the Engine API and nothing of sandboxes.
  [ENGINE]: [],
  'isolation/docker': ['contract', 'lifecycle', 'workspace', 'egress', 'isolation', ...SHARED, ENGINE],
  'isolation/bubblewrap': ['contract', 'lifecycle', 'workspace', 'egress', 'isolation', ...SHARED],
  'isolation/ulimit': ['contract', 'workspace', 'isolation', ...SHARED],
  'isolation/none': ['contract', 'workspace', 'isolation', ...SHARED],
  run: ['contract', 'lifecycle', 'records', 'workspace', 'policy', 'egress', 'isolation'],
  [WEB]: ['contract', 'lifecycle', 'workspace', 'policy', 'isolation', 'run'],
  images: ['contract', 'lifecycle', 'records', 'workspace', 'policy', 'isolation', 'run'],
  persistent: ['contract', 'lifecycle', 'records', 'workspace', 'policy', 'egress', 'isolation', 'run'],
  // It attacks and examines through what the host hands it.
  'host/doctor': ['contract', 'lifecycle', 'workspace', 'policy', 'egress', 'isolation', 'run'],
  host: [
    'contract',
    'lifecycle',
    'records',
    'workspace',
    'policy',
    'egress',
    'isolation',
    'run',
    'images',
    'persistent',
    'host/doctor',
    // Which process this one is.
    'isolation/process',
  ],
  // Another shape of what the host offers.
  e2b: ['contract', 'persistent', 'host'],
  // The public surface.
  'index.ts': ['contract', 'lifecycle', 'policy', 'egress', 'run', 'persistent', 'host/doctor', 'host'],
};

/** Ways to talk to a server. Only the engine client and the egress proxy have one: nothing else reaches an engine or the outside. */
const WIRE = /^(?:node:)?(?:https?|http2|net|tls|dgram)$|^undici$/;

/**
 * The files besides that open a socket: a session’s own, to show that it lives and to offer its commands, the way to that of
 * another session, and one on the host’s loopback that only leads inside what comes there.
 */
const LISTENERS = new Set([
  'lifecycle/ownership.ts',
  'persistent/relay/elsewhere.ts',
  'persistent/relay/network.ts',
  'persistent/relay/offer.ts',
  'persistent/relay/wire.ts',
  'persistent/ports.ts',
]);

/** The room of the proxy that decides which connections of a sandbox leave this host, and makes those. */
const EGRESS = 'egress/';

/** The room of the command line whose two ends talk over a socket of the user’s own. */
const SERVE = `${CLI}/serve/`;

/** The files of the command line that listen on the loopback: for clients of the Model Context Protocol, and as a model for an agent. */
const HTTP_LISTENERS = [`${CLI}/mcp/listener.ts`, `${CLI}/hooks/scripted-model.ts`];

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
 * The innermost room that holds a file; null where it stands in none.
 *
 * @param {string} file
 */
function roomOf(file) {
  const rooms = Object.keys(ROOMS).filter(room => file === room || file.startsWith(`${room}/`));
  return rooms.sort((one, other) => other.length - one.length)[0] ?? null;
}

/** @param {string | null} room */
function isLevel(room) {
  return room !== null && room.startsWith('isolation/') && ![...SHARED, ENGINE, WEB].includes(room);
}

/**
 * A new level is entered in the table above before it is used. What isolation/ has besides is a part of it.
 *
 * @param {string} file
 */
function isStray(file) {
  const own = relative(SANDBOX, file);
  const room = roomOf(own);
  return room === null || (room === 'isolation' && own.split('/').length > 2 && own.endsWith('/backend.ts'));
}

/**
 * The rule that an import of one file of the library by another breaks.
 *
 * @param {string} from
 * @param {string} to
 */
function ruleBetween(from, to) {
  const [here, there] = [roomOf(from), roomOf(to)];
  if (here === null || there === null || here === there) return null;
  const mayCompose = isLevel(there) && from === COMPOSITION_ROOT;
  return mayCompose || ROOMS[here]?.includes(there) ? null : ruleBroken(here, there);
}

/**
 * @param {string} here
 * @param {string} there
 */
function ruleBroken(here, there) {
  if (isLevel(there)) return `only ${COMPOSITION_ROOT} knows the levels`;
  if (here === 'contract') return 'contract/ imports nothing of ours';
  if (there === ENGINE) return ONLY_DOCKER;
  return `${here} may import ${ROOMS[here]?.join(', ') || 'nothing of ours'} only`;
}

/** @param {Import} at */
function ruleInSandbox({ file, specifier }) {
  const own = relative(SANDBOX, file);
  if (WIRE.test(specifier)) {
    const mayTalk = own.startsWith(`${ENGINE}/`) || own.startsWith(EGRESS) || LISTENERS.has(own);
    return mayTalk ? null : ONLY_CLIENT;
  }
  const inBrowsers = roomOf(own) === WEB;
  if (inBrowsers && specifier.startsWith('node:')) return 'what runs in browsers imports nothing of Node';
  if (!specifier.startsWith('.')) return isOurs(specifier) ? 'the library imports no package of ours' : null;
  const target = relative(join(ROOT, SANDBOX), resolve(ROOT, dirname(file), specifier))
    .split(sep)
    .join('/');
  return target.startsWith('..') ? 'the library imports nothing outside its own src/' : ruleBetween(own, target);
}

/**
 * What each room of the fleet may import besides itself. The engines know nothing of tasks, and none knows another.
 *
 * @type {Readonly<Record<string, readonly string[]>>}
 */
const FLEET_ROOMS = {
  'errors.ts': [],
  engine: ['errors.ts'],
  'engine/http': ['errors.ts', 'engine'],
  'engine/nats': ['errors.ts', 'engine'],
  'engine/postgres': ['errors.ts', 'engine'],
  // Tasks, no matter who submits or runs them.
  tasks: ['errors.ts', 'engine'],
  // From an address in a file to the engine.
  connect: ['errors.ts', 'engine', 'engine/http', 'engine/nats', 'engine/postgres'],
  // Calls to persistent sandboxes, no matter who makes or answers them.
  exec: ['errors.ts', 'engine', 'tasks'],
  worker: ['errors.ts', 'engine', 'connect', 'tasks', 'exec'],
  // Checks a task as a worker does, before it is queued.
  gate: ['errors.ts', 'engine', 'engine/http', 'engine/nats', 'connect', 'tasks', 'worker'],
  // Speaks the protocol of a gate.
  client: ['errors.ts', 'engine', 'connect', 'tasks', 'exec', 'gate'],
  // The HTTP server that programs of E2B talk to. It needs no engine of the fleet.
  e2b: ['errors.ts', 'engine'],
  // What `acode fleet …` starts; the library does not have it.
  command: [
    'errors.ts',
    'engine',
    'engine/http',
    'engine/nats',
    'engine/postgres',
    'connect',
    'tasks',
    'worker',
    'gate',
    'client',
    'e2b',
  ],
  'index.ts': ['errors.ts', 'engine', 'engine/nats', 'engine/postgres', 'connect', 'tasks', 'worker', 'gate', 'client'],
};

/** The packages that talk to a server, each in the one room that knows it. */
const FLEET_CLIENTS = /** @type {const} */ ([
  [/^@nats-io\//, 'engine/nats'],
  [/^pg$/, 'engine/postgres'],
]);

/**
 * What rooms of the fleet listen with: for figures, for programs of E2B, and to find a free port.
 *
 * @type {Readonly<Record<string, RegExp>>}
 */
const FLEET_WIRE = {
  engine: /^node:net$/,
  'engine/http': /^node:(?:http|https|net)$/,
  connect: /^node:http$/,
  e2b: /^node:(?:http|https|net)$/,
  command: /^node:net$/,
};

/** @param {string} file */
function fleetRoomOf(file) {
  const rooms = Object.keys(FLEET_ROOMS).filter(room => file === room || file.startsWith(`${room}/`));
  return rooms.sort((one, other) => other.length - one.length)[0] ?? null;
}

/** @param {Import} at */
function ruleInFleet({ file, specifier }) {
  const here = fleetRoomOf(relative(FLEET, file));
  if (here === null) return 'stands in no room that scripts/check-imports.mjs knows';
  if (!specifier.startsWith('.')) return packageInFleet(here, specifier);
  const target = relative(join(ROOT, FLEET), resolve(ROOT, dirname(file), specifier))
    .split(sep)
    .join('/');
  const there = fleetRoomOf(target);
  if (there === null) return 'the fleet imports nothing outside its own src/';
  const allowed = FLEET_ROOMS[here] ?? [];
  return here === there || allowed.includes(there) ? null : `${here} may import ${allowed.join(', ')} only`;
}

/**
 * @param {string} here
 * @param {string} specifier
 */
function packageInFleet(here, specifier) {
  if (FLEET_WIRE[here]?.test(specifier)) return null;
  if (WIRE.test(specifier)) return 'the fleet reaches servers through the clients of its engines only';
  const client = FLEET_CLIENTS.find(([name]) => name.test(specifier));
  if (client) return client[1] === here ? null : `only ${client[1]} knows ${specifier}`;
  const deep = isOurs(specifier) && specifier !== '@acode/sandbox';
  return deep ? 'the fleet imports the public entry of @acode/sandbox only' : null;
}

/** @param {Import} at */
function ruleInAgents({ file, specifier }) {
  if (WIRE.test(specifier)) return ONLY_CLIENT;
  if (!specifier.startsWith('.')) {
    const deep = isOurs(specifier) && specifier !== '@acode/sandbox';
    return deep ? 'presets of agents import the public entry of @acode/sandbox only' : null;
  }
  const inside = resolve(ROOT, dirname(file), specifier).startsWith(join(ROOT, AGENTS) + sep);
  return inside ? null : 'presets of agents import nothing outside their own src/';
}

/** @param {Import} at */
function ruleInSwarm({ file, specifier }) {
  // What runs in a sandbox is bundled, and has nothing but Node.
  const isInside = file.startsWith(`${SWARM}/adapter/`);
  if (WIRE.test(specifier)) return file === `${SWARM}/control.ts` && specifier === 'node:net' ? null : ONLY_CLIENT;
  if (!specifier.startsWith('.')) {
    if (!isOurs(specifier)) return null;
    if (isInside) return 'the adapter imports no package of ours';
    const isPublic = ['@acode/sandbox', '@acode/agents'].includes(specifier);
    return isPublic ? null : 'a swarm imports the public entries of @acode/sandbox and @acode/agents only';
  }
  return resolve(ROOT, dirname(file), specifier).startsWith(join(ROOT, SWARM) + sep)
    ? null
    : 'a swarm imports nothing outside its own src/';
}

/** @param {Import} at */
function ruleInCli({ file, specifier }) {
  if (WIRE.test(specifier)) return mayListen(file, specifier) ? null : ONLY_CLIENT;
  if (!specifier.startsWith('.')) {
    const deep = isOurs(specifier) && !['@acode/sandbox', '@acode/agents', '@acode/swarm'].includes(specifier);
    return deep ? 'the command line imports the public entries of our packages only' : null;
  }
  const inside = resolve(ROOT, dirname(file), specifier).startsWith(join(ROOT, CLI) + sep);
  return inside ? null : 'the command line imports nothing outside its own src/';
}

/**
 * @param {string} file
 * @param {string} specifier
 */
function mayListen(file, specifier) {
  return (
    (specifier === 'node:net' && file.startsWith(SERVE)) || (specifier === 'node:http' && HTTP_LISTENERS.includes(file))
  );
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

/**
 * Every circle among nodes: each as the names on its way.
 *
 * @param {ReadonlyMap<string, readonly string[]>} graph
 */
function circles(graph) {
  /** @type {string[]} */
  const found = [];
  /** @type {Map<string, 'open' | 'done'>} */
  const state = new Map();
  /** @param {string} node @param {readonly string[]} way */
  const visit = (node, way) => {
    if (state.get(node) === 'open') found.push([...way.slice(way.indexOf(node)), node].join(' → '));
    if (state.has(node)) return;
    state.set(node, 'open');
    for (const next of graph.get(node) ?? []) visit(next, [...way, node]);
    state.set(node, 'done');
  };
  for (const node of graph.keys()) visit(node, []);
  return found;
}

/**
 * What each file imports of ours, types and `import()` included.
 *
 * @param {readonly string[]} files
 */
function graphOf(files) {
  const known = new Set(files);
  const targets = (/** @type {string} */ file) =>
    importsOf(file)
      .filter(({ specifier }) => specifier.startsWith('.'))
      .map(({ specifier }) =>
        relative(ROOT, resolve(ROOT, dirname(file), specifier))
          .split(sep)
          .join('/'),
      )
      .filter(target => known.has(target));
  return new Map(files.map(file => [file, targets(file)]));
}

const library = sources(SANDBOX);
const agents = sources(AGENTS);
const swarm = sources(SWARM);
const fleet = sources(FLEET);
const command = sources(CLI);
const complaints = [
  ...library.filter(isStray).map(file => `${file}:1 stands in no room that scripts/check-imports.mjs knows`),
  ...circles(new Map(Object.entries(ROOMS))).map(circle => `the table of rooms has a circle: ${circle}`),
  ...circles(new Map(Object.entries(FLEET_ROOMS))).map(circle => `the rooms of the fleet have a circle: ${circle}`),
  ...[library, agents, swarm, fleet, command]
    .flatMap(files => circles(graphOf(files)))
    .map(circle => `a circle of imports: ${circle}`),
  ...violations(library, ruleInSandbox),
  ...violations(agents, ruleInAgents),
  ...violations(swarm, ruleInSwarm),
  ...violations(fleet, ruleInFleet),
  ...violations(command, ruleInCli),
];
for (const complaint of complaints) console.error(complaint);
if (complaints.length > 0) process.exitCode = 1;
else console.log('imports: every direction is as it should be, and there is no circle');
