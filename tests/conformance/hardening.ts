// Hardened from the first run on, seen as effects inside; each denial beside the legitimate thing that still works.

import { chmodSync, mkdirSync, readFileSync, readlinkSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { images } from '../support/engines.ts';
import { openHost } from './host.ts';
import type { ConformanceHost } from './host.ts';
import { itWhere } from './targets.ts';
import type { Target } from './targets.ts';

export function hardeningBehaviours(target: Target): void {
  describe('the sandbox', () => {
    let host: ConformanceHost;
    const sh = (script: string, image = images.busybox) =>
      host.acode.run(['sh', '-c', script], { policy: host.image(image) });
    beforeAll(async () => {
      host = await openHost(target);
    });
    afterAll(() => host[Symbol.asyncDispose]());

    itWhere(target, 'kernel walls')(
      'runs as the caller, with no capability, no new privileges and a system call filter',
      async () => {
        const { stdout } = await sh('id -u; id -g; grep -E "^(Cap|NoNewPrivs|Seccomp:)" /proc/self/status');
        const [uid, gid, ...status] = stdout.trim().split('\n');
        expect([Number(uid), Number(gid)]).toEqual([process.getuid?.(), process.getgid?.()]);
        expect(Object.fromEntries(status.map(line => line.split(/:\s+/)))).toEqual({
          CapInh: '0000000000000000',
          CapPrm: '0000000000000000',
          CapEff: '0000000000000000',
          CapBnd: '0000000000000000',
          CapAmb: '0000000000000000',
          NoNewPrivs: '1',
          Seccomp: '2',
        });
      },
    );

    itWhere(target, 'walls')(
      'has files with secrets empty, in every mode, through links and after a rename',
      async () => {
        const secrets = { '.env': 'TOKEN=1\n', 'sub/deep/server.pem': '-----BEGIN PRIVATE KEY-----\n' };
        mkdirSync(host.file('sub/deep'), { recursive: true });
        for (const [name, content] of Object.entries(secrets)) writeFileSync(host.file(name), content);
        writeFileSync(host.file('.env.example'), 'TOKEN=\n');
        symlinkSync('.env', host.file('link'));
        const read = 'cat .env link sub/deep/server.pem "/proc/self/root$PWD/.env" && cat .env.example';
        const policy = { ...host.image(images.busybox), workspace: 'readonly' } as const;
        const readOnly = await host.acode.run(['sh', '-c', read], { policy });
        expect(readOnly).toMatchObject({ stdout: 'TOKEN=\n', exitCode: 0, masked: ['.env', 'sub/deep/server.pem'] });
        const tries = 'echo x >.env; rm -f .env; mv .env other; ln .env other; cat other';
        const direct = await sh(
          `${read}; (${tries}) 2>/dev/null; mv sub moved && cat moved/deep/server.pem && echo on`,
        );
        expect(direct).toMatchObject({ stdout: 'TOKEN=\non\n', exitCode: 0 });
        const next = await sh('cat moved/deep/server.pem .env');
        expect(next).toMatchObject({ stdout: '', stderr: '', masked: ['.env', 'moved/deep/server.pem'] });
        expect(readFileSync(host.file('.env'), 'utf8')).toBe(secrets['.env']);
        expect(readFileSync(host.file('moved/deep/server.pem'), 'utf8')).toBe(secrets['sub/deep/server.pem']);
        // The control: what the user unmasks can be read.
        const { config } = target.options;
        const unmask = { ...config, sandbox: { ...config?.sandbox, unmask: ['.env', '*.pem'] } };
        await using other = await openHost({ ...target, options: { ...target.options, config: unmask } });
        writeFileSync(other.file('.env'), secrets['.env']);
        const shown = await other.acode.run(['cat', '.env'], { policy: other.image(images.busybox) });
        expect(shown.stdout).toBe(secrets['.env']);
      },
    );

    itWhere(target, 'kernel walls')(
      'cannot write its root, and can write and execute in /tmp, /run and home',
      async () => {
        const denied = await sh('touch /x; touch /etc/x; touch /bin/x');
        expect(denied.stderr.match(/Read-only file system/g)).toHaveLength(3);
        const allowed = await sh(
          'for d in /tmp /run "$HOME"; do printf "#!/bin/sh\\necho ran\\n" > $d/s && chmod +x $d/s && $d/s; done',
        );
        expect(allowed.stdout).toBe('ran\nran\nran\n');
      },
    );

    itWhere(target, 'kernel walls')('has no network but its own loopback', async () => {
      const { stdout } = await sh('tail -n +3 /proc/net/dev | cut -d: -f1; tail -n +2 /proc/net/route | wc -l');
      expect(stdout.trim().split(/\s+/)).toEqual(['lo', '0']);
    });

    itWhere(target, 'kernel walls')(
      'has a network namespace of its own, neither another’s nor the host’s',
      async () => {
        const look = 'readlink /proc/self/ns/net';
        await using beside = await host.acode.spawn(`${look}; cat`, { policy: host.image(images.busybox) });
        const lines = beside.stdout[Symbol.asyncIterator]();
        const other = Buffer.from((await lines.next()).value ?? []).toString();
        const { stdout } = await sh(look);
        expect(stdout).toMatch(/^net:\[\d+\]\n$/);
        expect(new Set([stdout, other, `${readlinkSync('/proc/self/ns/net')}\n`]).size).toBe(3);
      },
    );

    // That the same lines find all of it where there are no walls is shown in local.ts.
    itWhere(target, 'walls')('does not see the host’s processes, name or other directories', async () => {
      const canary = `${host.workspace}.canary`;
      writeFileSync(canary, 'of the host\n');
      const { stdout } = await sh(`ls /proc | grep -c "^[0-9]"; uname -n; cat ${canary} 2>/dev/null; ls /workspace/..`);
      rmSync(canary);
      const [processes, name, ...root] = stdout.trim().split('\n');
      expect(Number(processes)).toBeLessThan(12);
      expect(name).toBe('sandbox');
      expect(root).not.toContain('of the host');
      expect(root).toContain('workspace');
    });

    itWhere(target, 'images')(
      'takes nothing of a hostile image but its files: no entrypoint, no health check, no volume, no preloaded code',
      async () => {
        const { stdout, stderr } = await sh(
          'pwd; env | grep -c -e LD_PRELOAD -e NODE_OPTIONS; echo $FOO; sleep 1.5; ls /data /tmp; grep -c " /data " /proc/mounts; grep " /data " /proc/mounts | cut -d" " -f3',
          images.hostile,
        );
        expect(stderr).toBe('');
        expect(stdout.trim().split('\n')).toEqual(['/workspace', '0', 'bar', '/data:', '', '/tmp:', '1', 'tmpfs']);
      },
    );

    it('is refused as root, by policy', async () => {
      for (const user of ['0:0', '0:1000', '1000:0'] as const) {
        await expect(host.acode.run(['id'], { policy: { user } })).rejects.toMatchObject({
          code: 'ACODE-SBX-010',
          context: { violation: 'PrivilegedUser' },
        });
      }
    });

    itWhere(target, 'any user')(
      'can be another user by number, where the kernel’s view is the mount table alone',
      async () => {
        chmodSync(host.workspace, 0o755);
        expect((await host.acode.run(['id', '-u'], { policy: { user: '4242:4242' } })).stdout).toBe('4242\n');
      },
    );

    itWhere(target, 'walls')('is somebody: the user has a name, a group, a home and a shell', async () => {
      const small = await sh('whoami; id -gn; eval echo ~$(whoami)');
      const [name, group, home] = small.stdout.trim().split('\n');
      expect([name, group]).toEqual([expect.stringMatching(/^[a-z]/), expect.stringMatching(/^[a-z]/)]);
      expect(home).toBe('/home/sandbox');
      const script = `id -un; python3 -c 'import getpass, os, pwd; print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_shell)'
        node -e 'const u = os.userInfo(); console.log(u.username, u.homedir)'`;
      const large = await host.acode.run(['sh', '-c', script], {
        policy: { ...host.image(images.debian), limits: target.workLimits },
      });
      expect(large.stderr).toBe('');
      expect(large.stdout).toBe(`${name}\n${name} /bin/sh\n${name} /home/sandbox\n`);
    });

    it('runs real work: python, node, git and a C build', async () => {
      const script =
        'python3 -c "print(6*7)" && node -e "console.log(6*7)" && git --version >/dev/null && printf "int main(){return 42;}" > $HOME/a.c && gcc -o $HOME/a $HOME/a.c && { $HOME/a; echo $?; }';
      const { stdout, stderr } = await host.acode.run(['sh', '-c', script], {
        policy: { ...host.image(images.debian), limits: target.workLimits },
      });
      expect(stderr).toBe('');
      expect(stdout).toBe('42\n42\n42\n');
    });
  });
}
