// Credentials that the proxy adds: a server that needs one is reached, and its value is nowhere in the sandbox, in what the engine
// tells, in logs or in the audit.

import { createHash, randomBytes } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Logger } from '@acode/sandbox';
import { withEngine, withoutEngines } from '../support/engines.ts';
import { AllowHost, ONE, Site, TWO, mainPlaces, places, withoutNames } from './servers.ts';

const skipped = withoutEngines || withoutNames;
const VARIABLE = 'ACODE_TEST_CORP';
let value = '';
beforeEach(() => {
  value = `corp_${randomBytes(24).toString('hex')}`;
  process.env[VARIABLE] = value;
});
afterEach(() => {
  delete process.env[VARIABLE];
});

/** A server that needs the value, and repeats what it was sent. */
function needs(request: IncomingMessage, response: ServerResponse): void {
  const sent = request.headers.authorization ?? 'nothing';
  if (sent !== `Bearer ${value}`) return void response.writeHead(401).end(`unauthorised: ${sent}\n`);
  response.setHeader('X-Echo', value);
  if (request.url === '/zip') response.writeHead(200, { 'Content-Encoding': 'gzip' }).end(gzipSync(sent));
  else if (request.url === '/away') response.writeHead(302, { Location: `https://${TWO}:1/?was=${value}` }).end();
  else response.end(`answer ${value} ${Buffer.from(`x${value}`).toString('base64')}\n`);
}

/** The credential in a user’s file. */
const corp = (port: number, more: object = {}) => ({
  credentials: { corp: { hosts: [`${ONE}:${port}`], from: { env: VARIABLE }, variable: 'CORP_TOKEN', ...more } },
});

// Prints status, a header and the body of an answer, whatever it is.
const FETCH = `
import os, sys, urllib.request, urllib.error
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *of): return None
def fetch(url, headers={}):
    request = urllib.request.Request(url, headers=headers)
    try: answer = urllib.request.build_opener(Stay).open(request)
    except urllib.error.HTTPError as error: answer = error
    body = answer.read().decode(errors='replace').strip()
    print(answer.status, answer.headers.get('X-Echo'), answer.headers.get('Location'), body, flush=True)
`;

// Where a text is that begins in a known way and has a known hash, in everything that this user can read.
const SEARCH = `
import hashlib, os, re
def find(label, prefix, length, digest):
    found = set()
    def look(place, data):
        for match in re.finditer(re.escape(prefix), data):
            if hashlib.sha256(data[match.start():match.start() + length]).hexdigest() == digest: found.add(place)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("environ", "cmdline"):
            try: look(name, open("/proc/" + pid + "/" + name, "rb").read())
            except OSError: pass
        try:
            memory = open("/proc/" + pid + "/mem", "rb", 0)
            maps = open("/proc/" + pid + "/maps").read().splitlines()
        except OSError: continue
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if "r" not in line.split()[1] or end - start > 1 << 28: continue
            try:
                memory.seek(start)
                look("memory of " + ("itself" if int(pid) == os.getpid() else "others"), memory.read(end - start))
            except (OSError, ValueError, OverflowError): pass
    for top in ("/etc", "/tmp", "/run", "/home", "/workspace", "/.acode", "/var", "/root"):
        for directory, _, files in os.walk(top):
            for name in files:
                try: look("files", open(os.path.join(directory, name), "rb").read(1 << 20))
                except OSError: pass
    print(label, sorted(found), flush=True)
`;
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

function logs(): { readonly logger: Logger; readonly lines: string[] } {
  const lines: string[] = [];
  const add = (fields: object, message: string): void => void lines.push(JSON.stringify([fields, message]));
  return { lines, logger: { debug: add, info: add, warn: add, error: add } };
}

function filesOf(directory: string): string {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile());
  return entries.map(entry => readFileSync(join(entry.parentPath, entry.name), 'latin1')).join('\n');
}

describe.skipIf(skipped).each(places)('on $name, a credential', place => {
  it('is added to the requests of its host, and to no other; any other one is refused there', async () => {
    await using web = await Site.https([ONE], needs);
    await using other = await Site.https([TWO], (request, response) => {
      response.end(`other ${request.headers.authorization ?? 'nothing'}`);
    });
    await using host = await AllowHost.open(place, { roots: [web.pem, other.pem], network: corp(web.port) });
    const [first, second] = [`https://${ONE}:${web.port}`, `https://${TWO}:${other.port}`];
    host.write(
      'fetch.py',
      `${FETCH}
fetch("${first}/plain")
fetch("${first}/placeholder", {"Authorization": "Bearer " + os.environ["CORP_TOKEN"]})
fetch("${first}/away")
fetch("${first}/stolen", {"Authorization": "Bearer of-the-attacker"})
fetch("${first}/zip")
fetch("${second}/")
fetch("${second}/", {"Authorization": "Bearer " + os.environ["CORP_TOKEN"]})`,
    );
    const result = await host.run('python3 fetch.py', [`${ONE}:${web.port}`, `${TWO}:${other.port}`]);
    const stars = '*'.repeat(value.length);
    const lines = result.stdout.trim().split('\n');
    expect(lines[0]).toMatch(
      new RegExp(String.raw`^200 \*{${value.length}} None answer \*{${value.length}} \S*\*{60,}\S*$`),
    );
    expect(lines[1]).toBe(lines[0]);
    expect(lines[2]?.trim()).toBe(`302 ${stars} https://${TWO}:1/?was=${stars}`);
    expect(lines[3]).toMatch(/^403 None None acode refused .*carries a credential/);
    expect(lines[4]).toMatch(/^502 None None acode refused .*compressed its answer/);
    expect(lines[5]).toBe('200 None None other nothing');
    expect(lines[6]).toMatch(/^200 None None other Bearer \w{40}$/);
    expect(web.seen.map(line => line.replace(/^.*\//, '/'))).toEqual(['/plain', '/placeholder', '/away', '/zip']);
    expect(result.network).toContainEqual(expect.objectContaining({ host: ONE, reason: 'foreign-credential' }));
    expect(JSON.stringify(result)).not.toContain(value);
  });
});

describe.skipIf(skipped).each(mainPlaces)('on $name, the value of a credential', place => {
  it('is added behind a base URL as well, which leads to its host and nowhere else', async () => {
    await using web = await Site.https([ONE], needs);
    const network = corp(web.port, { mode: 'base-url', base_url_variable: 'CORP_URL' });
    await using host = await AllowHost.open(place, { roots: [web.pem], network });
    host.write(
      'fetch.py',
      `${FETCH}
base = os.environ["CORP_URL"]
fetch(base + "/plain")
fetch(base + "/host", {"Host": "${TWO}:${web.port}"})
fetch(base + "/host", {"Host": "${ONE}:${web.port}"})
fetch(base + "/stolen", {"X-Api-Key": "of-the-attacker"})
try: fetch("https://${ONE}:${web.port}/direct")
except OSError as error: print(error)`,
    );
    const result = await host.run('python3 fetch.py', [`${ONE}:${web.port}`]);
    const lines = result.stdout.trim().split('\n');
    expect(lines[0]).toMatch(/^200 \*+ None answer \*+ /);
    expect(lines[1]).toMatch(/^421 None None acode refused .*Host header/);
    expect(lines[2]).toMatch(/^421 None None acode refused .*Host header/);
    expect(lines[3]).toMatch(/^403 None None acode refused .*carries a credential/);
    expect(lines[4]).toMatch(/421|Misdirected/);
    expect(web.seen).toEqual([`GET ${ONE}/plain`]);
  });

  it('is nowhere in the sandbox, in what the engine tells, in logs or in the audit; its placeholder is', async () => {
    let told = '';
    await using web = await Site.https([ONE], (request, response) => {
      if (request.url !== '/inspect' || place.level !== undefined) return needs(request, response);
      const signal = AbortSignal.timeout(60_000);
      void withEngine(place, async engine => {
        const list = await engine.containers.list({ labels: ['acode.managed=true'], all: false, signal });
        const details = await Promise.all(list.map(({ id }) => engine.containers.inspect(id, { signal })));
        told = JSON.stringify([list, details]);
      }).then(
        () => needs(request, response),
        () => void response.writeHead(500).end(),
      );
    });
    const { logger, lines } = logs();
    await using host = await AllowHost.open(place, { roots: [web.pem], network: corp(web.port), logger });
    // The search knows the value by its first letters and its hash; the placeholder shows that it finds what is there.
    host.write(
      'search.py',
      `${FETCH}${SEARCH}
import subprocess
fetch("https://${ONE}:${web.port}/plain")
fetch("https://${ONE}:${web.port}/inspect")
other = subprocess.Popen(["sleep", "60"])
find("value", b"corp_", ${value.length}, "${sha256(value)}")
mine = os.environ["CORP_TOKEN"].encode()
find("placeholder", mine[:5], len(mine), hashlib.sha256(mine).hexdigest())
other.kill()`,
    );
    const allow = [`${ONE}:${web.port}`];
    const result = await host.run('echo $CORP_TOKEN > /tmp/kept; python3 search.py', allow);
    expect(result.stdout).toMatch(/^200 \*+ None answer/);
    expect(result.stdout).toMatch(/^value \[\]$/m);
    expect(result.stdout).toMatch(/^placeholder \['environ', 'files', 'memory of itself', 'memory of others'\]$/m);
    expect(web.seen).toHaveLength(2);
    const explained = await host.acode.explain('true', { policy: { network: { allow } } });
    const state = filesOf(join(process.env['XDG_STATE_HOME'] ?? '', 'acode'));
    for (const [text, control] of [
      [JSON.stringify(result), ONE],
      [JSON.stringify(explained), VARIABLE],
      [state, 'python3 search.py'],
      [lines.join('\n'), 'python3'],
      ...(place.level === undefined ? [[told, 'acode.managed']] : []),
    ] as const) {
      expect(text).toContain(control);
      expect(text).not.toContain(value);
    }
    const asked = { policy: { network: { allow } }, env: { CORP_TOKEN: value } };
    await expect(host.acode.run('true', asked)).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    delete process.env[VARIABLE];
    await expect(host.run('true', allow)).rejects.toMatchObject({
      code: 'ACODE-SBX-029',
      message: expect.stringContaining(VARIABLE) as string,
    });
  });
});
