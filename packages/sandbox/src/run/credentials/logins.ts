// Logins of acode’s own: tokens in a file that only the user can read, refreshed by one process at a time. docs/adr/0047 has the order
// in which that is done, and what of it a killed process can lose.

import { spawn } from 'node:child_process';
import { readFileSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import type { LoginDefinition } from '../../contract/credentials.ts';
import type { UpstreamProxy } from '../../contract/egress.ts';
import type { Clock } from '../../contract/ports.ts';
import type { GrantedTokens } from '../../egress/credentials/authorization.ts';
import { CREDENTIAL_MS, CredentialUnavailable, valueFault } from '../../egress/credentials/provider.ts';
import type { CredentialProvider, CredentialValue } from '../../egress/credentials/provider.ts';
import { ensurePrivateDirectory, readPrivateFile, writePrivateFile } from '../../lifecycle/directories.ts';
import { LockTimeoutError, isProvablyGone, parseHolder, thisHolder } from '../../lifecycle/lock.ts';
import type { Locks } from '../../lifecycle/lock.ts';
import { refresherProgram } from '../../lifecycle/reaper-program.ts';

/** What logins are kept with. */
export interface LoginsOptions {
  /** The user’s state directory. */
  readonly state: string;
  readonly uid: number;
  readonly clock: Clock;
  readonly locks: Locks;
}

/** How the server of a login is reached. */
export interface LoginWay {
  /** The certificate authorities that it may be signed by, as PEM. */
  readonly ca: string;
  /** The proxy of a company; absent for none. */
  readonly proxy?: UpstreamProxy | undefined;
}

const MAX_BYTES = 64 * 1024;
const token = z.string().refine(text => valueFault(text) === null);
const stored = z.object({
  schema: z.literal('acode.login-file/1'),
  name: z.string(),
  tokenUrl: z.string(),
  clientId: z.string(),
  tokenRequest: z.enum(['form', 'json']).optional(),
  /** Grows with each refresh. */
  generation: z.int().nonnegative(),
  access: token,
  refresh: token.nullable(),
  /** In milliseconds since the epoch, as the next. */
  obtainedAt: z.number(),
  /** Null where the server did not say. */
  expiresAt: z.number().nullable(),
  /** Why no token can be had any more. */
  ended: z.object({ at: z.number(), reason: z.string(), interrupted: z.boolean() }).optional(),
});

/** A login as its file has it. */
export type StoredLogin = z.output<typeof stored>;

// A refresh takes a second or two; a server may take several, and is asked three times.
const REFRESHER_MS = 15_000;
const MARGIN_MS = 60_000;
const MARGIN_PART = 0.1;
// While a server cannot be reached, what is still valid is used, and it is asked again after this.
const AGAIN_MS = 10_000;
const LOOK_MS = 20;
// While another process refreshes it, what that one wrote is looked for this often.
const LOOK_AGAIN_MS = 200;
// A value that a server refused a moment after it was given is no reason to ask for another: a sandbox could go on with that.
const MIN_AGE_MS = 10_000;
const STALE_DRAFT_MS = 60 * 60 * 1000;
const REFRESHER_BUSY = 3;
const HEAD_BYTES = 512;

/** The logins of one user. */
export class Logins {
  readonly #options: LoginsOptions;
  readonly #directory: string;

  constructor(options: LoginsOptions) {
    this.#options = options;
    this.#directory = join(options.state, 'logins');
  }

  /** The names of the logins that there are. */
  names(): string[] {
    try {
      return readdirSync(this.#directory).flatMap(file => /^([a-z0-9][a-z0-9_.-]*)\.json$/.exec(file)?.[1] ?? []);
    } catch {
      return [];
    }
  }

  /** A login; null where there is none that only this user can have written. */
  read(name: string): StoredLogin | null {
    const found = readPrivateFile(this.#file(name), { maxBytes: MAX_BYTES, uid: this.#options.uid });
    if (!found) return null;
    try {
      return stored.parse(JSON.parse(found.text));
    } catch {
      return null;
    }
  }

  /** Keeps a new login in place of the one that there is. It is on the disk when this resolves. */
  async keep(name: string, definition: LoginDefinition, tokens: GrantedTokens, signal: AbortSignal): Promise<void> {
    await ensurePrivateDirectory(this.#directory, this.#options.uid);
    await this.#aloneAtLast(name, signal, async () => {
      const now = this.#options.clock.now();
      const { tokenUrl, clientId, tokenRequest } = definition;
      const login: StoredLogin = {
        schema: 'acode.login-file/1',
        name,
        tokenUrl,
        clientId,
        ...(tokenRequest ? { tokenRequest } : {}),
        // What a refresher of the login before might still write is of another generation.
        generation: (this.read(name)?.generation ?? 0) + 2,
        access: tokens.access,
        refresh: tokens.refresh,
        obtainedAt: now,
        expiresAt: tokens.expiresInSeconds === null ? null : now + tokens.expiresInSeconds * 1000,
      };
      writePrivateFile(this.#file(name), `${JSON.stringify(login, null, 2)}\n`, { durable: 'name' });
    });
  }

  /** Removes a login from this host. */
  async remove(name: string, signal: AbortSignal): Promise<void> {
    await this.#aloneAtLast(name, signal, async () => {
      for (const path of [this.#file(name), `${this.#file(name)}.left`]) rmSync(path, { force: true });
    });
  }

  /** Where the proxy gets the access token of a login. */
  provider(name: string, definition: LoginDefinition, way: () => Promise<LoginWay>): CredentialProvider {
    // Before a sandbox could change it.
    const program = refresherProgram();
    program.catch(() => undefined);
    return {
      current: async ({ signal, refused }) => {
        const text = await program;
        for (;;) {
          const known = this.#usable(name, definition, refused);
          if (known) return known;
          const renewed = await this.#alone({ name, signal, waitMs: LOOK_AGAIN_MS }, async () => {
            // Another process may have refreshed it meanwhile.
            const found = this.#usable(name, definition, refused);
            if (found) return found;
            const failure = await this.#refresh(name, { program: text, ...(await way()) }, signal);
            return this.#usable(name, definition, refused) ?? this.#stillValid(name, refused, failure);
          });
          if (renewed) return renewed;
        }
      },
    };
  }

  #file(name: string): string {
    return join(this.#directory, `${name}.json`);
  }

  // One process of this user at a time, on this machine. Null where another one had it all the time.
  async #alone<Value>(
    { name, signal, waitMs }: { readonly name: string; readonly signal: AbortSignal; readonly waitMs: number },
    work: () => Promise<Value>,
  ): Promise<Value | null> {
    try {
      return await this.#options.locks.during(`login ${this.#file(name)}`, { deadlineMs: waitMs, signal }, work);
    } catch (error) {
      if (signal.aborted) throw busy(name);
      if (error instanceof LockTimeoutError) return null;
      throw error;
    }
  }

  // For what has to be done.
  async #aloneAtLast(name: string, signal: AbortSignal, work: () => Promise<void>): Promise<void> {
    const done = await this.#alone({ name, signal, waitMs: CREDENTIAL_MS }, async () => {
      await this.#unattended(name, signal);
      await work();
      return true;
    });
    if (!done) throw busy(name);
  }

  // The access token, unless it is about to expire or a server has refused it. Throws where there is no login to refresh.
  #usable(name: string, definition: LoginDefinition, refused: string | undefined): CredentialValue | null {
    const login = this.read(name);
    const again = `Type \`acode login ${name}\`.`;
    if (!login) throw new CredentialUnavailable(`there is no login ${name}`, again);
    // A refresh token is for the server that gave it, whatever a file says by now.
    if (login.tokenUrl !== definition.tokenUrl || login.clientId !== definition.clientId)
      throw unavailable(name, 'was made at another server than your configuration has', again);
    if (login.ended) throw unavailable(name, endedText(login.ended), again);
    const now = this.#options.clock.now();
    const age = now - login.obtainedAt;
    if (login.access === refused && (age < 0 || age > MIN_AGE_MS)) return null;
    if (login.expiresAt === null) return { value: login.access };
    const margin = Math.min(MARGIN_MS, (login.expiresAt - login.obtainedAt) * MARGIN_PART);
    const validMs = login.expiresAt - margin - now;
    return validMs > 0 ? { value: login.access, validMs } : null;
  }

  #stillValid(name: string, refused: string | undefined, failure: string | null): CredentialValue {
    const login = this.read(name);
    const remaining = (login?.expiresAt ?? 0) - this.#options.clock.now();
    if (login && login.access !== refused && remaining > 0)
      return { value: login.access, validMs: Math.min(remaining, AGAIN_MS) };
    if (login?.refresh === null)
      throw unavailable(name, 'has expired, and its server gave no refresh token', `Type \`acode login ${name}\`.`);
    throw unavailable(name, `cannot be refreshed: ${failure ?? 'nothing came of it'}`, 'Try again.');
  }

  /** Has the login refreshed by a process of its own. Why that failed; null where it did not. Nobody else starts one meanwhile. */
  async #refresh(
    name: string,
    way: LoginWay & { readonly program: string },
    signal: AbortSignal,
  ): Promise<string | null> {
    const before = this.read(name)?.generation;
    for (;;) {
      signal.throwIfAborted();
      const interrupted = await this.#unattended(name, signal);
      const login = this.read(name);
      // Or one that a dead process had started has done it meanwhile.
      if (!login || login.refresh === null || login.ended || login.generation !== before) return null;
      const { boot, namespace, machine } = thisHolder();
      const task = {
        file: this.#file(name),
        generation: login.generation,
        interrupted,
        holder: `PID.START.${boot}.${namespace}.${machine}`,
        ca: way.ca,
        proxy: way.proxy ?? null,
        deadlineMs: REFRESHER_MS,
      };
      const { code, reason } = await runRefresher(way.program, JSON.stringify(task), this.#options.clock, signal);
      // One that a dead process had started was quicker to begin.
      if (code === REFRESHER_BUSY) continue;
      return code === 0 ? null : reason;
    }
  }

  /**
   * Waits for a refresher that an earlier process had started, which may have died since. What that one read of an answer is put aside
   * for the next. Whether one died before it had read an answer: the server may have replaced the refresh token.
   */
  async #unattended(name: string, signal: AbortSignal): Promise<boolean> {
    const next = `${this.#file(name)}.next`;
    const { clock } = this.#options;
    this.#sweep(name);
    for (const deadline = clock.monotonic() + REFRESHER_MS; ;) {
      signal.throwIfAborted();
      const found = readAnswer(next);
      if (found === null) return false;
      if (found.holder !== null && isProvablyGone(found.holder, thisHolder())) {
        const left = readAnswer(`${next.replace(/\.next$/, '')}.left`);
        if (left?.isWhole !== true) renameSync(next, next.replace(/\.next$/, '.left'));
        else rmSync(next, { force: true });
        return !found.isWhole;
      }
      if (clock.monotonic() > deadline)
        throw unavailable(name, `is being refreshed by a process that does not end (${next})`, 'End it, or try again.');
      await new Promise<void>(resolve => void clock.after(LOOK_MS, resolve));
    }
  }

  // Drafts of processes that were killed while they wrote one.
  #sweep(name: string): void {
    const draft = new RegExp(String.raw`^${name.replaceAll('.', String.raw`\.`)}\.json(?:\.next)?\.[0-9a-f]{16}$`);
    try {
      for (const file of readdirSync(this.#directory)) {
        const path = join(this.#directory, file);
        if (draft.test(file) && this.#options.clock.now() - statSync(path).mtimeMs > STALE_DRAFT_MS)
          rmSync(path, { force: true });
      }
    } catch {
      // Another process sweeps as well.
    }
  }
}

function unavailable(name: string, why: string, remedy: string): CredentialUnavailable {
  return new CredentialUnavailable(`the login ${name} ${why}`, remedy);
}

function busy(name: string): CredentialUnavailable {
  return unavailable(name, 'was not refreshed in time', 'Try again.');
}

function endedText({ reason, interrupted }: NonNullable<StoredLogin['ended']>): string {
  const how = interrupted ? ', after a refresh that was interrupted before its answer had been read' : '';
  return `has ended: its server refused the refresh token (${reason})${how}`;
}

const head = z.object({ holder: z.string(), generation: z.int() });

// Whose file of an answer it is, and whether the answer is whole; null where there is no such file.
function readAnswer(
  path: string,
): { readonly holder: ReturnType<typeof parseHolder>; readonly isWhole: boolean } | null {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch {
    return null;
  }
  const found = head.safeParse(json(text.slice(0, HEAD_BYTES)));
  const holder = found.success ? parseHolder(found.data.holder) : null;
  return { holder, isWhole: json(text.slice(HEAD_BYTES)) !== null };
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * Runs a refresher, which goes on if this process ends: neither its terminal nor its group is this one’s. Tokens are in its file and in
 * nothing that it is started with.
 */
function runRefresher(
  program: string,
  task: string,
  clock: Clock,
  signal: AbortSignal,
): Promise<{ readonly code: number | null; readonly reason: string }> {
  return new Promise(resolve => {
    const child = spawn(process.execPath, ['--input-type=module', '-e', program, 'acode-refresher'], {
      detached: true,
      cwd: '/',
      env: { PATH: '/usr/bin:/bin', ELECTRON_RUN_AS_NODE: '1' },
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    let said = '';
    const settle = (code: number | null, reason: string): void => {
      cancel();
      signal.removeEventListener('abort', leave);
      child.stdout.destroy();
      child.unref();
      resolve({ code, reason });
    };
    // It is left alone: what it has asked for must be written.
    const leave = (): void => settle(null, 'it was cancelled');
    const cancel = clock.after(REFRESHER_MS + 1000, () => settle(null, 'its process did not end in time'));
    signal.addEventListener('abort', leave, { once: true });
    child.once('error', () => settle(null, 'its process could not be started'));
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => (said = (said + chunk).slice(0, 1000)));
    child.stdin.on('error', () => undefined);
    child.once('close', code => settle(code, reasonIn(said)));
    child.stdin.end(task);
    if (signal.aborted) leave();
  });
}

function reasonIn(said: string): string {
  const found = z.object({ reason: z.string() }).safeParse(json(said));
  return found.success ? found.data.reason : 'its process ended before it had an answer';
}
