// Messages between a worker and the process that runs the tasks of one tenant.

import type { ConfigInput, ErrorJson, PolicyInput, RunResult } from '@acode/sandbox';
import type { ExecAnswer, ExecCall } from '../exec/protocol.ts';

/** What the process is started with. */
export interface HostSetup {
  readonly workspace: string;
  readonly config: ConfigInput;
  readonly socket: string | null;
  readonly slots: number;
  readonly warm: number;
}

/** One task, as what runs it is told of it. */
export interface HostTask {
  /** Its number in this process. */
  readonly number: number;
  /** The tenant. */
  readonly tenant: string;
  /** Its id. */
  readonly id: string;
  /** Its command. */
  readonly command: string | readonly string[];
  /** Its policy, within what the worker’s file allows. */
  readonly policy: PolicyInput;
  /** Working directory, relative to the workspace. */
  readonly cwd?: string | undefined;
  /** Environment of the command. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** What it reads from standard input. */
  readonly stdin?: string | undefined;
  /** How dangerous its submitter believes it to be. */
  readonly risk?: 'low' | 'medium' | 'high' | 'critical' | undefined;
  /** An archive of the workspace, compressed; its hash was verified. */
  readonly workspace: Uint8Array | null;
  /** Whether the files that the command left are wanted. */
  readonly files: boolean;
}

/** One persistent sandbox, as what keeps it is told of it. */
export interface HostSandbox extends Pick<
  HostTask,
  'number' | 'tenant' | 'id' | 'policy' | 'env' | 'risk' | 'workspace'
> {
  /** How long it may exist, in milliseconds: the worker ends it before. */
  readonly expiresInMs: number;
}

/** From the worker to the process. */
export type ToHost =
  | { readonly is: 'open'; readonly setup: HostSetup }
  | { readonly is: 'run'; readonly task: HostTask }
  | { readonly is: 'keep'; readonly sandbox: HostSandbox }
  /** A call to the sandbox with this number; the answer has the number of the call. */
  | {
      readonly is: 'call';
      readonly number: number;
      readonly sandbox: number;
      readonly call: ExecCall;
      readonly bytes: Uint8Array;
    }
  | { readonly is: 'cancel'; readonly number: number }
  /** The worker’s lease holds for so long from now on. */
  | { readonly is: 'alive'; readonly ms: number };

/** What a tenant is told of its sandbox. */
export interface SandboxFacts {
  /** How strongly it is isolated. */
  readonly level: string;
  /** The image as it was asked for. */
  readonly image: string;
}

/** What came of a run. */
export interface HostOutcome {
  /** The result of the command; absent where it never started, or was stopped. */
  readonly result?: RunResult;
  /** Why it never started; of a sandbox, also why it ended. */
  readonly error?: ErrorJson;
  /** The files that it left, where they are wanted: an archive, compressed. */
  readonly files?: Uint8Array;
}

/** From the process to the worker. */
export type FromHost =
  | { readonly is: 'opened' }
  | { readonly is: 'failed'; readonly error: ErrorJson }
  | { readonly is: 'output'; readonly number: number; readonly stream: 1 | 2; readonly bytes: Uint8Array }
  | { readonly is: 'ended'; readonly number: number; readonly outcome: HostOutcome }
  /** The sandbox with this number takes calls. */
  | { readonly is: 'kept'; readonly number: number; readonly facts: SandboxFacts }
  | { readonly is: 'answered'; readonly number: number; readonly answer: ExecAnswer };
