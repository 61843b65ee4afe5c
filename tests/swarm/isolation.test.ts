// Two tasks of a swarm at once: neither reaches the other, by files or by a network, and each has its own allow-list.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { ONE, Site, TWO, withoutNames } from '../egress/servers.ts';
import { TestHost, images, mainEngine, withoutEngines } from '../support/engines.ts';
import { gitIn, makeRepository, swarmOn, writeTasks } from './swarms.ts';
import type { TestSwarm } from './swarms.ts';

// Serves its name and leaves marks, waits until the other must have done the same, then looks for what the other left.
const PROBE = `
import json, os, socket, subprocess, threading, time, urllib.request
me = os.environ['ACODE_SWARM_TASK']
def serve(server):
    while True:
        peer, _ = server.accept()
        peer.sendall(me.encode())
        peer.close()
abstract = socket.socket(socket.AF_UNIX)
abstract.bind('\\0probe-' + me)
abstract.listen()
for server in (socket.create_server(('0.0.0.0', 4444)), abstract):
    threading.Thread(target=serve, args=(server,), daemon=True).start()
shared = ['/tmp', '/var/tmp', '/dev/shm', '/run', '/workspace', os.environ.get('HOME', '/tmp'), '/opt/acode-swarm']
for path in shared:
    try: open(path + '/mark-' + me, 'w').close()
    except OSError: pass
time.sleep(9)
def answer(family, address):
    try:
        with socket.socket(family) as client:
            client.settimeout(0.3)
            client.connect(address)
            return client.recv(20).decode()
    except OSError: return None
near = ['127.0.0.1', '127.0.0.2', '172.17.0.1'] + ['172.%d.0.%d' % (net, last) for net in (17, 18) for last in range(2, 8)]
near += subprocess.run(['hostname', '-I'], capture_output=True, text=True).stdout.split()
names = {answer(socket.AF_INET, (host, 4444)) for host in near} | {answer(socket.AF_UNIX, '\\0probe-' + name) for name in ('one', 'two')}
marks = {name for path in shared if os.path.isdir(path) for name in os.listdir(path) if name.startswith('mark-')}
def page(host):
    try: return urllib.request.urlopen('http://%s:PORT/' % host, timeout=5).read().decode().strip()
    except Exception: return 'refused'
def environment(pid):
    try: return open('/proc/%s/environ' % pid).read().split('\\0')
    except OSError: return []
tasks = {word for pid in os.listdir('/proc') if pid.isdigit() for word in environment(pid) if word.startswith('ACODE_SWARM_TASK=')}
found = {'names': sorted(filter(None, names)), 'marks': sorted(marks), 'tasks': sorted(tasks), 'hosts': [page('${ONE}'), page('${TWO}')]}
json.dump(found, open('/workspace/found.json', 'w'))
`;
const foundSchema = z.object({
  names: z.array(z.string()),
  marks: z.array(z.string()),
  tasks: z.array(z.string()),
  hosts: z.array(z.string()),
});

describe.skipIf(withoutEngines || withoutNames)('two tasks at once', { timeout: 180_000 }, () => {
  let host: TestHost;
  let swarm: TestSwarm;
  let web: Site;
  beforeAll(async () => {
    web = await Site.http();
    const config = { sandbox: { images: { default: images.debian }, network: { private_hosts: ['*.acode.test'] } } };
    host = await TestHost.open(mainEngine, { config });
    makeRepository(host.workspace, { submodule: false });
    const task = (allowed: string): object => ({
      title: allowed,
      command: ['python3', '-c', PROBE.replaceAll('PORT', String(web.port))],
      stories: [{ title: 'looks', acceptance: ['rm -f /workspace/mark-*', 'test -s found.json'] }],
      policy: { network: { allow: [`http:${allowed}:${web.port}`] } },
    });
    writeTasks(host.workspace, { one: task(ONE), two: task(TWO) });
    swarm = await swarmOn(host, { parallel: 2, allow: [ONE, TWO].map(name => `http:${name}:${web.port}`) });
    await swarm.run();
  }, 180_000);
  afterAll(async () => {
    await host[Symbol.asyncDispose]();
    await web[Symbol.asyncDispose]();
  });

  const found = (id: string): z.infer<typeof foundSchema> => {
    const { branch, status, detail } = swarm.store.read(swarm.id).tasks.find(task => task.id === id)!;
    expect(status, detail).toBe('completed');
    return foundSchema.parse(JSON.parse(gitIn(host.workspace, 'show', `${branch}:found.json`)));
  };

  it('ran at the same time', () => {
    const events = swarm.events().filter(({ event }) => event === 'task');
    const at = (id: string, status: string): number =>
      events.findIndex(({ task, status: of }) => task === id && of === status);
    const lastBegun = Math.max(at('one', 'running'), at('two', 'running'));
    const firstEnded = Math.min(at('one', 'completed'), at('two', 'completed'));
    expect(lastBegun).toBeGreaterThanOrEqual(0);
    expect(firstEnded).toBeGreaterThan(lastBegun);
  });

  // The control: each finds what it left itself, and reaches the host that it may.
  it.each([
    ['one', ['answer', 'refused']],
    ['two', ['refused', 'answer']],
  ])('find nothing of each other: %s', (id, hosts) => {
    const { names, marks, tasks, hosts: reached } = found(id);
    expect([names, marks, tasks, reached]).toEqual([[id], [`mark-${id}`], [`ACODE_SWARM_TASK=${id}`], hosts]);
  });
});
