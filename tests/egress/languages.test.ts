// Package managers and runtimes that nobody taught about acode, behind an allow-list at level bubblewrap, where they are this
// machine’s own: pip, Go, Java and cargo against servers of the test’s own. In the long test suite alone: `.ci/long egress`.

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { RequestListener } from 'node:http';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { withoutEngines } from '../support/engines.ts';
import { gitBackend, repository } from './git-server.ts';
import { AllowHost, ONE, Site, TWO, places, withoutNames } from './servers.ts';

const WITHOUT_PROXY = 'unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy';

/** A zip archive with these files. */
function zipped(files: Readonly<Record<string, string>>): Buffer {
  const script =
    'import sys, json, zipfile, io; b = io.BytesIO(); z = zipfile.ZipFile(b, "w"); [z.writestr(k, v) for k, v in json.load(sys.stdin).items()]; z.close(); sys.stdout.buffer.write(b.getvalue())';
  return execFileSync('/usr/bin/python3', ['-c', script], { input: JSON.stringify(files) });
}

/** A compressed tar archive with these files. */
function tarred(files: Readonly<Record<string, string>>): Buffer {
  const script =
    'import sys, json, tarfile, io; b = io.BytesIO(); t = tarfile.open(fileobj=b, mode="w:gz")\nfor k, v in json.load(sys.stdin).items():\n  i = tarfile.TarInfo(k); d = v.encode(); i.size = len(d); t.addfile(i, io.BytesIO(d))\nt.close(); sys.stdout.buffer.write(b.getvalue())';
  return execFileSync('/usr/bin/python3', ['-c', script], { input: JSON.stringify(files) });
}

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

const WHEEL = zipped({
  'served.py': 'answer = "from pip"\n',
  'served-1.0.0.dist-info/METADATA': 'Metadata-Version: 2.1\nName: served\nVersion: 1.0.0\n',
  'served-1.0.0.dist-info/WHEEL': 'Wheel-Version: 1.0\nGenerator: acode\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
  'served-1.0.0.dist-info/RECORD': '',
});
const MODULE = 'module served.acode.test/served\n\ngo 1.19\n';
const CRATE = tarred({
  'served-1.0.0/Cargo.toml': '[package]\nname = "served"\nversion = "1.0.0"\nedition = "2021"\n',
  'served-1.0.0/src/lib.rs': 'pub fn answer() -> &\'static str { "from cargo" }\n',
});
const PAGES: Readonly<Record<string, string | Buffer>> = {
  '/': 'from java',
  '/simple/served/': `<a href="/files/served-1.0.0-py3-none-any.whl#sha256=${sha256(WHEEL)}">served-1.0.0-py3-none-any.whl</a>`,
  '/files/served-1.0.0-py3-none-any.whl': WHEEL,
  '/served.acode.test/served/@v/list': 'v1.0.0\n',
  '/served.acode.test/served/@v/v1.0.0.info': '{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}',
  '/served.acode.test/served/@v/v1.0.0.mod': MODULE,
  '/served.acode.test/served/@v/v1.0.0.zip': zipped({
    'served.acode.test/served@v1.0.0/go.mod': MODULE,
    'served.acode.test/served@v1.0.0/served.go': 'package served\n\nfunc Answer() string { return "from go" }\n',
  }),
  '/crates/served-1.0.0.crate': CRATE,
};

const page: RequestListener = (request, response) => {
  const found = PAGES[request.url ?? ''];
  response.writeHead(found === undefined ? 404 : 200, {
    'content-type': request.url?.startsWith('/simple') === true ? 'text/html' : 'application/octet-stream',
  });
  response.end(found ?? 'not found\n');
};

interface Client {
  readonly name: string;
  /** The line that fetches and prints `from <name>`. */
  readonly line: (url: string) => string;
  /** What it says where the host is not listed. */
  readonly denied: RegExp;
  /** Whether it uses the proxy variables, and so gets the sentence or the status of the proxy. */
  readonly readsVariables: boolean;
}

const JAVA =
  'import java.net.URI; import java.net.http.*; public class Tried { public static void main(String[] a) throws Exception { System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body()); } }';
const GO_MAIN =
  'package main\n\nimport (\n\t"fmt"\n\n\t"served.acode.test/served"\n)\n\nfunc main() { fmt.Println(served.Answer()) }\n';

const CLIENTS: readonly Client[] = [
  {
    name: 'pip',
    line: url =>
      `python3 -m pip install --quiet --no-cache-dir --retries 1 --target /tmp/site --index-url ${url}simple served && PYTHONPATH=/tmp/site python3 -c 'import served; print(served.answer)'`,
    denied: /403|Could not find a version/,
    readsVariables: true,
  },
  {
    name: 'go',
    line: url =>
      `cp -r go /tmp/tried && cd /tmp/tried && GOFLAGS=-mod=mod GOSUMDB=off GOTOOLCHAIN=local GOPATH=/tmp/go GOCACHE=/tmp/go-cache GOPROXY=${url} go run .`,
    denied: /Forbidden|403|no such host/,
    readsVariables: true,
  },
  {
    name: 'java',
    line: url => `java Tried.java ${url}`,
    denied: /UnresolvedAddressException|UnknownHostException|ConnectException/,
    readsVariables: false,
  },
  {
    name: 'cargo',
    line: url =>
      `mkdir /tmp/cargo && printf '[source.crates-io]\\nreplace-with = "own"\\n[source.own]\\nregistry = "${url}index.git"\\n' > /tmp/cargo/config.toml && cp -r cargo /tmp/tried && cd /tmp/tried && CARGO_HOME=/tmp/cargo CARGO_NET_RETRY=0 cargo run --quiet`,
    denied: /403|resolve host|proxy/i,
    readsVariables: true,
  },
];

const withBubblewrap = places.filter(({ level }) => level === 'bubblewrap');

describe.skipIf(withoutEngines || withoutNames).each(withBubblewrap)('at level $name', place => {
  let served = '';
  beforeAll(() => {
    served = mkdtempSync('/var/tmp/acode-served-');
  });
  afterAll(() => rmSync(served, { recursive: true, force: true }));

  /** A server whose index names its own address. */
  async function server(): Promise<{ readonly web: Site; readonly url: string }> {
    let answer: RequestListener = page;
    const web = await Site.https([ONE], (request, response) => answer(request, response));
    const url = `https://${ONE}:${web.port}/`;
    const own = mkdtempSync(join(served, 'own-'));
    const entry = { name: 'served', vers: '1.0.0', deps: [], cksum: sha256(CRATE), features: {}, yanked: false };
    repository(own, 'index', work => {
      mkdirSync(join(work, 'se/rv'), { recursive: true });
      writeFileSync(join(work, 'se/rv/served'), `${JSON.stringify(entry)}\n`);
      writeFileSync(join(work, 'config.json'), JSON.stringify({ dl: `${url}crates/{crate}-{version}.crate` }));
    });
    const backend = gitBackend(own);
    answer = (request, response) =>
      request.url?.startsWith('/index.git/') === true ? backend(request, response) : page(request, response);
    return { web, url };
  }

  async function prepared(roots: readonly string[]): Promise<AllowHost> {
    const host = await AllowHost.open(place, { roots });
    host.write('Tried.java', JAVA);
    host.write('go/go.mod', 'module tried\n\ngo 1.19\n\nrequire served.acode.test/served v1.0.0\n');
    host.write('go/main.go', GO_MAIN);
    host.write(
      'cargo/Cargo.toml',
      '[package]\nname = "tried"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nserved = "1"\n',
    );
    host.write('cargo/src/main.rs', 'fn main() { println!("{}", served::answer()); }\n');
    return host;
  }

  it.each(CLIENTS)(
    '$name fetches what is listed, with and without proxy variables, and says why not otherwise',
    async client => {
      const { web, url } = await server();
      try {
        await using host = await prepared([web.pem]);
        const list = [`${ONE}:${web.port}`];
        const policy = { timeoutMs: 110_000, limits: { memoryBytes: 2 * 1024 ** 3 } };
        const answer = expect.stringContaining(`from ${client.name}`) as string;
        for (const line of [client.line(url), `${WITHOUT_PROXY}; ${client.line(url)}`])
          expect(await host.run(line, list, { policy })).toMatchObject({ exitCode: 0, stdout: answer });
        const denied = await host.run(client.line(url), [`http:${TWO}:80`], { policy });
        expect(denied.exitCode).not.toBe(0);
        expect(denied.timedOut).toBe(false);
        expect(`${denied.stdout}${denied.stderr}`).toMatch(client.denied);
        if (client.readsVariables)
          expect(denied.network).toContainEqual(expect.objectContaining({ host: ONE, reason: 'not-listed' }));
      } finally {
        await web[Symbol.asyncDispose]();
      }
    },
  );
});
