// What `acode login` and `acode logout` do and show. Loaded by these commands only.

import { createInterface } from 'node:readline';
import type { LoginAttempt, LoginDefinition, LoginInfo, LogoutReport } from '@acode/sandbox';
import type { Call } from '../call.ts';
import { configurationOf } from './config-actions.ts';
import { UsageError } from '../failure/usage.ts';
import type { Look } from '../terminal/look.ts';
import { table } from '../terminal/table.ts';
import { oneLine } from '../terminal/text.ts';
import { fitted } from '../terminal/wrap.ts';

const NOTHING_REMOVED = 1;

/** Logs in, or lists the logins without a name. Returns the exit status. */
export async function logIn(call: Call, name: string | undefined): Promise<number> {
  if (name === undefined) {
    const items = await call.withHost(({ logins }) => logins.list());
    await call.print('acode.logins/1', { items }, look => renderLogins(items, look));
    return 0;
  }
  const info = await call.withHost(async ({ logins }) => {
    const { signal } = call.interruption;
    await using attempt = await logins.begin(name, { signal, ...(await serverOf(call, name)) });
    return finished(call, attempt);
  });
  await call.print('acode.login/1', info, look => renderLogin(info, look));
  return 0;
}

// An agent’s preset may have the server, for a name that the user’s configuration has not.
async function serverOf(call: Call, name: string): Promise<{ readonly server?: LoginDefinition }> {
  const { isNear, knownAgents, loginServerOf } = await import('@acode/agents');
  const all = (await knownAgents(call.io.env)).map(({ preset }) => preset);
  const found = all.find(preset => preset.name === name);
  const server = found ? loginServerOf(found) : null;
  if (server) return { server };
  const meant = found ? undefined : all.find(preset => isNear(preset.name, name) && loginServerOf(preset) !== null);
  if (meant && !(await isConfigured(call, name)))
    throw new UsageError(`There is no login ${oneLine(name)}.`, `Did you mean \`acode login ${meant.name}\`?`);
  return {};
}

async function isConfigured(call: Call, name: string): Promise<boolean> {
  const values = await (await configurationOf(call)).get();
  return values.some(
    ({ key, value }) =>
      key === 'sandbox.network.logins' && typeof value === 'object' && value !== null && name in value,
  );
}

// By the browser, or by what the user pastes, whichever comes first.
async function finished(call: Call, attempt: LoginAttempt): Promise<LoginInfo> {
  const { url, waitsAt } = attempt;
  const canPaste = call.io.stdin.isTTY === true || waitsAt === null;
  const then =
    waitsAt === null
      ? 'The page shows a code. Paste it here:'
      : canPaste
        ? `acode waits for the browser. If it runs on another machine, paste the address that it was sent to (${waitsAt}?…):`
        : `acode waits for the browser at ${waitsAt}.`;
  // The address alone on its line, whole: it is to be opened, and terminals know such lines.
  await call.say(`Open this page in a browser, and log in:\n\n${url}\n\n${fitted(`${then}\n`, call.errorLook)}`);
  if (!canPaste) return attempt.done;
  const input = createInterface({ input: call.io.stdin });
  try {
    const pasted = new Promise<LoginInfo>((resolve, reject) => {
      input.on('line', line => {
        if (line.trim() !== '') attempt.enter(line).then(resolve, reject);
      });
      input.once('close', () => {
        // Somebody who cannot paste may still have a browser here.
        if (waitsAt === null)
          reject(new UsageError('The code did not come.', 'Type the command at a terminal, or pipe the code to it.'));
      });
    });
    return await Promise.race([attempt.done, pasted, interrupted(call)]);
  } finally {
    input.close();
  }
}

function interrupted(call: Call): Promise<never> {
  const { signal } = call.interruption;
  return new Promise((_resolve, reject) => {
    const leave = (): void => reject(signal.reason);
    if (signal.aborted) leave();
    signal.addEventListener('abort', leave, { once: true });
  });
}

function renderLogin({ name, server }: LoginInfo, look: Look): string {
  const { green, bold } = look.colours;
  const how = `acode keeps the tokens of ${server} and refreshes them. Lend the login to hosts with \`from: { login: ${name} }\` in sandbox.network.credentials.`;
  return `${green(bold(`Logged in: ${oneLine(name)}`))}\n${fitted(`${how}\n`, look)}`;
}

function renderLogins(items: readonly LoginInfo[], look: Look): string {
  if (items.length === 0) return fitted('There are no logins. `acode login <name>` makes one.\n', look);
  const rows = items.map(({ name, server, state, reason, expiresAt }) => [
    oneLine(name),
    oneLine(server),
    reason === undefined ? state : `${state} (${oneLine(reason)})`,
    expiresAt ?? 'not known',
  ]);
  return table(['NAME', 'SERVER', 'STATE', 'TOKEN EXPIRES'], rows, look);
}

/** Logs out, and returns the exit status. */
export async function logOut(call: Call, name: string): Promise<number> {
  const server = await serverOf(call, name);
  const report = await call.withHost(({ logins }) => logins.end(name, { signal: call.interruption.signal, ...server }));
  await call.print('acode.logout/1', report, look => fitted(`${logoutText(report)}\n`, look));
  return report.removed ? 0 : NOTHING_REMOVED;
}

function logoutText({ name, removed, revoked }: LogoutReport): string {
  if (!removed) return `There is no login ${oneLine(name)}. \`acode login\` lists those that there are.`;
  if (revoked === true) return `Logged out: ${oneLine(name)}. Its server was told, and the tokens are removed.`;
  const why = revoked === null ? 'acode knows no address of its server to tell that' : 'Its server did not take that';
  return `Logged out: ${oneLine(name)}. The tokens are removed from this machine. ${why}: end the session on the server’s own page as well.`;
}
