// Forking host: every command and every sandbox of the server writes a fork of the workspace (`acode mcp --fork`).

import { policyFrom } from '@acode/sandbox';
import type { Forks, PolicyInput, RunRequest, RunResult } from '@acode/sandbox';
import type { ToolHost } from './host.ts';

// The answer does not wait longer for counts.
const COUNT_MS = 5000;

/**
 * The same host, in a fork: the current one of the workspace, or the one of this name. A model chooses neither: it cannot leave the
 * fork, and no tool applies, discards or undoes it.
 */
export function forkingHost(host: ToolHost, forks: Pick<Forks, 'diff'>, name?: string): ToolHost {
  let fork = name;
  let last: Promise<unknown> = Promise.resolve();
  const inFork = <Request extends { readonly policy?: PolicyInput }>(request: Request): Request => ({
    ...request,
    policy: policyFrom({ ...request.policy, workspace: 'fork', ...(fork === undefined ? {} : { fork }) }),
  });
  const runNow = async (command: Parameters<ToolHost['run']>[0], request: RunRequest): Promise<RunResult> => {
    request.signal?.throwIfAborted();
    const result = await host.run(command, inFork(request));
    // A fresh fork is the server’s from its first command on.
    if (fork === 'new' && result.fork) fork = result.fork.id;
    return result;
  };
  return {
    // One command at a time writes a fork, and clients call tools side by side.
    run: (command, request = {}) => {
      const running = last.then(() => runNow(command, request));
      last = running.catch(() => undefined);
      return running;
    },
    create: async (request = {}) => host.create(inFork(request)),
    explain: (command, request = {}) => host.explain(command, inFork(request)),
    status: () => host.status(),
    network: { request: wanted => host.network.request(wanted) },
    forkNote: async result => (result.fork ? noteOf(result.fork.id, await countsOf(forks, result.fork.id)) : null),
  };
}

async function countsOf(forks: Pick<Forks, 'diff'>, fork: string): Promise<string> {
  const late = new Promise<null>(resolve => void setTimeout(() => resolve(null), COUNT_MS).unref());
  const diff = await Promise.race([forks.diff({ fork, limit: 1 }).catch(() => null), late]);
  if (!diff) return '';
  const { added, changed, deleted } = diff.counts;
  return ` (${added} added, ${changed} changed, ${deleted} deleted so far)`;
}

function noteOf(fork: string, counts: string): string {
  return `Changes are in fork ${fork}${counts}; the user’s own files are unchanged. The user sees them with \`acode fork diff ${fork}\`.`;
}
