// What may run at level web at all: where the page is, how risky the command is, and what was asked for. Pure.

import * as z from 'zod';
import type { Command, RunRequest } from '../../contract/command.ts';
import { AcodeError } from '../../contract/errors.ts';
import { RISKS } from '../../contract/levels.ts';
import { policyInputSchema } from '../../contract/policy-schema.ts';
import { checkEnvironment } from '../../policy/environment.ts';
import { CEILINGS, PROFILES } from '../../policy/limits.ts';
import { assess } from '../../policy/risk.ts';
import type { Assessment } from '../../policy/risk.ts';
import { namesIn } from './sdk.ts';

/** What says whether this is a web environment. */
export interface WebEnvironment {
  /** `web` in a web environment. */
  readonly ACODE_ENV?: string | undefined;
  /** The old name of `ACODE_ENV`. */
  readonly DEVS_ENV?: string | undefined;
  /** `vscode.env.uiKind`; 2 is the web. */
  readonly uiKind?: number | undefined;
}

/** What was decided about a command: how risky it is, and what it is held to. */
export interface Admitted extends Assessment {
  readonly timeoutMs: number;
  readonly outputBytes: number;
}

const UI_KIND_WEB = 2;
const ON_A_HOST = 'Run it with Acode on a host that has an engine.';

// Nothing else is one, whatever a page could do.
function isWeb({ ACODE_ENV, DEVS_ENV, uiKind }: WebEnvironment): boolean {
  return ACODE_ENV === 'web' || DEVS_ENV === 'web' || uiKind === UI_KIND_WEB;
}

/** Throws where nothing may run at this level, whatever the command. */
export function admitPage(environment: WebEnvironment, network: unknown, mode: unknown): void {
  if (!isWeb(environment))
    throw new AcodeError('ACODE-SBX-012', {
      required: 'web',
      available: 'that of a host',
      remedy: 'This is no web environment (ACODE_ENV=web, or VS Code for the Web): use Acode of @acode/sandbox here.',
    });
  if (mode !== 'local-only')
    throw new AcodeError('ACODE-SBX-012', { required: 'air-gapped', available: 'web', remedy: ON_A_HOST });
  if (network !== 'open')
    throw new AcodeError('ACODE-SBX-005', {
      network: typeof network === 'string' ? network : 'none',
      rule: 'a WebContainer always has the network of its page',
      setBy: 'the level web',
      remedy: `Say network: 'open', if you accept that. ${ON_A_HOST}`,
    });
}

const callback = z.custom(value => typeof value === 'function', 'is not a function').optional();
const callSchema = z.strictObject({
  command: z.union([z.string().min(1), z.tuple([z.string().min(1)], z.string())]),
  policy: policyInputSchema.optional(),
  cwd: z.string().optional(),
  env: z.record(z.string(), z.string()).optional(),
  stdin: z.unknown().optional(),
  risk: z.enum(RISKS).optional(),
  sessionId: z.string().optional(),
  taskId: z.string().optional(),
  artifacts: z.array(z.unknown()).optional(),
  signal: z.instanceof(AbortSignal).optional(),
  onStdout: callback,
  onStderr: callback,
});

/** Throws at the first thing that this level cannot hold, so that nothing is ever ignored, and for more risk than it may take. */
export function admit(command: Command, request: RunRequest): Admitted {
  const issue = callSchema.safeParse({ command, ...request }).error?.issues[0];
  if (issue) throw invalid(issue.path.join('.') || 'request', issue.message);
  const [unheld] = unheldBy(request);
  if (unheld !== undefined)
    throw new AcodeError('ACODE-SBX-016', { what: `${unheld} at level web`, instead: `Leave it out. ${ON_A_HOST}` });
  const { env = {}, cwd = '.', policy: { timeoutMs, limits } = {} } = request;
  checkEnvironment(env);
  if (cwd !== '.') namesIn(cwd, 'cwd');
  return {
    timeoutMs: limited('policy.timeoutMs', timeoutMs, 'timeoutMs'),
    outputBytes: limited('policy.limits.outputBytes', limits?.outputBytes, 'outputBytes'),
    ...admitRisk(command, request),
  };
}

function limited(field: string, asked: number | undefined, name: 'timeoutMs' | 'outputBytes'): number {
  const value = asked ?? PROFILES.exec[name];
  if (value > CEILINGS[name]) throw invalid(field, `is more than ${CEILINGS[name]}, the most that is allowed here`);
  return value;
}

function admitRisk(command: Command, request: RunRequest): Assessment {
  const assessed = assess(command, request.risk, []);
  const { risk, reasons } = assessed;
  if (risk === 'low' || risk === 'medium') return assessed;
  const why = reasons.length === 0 ? `its caller said ${risk}` : reasons.join('; ');
  throw new AcodeError('ACODE-SBX-012', { required: 'docker', available: 'web', remedy: `${ON_A_HOST} (${why})` });
}

function unheldBy({ policy = {}, stdin, onStderr, artifacts = [] }: RunRequest): string[] {
  const { limits: { outputBytes: _output, ...limits } = {}, timeoutMs: _time, ...rest } = policy;
  // Nothing tells a command that its input has ended, and both of its streams come as one.
  const others = { stdin, onStderr, artifacts: artifacts[0] };
  const given = (fields: object, prefix = ''): string[] =>
    Object.entries(fields).flatMap(([name, value]) => (value === undefined ? [] : [prefix + name]));
  return [...given(limits, 'policy.limits.'), ...given(rest, 'policy.'), ...given(others)];
}

function invalid(field: string, reason: string): AcodeError {
  return new AcodeError('ACODE-SBX-017', { field, reason, remedy: `Correct ${field}.` });
}
