// Real work inside a sandbox: what people build and test with, as an ordinary user, on a read-only root, without a network.

import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestHost, engines, images, withoutEngines } from '../support/engines.ts';

const GREETING = {
  'package.json': JSON.stringify({ name: 'greeting', version: '1.0.0', main: 'index.js' }),
  'index.js': 'module.exports = name => `hello ${name}`;\n',
};

// A project with one dependency, locked to what the cache holds.
function project(tarball: Buffer): Record<string, string> {
  const dependencies = { greeting: '1.0.0' };
  const described = { name: 'project', version: '1.0.0', dependencies };
  const greeting = {
    version: '1.0.0',
    resolved: 'https://registry.npmjs.org/greeting/-/greeting-1.0.0.tgz',
    integrity: `sha512-${createHash('sha512').update(tarball).digest('base64')}`,
  };
  return {
    'package.json': JSON.stringify({ ...described, scripts: { test: 'node --test' } }),
    'package-lock.json': JSON.stringify({
      ...described,
      lockfileVersion: 3,
      requires: true,
      packages: { '': described, 'node_modules/greeting': greeting },
    }),
    'greeting.test.js': `const test = require('node:test');
const assert = require('node:assert');
test('greets', () => assert.equal(require('greeting')('npm'), 'hello npm'));
`,
  };
}

const PYTHON = {
  'test_work.py': `import concurrent.futures, multiprocessing, sqlite3, tempfile, threading, unittest

def square(number):
    return number * number

class Work(unittest.TestCase):
    def test_processes(self):
        with multiprocessing.Pool(2) as pool:
            self.assertEqual(pool.map(square, range(5)), [0, 1, 4, 9, 16])
    def test_threads(self):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            self.assertEqual(list(pool.map(square, range(5))), [0, 1, 4, 9, 16])
    def test_queue(self):
        queue = multiprocessing.Queue()
        child = multiprocessing.Process(target=queue.put, args=(42,))
        child.start()
        self.assertEqual(queue.get(timeout=20), 42)
        child.join()
    def test_database(self):
        with tempfile.NamedTemporaryFile() as file, sqlite3.connect(file.name) as database:
            database.execute('create table t (a)')
            database.execute('insert into t values (1)')
            self.assertEqual(database.execute('select a from t').fetchone(), (1,))

if __name__ == '__main__':
    unittest.main()
`,
};

const C = {
  Makefile: `CFLAGS = -O1 -Wall -pthread
work: work.o sum.o
\tcc $(CFLAGS) -o $@ $^
install: work
\tinstall -D -m 0755 work $(DESTDIR)/bin/work
`,
  'sum.c': 'int sum(int a, int b) { return a + b; }\n',
  'work.c': `#include <pthread.h>
#include <stdio.h>
int sum(int, int);
static void *add(void *total) { *(int *)total = sum(*(int *)total, 21); return 0; }
int main(void) {
  int total = 0;
  for (int i = 0; i < 2; i++) { pthread_t thread; pthread_create(&thread, 0, add, &total); pthread_join(thread, 0); }
  printf("%d\\n", total);
}
`,
};

const NODE = {
  'work.mjs': `import { Worker } from 'node:worker_threads';
import { execFileSync } from 'node:child_process';
import { watch, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
const worker = new Worker('require("node:worker_threads").parentPort.postMessage(6 * 7)', { eval: true });
console.log('worker', await new Promise(resolve => worker.once('message', resolve)));
const bytes = Uint8Array.from([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 6, 1, 4, 0, 65, 42, 11]);
console.log('wasm', (await WebAssembly.instantiate(bytes)).instance.exports.f());
console.log('child', execFileSync(process.execPath, ['-p', '6*7']).toString().trim());
const change = new Promise(resolve => {
  const watcher = watch('/tmp', (_, name) => (watcher.close(), resolve(name)));
});
writeFileSync('/tmp/watched', 'x');
console.log('watch', await change);
const server = createServer((_, reply) => reply.end('served')).listen(0, '127.0.0.1');
await new Promise(resolve => server.once('listening', resolve));
console.log(await (await fetch('http://127.0.0.1:' + server.address().port)).text());
process.exit(0);
`,
};

describe.skipIf(withoutEngines).each(engines)('real work on $name $version', engine => {
  let host: TestHost;
  const write = (files: Readonly<Record<string, string>>, below = '.'): void => {
    for (const [name, content] of Object.entries(files)) {
      const path = host.file(`${below}/${name}`);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, content);
    }
  };
  const work = async (script: string, cwd = '.'): Promise<string> => {
    const { exitCode, stdout, stderr } = await host.acode.run(['sh', '-ec', script], {
      cwd,
      policy: { image: images.debian, timeoutMs: 60_000 },
    });
    expect({ exitCode, refused: /not permitted|EPERM|Bad system call/.exec(stderr)?.[0], stderr }).toMatchObject({
      exitCode: 0,
      refused: undefined,
    });
    return stdout;
  };

  beforeAll(async () => {
    host = await TestHost.open(engine);
    chmodSync(host.workspace, 0o755);
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('npm ci && npm test, from a cache and without a network', async () => {
    write(GREETING, 'package');
    await work('tar -czf greeting.tgz package; npm cache add ./greeting.tgz --cache /workspace/cache');
    write(project(readFileSync(host.file('greeting.tgz'))), 'project');
    const options = '--cache /workspace/cache --offline --no-audit --no-fund --no-update-notifier';
    const output = await work(`npm ci ${options} && npm test; cat node_modules/greeting/index.js`, 'project');
    expect(output).toMatch(/added 1 package/);
    expect(output).toMatch(/pass 1\b/);
    expect(output).toMatch(/fail 0\b/);
    expect(output).toContain('hello');
  });

  it('python3 -m unittest, with processes, threads and a database', async () => {
    write(PYTHON, 'python');
    expect(await work('python3 -m unittest -v 2>&1', 'python')).toMatch(/Ran 4 tests[^]*\nOK\n$/);
  });

  it('a C program with make, its threads, and make install', async () => {
    write(C, 'c');
    const output = await work('make -s -j2 work; ./work; make -s install DESTDIR=/tmp/out; /tmp/out/bin/work', 'c');
    expect(output).toBe('42\n42\n');
  });

  it('git in a scratch directory: init, commit, branch, merge, clone', async () => {
    const output = await work(
      `export GIT_CONFIG_GLOBAL=/tmp/gitconfig
      git config --global user.name t; git config --global user.email t@example.invalid; git config --global init.defaultBranch main
      git init -q /tmp/r; cd /tmp/r; echo 1 > a; git add a; git commit -qm first
      git checkout -qb other; echo 2 > b; git add b; git commit -qm second
      git checkout -q main; echo 3 > c; git add c; git commit -qm third; git merge -q --no-edit other
      git gc -q; git clone -q /tmp/r /tmp/s; git -C /tmp/s log --oneline | wc -l; ls /tmp/s | tr '\\n' ' '`,
    );
    expect(output.trim().split('\n')).toEqual(['4', 'a b c']);
  });

  it('git status, log and diff on the workspace', async () => {
    await using other = await TestHost.open(engine);
    // Made inside as well: git of this machine need not be there.
    const run = (script: string) => other.acode.run(['sh', '-ec', script], { policy: { image: images.debian } });
    await run(
      'export GIT_CONFIG_GLOBAL=/tmp/g; git config --global user.name t; git config --global user.email t@example.invalid; git init -q .; echo one > file; git add file; git commit -qm "the first"',
    );
    const { stdout, stderr, exitCode } = await run(
      'echo two >> file; git status --short; git log --format=%s; git diff | tail -1',
    );
    expect({ stdout, stderr, exitCode }).toEqual({ stdout: ' M file\nthe first\n+two\n', stderr: '', exitCode: 0 });
  });

  it('node with worker threads, WebAssembly, child processes, watchers and servers', async () => {
    write(NODE, 'node');
    expect((await work('node work.mjs', 'node')).trim().split('\n')).toEqual([
      'worker 42',
      'wasm 42',
      'child 42',
      'watch watched',
      'served',
    ]);
  });

  it('tar and cp -a keep modes, times and links', async () => {
    const output = await work(
      `mkdir -p /tmp/a/d; echo x > /tmp/a/f; chmod 640 /tmp/a/f; ln -s f /tmp/a/l; ln /tmp/a/f /tmp/a/h; chmod 2775 /tmp/a/d
      touch -d 2020-01-01T00:00:00Z /tmp/a/f
      tar -C /tmp -cpf /tmp/a.tar a; mkdir /tmp/b; tar -C /tmp/b -xpf /tmp/a.tar; cp -a /tmp/a /tmp/c
      for d in /tmp/b/a /tmp/c; do stat -c '%a %Y %h' $d/f; stat -c %a $d/d; readlink $d/l; done`,
    );
    expect(output.trim().split('\n')).toEqual(['640 1577836800 2', '2775', 'f', '640 1577836800 2', '2775', 'f']);
  });
});
