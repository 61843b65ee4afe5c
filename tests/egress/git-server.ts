// A git server of a test’s own: git’s http-backend behind HTTPS.

import { execFileSync, spawn } from 'node:child_process';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';

const CONFIG = ['-c', 'user.name=tester', '-c', 'user.email=tester@acode.test', '-c', 'init.defaultBranch=main'];

/** Runs git on this machine, away from the settings of its user. */
export function git(directory: string, ...words: string[]): string {
  const env = { PATH: process.env['PATH'], GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_SYSTEM: '/dev/null' };
  return execFileSync('git', ['-C', directory, ...CONFIG, ...words], { encoding: 'utf8', env }).trim();
}

/** A bare repository with these files in one commit, that may be pushed to. */
export function repository(directory: string, name: string, fill: (work: string) => void): void {
  const work = join(directory, `${name}.work`);
  execFileSync('mkdir', ['-p', work]);
  git(work, 'init', '--quiet');
  fill(work);
  git(work, 'add', '--all');
  git(work, 'commit', '--quiet', '--message', 'first');
  git(directory, 'clone', '--quiet', '--bare', work, `${name}.git`);
}

/** Answers requests for the repositories below a directory. */
export function gitBackend(directory: string) {
  return (request: IncomingMessage, response: ServerResponse): void => {
    const { pathname, search } = new URL(request.url ?? '/', 'https://backend.test');
    const {
      'content-type': type = '',
      'content-encoding': coding = '',
      'git-protocol': protocol = '',
    } = request.headers;
    const backend = spawn('git', ['http-backend'], {
      env: {
        ...{ PATH: process.env['PATH'], GIT_PROJECT_ROOT: directory, GIT_HTTP_EXPORT_ALL: '1', REMOTE_USER: 'tester' },
        ...{ PATH_INFO: pathname, QUERY_STRING: search.slice(1), REQUEST_METHOD: request.method },
        ...{ CONTENT_TYPE: type, HTTP_CONTENT_ENCODING: coding, GIT_PROTOCOL: String(protocol) },
        ...{ GIT_CONFIG_COUNT: '1', GIT_CONFIG_KEY_0: 'safe.directory', GIT_CONFIG_VALUE_0: '*' },
      },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    backend.stdin.on('error', () => undefined);
    request.pipe(backend.stdin);
    const chunks: Buffer[] = [];
    backend.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
    backend.once('close', () => {
      const all = Buffer.concat(chunks);
      const end = all.indexOf('\r\n\r\n');
      const lines = all.toString('latin1', 0, Math.max(0, end)).split('\r\n');
      for (const line of lines) {
        const [name = '', ...value] = line.split(': ');
        if (name === 'Status') response.statusCode = Number(value.join(': ').slice(0, 3));
        else if (name !== '') response.setHeader(name, value.join(': '));
      }
      response.end(all.subarray(end + 4));
    });
  };
}
