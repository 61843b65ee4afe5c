// Trust in the hook of Codex, as Codex itself reports it. The user gives it in `/hooks`; acode only asks.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { HookPrograms } from './settings.ts';
import { isFields } from './json-file.ts';
import type { Fields } from './json-file.ts';

/** What Codex says of acode’s hook. */
export type Trust = 'trusted' | 'untrusted' | 'modified' | 'disabled' | 'absent' | 'unknown';

/** Codex, and where it is asked. */
export interface AskingCodex {
  readonly program: string;
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
}

const ANSWER_MS = 15_000;

/** Asks Codex whether it runs the hook in a directory. */
export async function codexTrust({ program, env, cwd }: AskingCodex, programs: HookPrograms): Promise<Trust> {
  const child = spawn(program, ['app-server'], { env, cwd, stdio: ['pipe', 'pipe', 'ignore'], detached: true });
  const end = (): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    } catch {
      // Ended already.
    }
  };
  const late = setTimeout(end, ANSWER_MS);
  try {
    child.on('error', end);
    child.stdin.on('error', end);
    const requests = [
      { id: 1, method: 'initialize', params: { clientInfo: { name: 'acode', version: '1' } } },
      { method: 'initialized' },
      { id: 2, method: 'hooks/list', params: { cwds: [cwd] } },
    ];
    child.stdin.write(requests.map(request => `${JSON.stringify({ jsonrpc: '2.0', ...request })}\n`).join(''));
    for await (const line of createInterface({ input: child.stdout })) {
      const reply = fieldsOf(line);
      if (reply['id'] === 2) return trustIn(reply, programs);
    }
    return 'unknown';
  } finally {
    clearTimeout(late);
    end();
  }
}

function fieldsOf(line: string): Fields {
  try {
    const value: unknown = JSON.parse(line);
    return isFields(value) ? value : {};
  } catch {
    return {};
  }
}

function listIn(value: unknown, name: string): readonly Fields[] {
  const list = isFields(value) ? value[name] : undefined;
  return Array.isArray(list) ? list.filter(isFields) : [];
}

function trustIn(reply: Fields, { rewrite }: HookPrograms): Trust {
  const hooks = listIn(reply['result'], 'data').flatMap(one => listIn(one, 'hooks'));
  const own = hooks.find(({ command }) => typeof command === 'string' && command.includes(rewrite));
  if (!own) return 'absent';
  if (own['enabled'] === false) return 'disabled';
  const { trustStatus } = own;
  if (trustStatus === 'trusted' || trustStatus === 'managed') return 'trusted';
  return trustStatus === 'modified' ? 'modified' : 'untrusted';
}
