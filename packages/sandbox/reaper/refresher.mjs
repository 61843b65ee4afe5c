// Refreshes one login, as a process of its own: what asked for it may be killed at any moment, and a refresh token that a server has
// replaced must not be lost with it. Stands alone, like the reaper: its text was read before a sandbox could change a file.
//
// The order is its purpose. Before anything is sent there is a file that holds room for the answer and names this process: one
// refresher at a time, and no disk that is full when the answer comes. Each piece of the answer is in that file as soon as it was read;
// a process that finds the file of a dead refresher takes the tokens from it. Then the login’s own file is replaced, on the disk before it has
// its name. Nobody else ever uses the tokens: they are read from there.
// @ts-check

import { randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, linkSync, openSync, readFileSync, renameSync, rmSync, writeSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { dirname } from 'node:path';
import { connect } from 'node:tls';

/**
 * @typedef {{ file: string, generation: number, interrupted: boolean, holder: string, ca: string,
 *   proxy: { host: string, port: number } | null, deadlineMs: number }} Task
 *   `file` is the login’s own; `holder` is what stands for this process, with `PID` and `START` to be filled in.
 * @typedef {{ generation: number, access: string, refresh: string | null, tokenUrl: string, clientId: string, obtainedAt: number,
 *   tokenRequest?: 'form' | 'json', expiresAt: number | null, ended?: { at: number, reason: string, interrupted: boolean } }} Login
 * @typedef {{ access_token?: unknown, refresh_token?: unknown, expires_in?: unknown, error?: unknown }} Tokens
 * @typedef {{ is: 'tokens', tokens: Tokens } | { is: 'ended', reason: string } | { is: 'failed', reason: string, again: boolean }} Answer
 */

const DONE = 0;
const BUSY = 3;
const FAILED = 4;
const HEAD_BYTES = 512;
const ROOM = 64 * 1024;
const PRIVATE = 0o600;
const MAX_ATTEMPTS = 3;
const FIRST_PAUSE_MS = 400;
const CALL_MS = 8000;
/** How long a token may be, in characters. */
const MAX_TOKEN = 16_384;

const task = await readTask();
const next = `${task.file}.next`;
const left = `${task.file}.left`;
// The process that asked may be gone, or in a terminal where a key ends everything in it.
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGPIPE']) process.on(name, () => {});
process.stdout.on('error', () => {});
setTimeout(() => end(FAILED, 'the server did not answer in time'), task.deadlineMs);

/** @returns {Promise<Task>} */
async function readTask() {
  let text = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) text += chunk;
  return JSON.parse(text);
}

/**
 * Ends this process; nobody refreshes any more.
 *
 * @param {number} code
 * @param {string} [reason]
 * @returns {never}
 */
function end(code, reason) {
  if (code !== BUSY) rmSync(next, { force: true });
  // Not what a stream still holds when the process ends.
  if (reason !== undefined)
    try {
      writeSync(1, JSON.stringify({ reason }));
    } catch {
      // Nobody waits for it any more.
    }
  process.exit(code);
}

/** The file for the answer: complete from its first moment on, and nobody else’s. */
function takeNext() {
  const draft = `${next}.${randomBytes(8).toString('hex')}`;
  const holder = task.holder.replace('PID', String(process.pid)).replace('START', startOfThis());
  const head = JSON.stringify({ holder, generation: task.generation });
  const file = openSync(draft, 'wx', PRIVATE);
  try {
    writeSync(file, `${head.padEnd(HEAD_BYTES - 1)}\n${' '.repeat(ROOM)}`);
    fsyncSync(file);
    linkSync(draft, next);
    return file;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return null;
    throw error;
  } finally {
    rmSync(draft, { force: true });
  }
}

function startOfThis() {
  try {
    const text = readFileSync('/proc/self/stat', 'latin1');
    return text.slice(text.lastIndexOf(')') + 2).split(' ')[19] ?? '-';
  } catch {
    return '-';
  }
}

/** @returns {Login} */
function readLogin() {
  return JSON.parse(readFileSync(task.file, 'utf8'));
}

/** @param {Login} login */
function writeLogin(login) {
  const draft = `${task.file}.${randomBytes(8).toString('hex')}`;
  const file = openSync(draft, 'wx', PRIVATE);
  writeSync(file, `${JSON.stringify(login, null, 2)}\n`);
  fsyncSync(file);
  closeSync(file);
  renameSync(draft, task.file);
  const directory = openSync(dirname(task.file), 'r');
  fsyncSync(directory);
  closeSync(directory);
}

/**
 * What a refresher that died had read of its answer: all of it, or nothing that is of use.
 *
 * @param {Login} login
 * @returns {Tokens | null}
 */
function leftTokens(login) {
  try {
    const text = readFileSync(left, 'utf8');
    const { generation } = JSON.parse(text.slice(0, HEAD_BYTES));
    const tokens = JSON.parse(text.slice(HEAD_BYTES));
    return generation === login.generation && isToken(tokens.access_token) ? tokens : null;
  } catch {
    return null;
  }
}

/**
 * @param {unknown} value
 * @returns {value is string}
 */
function isToken(value) {
  return typeof value === 'string' && value.length <= MAX_TOKEN && /^[\x21-\x7e]{8,}$/.test(value);
}

/**
 * The login with new tokens. A server that does not replace its refresh token sends none.
 *
 * @param {Login} login
 * @param {Tokens} tokens
 * @returns {Login}
 */
function renewed(login, { access_token: access, refresh_token: refresh, expires_in: seconds }) {
  const now = Date.now();
  return {
    ...login,
    generation: login.generation + 1,
    access: isToken(access) ? access : login.access,
    refresh: isToken(refresh) ? refresh : login.refresh,
    obtainedAt: now,
    expiresAt: Number(seconds) > 0 ? now + Number(seconds) * 1000 : null,
  };
}

/**
 * Asks the server once. The answer is in the file, piece by piece, before it is understood.
 *
 * @param {Login} login
 * @param {number} file
 * @returns {Promise<Answer>}
 */
function ask({ refresh, tokenUrl, clientId, tokenRequest = 'form' }, file) {
  const fields = { grant_type: 'refresh_token', refresh_token: refresh ?? '', client_id: clientId };
  const isJson = tokenRequest === 'json';
  const body = isJson ? JSON.stringify(fields) : String(new URLSearchParams(fields));
  // Nothing of an answer that broke off.
  writeSync(file, ' '.repeat(ROOM), HEAD_BYTES);
  return new Promise(resolve => {
    /** @param {string} reason */
    const fail = reason => resolve({ is: 'failed', reason, again: true });
    const url = new URL(tokenUrl);
    const sent = httpsRequest(url, {
      method: 'POST',
      headers: {
        'Content-Type': isJson ? 'application/json' : 'application/x-www-form-urlencoded',
        'Content-Length': String(Buffer.byteLength(body)),
        Accept: 'application/json',
        'Accept-Encoding': 'identity',
      },
      agent: false,
      ca: [task.ca],
      ...(task.proxy ? { createConnection: tunnelled(url, task.proxy) } : {}),
      signal: AbortSignal.timeout(CALL_MS),
    });
    sent.on('error', error => fail(`the server cannot be reached (${'code' in error ? error.code : error.name})`));
    sent.on('response', response => {
      const status = response.statusCode ?? 0;
      let text = '';
      let at = HEAD_BYTES;
      response.on('data', chunk => {
        if (at - HEAD_BYTES + chunk.length > ROOM) response.destroy(new Error('the answer is too long'));
        else if (status === 200) writeSync(file, chunk, 0, chunk.length, at);
        at += chunk.length;
        text += chunk.toString('utf8');
      });
      response.on('error', () => fail('the server broke off its answer'));
      response.on('end', () => resolve(understood(status, text)));
    });
    sent.end(body);
  });
}

/**
 * @param {number} status
 * @param {string} text
 * @returns {Answer}
 */
function understood(status, text) {
  /** @type {Tokens} */
  let tokens = {};
  try {
    tokens = JSON.parse(text) ?? {};
  } catch {
    // A page for people, of a server or of a proxy on the way.
  }
  if (status === 200 && isToken(tokens.access_token)) return { is: 'tokens', tokens };
  const word = errorOf(tokens);
  if ([400, 401].includes(status) && (word === 'invalid_grant' || word.startsWith('refresh_token_')))
    return { is: 'ended', reason: word };
  const reason = `the server answered ${status}${word === '' ? '' : ` (${word})`}`;
  return { is: 'failed', reason, again: status === 429 || status >= 500 };
}

/**
 * The error of an answer, where it is a word. Some servers have an object where the standard has that.
 *
 * @param {Tokens} tokens
 */
function errorOf({ error }) {
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : error;
  return typeof code === 'string' && /^[\w.-]{1,60}$/.test(code) ? code : '';
}

/**
 * Connections through the proxy of a company.
 *
 * @param {URL} url
 * @param {{ host: string, port: number }} proxy
 */
function tunnelled({ hostname, port }, proxy) {
  const authority = `${hostname}:${port === '' ? 443 : port}`;
  /**
   * @param {unknown} _options
   * @param {(error: Error | null, stream?: import('node:tls').TLSSocket) => void} created
   * @returns {undefined}
   */
  return (_options, created) => {
    const asked = httpRequest({
      ...proxy,
      method: 'CONNECT',
      path: authority,
      headers: { Host: authority },
      agent: false,
    });
    asked.once('error', error => created(error));
    asked.once('response', response => created(new Error(`the upstream proxy answered ${response.statusCode ?? 0}`)));
    asked.once('connect', (response, socket) => {
      if (response.statusCode !== 200)
        return created(new Error(`the upstream proxy answered ${response.statusCode ?? 0}`));
      const stream = connect({ socket, servername: hostname, ca: [task.ca] }, () => created(null, stream));
      stream.once('error', error => created(error));
    });
    asked.end();
  };
}

const file = takeNext();
// Another one refreshes.
if (file === null) end(BUSY);
const login = readLogin();
if (login.generation !== task.generation || login.refresh === null || login.ended) end(DONE);
const found = leftTokens(login);
if (found) {
  writeLogin(renewed(login, found));
  rmSync(left, { force: true });
  end(DONE);
}
rmSync(left, { force: true });
let reason = 'the server cannot be reached';
for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt += 1) {
  const answer = await ask(login, file);
  if (answer.is === 'tokens') {
    writeLogin(renewed(login, answer.tokens));
    end(DONE);
  }
  if (answer.is === 'ended') {
    // An answer that never came may have held the token that counts now.
    const interrupted = task.interrupted || attempt > 1;
    writeLogin({ ...login, ended: { at: Date.now(), reason: answer.reason, interrupted } });
    end(DONE);
  }
  ({ reason } = answer);
  if (!answer.again) break;
  if (attempt < MAX_ATTEMPTS) await new Promise(resolve => setTimeout(resolve, FIRST_PAUSE_MS * 2 ** (attempt - 1)));
}
end(FAILED, reason);
