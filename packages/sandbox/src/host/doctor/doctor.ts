// The doctor: looks at engine, machine and workspace at the same time, each within a deadline, and never gives up on one.

import { performance } from 'node:perf_hooks';
import type { Directories } from '../../lifecycle/directories.ts';
import { AcodeError } from '../../contract/errors.ts';
import { ENGINE_LATE_REMEDY, engineLate, unavailableReason } from '../../contract/unavailable.ts';
import {
  directoriesCheck,
  diskCheck,
  environmentCheck,
  fail,
  kernelCheck,
  kernelHasAppArmor,
  socketCheck,
  userCheck,
  warn,
  workspaceChecks,
} from './checks/machine.ts';
import { engineChecks, noEngine } from './checks/engine.ts';
import type { Level } from '../../contract/levels.ts';
import type { Examined } from './checks/engine.ts';
import type { Check, DoctorReport } from './report.ts';

/** What the doctor is given. */
export interface Patient {
  readonly uid: number;
  readonly identity: string;
  readonly directories: Directories;
  readonly workspace: string;
  readonly image: string;
  /** The engine’s socket, where the user named it; null where acode searches for it. */
  readonly socket: string | null;
  /** What was found about the configuration. */
  readonly configuration: readonly Check[];
  /** The level that commands get without an engine, where the configuration chose one. */
  readonly local?: LocalLevel | null;
  /** Asks the engine; rejects where there is none. */
  diagnose(signal: AbortSignal): Promise<Examined>;
}

/** A level without an engine that the configuration chose. */
export interface LocalLevel {
  readonly level: Level;
  /** Whether it only stands in for an engine, where this host has none at all. */
  readonly standsIn: boolean;
  /** Tries whether it is available. */
  check(): Promise<Check>;
}

// Together they leave room for the start of a process within two seconds.
const ENGINE_MS = 1200;
const LOOK_MS = 1000;

/** Examines a host. Never rejects because of what it finds. */
export async function examine(patient: Patient): Promise<DoctorReport> {
  const began = performance.now();
  const diagnosis = withEngine(patient);
  const [engine, machine, workspace] = await Promise.all([
    engineSection(patient, diagnosis),
    machineSection(patient),
    workspaceSection(patient, diagnosis),
  ]);
  const checks = [...engine, ...machine, ...patient.configuration, ...workspace];
  return {
    checks,
    ok: checks.every(({ status }) => status !== 'fail'),
    durationMs: Math.round(performance.now() - began),
  };
}

/** An engine that could not be asked, and its socket where there was one to try. */
interface Unasked {
  readonly reason: string;
  readonly remedy: string;
  readonly socket: string | null;
  /** Whether there is no engine at all, rather than one that does not answer. */
  readonly absent?: boolean;
}

type Asked = Examined | Unasked;

async function withEngine(patient: Patient): Promise<Asked> {
  const slow: Unasked = {
    socket: null,
    reason: engineLate(patient.socket, ENGINE_MS),
    remedy: ENGINE_LATE_REMEDY,
  };
  const asked = patient.diagnose(AbortSignal.timeout(ENGINE_MS)).catch((error: unknown) => {
    if (error instanceof AcodeError)
      return {
        reason: unavailableReason(error),
        remedy: error.hint,
        socket: socketTried(error),
        absent: isAbsent(error),
      };
    // What a deadline of this process ends says only that there was one.
    if (error instanceof Error && ['AbortError', 'TimeoutError'].includes(error.name)) return slow;
    return { ...slow, reason: error instanceof Error ? error.message : String(error) };
  });
  return within(ENGINE_MS, asked, slow);
}

function isAbsent(error: Error): boolean {
  return error instanceof AcodeError && error.is('ACODE-SBX-008') && error.context.absent === true;
}

// Of several places the first is the one that an engine has unless told otherwise; another transport has no file to look at.
function socketTried(error: Error): string | null {
  const socket =
    error instanceof AcodeError && error.is('ACODE-SBX-008') ? error.context.socket.split(', ')[0] : undefined;
  return socket?.startsWith('/') ? socket : null;
}

async function engineSection(patient: Patient, asked: Promise<Asked>): Promise<Check[]> {
  const [diagnosis, appArmor] = await Promise.all([asked, within(LOOK_MS, kernelHasAppArmor(), null)]);
  const { uid, identity, image } = patient;
  const local = localLevel(patient, diagnosis);
  const level = local ? [await looked('level', 'Isolation level', local.check())] : [];
  if ('reason' in diagnosis) {
    const { reason, remedy, socket } = diagnosis;
    // Nobody has to mend the socket of an engine that no command needs.
    if (local) return [...level, noEngine(reason, remedy, local.level)];
    const seen = socket === null ? [] : [await looked('socket', 'Socket permissions', socketCheck(socket, uid))];
    return [noEngine(reason, remedy, null), ...seen];
  }
  return [
    ...level,
    ...engineChecks(diagnosis, { image, uid, identity, appArmor, now: Date.now() }),
    await looked('socket', 'Socket permissions', socketCheck(diagnosis.engine.socket, uid)),
    await looked('engine-disk', 'Engine’s disk', diskCheck('engine-disk', 'Engine’s disk', diagnosis.rootDirectory)),
  ];
}

function localLevel({ local = null }: Patient, asked: Asked): LocalLevel | null {
  if (local?.standsIn !== true) return local;
  return 'reason' in asked && asked.absent === true ? local : null;
}

async function machineSection({ uid, directories }: Patient): Promise<Check[]> {
  const slow = await Promise.all([
    looked('kernel', 'Kernel', kernelCheck()),
    looked('directories', 'acode’s directories', directoriesCheck(directories, uid)),
    looked('state-disk', 'State disk', diskCheck('state-disk', 'State disk', directories.state)),
  ]);
  return [userCheck(uid), ...slow, environmentCheck(process.env)];
}

async function workspaceSection(patient: Patient, asked: Promise<Asked>): Promise<Check[]> {
  const diagnosis = await asked;
  const socket = 'reason' in diagnosis ? '' : diagnosis.engine.socket;
  const { workspace: path, directories, uid } = patient;
  const slow = [
    fail(
      'workspace',
      'Workspace',
      `not checked: ${path} did not answer within ${LOOK_MS / 2000} s`,
      'This machine is busy, or the file system of the workspace hangs. Run `acode doctor` again.',
    ),
  ];
  return within(LOOK_MS / 2, workspaceChecks({ path, directories, socket, uid }), slow);
}

const BUSY = 'This machine is busy, or a file system hangs. Run `acode doctor` again.';

function looked(id: string, title: string, work: Promise<Check>): Promise<Check> {
  return within(LOOK_MS, work, warn(id, title, `not checked: no answer within ${LOOK_MS / 1000} s`, BUSY));
}

async function within<Value, Otherwise>(
  ms: number,
  work: Promise<Value>,
  otherwise: Otherwise,
): Promise<Value | Otherwise> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<Otherwise>(resolve => (timer = setTimeout(resolve, ms, otherwise)));
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
