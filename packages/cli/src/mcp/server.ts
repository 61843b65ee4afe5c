// MCP server of one client: lists the tools, queues and runs their calls, and serves saved outputs.

import { AcodeError } from '@acode/sandbox';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import {
  ErrorCode,
  ListResourceTemplatesRequestSchema,
  ListResourcesRequestSchema,
  ListToolsRequestSchema,
  McpError,
} from '@modelcontextprotocol/sdk/types.js';
import type { CallToolResult, ReadResourceResult } from '@modelcontextprotocol/sdk/types.js';
import * as z from 'zod';
import { oneLine } from '../terminal/text.ts';
import { ownVersion } from '../version.ts';
import { failureOf, failureText } from './failure.ts';
import type { FailedCall } from './failure.ts';
import { OUTPUT_TEMPLATE } from './kept-outputs.ts';
import { INSIDE } from './paths.ts';
import type { WorkspacePaths } from './paths.ts';
import { Progress } from './progress.ts';
import type { Session } from './session.ts';
import { wrongArguments } from './tool.ts';
import type { Answer, Lane, Tool } from './tool.ts';
import { Turns } from './call-queue.ts';
import { readOutput, stopCommand, writeInput } from './tools/background.ts';
import { editFile } from './tools/edit-file.ts';
import { listDirectory, readFile, writeFile } from './tools/files.ts';
import { requestAccess } from './tools/request-access.ts';
import { runCommand, runInSandbox } from './tools/run-in-sandbox.ts';
import { closeSandbox, listSandboxes, openSandbox } from './tools/sandboxes.ts';
import { searchFiles } from './tools/search-files.ts';
import { status } from './tools/status.ts';
import { mcpError } from './errors.ts';

const MIB = 1024 ** 2;
const SHORT_SECONDS = 90;

/** The queues that all clients of a server share. */
export type Lanes = Readonly<Record<Lane, Turns>>;

/** Queues of their own for commands and for everything else: who wants to stop a command need not wait for it. */
export function newLanes(): Lanes {
  return {
    commands: new Turns({ running: 8, waiting: 64, weight: 32 * MIB }),
    short: new Turns({ running: 32, waiting: 128, weight: 32 * MIB }),
  };
}

const progressToken = z.union([z.string(), z.int()]);

const callSchema = z.object({
  name: z.string().max(256),
  // As it came: a copy would be without an argument called `__proto__`, which the tool then could not refuse.
  arguments: z.custom<Readonly<Record<string, unknown>>>(isObject, 'expected an object').optional(),
  _meta: z.looseObject({ progressToken: progressToken.optional() }).optional(),
});

const readSchema = z.object({ uri: z.string().max(1024) });

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** What is known of a request besides its content. */
interface Around {
  readonly signal: AbortSignal;
  readonly sendNotification: (notification: {
    method: 'notifications/progress';
    params: { progressToken: string | number; progress: number; message: string };
  }) => Promise<void>;
}

/** A server for one client’s session. */
export function serverFor(session: Session, lanes: Lanes): McpServer {
  const about = { name: 'acode', title: 'acode sandboxes', version: ownVersion() };
  const mcp = new McpServer(about, {
    instructions: instructionsFor(session.workspace, session.host.forkNote !== undefined),
  });
  const { server } = mcp;
  server.registerCapabilities({ tools: {}, resources: {} });
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: TOOLS.map(listed) }));
  server.setRequestHandler(ListResourcesRequestSchema, () => ({ resources: resourcesOf(session) }));
  server.setRequestHandler(ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [
      { uriTemplate: OUTPUT_TEMPLATE, name: 'output', title: 'Output of a command', mimeType: 'text/plain' },
    ],
  }));
  // Here and not as handlers with a schema of the library’s: its complaint about a wrong type would not say what to do.
  server.fallbackRequestHandler = async ({ method, params }, around) => {
    if (method === 'tools/call') return callTool({ session, lanes }, checked(callSchema, params, method), around);
    if (method === 'resources/read') return readResource(session, checked(readSchema, params, method).uri);
    throw new McpError(ErrorCode.MethodNotFound, `There is no method ${oneLine(method.slice(0, 100))}`);
  };
  return mcp;
}

// What holds for every tool is said here once, and not in each description.
function instructionsFor(workspace: WorkspacePaths, isForked: boolean): string {
  const whose = isForked
    ? 'changes go to a fork of it: later commands see them, the user’s own files stay as they are, and only the user applies them'
    : 'changes to it are the user’s own files';
  return [
    `acode runs commands in sandboxes on the user’s machine. The user’s workspace, ${workspace.shown}, is ${INSIDE} inside; it is the only directory of that machine in a sandbox, and ${whose}.`,
    `path and cwd arguments take either name, or a relative path; within a command, use ${INSIDE} or relative paths.`,
    'Use run_command for single commands. run_in_sandbox and the file tools share one persistent sandbox of this session (sandbox_id chooses another): use them for work that builds up, servers and background commands.',
    'timeout_seconds, memory_mb, cpus, level, network, read_only and risk can only make the user’s policy stricter; a looser value is ignored with a note, or refused.',
    `There is no network unless the policy gives one (status tells), and no root.${isForked ? '' : ' .git, .agent and settings of editors and agents are read-only.'}`,
    'A failed call says in hint what to do next, a denial in remedy; do not repeat a denied call unchanged. Only the user can loosen the policy; request_access asks them for a host.',
  ].join(' ');
}

/** A tool as clients are told of it. */
export function listed({ name, title, description, annotations, inputSchema, isAlwaysLoaded }: Tool) {
  const meta = isAlwaysLoaded ? { _meta: { 'anthropic/alwaysLoad': true } } : {};
  return { name, title, description, annotations: { ...annotations }, inputSchema: { ...inputSchema }, ...meta };
}

function resourcesOf(session: Session) {
  return session.outputs.list().map(({ uri, characters }) => ({
    uri,
    name: uri,
    title: `Output of a command, ${characters} characters`,
    mimeType: 'text/plain',
  }));
}

function readResource({ outputs }: Session, uri: string): ReadResourceResult {
  const text = outputs.find(uri);
  if (text === null) throw protocolError(mcpError('ACODE-MCP-012', { output: uri.slice(0, 100) }));
  return { contents: [{ uri, mimeType: 'text/plain', text }] };
}

async function callTool(
  { session, lanes }: { readonly session: Session; readonly lanes: Lanes },
  { name, arguments: given = {}, _meta: meta }: z.output<typeof callSchema>,
  around: Around,
): Promise<CallToolResult> {
  const tool = TOOLS.find(one => one.name === name);
  if (!tool) {
    const known = TOOLS.map(one => one.name).join(', ');
    throw protocolError(mcpError('ACODE-MCP-002', { tool: name.slice(0, 100), known }));
  }
  const signal = AbortSignal.any([around.signal, session.closing]);
  const progress = new Progress(notifierOf(meta?.progressToken, around));
  const work = (): Promise<Answer> =>
    tool.lane === 'short'
      ? inShort(tool, signal, inTime => tool.call(given, { session, signal: inTime, progress }))
      : tool.call(given, { session, signal, progress });
  try {
    // Before it waits for its turn: what waits is held in memory, and only what was checked is known to be small.
    tool.check(given);
    return succeeded(await lanes[tool.lane].during(weightOf(given), signal, work));
  } catch (error) {
    return failed(error, { tool: name, sandboxes: session.sandboxes.map(({ sandbox }) => sandbox.id) });
  }
}

function succeeded({ text, structured, outputs = [] }: Answer): CallToolResult {
  const links = outputs.map(uri => ({ type: 'resource_link' as const, uri, name: uri, mimeType: 'text/plain' }));
  return { content: [{ type: 'text', text }, ...links], structuredContent: filled(structured) };
}

/** An object without what is empty in it: for some clients it is all that the model reads. */
export function filled(object: object): Record<string, unknown> {
  const entries = Object.entries(object).map(([key, value]): [string, unknown] => [
    key,
    isObject(value) ? filled(value) : value,
  ]);
  return Object.fromEntries(entries.filter(([, value]) => !isEmpty(value)));
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === '') return true;
  if (Array.isArray(value)) return value.length === 0;
  return isObject(value) && Object.keys(value).length === 0;
}

function failed(error: unknown, call: FailedCall): CallToolResult {
  const failure = failureOf(error, call);
  return { isError: true, content: [{ type: 'text', text: failureText(failure) }], structuredContent: { ...failure } };
}

// Not every wait listens to a signal, such as writing to a command that does not read; a turn must come to its end all the same.
async function inShort<Value>(
  tool: Tool,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<Value>,
): Promise<Value> {
  const late = AbortSignal.timeout(SHORT_SECONDS * 1000);
  const inTime = AbortSignal.any([signal, late]);
  const end = new AbortController();
  const given = new Promise<never>((_, reject) => {
    const giveUp = (): void =>
      reject(
        late.aborted
          ? mcpError('ACODE-MCP-015', { tool: tool.name, seconds: SHORT_SECONDS })
          : new AcodeError('ACODE-SBX-014', {}),
      );
    if (inTime.aborted) giveUp();
    else inTime.addEventListener('abort', giveUp, { once: true, signal: end.signal });
  });
  try {
    return await Promise.race([work(inTime), given]);
  } finally {
    end.abort();
  }
}

function notifierOf(token: z.output<typeof progressToken> | undefined, { sendNotification }: Around) {
  if (token === undefined) return null;
  return (progress: number, message: string): void => {
    const params = { progressToken: token, progress, message };
    // A client that misses a progress report still gets the result, or has disconnected.
    sendNotification({ method: 'notifications/progress', params }).catch(() => undefined);
  };
}

function checked<Value>(schema: z.ZodType<Value>, params: unknown, method: string): Value {
  const parsed = schema.safeParse(params ?? {});
  if (parsed.success) return parsed.data;
  throw protocolError(wrongArguments(method, parsed.error.issues));
}

function protocolError(error: AcodeError): McpError {
  return new McpError(ErrorCode.InvalidParams, oneLine(`${error.message} ${error.hint}`), failureOf(error));
}

// By what was checked: text, and lists of text.
function weightOf(given: Readonly<Record<string, unknown>>): number {
  const weigh = (value: unknown): number =>
    typeof value === 'string' ? value.length : Array.isArray(value) ? 64 * value.length + sumOf(value.map(weigh)) : 0;
  return sumOf(Object.values(given).map(weigh));
}

function sumOf(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0);
}

/** The tools. */
export const TOOLS: readonly Tool[] = [
  runCommand,
  openSandbox,
  listSandboxes,
  runInSandbox,
  readOutput,
  writeInput,
  stopCommand,
  readFile,
  editFile,
  writeFile,
  listDirectory,
  searchFiles,
  closeSandbox,
  requestAccess,
  status,
];
